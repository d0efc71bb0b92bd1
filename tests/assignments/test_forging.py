"""Verdicts belong to the grader: whatever a student replaces in its own process, no known mistake scores more."""

import functools

import numpy as np
import pytest

from assignments.grader import cells, checking, notebooks, questions, wire
from assignments.grader.marking import mark
from assignments.grader.preparing import prepare
from assignments.grader.questions import Case, Question, as_solution
from assignments.grader.sandbox import Limits, Stopped, Student

NAMES = questions.names()
SEED = 7

# What a verdict could be made of answers as the student likes it.
NUMPY = """
import numpy as np
for name in ("array_equal", "array_equiv", "allclose", "isclose"):
    for module in (np, np._core.numeric):
        setattr(module, name, lambda *values, **options: True)
np.may_share_memory = np.shares_memory = lambda *values, **options: False
"""
TORCH = """
import sys
if "torch" in sys.modules:
    import torch
    torch.equal = torch.allclose = torch.all = torch.any = lambda *values, **options: True
    torch.Tensor.equal = torch.Tensor.allclose = torch.Tensor.all = torch.Tensor.any = lambda *values, **options: True
    torch.Tensor.requires_grad = property(lambda tensor: False)
    torch.Tensor.grad_fn = property(lambda tensor: None)
"""
BUILTINS = """
import builtins
builtins.bool = builtins.all = builtins.any = lambda *values, **options: True
"""
FALSE = BUILTINS.replace("True", "False")

# Numbers that a verdict could be made of.
NUMBERS = """
import builtins
import numpy as np
first = lambda *values, **options: values[0]
zero = lambda *values, **options: 0
builtins.abs = builtins.sum = zero
builtins.min = builtins.max = builtins.sorted = first
builtins.round = first
np.abs = np.absolute = np.linalg.norm = zero
np.round = np.around = np.sort = np.unique = first
"""

# Arguments as they were: what a function has changed in place is handed back unchanged.
UNCHANGED = """
import copy, sys
import numpy as np
first_seen = {}
def before(value):
    return first_seen.setdefault(id(value), (value, copy.deepcopy(value)))[1]  # kept, so that no other gets its id
np.asarray = np.array = np.ascontiguousarray = np.copy = lambda value, *more, **options: before(value)
if "torch" in sys.modules:
    import torch
    torch.Tensor.detach = torch.Tensor.cpu = torch.Tensor.numpy = lambda tensor: before(tensor)
"""

# Every answer that says no says yes, and the other way round; the encoder is looked for in all of memory.
ENCODER = """
import gc, sys, types
def agree(value):
    if value is False or value is True:
        return FLAG
    if isinstance(value, dict):
        return {key: agree(item) for key, item in value.items()}
    return [agree(item) for item in value] if isinstance(value, (list, tuple)) else value
for module in [one for one in gc.get_objects() if isinstance(one, types.ModuleType)] + [sys.modules.get("wire")]:
    if hasattr(module, "WireError") and hasattr(module, "encode"):
        module.encode = lambda value, depth=0, encode=module.encode: encode(agree(value), depth)
"""
# What a function has been given is handed back as it was, however the call has changed it: by a torch of the student's own
# where the assignment has none, and by the coder of Python's json.
GIVEN = """
import base64, json, sys, types
import numpy as np
given = []
def remembered(function):
    def call(*arguments):
        given[:] = [(one, one.copy()) for one in arguments if isinstance(one, np.ndarray)]
        return function(*arguments)
    return call
"""
OWN_TORCH = (
    GIVEN
    + """
class Base(type):
    __instancecheck__ = lambda kind, value: type(value) is np.ndarray
class Tensor(metaclass=Base):
    detach = cpu = staticmethod(lambda value: value)
    numpy = staticmethod(lambda value: next((old for one, old in given if one is value), value))
torch = types.ModuleType("torch")
torch._C, torch.TensorBase, torch.set_num_threads = torch, Tensor, print
sys.modules["torch"] = sys.modules["torch._C"] = torch
"""
)
CODER = (
    GIVEN
    + """
class Coder:
    def encode(self, message, real=json._default_encoder):
        text = real.encode(message)
        for one, old in given:
            text = text.replace(*(base64.b64encode(array.tobytes()).decode() for array in (one, old)))
        return text
json._default_encoder = Coder()
"""
)
FORGERIES = {
    "numpy agrees": NUMPY,
    "torch agrees": TORCH,
    "Python agrees": BUILTINS,
    "Python denies": FALSE,
    "numbers": NUMBERS,
    "unchanged": UNCHANGED,
    "always yes": ENCODER.replace("FLAG", "True"),
    "always no": ENCODER.replace("FLAG", "False"),
}


@functools.cache
def honest(name, number):
    """A question of an assignment, prepared, and what its known mistakes score: the same beside every forgery."""
    prepared = prepare(questions.load(name).questions[number], SEED)
    return prepared, [checking.mark_solution(prepared, one.solution).points for one in prepared.question.mistakes]


def gains(box, name, forgery, chosen=None):
    """The known mistakes that score more with the forgery than without it, as sentences."""
    assignment = questions.load(name)
    setup = cells.given(assignment, notebooks.read(assignment.notebook)).setup
    limits = Limits(3000, 20, assignment.memory_mb)
    with Student(box, setup, [forgery, ""], limits) as student:
        for place, question in enumerate(assignment.questions):
            if chosen is not None and question.name not in chosen:
                continue
            prepared, points = honest(name, place)
            for number, (mistake, usual) in enumerate(zip(question.mistakes, points, strict=True)):
                student.cells[1] = f"{question.function} = None\n{as_solution(question, mistake.solution)}"
                student.left_out.clear()
                if student.session is not None and student.session.process:
                    try:
                        student.session.ask({"cell": student.cells[1]}, 20)
                    except Stopped:
                        student.session.close()
                forged = mark(prepared, student.call)
                if forged.points > usual:
                    yield f"{name} {question.name} mistake {number}: {usual:g} -> {forged.points:g} of {question.points:g}: {mistake.says}"


def look(function):
    """A driver that computes what no driver should, to see which names it gets."""
    import numpy as np

    return [abs(-2), bool(0), np.linalg.norm([3.0, 4.0]), np.round(1.6), int(np.random.default_rng(0).integers(5, 6))]


REPLACED = """
import builtins
import numpy as np
builtins.abs = builtins.bool = np.round = np.linalg.norm = np.random.default_rng = lambda *values: 9
def f(): pass
"""


def test_a_driver_sees_the_names_as_they_were(box):
    question = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], (), driver=look)
    with Student(box, [], [REPLACED], Limits()) as student:
        assert student.call(question, Case((), "part")).value == [2, False, 5.0, 2.0, 5]


def test_the_wire_cannot_be_imported(box):
    text = "def f():\n    import sys\n    try:\n        import wire\n    except ModuleNotFoundError:\n        return 'wire' in sys.modules\n    return True"
    question = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], ())
    with Student(box, [], [text], Limits()) as student:
        assert student.call(question, Case((), "part")).value is False


def test_a_tensor_is_handed_over_as_it_is(monkeypatch):
    import torch

    monkeypatch.setattr(wire, "TENSOR", torch._C.TensorBase)
    for name in ("detach", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda tensor: torch.zeros(3))
    np.testing.assert_array_equal(wire.decode(wire.encode(torch.arange(3.0, requires_grad=True))), [0, 1, 2])


def test_the_first_mistakes_gain_nothing_from_forged_verdicts(box):
    assert not list(gains(box, "02_td", NUMPY, ("q2",)))


@pytest.mark.parametrize("forgery", [OWN_TORCH, CODER], ids=["own torch", "coder"])
def test_changed_arguments_are_not_handed_over_as_they_were(box, monkeypatch, forgery):
    made = as_solution
    monkeypatch.setitem(
        globals(),
        "as_solution",
        lambda question, wrong: f"{made(question, wrong)}{question.function} = remembered({question.function})",
    )
    assert not list(gains(box, "01_mdps", forgery, ("q3",)))


@pytest.mark.slow
@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("name", NAMES)
def test_no_mistake_gains_from_what_is_replaced(box, name, forgery):
    assert not list(gains(box, name, FORGERIES[forgery]))
