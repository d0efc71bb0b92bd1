"""A control group of its own for every sandbox: a limit on memory and on processes that counts all of them together.

Resource limits alone count per process: twenty processes of a gigabyte each pass them. A group is made below that of
this process, where the system allows it: version 1 as root (in a container, say), version 2 where systemd delegates
a part of the tree to the user.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "rlbook-grader-"


@dataclass(frozen=True)
class Place:
    """Where groups can be made: the folders of one hierarchy (version 2) or of two (version 1)."""

    version: int
    folders: tuple[Path, ...]


def find_place(root: Path = ROOT, own: str | None = None) -> Place | None:
    """Where this process may make groups that limit memory and processes; ``None`` if nowhere.

    ``root``: where control groups are mounted. ``own``: the text of ``/proc/self/cgroup``.
    """
    if own is None:
        try:
            own = Path("/proc/self/cgroup").read_text()
        except OSError:
            return None
    paths = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            paths[name] = path.lstrip("/")
    if {"memory", "pids"} <= paths.keys():
        own_group = [root / name / paths[name] for name in ("memory", "pids")]
        # the top of the mount where a container does not show the path
        first, second = (
            one if one.is_dir() else root / at for one, at in zip(own_group, ("memory", "pids"), strict=True)
        )
        if os.access(first, os.W_OK) and os.access(second, os.W_OK) and (first / "memory.limit_in_bytes").exists():
            return Place(1, (first, second))
    here = root / paths.get("", "")
    for folder in (here, here.parent):
        try:
            enabled = (folder / "cgroup.subtree_control").read_text().split()
        except OSError:
            continue
        if {"memory", "pids"} <= set(enabled) and all(os.access(p, os.W_OK) for p in (folder, folder / "cgroup.procs")):
            return Place(2, (folder,))
    return None


class Group:
    """One group, made when the object is made. Raises ``OSError`` if the system does not let us.

    ``memory``: bytes of all its processes and of the files that they keep in memory. ``processes``: threads count too.
    """

    def __init__(self, place: Place, name: str, memory: int, processes: int):
        self.folders = [folder / f"{PREFIX}{name}" for folder in place.folders]
        if place.version == 1:
            settings = [(0, f"memory.{kind}limit_in_bytes", memory) for kind in ("", "memsw.")]
            settings.append((1, "pids.max", processes))
        else:
            settings = [(0, "memory.max", memory), (0, "memory.swap.max", 0), (0, "pids.max", processes)]
        try:
            for folder in self.folders:
                folder.mkdir()
            for number, file, value in settings:
                path = self.folders[number] / file
                if "sw" not in file or path.exists():  # not every kernel counts swap
                    path.write_text(f"{value}\n")
        except OSError:
            self.remove()
            raise

    @property
    def entrances(self) -> list[Path]:
        """A process that writes 0 to each of these files is in the group."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def remove(self, seconds: float = 5.0) -> None:
        """Kill what is left in the group and remove it; a group that cannot be removed stays for :func:`sweep`."""
        until = time.monotonic() + seconds
        for folder in self.folders:
            while folder.is_dir():
                kill_members(folder)
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.005)


def kill_members(folder: Path) -> None:
    try:
        members = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return
    for member in members:
        if member > 0:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)


def owner_is_gone(folder: Path) -> bool:
    """Whether the grader that made a folder of this name is no longer running."""
    owner = folder.name.removeprefix(PREFIX).split("-")[0]
    return owner.isdigit() and not Path(f"/proc/{owner}").exists()


def sweep(place: Place) -> None:
    for folder in filter(owner_is_gone, [one for parent in place.folders for one in parent.glob(f"{PREFIX}*")]):
        kill_members(folder)
        with suppress(OSError):
            folder.rmdir()
