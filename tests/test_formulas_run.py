"""The formula that is tested is the formula that runs: every function of the equation index is used, or says why not.

Used means named by the library's own code outside of itself, by an open cell of a chapter, or by a cell that makes a
figure. Found in the source: names as their imports resolve them; methods by their name alone.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import rlbook_lib
from test_library import LISTED

PACKAGE = Path(rlbook_lib.__file__).parent
CHAPTERS = PACKAGE.parent / "chapters"
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

# Left to the reader, and why. Who makes one of these run deletes its line.
BY_HAND: dict[str, str] = {
    "gradient_estimators.causality": "a mean over all trajectories, exact from the model; trainers rely on its zeros",
    "gradient_estimators.expected_score": "a mean that is zero: a folded check of chapter 6 asserts it",
    "gradient_estimators.gradient_estimate": "from given trajectories; trainers differentiate the loss that has this gradient",
    "grpo.group_baseline_factor": "a factor that says what the group mean does to the gradient; nothing is divided by it",
    "language_model.token_log_probs": "from a full forward pass; trainers keep what the sampler or the loss computes",
    "returns.gae_mixture": "the same numbers as gae by their definition, at quadratic cost; the derivation's second way",
    "reward_model.preference_probability": "the loss takes its logarithm in one step, exact where this rounds to 0 or 1",
    "trpo.performance_difference": "the lemma, exact from the model; trainers use the surrogate it leads to",
}


def indexed_in(tree: ast.Module, module: str) -> Iterator[tuple[str, ast.AST]]:
    """Functions, and methods as Class.method, whose docstring has a line ``Equation:``."""
    for node in tree.body:
        members = [(f"{node.name}.", part) for part in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        for owner, part in members:
            if isinstance(part, ast.FunctionDef) and "Equation:" in (ast.get_docstring(part) or ""):
                yield f"{module}.{owner}{part.name}", part


def named_in(tree: ast.Module, module: str) -> set[str]:
    """The library's functions that some code names, and ``.method`` for every attribute."""
    home = {n.name: f"{module}.{n.name}" for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rlbook_lib":
            for alias in node.names:
                if node.module == "rlbook_lib":
                    modules[alias.asname or alias.name] = alias.name
                else:
                    home[alias.asname or alias.name] = f"{node.module.partition('.')[2]}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("rlbook_lib.") and alias.asname:
                    modules[alias.asname] = alias.name.partition(".")[2]
    found = set()

    def walk(node: ast.AST, inside: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not inside:
            inside = home.get(node.name, "")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and home.get(node.id, inside) != inside:
            found.add(home[node.id])
        if isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
            if isinstance(node.value, ast.Name) and node.value.id in modules:
                found.add(f"{modules[node.value.id]}.{node.attr}")
        for child in ast.iter_child_nodes(node):
            walk(child, inside)

    walk(tree, "")
    return found


def shown_code(path: Path) -> str:
    """The code of a chapter's open cells and of those that make a figure; imports of every cell, to resolve names."""
    shown = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("%"):
            continue
        makes_figure = "explore(" in source or "show(" in source
        if makes_figure or not FOLDED & set(cell["metadata"].get("tags", [])):
            shown.append(source)
        else:
            tree = ast.parse(source)
            shown += [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(shown)


def unused_formulas() -> set[str]:
    trees = {name: ast.parse((PACKAGE / f"{name}.py").read_text("utf-8")) for name in LISTED}
    used = set().union(*(named_in(tree, name) for name, tree in trees.items()))
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        used |= named_in(ast.parse(shown_code(path)), "")
    indexed = {key for name, tree in trees.items() for key, _ in indexed_in(tree, name)}
    assert len(indexed) > 100
    return {key for key in indexed if key not in used and not (key.count(".") == 2 and f".{key.split('.')[2]}" in used)}


def test_every_indexed_formula_runs_or_says_why_not() -> None:
    assert sorted(unused_formulas() - BY_HAND.keys()) == []


def test_nothing_says_why_not_that_runs_or_is_gone() -> None:
    assert sorted(BY_HAND.keys() - unused_formulas()) == []


def test_names_are_resolved() -> None:
    code = "from rlbook_lib import ppo as p\nfrom rlbook_lib.returns import gae as g\n\ndef f():\n    return f() + g(p.clip())\n"
    assert named_in(ast.parse(code), "here") == {"returns.gae", "ppo.clip", ".clip"}
    assert "here.f" in named_in(ast.parse(code + "\nf()\n"), "here")
