"""Several processes train one model: each samples and reads its part of a batch, and their gradients are added (chapters 12, 13).

``torchrun --nproc-per-node 2 ...`` starts the processes; ``join`` brings them together, over NCCL with GPUs and over gloo without.
Then ``iterate_grpo`` and ``iterate_rlhf`` share the work: all processes hold the same weights, draw the same prompts, and
take their part of them. A loss is divided by what the *whole* batch counts, so that the sum of the gradients is the gradient
of the whole batch, however long the completions of each process are. Without ``join`` every function here is the identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor

from rlbook_lib.checks import Positive, checked

__all__ = [
    "join",
    "leave",
    "processes",
    "rank",
    "my_part",
    "total",
    "largest",
    "same_everywhere",
    "add_gradients",
    "mean_of_metrics",
    "any_process",
    "PerProcess",
    "require_as_many",
    "ProcessLost",
]

T = TypeVar("T")


class ProcessLost(RuntimeError):
    """Another process of the group has gone; the job goes on from its last checkpoint when it is started again."""


@checked
def join(device: str | torch.device = "cpu", minutes: Positive = 30.0) -> bool:
    """Meet the other processes that torchrun has started.

    Args:
        device: where this process computes; "cuda" takes the GPU of its local rank.
        minutes: how long a process waits for the others before it gives up; longer than any of them works alone.

    Returns:
        Whether there are others.

    Raises:
        ValueError: this machine has fewer GPUs than processes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= count:
            raise ValueError(
                f"device is 'cuda', and process {local} of this machine has no GPU of its own; expected at most {count} processes"
            )
        torch.cuda.set_device(local)
    distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(minutes=minutes))
    return True


@checked
def leave() -> None:
    """Leave the group, at the end of the program."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


@checked
def processes() -> int:
    """How many processes share the work; 1 without a group."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


@checked
def rank() -> int:
    """The number of this process, from 0; process 0 writes the files."""
    return distributed.get_rank() if distributed.is_initialized() else 0


@checked
def my_part(items: Sequence[T]) -> Sequence[T]:
    """The part of this process: neighbors stay together, the parts in order are the whole.

    Args:
        items: as many on every process.

    Returns:
        One of ``processes()`` equal parts.

    Raises:
        ValueError: they cannot be divided.
    """
    share, rest = divmod(len(items), processes())
    if rest:
        raise ValueError(f"{len(items)} prompts do not divide among {processes()} processes")
    return items[rank() * share : (rank() + 1) * share]


@checked
def total(count: float) -> float:
    """The sum of a number over all processes.

    Args:
        count: of this process.
    """
    return _reduced(count, distributed.ReduceOp.SUM)


@checked
def largest(count: float) -> float:
    """The largest of a number among all processes.

    Args:
        count: of this process.
    """
    return _reduced(count, distributed.ReduceOp.MAX)


@checked
def any_process(flag: bool) -> bool:
    """Whether a flag is set in any process.

    Args:
        flag: of this process.
    """
    return largest(float(flag)) > 0


@checked
def same_everywhere(number: float) -> bool:
    """Whether a number is the same in every process; so all of them have come this far.

    Args:
        number: of this process.
    """
    return largest(number) == -largest(-number)


@checked
def mean_of_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """The mean of each metric over the processes.

    Args:
        metrics: the same names in every process.
    """
    if processes() == 1:
        return metrics
    names = sorted(metrics)
    values = _tensor([metrics[name] for name in names])
    _collective(lambda: distributed.all_reduce(values))
    return dict(zip(names, (values / processes()).tolist()))


@checked
def add_gradients(parameters: Iterable[Any]) -> None:
    """Add up the gradients of all processes, in place.

    Args:
        parameters: in the same order on every process; one without a gradient counts as 0.
    """
    if processes() == 1:
        return
    parameters = list(parameters)
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    flat = torch.cat([p.grad.reshape(-1) for p in parameters])  # one message in the place of many
    _collective(lambda: distributed.all_reduce(flat))
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad.copy_(part.view_as(p))


class PerProcess:
    """A random generator that is another one in each process; its state is that of all of them.

    Args:
        seed: of the generator of process 0; process r has seed + r.
        device: of the generator.
    """

    @checked
    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed + rank())

    def state(self) -> Any:
        """The states of all generators, in order; a call in every process."""
        own = self.generator.get_state()
        if processes() == 1:
            return own
        states: list[Any] = [None] * processes()
        _collective(lambda: distributed.all_gather_object(states, own.numpy()))
        return {str(i): torch.from_numpy(np.array(state)) for i, state in enumerate(states)}

    @checked
    def load_state(self, state: Tensor | dict[str, Tensor]) -> None:
        """Go on from a state of as many processes.

        Args:
            state: what ``state`` gave.

        Raises:
            ValueError: it was made by another number of processes.
        """
        require_as_many(state)
        self.generator.set_state((state if isinstance(state, Tensor) else state[str(rank())]).cpu())


@checked
def require_as_many(state: Tensor | dict[str, Tensor]) -> None:
    """Refuse the generators of another number of processes.

    Args:
        state: of a ``PerProcess``.

    Raises:
        ValueError: it says how many there were.
    """
    made_by = 1 if isinstance(state, Tensor) else len(state)
    if made_by != processes():
        raise ValueError(f"the state was made by {made_by} processes, and this run has {processes()}; start as many")


def _reduced(number: float, how: Any) -> float:
    if processes() == 1:
        return number
    value = _tensor([number])
    _collective(lambda: distributed.all_reduce(value, how))
    return float(value)


def _tensor(numbers: list[float]) -> Tensor:
    """On the device that the group talks over."""
    return torch.tensor(numbers, dtype=torch.float64, device="cuda" if distributed.get_backend() == "nccl" else "cpu")


def _collective(talk: Callable[[], Any]) -> None:
    try:
        talk()
    except RuntimeError as error:
        late = "timed out" in str(error).lower()
        raise ProcessLost(
            f"process {rank()} of {processes()} {'waited too long for' if late else 'lost'} another one; "
            "start the same command again to go on from the last checkpoint"
        ) from error
