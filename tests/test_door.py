"""Every public function and every config goes through the door: found by introspection, so that a new one without a check fails.

``FREE`` lists what is let in unchecked, each with the reason. One row is an argument and a value that it must refuse.
"""

import ast
import dataclasses
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from rlbook_lib import checks, dynamic_programming as dp, monte_carlo as mc, temporal_difference as td
from rlbook_lib.checks import Axes, Offers, Range, check, kinds_of
from rlbook_lib.dqn import DQNConfig, train_dqn
from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.gradient_estimators import policy_gradient_exact, trajectory_gradient
from rlbook_lib.grpo import GRPOConfig, train_grpo
from rlbook_lib.language_model import CharTokenizer, Transformer, TransformerConfig
from rlbook_lib.maze import Maze
from rlbook_lib.policy_gradient import A2CConfig, ReinforceConfig, train_a2c, train_reinforce
from rlbook_lib.ppo import PPOConfig, train_ppo
from rlbook_lib.reward_model import RewardModel, RewardModelConfig, train_reward_model
from rlbook_lib.rlhf import RLHFConfig, train_rlhf
from rlbook_lib.text_tasks import Sorting, preference_pairs
from rlbook_lib.trpo import TRPOConfig, train_trpo
from tests.test_library import LISTED, PACKAGE

# Names that are let in unchecked, and why. "module.Class.*" stands for all methods of a class.
INNER_LOOP = "called in inner loops with data that was checked before"
SHARED = "what learners share among themselves; the public functions before it are the door"
BY_HAND = "may be sparse or needs the sizes of the others: the body says what is wrong, and a test of the module asks"
ANYTHING = "any object at all is right"
DRAWING = "handed from explore to svg, never by a reader"
FREE: dict[str, str] = {
    **dict.fromkeys(
        ["mdp.MDP.successors", "mdp.MDP.transition_reward", "mdp.MDP.sample", "mdp.index", "maze.Maze.step"], INNER_LOOP
    ),
    **dict.fromkeys(["mdp.MDP.__init__(transitions)", "mdp.MDP.__init__(rewards)", "mdp.MDP.__init__(start)"], BY_HAND),
    **dict.fromkeys(["mdp.expected_rewards(transitions)", "mdp.expected_rewards(reward_table)"], BY_HAND),
    **dict.fromkeys(["experience.epsilon_greedy_actions", "experience.cumulative_chances"], INNER_LOOP),
    **{f"experience.{name}": INNER_LOOP for name in ("epsilon_greedy_action", "exploration", "one_of", "mean_of")},
    **dict.fromkeys(["experience.ScheduleTable.*", "experience.TableWalk.*", "experience.EnvironmentWalk.*"], SHARED),
    **dict.fromkeys(
        ["experience.UniformColumns.*", "experience.TransitionTable.*", "experience.PolicySampler.*"], SHARED
    ),
    **dict.fromkeys(["experience.discrete_size", "experience.new_history", "experience.one_or_all"], SHARED),
    "mdp.table_columns": SHARED,
    **{
        f"networks.{name}.{part}": INNER_LOOP
        for name in ("CategoricalPolicy", "GaussianPolicy", "ValueNetwork", "QNetwork")
        for part in (
            "forward",
            "outputs_of",
            "log_prob_of",
            "entropy_of",
            "kl_of",
            "act",
            "sample",
            "sample_torch",
            "numpy",
        )
    },
    **dict.fromkeys(["networks.CategoricalPolicy.for_environment", "networks.GaussianPolicy.for_environment"], SHARED),
    **{
        f"environments.{name}.step": INNER_LOOP
        for name in ("VectorEnvironment", "BatchedCartPole", "TorchCartPole", "GymnasiumEnvironments")
    },
    "environments.cartpole_change": INNER_LOOP,
    **dict.fromkeys(["training.pack(part)", "training.unpack(part)", "training.unpack(state)"], ANYTHING),
    **dict.fromkeys(
        ["replay_buffer.ReplayBuffer.add", "replay_buffer.ReplayBuffer.sample", "dqn.NStepWindow.push"], INNER_LOOP
    ),
    "rollout.SeparatePolicyValue.forward": INNER_LOOP,
    **{
        f"language_model.{name}.{part}": INNER_LOOP
        for name in ("Transformer", "HuggingFaceModel")
        for part in ("forward", "hidden", "predicting", "prefill", "decode")
    },
    "language_model.HuggingFaceModel.head": INNER_LOOP,
    **dict.fromkeys(["language_model.CharTokenizer.encode", "language_model.CharTokenizer.decode"], INNER_LOOP),
    **dict.fromkeys(
        ["language_model.HuggingFaceModel.__init__(model)", "language_model.HuggingFaceModel.__init__(tokenizer)"],
        ANYTHING,
    ),
    **dict.fromkeys(["svg.markup", "svg.describe", "svg.keep_order", "svg.Picture.*"], DRAWING),
    **dict.fromkeys(
        ["explore.Explore.__init__", "explore.LiveExplore.__init__", "explore.StaticFigure.__init__"], DRAWING
    ),
}
CHECKED = [name for name in LISTED if name not in {"needs", "checks"}]


def public_callables(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions, and constructors and methods of classes, that a module defines under a public name."""
    module = import_module(f"rlbook_lib.{name}")
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield f"{name}.{key}", value
        elif (
            inspect.isclass(value)
            and not issubclass(value, BaseException)
            and not is_record(value)
            and not is_config(value)
        ):
            for method, member in vars(value).items():
                function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                    yield f"{name}.{key}.{method}", function


def is_record(cls: type) -> bool:
    """What the library makes itself and hands out: a record's constructor is no door, and a Protocol has none."""
    return (
        hasattr(cls, "_fields")
        or getattr(cls, "_is_protocol", False)
        or (dataclasses.is_dataclass(cls) and not is_config(cls))
    )


def is_config(cls: type) -> bool:
    return cls.__name__.endswith("Config")


def is_free(key: str) -> bool:
    return key in FREE or f"{key.rpartition('.')[0]}.*" in FREE


def parameters(function: Callable[..., Any]) -> list[str]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.name not in ("self", "cls") and p.kind not in several]


def refused(kind: Any) -> list[Any]:
    """Values that an argument of this kind must not let in."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        each = [refused(part) for part in parts if part is not type(None)]
        common = [bad for bad in each[0] if all(any(bad is other for other in more) for more in each[1:])]
        return [bad for bad in common if not (bad is None and type(None) in parts)]
    if origin is Annotated and isinstance(parts[1], Range):
        limits = parts[1]
        ends = [limits.low - 1.0 * (not limits.open_low), limits.high + 1.0 * (not limits.open_high)]
        beyond = [(int(end) if parts[0] is int else end) for end in ends if math.isfinite(end)]
        return [None, WORD, THING, math.nan, math.inf, True, *beyond, *([2.5] if parts[0] is int else [])]
    if origin is Annotated and isinstance(parts[1], Axes):
        return [None, WORD, THING, EMPTY, RAGGED]
    if origin is Annotated and isinstance(parts[1], Offers):
        return [None, THING, 3]
    if origin is Annotated:
        return refused(parts[0])
    if kind in (int, float):
        return [None, WORD, THING, math.nan, True]
    if origin is Literal:
        return [None, WORD, THING, 2.5]
    if kind is bool:
        return [None, WORD, THING, 1]
    if kind is str:
        return [None, THING, 1]
    if origin in (tuple, list, typing.get_origin(typing.Sequence[int])):
        return [None, WORD, THING, 1]
    return [None, THING] if kind is not object else []


WORD, THING, EMPTY, RAGGED = "no such word", object(), [], [[1], [1, 2]]


@pytest.mark.parametrize("name", CHECKED)
def test_every_public_function_has_a_door(name: str) -> None:
    unguarded = [
        key
        for key, f in public_callables(name)
        if parameters(f) and not hasattr(f, "__unchecked__") and not is_free(key)
    ]
    assert not unguarded, f"without @checked: {unguarded}"


@pytest.mark.parametrize("name", CHECKED)
def test_every_argument_says_what_it_is_and_refuses_what_it_is_not(name: str) -> None:
    faults = []
    for key, function in public_callables(name):
        if not hasattr(function, "__unchecked__"):
            continue
        for argument, kind in kinds_of(function).items():
            place = f"{key}({argument})"
            if argument in ("self", "cls") or argument not in parameters(function) or place in FREE:
                continue
            if not (bad := refused(kind)) or kind is Any:
                faults.append(f"{place}: {kind} says nothing that can be checked")
            faults += [
                f"{place} accepts {value!r}" for value in bad if kind is not Any and accepts(argument, value, kind)
            ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", CHECKED)
def test_every_field_of_a_config_says_what_it_is_and_refuses_what_it_is_not(name: str) -> None:
    module, faults = import_module(f"rlbook_lib.{name}"), []
    for cls in vars(module).values():
        if not (inspect.isclass(cls) and is_config(cls) and cls.__module__ == module.__name__):
            continue
        kinds = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            if not refused(kinds[field.name]):
                faults.append(f"{cls.__name__}.{field.name}: {kinds[field.name]} says nothing that can be checked")
            for value in refused(kinds[field.name]):
                try:
                    cls(**{field.name: value})
                    faults.append(f"{cls.__name__}({field.name}={value!r}) is accepted")
                except (TypeError, ValueError) as error:
                    if field.name not in str(error) or "expected" not in str(error):
                        faults.append(f"{cls.__name__}({field.name}={value!r}): {error}")
    assert not faults, "\n".join(faults)


def accepts(argument: str, value: Any, kind: Any) -> bool:
    try:
        check(argument, value, kind)
    except (TypeError, ValueError) as error:
        return argument not in str(error) or "expected" not in str(error)
    return True


def test_nothing_is_free_that_does_not_exist() -> None:
    known = set()
    for name in CHECKED:
        for key, function in public_callables(name):
            known |= {key, key.rpartition(".")[0] + ".*", *(f"{key}({argument})" for argument in parameters(function))}
    assert {place for place in FREE if not place.startswith("networks.")} <= known


# ------------------------------------------------------------------------------------------- rules of the house


def tree(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name}.py").read_text("utf-8"))


@pytest.mark.parametrize("name", CHECKED)
def test_no_module_checks_by_hand(name: str) -> None:
    faults = []
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_check"):
            faults.append(f"line {node.lineno}: {node.name}")
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "isinstance"
            and "bool" in ast.unparse(node.args[1])
        ):
            faults.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert not faults, "the door does that: " + ", ".join(faults)


@pytest.mark.parametrize("name", LISTED)
def test_no_private_name_crosses_a_module(name: str) -> None:
    found = [
        f"line {node.lineno}: {alias.name}"
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlbook_lib")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert not found


@pytest.mark.parametrize("name", LISTED)
def test_no_public_function_has_an_underscore_twin(name: str) -> None:
    functions = {node.name for node in tree(name).body if isinstance(node, ast.FunctionDef)}
    assert not {f for f in functions if f"_{f}" in functions}


@pytest.mark.parametrize(
    "name", ["dynamic_programming", "returns", "dqn", "policy_gradient", "trpo", "ppo", "grpo", "rlhf"]
)
def test_an_algorithm_opens_with_its_settings_or_its_formula(name: str) -> None:
    first = next(node for node in tree(name).body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    is_formula = "Equation:" in (ast.get_docstring(first) or "")
    assert is_formula or first.name.endswith("Config"), f"line {first.lineno}: {first.name}"


# ------------------------------------------------------------------------ what the library hands to its own functions

KNOWN = {
    # one epsilon for each run, beside one another; a reader gives one number
    "monte_carlo: experience.epsilon_greedy_probabilities(epsilon) ndarray float64 -> TypeError",
    # one run alone counts in plain numbers
    "monte_carlo: monte_carlo.running_mean(count) int -> ndarray int64",
}


def short_runs() -> None:
    """A few updates of every learner."""
    mdp, uniform = Maze("L2", slip=0.2).to_mdp(0.9), np.full((6, 4), 0.25)
    for solve in (dp.value_iteration, dp.policy_iteration, dp.modified_policy_iteration):
        policy_gradient_exact(mdp, np.zeros((6, 4)) + solve(mdp).values[:, None])
    for learn in (td.q_learning, td.sarsa, td.expected_sarsa):
        for env, runs in ((mdp, 2), (mdp, 1), (Maze("L2"), 1)):
            learn(env, episodes=3, gamma=0.9, alpha=0.1, epsilon=0.1, seed=0, runs=runs, history=True)
    for runs in (1, 2):
        for predict in (mc.monte_carlo_prediction, partial(td.td_prediction, alpha=0.1)):
            predict(mdp, uniform, episodes=3, gamma=0.9, seed=0, runs=runs)
        mc.monte_carlo_control(mdp, episodes=3, gamma=0.9, epsilon=0.1, seed=0, runs=runs)
    trajectory_gradient(mdp, np.zeros((6, 4)), 2, "gae", lam=0.9, baseline="none")
    size = dict(total_steps=256, copies=4, hidden=(8,))
    for env in ("CartPole-v1", "Pendulum-v1"):
        train_ppo(env, PPOConfig(**size, steps=32), seed=0)
        train_trpo(env, TRPOConfig(**size, steps=32), seed=0)
        train_a2c(env, A2CConfig(**size), seed=0)
    for psi, baseline in (("return", "none"), ("reward_to_go", "mean"), ("reward_to_go", "value")):
        train_reinforce("CartPole-v1", ReinforceConfig(total_steps=99, episodes=2, psi=psi, baseline=baseline), seed=0)
    train_dqn("CartPole-v1", DQNConfig(**size, learning_starts=64, batch_size=32, n_step=3), seed=0)
    task = Sorting()
    model = Transformer(CharTokenizer(task.alphabet), TransformerConfig(width=16, layers=1, heads=2), seed=0)
    pairs = preference_pairs(model, task, 16, seed=0)
    train_sft(model, task, SFTConfig(updates=2, batch_size=8), seed=0)
    train_reward_model(RewardModel(model), pairs, RewardModelConfig(epochs=1, batch_size=8), seed=0)
    train_rlhf(model, task, RLHFConfig(updates=2, batch_size=8, minibatches=2), seed=0)
    train_grpo(model, task, GRPOConfig(updates=2, prompts=4, group=4, minibatches=2, beta=0.1), seed=0)


def test_calls_from_inside_hand_over_what_the_door_would_make_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass beside the door, so a list, an int or an array among tensors would reach the formula as it is."""
    found: set[str] = set()

    def spy(look: Callable[..., Any], call: tuple[Any, ...]) -> Any:
        door = sys._getframe(2)
        caller = str(door.f_back and door.f_back.f_globals["__name__"])
        came = call[0] if look is together else {call[0]: call[1]}
        inside = door.f_code.co_name == "guarded" and caller.startswith("rlbook_lib.")
        try:
            result = look(*call)
        except (TypeError, ValueError) as error:
            if not inside:
                raise
            became, result = dict.fromkeys(came, error), came if look is together else call[1]
        else:
            became = result if look is together else {call[0]: result}
        for name in (name for name in came if inside and came[name] is not became[name]):
            kinds = [f"{type(x[name]).__name__} {getattr(x[name], 'dtype', '')}".strip() for x in (came, became)]
            same = kinds[0] == kinds[1] and bool(np.all(np.asarray(came[name] == became[name])))
            number = isinstance(came[name], float) and came[name] == became[name]  # numpy's is one
            if not (same or number) and kinds != ["tuple", "list"]:  # either is a sequence
                called = f"{door.f_locals['function'].__module__}.{door.f_locals['function'].__qualname__}({name})"
                found.add(f"{caller}: {called} {' -> '.join(kinds)}".replace("rlbook_lib.", ""))
        return result

    one, together = checks.check, checks._check_arrays
    monkeypatch.setattr(checks, "LIBRARY", "nobody is inside")
    monkeypatch.setattr(checks, "check", lambda *call: spy(one, call))
    monkeypatch.setattr(checks, "_check_arrays", lambda *call: spy(together, call))
    short_runs()
    assert found <= KNOWN, "\n".join(sorted(found - KNOWN))
