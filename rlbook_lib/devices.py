"""Where tensors live, how many threads work, what a run costs; recorded GPU runs (chapter 5 on)."""

from __future__ import annotations

import torch

from rlbook_lib.experience import check_count


def choose_device(name: str = "auto") -> torch.device:
    """The device to compute on.

    Args:
        name: "auto" (a CUDA GPU if there is one, else the CPU), or a device's name: "cpu", "cuda", "cuda:1".

    Returns:
        The device.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    there = ["cpu"] + (["cuda"] if count else []) + [f"cuda:{i}" for i in range(count)]
    if name not in there:
        raise ValueError(f"device must be 'auto' or one that this machine has ({', '.join(there)}), got {name!r}")
    return torch.device(name)


def use_threads(n: int = 1) -> None:
    """Let torch compute with ``n`` threads; the small networks of this book are fastest with one.

    Args:
        n: at least 1.

    Raises:
        ValueError: ``n`` below 1.
    """
    torch.set_num_threads(check_count("n", n))
