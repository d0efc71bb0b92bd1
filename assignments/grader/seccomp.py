"""Which system calls the sandbox refuses, as a filter program that bubblewrap hands to the kernel (``--seccomp``).

Namespaces and missing privileges stop most of them already. The filter is the second wall: for what is shared by all
processes of a machine whatever their namespaces (keys, other processes, sockets to the host of a virtual machine) and
for the parts of the kernel in which most errors were found. A refused call fails with ``EPERM``.
"""

from __future__ import annotations

import errno
import platform
import struct

# name: its number on x86-64 and on aarch64, or None where there is no such call
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
KEYCTL, CLONE, CLONE3, SOCKET = (250, 219), (56, 220), (435, 435), (41, 198)
JOIN_SESSION_KEYRING = 1  # the one use of keyctl that is left: a new and empty keyring without a name
NEW_NAMESPACES = 0x7E020000  # all flags of clone that make one
FAMILIES = (1, 2, 10, 16)  # of sockets: local, IPv4, IPv6, netlink; each ends inside the sandbox
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # which column above, and the kernel's name for it

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of the filter
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # where a call's number and the lower halves of its arguments stand
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
UNKNOWN_CALL = 0x00050000 | errno.ENOSYS
OTHER_NUMBERS = 0x40000000  # calls of x86-64 with numbers from here on: the same ones under other numbers


def supported() -> bool:
    """Whether there is a filter for this machine."""
    return platform.machine() in MACHINES


def keyctl(machine: str | None = None) -> int:
    """The number of the call by which the program in the sandbox makes its keyring."""
    return KEYCTL[MACHINES[machine or platform.machine()][0]]


def number_of(name: str, machine: str | None = None) -> int | None:
    """The number of a call of :data:`NUMBERS` on this machine."""
    return NUMBERS[name][MACHINES[machine or platform.machine()][0]]


def program(machine: str | None = None) -> bytes:
    """The filter: instructions of eight bytes each. Raises ``KeyError`` for a machine that is not supported."""
    column, architecture = MACHINES[machine or platform.machine()]
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if column == 0:
        lines += [(AT_LEAST, 0, 1, OTHER_NUMBERS), (RETURN, 0, 0, REFUSE)]
    for numbers in NUMBERS.values():
        if (number := numbers[column]) is not None:
            lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    # clone3 hides its flags in memory: the C library takes clone instead if there is no clone3
    lines += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, UNKNOWN_CALL)]
    lines += [
        (EQUAL, 0, 4, CLONE[column]),
        (LOAD, 0, 0, FIRST),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, REFUSE),
    ]
    lines += [(RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 0, len(FAMILIES) + 3, SOCKET[column]), (LOAD, 0, 0, FIRST)]
    lines += [(EQUAL, len(FAMILIES) - place, 0, family) for place, family in enumerate(FAMILIES)]
    lines += [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 0, 7, KEYCTL[column]), (LOAD, 0, 0, FIRST), (EQUAL, 0, 4, JOIN_SESSION_KEYRING)]
    lines += [
        (LOAD, 0, 0, SECOND),
        (EQUAL, 0, 2, 0),
        (LOAD, 0, 0, SECOND + 4),
        (EQUAL, 1, 0, 0),
    ]  # both halves of the name
    lines += [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
