"""What every trainer shares: one record per update, a loop, checkpoints, evaluation (chapter 5 on).

A trainer is a generator, ``iterate_X(env, config, *, seed, state=None)``. It yields an ``Update`` after each
update. ``train`` runs it out and collects the curves, from the beginning or from a checkpoint. ``env`` is a Gymnasium
id, a constructor, or a vector environment (whose number of copies then counts); a ``config`` of None takes the
defaults; ``seed`` decides everything; ``state`` is from a record of a run with the same config and seed, to go on from
there. A ValueError says what is wrong: a space of another kind, a NaN from the environment, a state of another run. A
loss that is not finite is a TrainingError.

A checkpoint holds tensors and plain data, nothing that runs code when it is read. It replaces the previous
one in a single step of the file system: whenever the process dies, a whole file is there. A run that goes on
from a checkpoint ends bit for bit where it would have ended undisturbed, on the same machine with as many
threads.

A generator that is given the state of a finished run yields its last record once more, without metrics: the
policy is there, and the curves end where they did.

A metric that has no value yet, such as the mean return before the first episode has ended, is left out of its
record. NaN always means that something broke, and stops the run.
"""

from __future__ import annotations

import copy
import math
import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam

from rlbook_lib.checks import Actor, Count, Natural, Network, NotNegative, Positive, Seed, Settings, UnitInterval
from rlbook_lib.checks import checked
from rlbook_lib.environments import opened

State = dict[str, Any]


class TrainingError(RuntimeError):
    """A training run that cannot go on: a metric or a parameter is NaN, for example."""


# ---------------------------------------------------------------------- records


@dataclass(frozen=True)
class Update:
    """What a trainer yields after each update."""

    update: int  #: its number, counted from 1
    env_steps: int  #: real transitions seen so far, all copies together
    metrics: dict[str, float]  #: name to number; a metric without a value yet is left out
    policy: Any  #: the policy as it is now, the live object, which goes on learning
    #: gives the trainer's whole state as tensors and plain data, copied; to be called before the next update
    state: Callable[[], State]


@dataclass(frozen=True)
class TrainingResult:
    """What a training run leaves."""

    policy: Any  #: the trained policy
    #: one array per metric, (updates,), and "update" and "env_steps"; NaN where a metric had no value
    history: dict[str, NDArray[np.float64]]
    updates: int  #: number of the last update
    env_steps: int  #: real transitions seen
    state: Callable[[], State] = field(repr=False)  #: gives the trainer's state after the last update


@dataclass
class Run:
    """What a trainer carries from one update to the next. The fields that it adds to these are what a checkpoint holds.

    Such a part is a network, an optimizer, a random generator, a plain number, or has ``state`` and ``load_state``.
    """

    config: Any  #: the trainer's settings, with ``updates`` or ``total_steps``, after which the run ends
    seed: int
    policy: Any  #: what the records hand out, the live object
    update: int = field(default=0, init=False)
    env_steps: int = field(default=0, init=False)

    def _parts(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)[len(fields(Run)) :]}

    @property
    def ended(self) -> bool:
        """Whether the run is as long as its settings say."""
        counted, length = _length(self.config)
        return bool(getattr(self, counted) >= length)

    def go_on(self, state: State | None) -> Iterator[Update]:
        """Continue from where a state was taken; None is the beginning. A run that had ended tells its last record again."""
        if state is not None:
            _require_own_state(state, self.config, self.seed)
            parts = self._parts()
            if missing := {"update", "env_steps", *parts} - state.keys():
                raise ValueError(
                    f"state is without {', '.join(sorted(missing))}; expected what this version of {type(self).__name__} saves"
                )
            self.update, self.env_steps = state["update"], state["env_steps"]
            for name, part in parts.items():
                setattr(self, name, unpack(part, state[name]))
        if self.ended:
            yield self._told({})

    def state(self) -> State:
        """Everything needed to go on, as tensors and plain data."""
        counts = {"seed": self.seed, "update": self.update, "env_steps": self.env_steps}
        parts = {name: pack(part) for name, part in self._parts().items()}
        return {"config": _plain_settings(self.config), **counts, **parts}

    def record(self, metrics: dict[str, float], steps: int) -> Update:
        """Count one update of so many steps, and tell of it."""
        self.update, self.env_steps = self.update + 1, self.env_steps + steps
        return self._told(metrics)

    def _told(self, metrics: dict[str, float]) -> Update:
        return Update(self.update, self.env_steps, metrics, self.policy, self.state)


def _length(config: Any) -> tuple[Literal["update", "env_steps"], float]:
    """What a run counts, and how far: its updates where the config has a number of them, else its steps."""
    if hasattr(config, "updates"):
        return "update", config.updates
    return "env_steps", getattr(config, "total_steps", math.inf)


# ---------------------------------------------------------------------- the loop


class RunOptions(TypedDict, total=False):
    """What every ``train_X`` takes by name beside its own arguments."""

    state: State | str | Path | None  #: to go on from, or its file; None takes ``checkpoint`` if it is there
    progress: bool  #: show a progress bar; False if not given
    stop: Callable[[Update], bool] | None  #: called with each record; True ends the run
    checkpoint: str | Path | None  #: file to save the state in, at times and at the end; None saves nothing
    checkpoint_every: Count  #: updates between two savings; 10 if not given


@checked
def train(
    begin: Callable[..., Iterator[Update]], config: Settings, *, seed: Seed, **options: Unpack[RunOptions]
) -> TrainingResult:
    """What every ``train_X`` does: run a trainer out, from the start or from a saved state, and collect its metrics.

    Ctrl-C lets the update under way end, saves a checkpoint if one was asked for, and raises
    KeyboardInterrupt; a second Ctrl-C stops at once and saves nothing.

    ``begin`` is ``iterate_X`` with its first arguments in place: called as ``begin(config, seed=seed, state=state)``.

    Raises:
        TrainingError: a metric or a parameter is NaN; the last good checkpoint stays as it is.
        ValueError: the state was made with another config or seed; the file is damaged; ``checkpoint`` cannot be a
            file; the trainer made no update.
    """
    checkpoint, stop = options.get("checkpoint"), options.get("stop")
    if checkpoint is not None and (Path(checkpoint).is_dir() or not Path(checkpoint).parent.is_dir()):
        raise ValueError(f"checkpoint is {str(checkpoint)!r}; expected a file in a folder that exists")
    state = options.get("state")
    if state is None:
        state = _kept_state(checkpoint, config, seed)
    elif not isinstance(state, dict):
        state = load_checkpoint(state)
    if state is not None:
        _require_own_state(state, config, seed)
    history, last, saved, ends = _History(state), None, 0, False
    with _progress_bar(options.get("progress", False), config) as show, interrupt_between_updates() as interrupted:
        for last in _numbered(begin(config, seed=seed, state=state), state):
            _stop_at_nan(last)
            history.add(last)
            show(last)
            if checkpoint is not None and last.update % options.get("checkpoint_every", 10) == 0:
                _save(checkpoint, last, history)
                saved = last.update
            ends = interrupted()
            if (stop is not None and stop(last)) or ends:  # stop sees the last record of an interrupted run too
                break
        if last is None:
            raise ValueError("begin made no update; expected at least one, or the last one of a run that had ended")
        if checkpoint is not None and saved != last.update:
            _save(checkpoint, last, history)
        if ends:
            raise KeyboardInterrupt
    return TrainingResult(
        last.policy, history.arrays(), last.update, last.env_steps, lambda: history.into(last.state())
    )


def _save(path: str | Path, record: Update, history: _History) -> None:
    """A checkpoint of a record, unless something in the state is NaN: such a state is not worth keeping."""
    state = record.state()
    _stop_at_nan_inside(state, f"update {record.update}: state")
    save_checkpoint(path, history.into(state))


class _History:
    """Curves under construction, after those of a state: one list per metric, NaN where a metric had no value."""

    def __init__(self, before: State | None = None) -> None:
        curves = (before or {}).get("history", {})
        self.columns: dict[str, list[float]] = {name: curve.tolist() for name, curve in curves.items()}
        self.length = len(next(iter(self.columns.values()), []))

    def add(self, record: Update) -> None:
        """Append one record, unless it is the last one again."""
        if self.length and self.columns["update"][-1] == record.update:
            return
        row = {"update": record.update, "env_steps": record.env_steps, **record.metrics}
        for name in row.keys() - self.columns.keys():
            self.columns[name] = [math.nan] * self.length
        for name, column in self.columns.items():
            column.append(float(row.get(name, math.nan)))
        self.length += 1

    def into(self, state: State) -> State:
        """The state with the curves added."""
        curves = {name: torch.tensor(column, dtype=torch.float64) for name, column in self.columns.items()}
        return {**state, "history": curves}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The curves as arrays, (updates,) each."""
        return {name: np.array(column) for name, column in self.columns.items()}


def _numbered(updates: Iterable[Update], before: State | None) -> Iterator[Update]:
    """The records; an error in the making of one says which."""
    number = (before or {}).get("update", 0)
    try:
        for record in updates:
            number = record.update
            yield record
    except TrainingError as error:
        raise TrainingError(f"update {number + 1}: {error}") from error


def _stop_at_nan(record: Update) -> None:
    """Stop at a NaN: in a metric, or in a parameter of the policy."""
    for name, value in record.metrics.items():
        if math.isnan(value):
            raise TrainingError(f"update {record.update}: the metric {name!r} is NaN")
    if isinstance(record.policy, nn.Module):
        for name, parameter in record.policy.named_parameters():
            if not math.isfinite(float(parameter.detach().sum())) and not parameter.isfinite().all():
                raise TrainingError(f"update {record.update}: the parameter {name!r} is not finite")


@contextmanager
def _progress_bar(wanted: bool, config: Any) -> Iterator[Callable[[Update], None]]:
    """A function that shows a record."""
    if not wanted:
        yield lambda record: None
        return
    from tqdm.auto import tqdm

    counted, length = _length(config)
    with tqdm(total=length, unit="step" if counted == "env_steps" else "update", leave=False) as bar:

        def show(record: Update) -> None:
            bar.update(getattr(record, counted) - bar.n)
            for name in ("episode_return", "reward", "loss"):  # the first of these that there is
                if name in record.metrics:
                    bar.set_postfix({name: f"{record.metrics[name]:.3g}"}, refresh=False)
                    break

        yield show


@checked
@contextmanager
def interrupt_between_updates() -> Iterator[Callable[[], bool]]:
    """Hold the first Ctrl-C back; the function that is yielded says whether it came.

    In the middle of an update the state is neither the old one nor the new one, so nothing could be saved.
    """
    pending = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield pending.is_set
        return

    def hold(signum: int, frame: Any) -> None:
        if pending.is_set():
            raise KeyboardInterrupt
        pending.set()

    previous = signal.signal(signal.SIGINT, hold)
    try:
        yield pending.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if previous is None else previous)


# ---------------------------------------------------------------------- checkpoints


@checked
def save_checkpoint(path: str | Path, state: State) -> None:
    """Write a state to a file, all or nothing: under another name, forced to the disk, and renamed.

    Raises:
        TypeError: something else than tensors and plain data (numbers, strings, None, and lists, tuples, dicts of these).
        OSError: the disk is full, say; it names the file, and the one before stays.
    """
    path = Path(path)
    _require_plain(state, "state")
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, (OSError, RuntimeError)):  # torch hides a failed write behind an error of its own
            why = error if isinstance(error, OSError) else error.__context__
            if isinstance(why, OSError):
                raise OSError(
                    why.errno, f"{why.strerror or why}; the checkpoint before this one stays", str(path)
                ) from error
        raise
    if os.name == "posix":  # the new name, too, on the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@checked
def load_checkpoint(path: str | Path) -> State:
    """Read a state that ``save_checkpoint`` wrote, tensors on the CPU; nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or not a checkpoint.
    """
    with open(path, "rb") as file:
        try:
            damaged = zipfile.ZipFile(file).testzip()  # compares the check sums
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # its kind depends on where the damage is
            raise ValueError(f"{path} is not a checkpoint, or is damaged: {error}") from error
    if damaged is not None:
        raise ValueError(f"{path} is damaged: the check sum of {damaged} is wrong")
    if not isinstance(state, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds a {type(state).__name__}")
    return state


def _require_plain(value: Any, where: str) -> None:
    """Only what can be read back without executing anything."""
    for entry, inside in _entries(value, where):
        _require_plain(entry, inside)
    if isinstance(value, dict):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"{where} has the key {key!r}; expected text or a whole number")
    elif (
        value is not None
        and type(value) not in (bool, int, float, str, list, tuple)
        and not isinstance(value, torch.Tensor)
    ):
        raise TypeError(f"{where} is {type(value).__name__}; expected a tensor or plain data")


def _stop_at_nan_inside(value: Any, where: str) -> None:
    """Stop at a NaN in any tensor."""
    for entry, inside in _entries(value, where):
        _stop_at_nan_inside(entry, inside)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.isnan().any()):
        raise TrainingError(f"{where} holds NaN")


def _entries(value: Any, where: str) -> list[tuple[Any, str]]:
    """What is in a container, and where; nothing for anything else."""
    if type(value) in (list, tuple):
        value = dict(enumerate(value))
    return [(entry, f"{where}[{key!r}]") for key, entry in value.items()] if isinstance(value, dict) else []


# ---------------------------------------------------------------------- going on from a state


def _plain_settings(config: Any) -> dict[str, Any]:
    """A config dataclass as plain data, field name to value."""
    return {entry.name: copy.deepcopy(getattr(config, entry.name)) for entry in fields(config)}


def _require_own_state(state: State, config: Any, seed: int) -> None:
    """Refuse to go on from a state that was made with another config or seed."""
    if not {"config", "seed"} <= state.keys():
        raise ValueError(
            f"state has the keys {sorted(state)}; expected what a trainer's record gave, with 'config' and 'seed'"
        )
    had, have = {**state["config"], "seed": state["seed"]}, {**_plain_settings(config), "seed": seed}
    missing = object()
    different = [
        f"{name} was {had.get(name)!r} and is {have.get(name)!r}"
        for name in sorted(had.keys() | have)
        if had.get(name, missing) != have.get(name, missing)
    ]
    if different:
        raise ValueError(f"state was made with other settings: {'; '.join(different)}")


def _kept_state(checkpoint: str | Path | None, config: Any, seed: int) -> State | None:
    """The state in a checkpoint file; None if there is no such file."""
    if checkpoint is None or not Path(checkpoint).is_file():
        return None
    try:
        state = load_checkpoint(checkpoint)
    except ValueError as error:
        raise ValueError(f"{error}; remove this file to start anew") from error
    try:
        _require_own_state(state, config, seed)
    except ValueError as error:
        raise ValueError(f"{checkpoint}: {error}") from None
    return state


# ---------------------------------------------------------------------- packing what has a state


@checked
def pack(part: Any) -> Any:
    """The state of one part of a run, as tensors and plain data, copied: training on does not change it.

    A part is a network, an optimizer, a random generator (numpy's default one, or torch's), a number, or anything with
    ``state`` and ``load_state``.
    """
    if isinstance(part, torch.Generator):
        return part.get_state().clone()
    if isinstance(part, np.random.Generator):
        if not isinstance(part.bit_generator, np.random.PCG64):
            raise TypeError(f"part is {part!r}; expected numpy's default generator, or a torch generator")
        return copy.deepcopy(dict(part.bit_generator.state))
    if isinstance(part, (int, float)):
        return part
    return copy.deepcopy(dict(part.state_dict())) if hasattr(part, "state_dict") else part.state()


@checked
def unpack(part: Any, state: Any) -> Any:
    """Put back what ``pack`` gave; it stays as it is, and can be used again. The part is returned, or the packed number."""
    if isinstance(part, (int, float)):
        return state
    if isinstance(part, torch.Generator):
        part.set_state(state.cpu())
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif hasattr(part, "load_state_dict"):
        part.load_state_dict(copy.deepcopy(state))  # an optimizer would go on writing into these tensors
    else:
        part.load_state(state)
    return part


# ---------------------------------------------------------------------- steps that several trainers share


@checked
def split_seed(seed: Seed, count: Count) -> list[int]:
    """Independent seeds made from one; asking for more leaves the first ones as they are."""
    return [int(word) for word in np.random.SeedSequence(seed).generate_state(count)]


class ReturnScale:
    """Settings that say how large typical returns are: the unit of a value network, whose layers compute numbers around one."""

    gamma: float
    return_scale: float | None = None

    @property
    def scale(self) -> float:
        """What was given, in reward units; else the sum of all discounts, 1 / (1 - gamma), or 1 for gamma = 1."""
        if self.return_scale is not None:
            return self.return_scale
        return 1.0 / (1.0 - self.gamma) if self.gamma < 1.0 else 1.0


@checked
def learning_rate_share(update: Natural, updates: Count, warmup: Natural, final_share: UnitInterval) -> float:
    """The share of the highest learning rate that an update, from 0, uses: a linear rise, then a linear fall.

    After ``warmup`` updates the rise is over, which begins near 0, below the final share: what is left at the end.
    """
    rise = min(1.0, (update + 1) / max(1, warmup))
    return rise * max(final_share, 1.0 - update / updates)


class Adam:
    """Adam, and AdamW with ``decay``: the steps of ``torch.optim``, without its second of starting up.

    The first object of ``torch.optim`` in a process imports PyTorch's compiler, which takes longer than many a
    training run of this book. The function below all of them does not, and is called here: same numbers, same
    ``state_dict``.

    Args:
        parameters: of the networks, or groups of them: dicts with "params" and, if it differs, "lr".
        betas: decay rates of the means of the gradient and of its square, in [0, 1).
        decay: decoupled weight decay (AdamW).
        fused: all in one kernel, in a third of the time, differing from the plain steps by rounding.

    Source: Kingma & Ba (2015); Loshchilov & Hutter (2019) for the decay.
    """

    @checked
    def __init__(
        self,
        parameters: Iterable[Any],
        lr: NotNegative,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Positive = 1e-8,
        decay: NotNegative = 0.0,
        fused: bool = True,
    ) -> None:
        groups = list(parameters)
        if not (groups and isinstance(groups[0], dict)):
            groups = [{"params": groups}]
        self.param_groups = [{"lr": lr, **group, "params": list(group["params"])} for group in groups]
        self.betas, self.eps, self.decay, self.fused = betas, eps, decay, fused
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move all parameters that have a gradient."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            states = [self._state_of(p) for p in moved]
            adam(
                moved,
                [p.grad for p in moved],
                [s["exp_avg"] for s in states],
                [s["exp_avg_sq"] for s in states],
                [],
                [s["step"] for s in states],
                lr=group["lr"],
                beta1=self.betas[0],
                beta2=self.betas[1],
                eps=self.eps,
                weight_decay=self.decay,
                decoupled_weight_decay=True,
                fused=self.fused,
                foreach=False,
                amsgrad=False,
                maximize=False,
            )

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self.state:
            self.state[parameter] = {
                "step": torch.zeros((), device=parameter.device if self.fused else "cpu"),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self.state[parameter]

    def state_dict(self) -> State:
        """Learning rates and means, the parameters numbered in order."""
        numbers = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        return {
            "state": {numbers[p]: state for p, state in self.state.items()},
            "param_groups": [group | {"params": [numbers[p] for p in group["params"]]} for group in self.param_groups],
        }

    @checked
    def load_state_dict(self, state: State) -> None:
        """Go on from a ``state_dict`` of as many parameters, made here or in ``torch.optim``."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        for group, stored in zip(self.param_groups, state["param_groups"], strict=True):
            group["lr"] = stored["lr"]
        self.state = {}
        for number, stored in state["state"].items():
            for name, value in self._state_of(parameters[number]).items():
                value.copy_(stored[name])


Optimizer: TypeAlias = Adam | torch.optim.Optimizer


@checked
def gradient_step(
    optimizer: Optimizer,
    loss: Tensor | Iterator[Tensor],
    learning_rate: NotNegative | None = None,
    max_norm: Positive | None = None,
) -> float:
    """One step of an optimizer down the gradient of a loss; a loss that is no number changes nothing.

    Args:
        loss: a scalar with a gradient; or its parts, made one after another, so that only one is held at a time.
        learning_rate: of this step and the next ones; None leaves the optimizer's.
        max_norm: a longer gradient is scaled down to this length; None leaves it, and does not measure it.

    Returns:
        The length of the gradient before scaling; NaN if it was not measured.

    Raises:
        TrainingError: the loss is not finite.
    """
    optimizer.zero_grad()
    for part in [loss] if isinstance(loss, Tensor) else loss:
        if not math.isfinite(part.item()):
            raise TrainingError(f"the loss is {part.item()}; the networks are broken (a lower learning rate may help)")
        part.backward()
    if learning_rate is not None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
    norm, parameters = math.nan, [p for group in optimizer.param_groups for p in group["params"]]
    if max_norm is not None:
        norm = float(nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True))
    optimizer.step()
    return norm


@checked
def frozen_copy(model: Network) -> Any:
    """A copy of a model that does not learn: the reference of a trained policy, or a target network."""
    return copy.deepcopy(model).eval().requires_grad_(False)


# ---------------------------------------------------------------------- evaluation


@checked
def evaluate_policy(
    policy: Actor,
    env: str | Callable[[], Any],
    *,
    episodes: Count = 20,
    seed: Seed,
    max_steps: Count = 10_000,
    rng: np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Undiscounted returns of episodes, all of them side by side; (episodes,), reward units.

    ``env`` is an environment's id or constructor. Actions are the greedy ones, or drawn with ``rng`` where it is given. An
    episode that is still under way after ``max_steps`` counts with the rewards so far.

    Raises:
        TypeError: ``env`` is an environment already: it would be used up.
    """
    returns, running = np.zeros(episodes), np.ones(episodes, dtype=bool)
    how: dict[str, Any] = {"greedy": True} if rng is None else {"greedy": False, "rng": rng}
    with opened(env, episodes, seed=seed) as environments:
        observations = environments.reset()
        for _ in range(max_steps):
            step = environments.step(policy.act(observations, **how))
            returns += running * step.rewards
            running &= ~(step.terminated | step.truncated)  # the copies that are in their first episode
            if not running.any():
                break
            observations = step.observations
    return returns
