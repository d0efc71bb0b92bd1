"""The program inside the sandbox: it runs a student's cells and answers calls. It holds nothing that is secret.

The grader starts it as a script and talks to it over its standard input and output, one line of JSON a message (see
:mod:`wire`): first the settings, then messages with an ``id``, which the answer repeats. ``{"id", "cell", "ours"}``: run
this code, whatever it raises ("ran"); ``{"id", "function", "driver", "arguments"}``: call ("returned" with a ``value``,
"raised" with the name of an ``error``, or "missing").

A student's code runs in this process and can do anything to it, so an answer is only data, which the grader compares
elsewhere. Drivers and :mod:`wire` see numpy, torch and Python as they were before any code of a student ran
(:class:`Kept`); functions written in Python can be changed in place, and whoever walks up the stack finds the driver's own.
"""

import builtins
import json
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))


def set_limits(settings: dict) -> None:  # type: ignore[type-arg]
    """Resource limits first, then an unprivileged user where the sandbox was started by root: neither can be undone."""
    import resource

    for name, value in settings["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if settings["uid"] is not None:
        os.setgroups([])
        os.setresgid(settings["uid"], settings["uid"], settings["uid"])
        os.setresuid(settings["uid"], settings["uid"], settings["uid"])
    if settings["keyctl"] is not None:
        new_keyring(settings["keyctl"])
    # tools for debugging could otherwise read the memory of other processes of this user
    os.umask(0o077)


def new_keyring(keyctl: int) -> None:
    """A session keyring that is new and empty: namespaces leave the grader's own one in reach."""
    import ctypes
    import errno

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(keyctl, 1, None) == -1 and ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), "no new session keyring")  # those two: there are no keys here for anybody


def copy_fonts(folder: str) -> None:
    """matplotlib's list of fonts goes where it looks for it: to make the list takes a second."""
    target = os.environ["MPLCONFIGDIR"]
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with open(os.path.join(folder, name), "rb") as source, open(os.path.join(target, name), "wb") as file:
            file.write(source.read())


def without_magics(text: str) -> str:
    """Lines that only IPython understands become comments, so that line numbers stay."""
    if text.lstrip().startswith("%%"):
        return ""
    lines = []
    for line in text.split("\n"):
        bare = line.lstrip()
        lines.append(line[: len(line) - len(bare)] + "pass  # " + bare if bare[:1] in ("%", "!", "?") else line)
    return "\n".join(lines)


class Kept:
    """The names of Python, numpy and torch as they are now, for code of ours that runs beside a student's.

    ``builtins`` is for a namespace's ``__builtins__``; there ``import numpy`` and ``import torch`` give the kept copies.
    """

    def __init__(self) -> None:
        self.modules: dict = {}  # type: ignore[type-arg]
        self.builtins = dict(vars(builtins))
        self.builtins["__import__"] = self.find
        self.real_import = builtins.__import__

    def keep(self, name: str, *parts: str) -> None:
        """Copy the names of a module and of parts of it, if it is loaded and was not kept before."""
        if name in self.modules or name not in sys.modules:
            return
        copies = [(part, self.copy(sys.modules[f"{name}.{part}"])) for part in parts]
        self.modules[name] = self.copy(sys.modules[name])
        vars(self.modules[name]).update(copies)

    def copy(self, module: types.ModuleType) -> types.ModuleType:
        made = types.ModuleType(module.__name__)
        vars(made).update(vars(module))
        return made

    def find(self, name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
        """``import`` as our code sees it."""
        if name in self.modules:
            return self.modules[name]
        found = self.real_import(name, globals, locals, fromlist, level)
        top = name.partition(".")[0]
        return self.modules[top] if top in self.modules and not fromlist else found  # import numpy.linalg

    def load(self, path: str):  # type: ignore[no-untyped-def]
        """A file of ours, as a module that nobody else can import."""
        module = types.ModuleType(os.path.basename(path).removesuffix(".py"))
        vars(module).update(__builtins__=self.builtins, __file__=path)
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), vars(module))
        return module


def prepare_torch(kept: Kept, wire) -> None:  # type: ignore[no-untyped-def]
    """After our own setup cell that loads torch, wherever an assignment needs it: later a student could put anything there."""
    sys.modules["torch"].set_num_threads(1)
    kept.keep("torch", "_C")
    wire.TENSOR = kept.modules["torch"]._C.TensorBase


def run_cell(text: str, namespace: dict) -> None:  # type: ignore[type-arg]
    """Run a cell; what it raises, an exit included, ends the cell and nothing else."""
    try:
        try:
            code = compile(text, "<cell>", "exec", dont_inherit=True)
        except SyntaxError:
            code = compile(without_magics(text), "<cell>", "exec", dont_inherit=True)
        exec(code, namespace)
    except BaseException:
        pass


def call(message: dict, namespace: dict, kept: Kept, wire) -> dict:  # type: ignore[no-untyped-def,type-arg]
    """Make one call; the answer without its id."""
    try:
        if message["function"] not in namespace:
            return {"kind": "missing"}
        function = namespace[message["function"]]
        arguments = wire.decode(message["arguments"])
        if message["driver"] is not None:
            drivers: dict = {"__name__": "driver", "__builtins__": kept.builtins}  # type: ignore[type-arg]
            exec("import numpy as np\n" + message["driver"]["source"], drivers)
            value = drivers[message["driver"]["name"]](function, *arguments)
        else:
            value = function(*arguments)
        return {"kind": "returned", "value": wire.encode(value)}
    except BaseException as error:
        return {"kind": "raised", "error": type(error).__name__[:40]}


def main() -> None:
    # The pipes move away from 0, 1 and 2, and these lead nowhere, before any code of a student runs.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    settings = json.loads(incoming.readline())
    os.environ |= settings["environment"]
    os.chdir(settings["folder"])
    set_limits(settings)
    copy_fonts(settings["fonts"])
    sys.path += settings["paths"]
    import numpy.linalg
    import numpy.random  # noqa: F401

    kept = Kept()
    kept.keep("numpy", "linalg", "random")
    wire = kept.load(os.path.join(HERE, "wire.py"))
    os.dup2(nowhere, 2)  # until here an error of ours could be read there

    notebook = types.ModuleType("__main__")
    notebook.__dict__["display"] = lambda *values, **options: None
    sys.modules["__main__"] = notebook
    namespace, own = notebook.__dict__, os.getpid()

    def answer(reply: dict) -> None:  # type: ignore[type-arg]
        line = wire.to_line(reply)
        while line:
            line = line[outgoing.write(line) :]

    answer({"id": settings["id"], "kind": "ready"})
    for line in incoming:
        message = wire.from_line(line)
        if "cell" in message:
            run_cell(message["cell"], namespace)
            reply = {"kind": "ran"}
            if message.get("ours") and "torch" in sys.modules:
                prepare_torch(kept, wire)
        else:
            reply = call(message, namespace, kept, wire)
        if os.getpid() != own:  # a cell that forked: the copy does not answer
            os._exit(0)
        answer({"id": message["id"], **reply})


if __name__ == "__main__":
    main()
