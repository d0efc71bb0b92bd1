"""Tests of the library as a whole: its order, what an import costs, and that public names are documented and typed."""

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rlbook_lib

PACKAGE = Path(rlbook_lib.__file__).parent
LISTED = re.findall(r"^- ``(\w+)``", rlbook_lib.__doc__, re.MULTILINE)
DRAWING = {"explore", "figures"}  # the modules that may load matplotlib
LEARNING = (
    set(LISTED[LISTED.index("devices") :]) - DRAWING - {"divergences", "evaluation"}
)  # the modules that may load torch


def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name}.py").read_text("utf-8"))


def imported_modules(name: str) -> set[str]:
    """The library's modules that a module names in an import, wherever the import stands."""
    found = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "rlbook_lib":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("rlbook_lib.")}
    return found


def public_functions(name: str) -> list[tuple[str, object]]:
    """Functions and methods that a module defines under a public name."""
    module, found = import_module(f"rlbook_lib.{name}"), []
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            found.append((key, value))
        if inspect.isclass(value):
            members = [(f"{key}.{k}", v) for k, v in vars(value).items() if not k.startswith("_")]
            found += [(k, v) for k, v in members if inspect.isfunction(v)]
    return found


def test_the_list_names_every_module():
    assert sorted(LISTED) == sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("name", LISTED)
def test_a_module_imports_only_modules_above_it(name):
    assert imported_modules(name) <= set(LISTED[: LISTED.index(name)])


def defined_names(name: str) -> set[str]:
    """What a module defines itself at its top level: functions, classes, constants."""
    found: set[str] = set()

    def walk(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            elif isinstance(node, ast.If):
                walk(node.body + node.orelse)

    walk(tree_of(name).body)
    return found


def python_of(path: Path) -> list[str]:
    """The code of a module, or of a notebook's cells, and what is shown as Python in a text."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return [text]
    cells = json.loads(text)["cells"] if path.suffix == ".ipynb" else []
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"] if cells else [text]
    return [
        code,
        *(shown for one in texts for shown in re.findall(r"^```python\n(.*?)^```", one, re.DOTALL | re.MULTILINE)),
    ]


def test_every_name_is_imported_from_its_home():
    root, faults = PACKAGE.parent, []
    homes = {name: defined_names(name) for name in LISTED}
    patterns = [
        "rlbook_lib/*.py",
        "chapters/*.ipynb",
        "chapters/*.md",
        "*.md",
        "assignments/*.md",
        "assignments/*/*.ipynb",
        "tests/**/*.py",
        "tools/**/*.py",
        "_ext/*.py",
    ]
    paths = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    for path, code in ((path, code) for path in paths for code in python_of(path)):
        try:
            nodes = list(ast.walk(ast.parse(code)))
        except SyntaxError:  # a task that students complete
            continue
        modules: dict[str, str] = {}
        for node in nodes:
            module = (getattr(node, "module", None) or "").partition("rlbook_lib.")[2]
            if isinstance(node, ast.ImportFrom) and module in homes:
                faults += [f"{path.name}: {module}.{a.name}" for a in node.names if a.name not in homes[module]]
            elif isinstance(node, ast.ImportFrom) and node.module == "rlbook_lib":
                modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in homes}
        for node in (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            if node.value.id in modules and not node.attr.startswith("_"):
                module = modules[node.value.id]
                faults += [f"{path.name}: {module}.{node.attr}"] if node.attr not in homes[module] else []
    assert faults == []


@pytest.mark.parametrize("name", LISTED)
def test_a_module_has_a_test_file(name):
    assert (Path(__file__).parent / f"test_{name}.py").is_file()


@pytest.mark.parametrize("name", LISTED)
def test_public_functions_are_documented_and_typed(name):
    for key, function in public_functions(name):
        assert inspect.getdoc(function), f"{key} has no docstring"
        signature = inspect.signature(function)
        untyped = [
            p for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")
        ]
        assert not untyped, f"{key}: no type for {[p.name for p in untyped]}"
        assert signature.return_annotation is not signature.empty, f"{key}: no type for what it returns"


# ------------------------------------------------------------------------------------------------ rules of the house


@pytest.mark.parametrize("name", LISTED)
def test_a_module_is_read_in_one_sitting(name):
    assert len((PACKAGE / f"{name}.py").read_text("utf-8").splitlines()) <= 1000


@pytest.mark.parametrize("name", [name for name in LISTED if name != "checks"])
def test_calls_inside_the_library_read_as_formulas(name):
    """No wrapper around a function, and no way past the door but the one that the door knows."""
    words = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree_of(name))}
    assert not words & {"unchecked", "__unchecked__", "__wrapped__"}


@pytest.mark.parametrize("name", LISTED)
def test_a_config_says_beside_each_field_what_it_is(name):
    """One style: ``#:`` on the field's line, or above it."""
    lines = ["", *(PACKAGE / f"{name}.py").read_text("utf-8").splitlines()]
    configs = [node for node in tree_of(name).body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")]
    for field in (node for config in configs for node in config.body if isinstance(node, ast.AnnAssign)):
        beside = [line for line in lines[field.lineno : field.end_lineno + 1] if "  #: " in line]
        assert beside or lines[field.lineno - 1].strip().startswith("#:"), (
            f"line {field.lineno}: {ast.unparse(field.target)}"
        )


@pytest.mark.parametrize("name", LISTED)
def test_what_iterates_or_trains_takes_its_seed_by_name(name):
    for key, function in public_functions(name):
        seed = inspect.signature(function).parameters.get("seed") if key.startswith(("iterate_", "train_")) else None
        assert seed is None or seed.kind is seed.KEYWORD_ONLY, key


def test_importing_the_library_is_cheap():
    names = [f"rlbook_lib.{name}" for name in LISTED if name not in DRAWING | LEARNING]
    code = f"import sys\nimport {', '.join(names)}\nprint(sorted({{'torch', 'matplotlib', 'scipy.sparse'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", LISTED)
def test_what_stands_beside_a_field_has_no_colon(name):
    """The reference would take the words before it for the field's type."""
    remarks = re.findall(r"#: (.+)", (PACKAGE / f"{name}.py").read_text("utf-8"))
    assert [remark for remark in remarks if re.search(r"\w\)?: ", remark)] == []


TOOLS = sorted(path for path in (PACKAGE.parent / "tools").rglob("*.py") if "old_python" not in path.parts)


@pytest.mark.parametrize("path", TOOLS, ids=[path.stem for path in TOOLS])
def test_what_a_tool_takes_from_the_book_is_there(path):
    """Most tools run for minutes, and some only in the long tests: a name that moved is seen here."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("assignments", "rlbook_lib"):
            exec(ast.unparse(node), {})
