"""Which system calls the sandbox allows, as a filter program that bubblewrap hands to the kernel (``--seccomp``).

A list of what Python, numpy, torch and their like need; every other call is answered as if the kernel did not have it
(``ENOSYS``), so that the C library takes an older one where there is one. Some calls are allowed by what is asked of them
and else refused (``EPERM``): no leases and locks on files that others read, no keys, no namespaces, no sockets to the host
of a virtual machine. Not on the list: what tells what others have read (``mincore``, ``posix_fadvise``, ``preadv2``,
``inotify``), and ``setsid``, because the scheduler gives each session its share. Namespaces are the first wall.
"""

from __future__ import annotations

import errno
import platform
import struct

# name, its number on x86-64 and on aarch64; - where there is no such call
TABLE = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70, open 2
-, openat 257 56, openat2 437 437, creat 85 -, close 3 57, close_range 436 436, lseek 8 62, stat 4 -, fstat 5 80,
lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -, faccessat 269 48, faccessat2
439 439, getdents 78 -, getdents64 217 61, readlink 89 -, readlinkat 267 78, mkdir 83 -, mkdirat 258 34, rmdir 84 -,
unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -,
symlinkat 266 36, mknod 133 -, mknodat 259 33, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92
-, fchown 93 55, lchown 94 -, fchownat 260 54, truncate 76 45, ftruncate 77 46, fallocate 285 47, utime 132 -, utimes
235 -, futimesat 261 -, utimensat 280 88, umask 95 166, getcwd 79 17, chdir 80 49, fchdir 81 50, dup 32 23, dup2 33 -,
dup3 292 24, pipe 22 -, pipe2 293 59, fsync 74 82, fdatasync 75 83, sendfile 40 71, copy_file_range 326 285, getxattr
191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12, flistxattr 196 13,
select 23 -, pselect6 270 72, poll 7 -, ppoll 271 73, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, futex 202 98, futex_waitv
449 449, nanosleep 35 101, clock_nanosleep 230 115, pause 34 -, restart_syscall 219 128,
mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, brk 12 214, msync 26 227,
fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95,
kill 62 129, tkill 200 130, tgkill 234 131, gettid 186 178, getpid 39 172, getppid 110 173, getpgid 121 155, setpgid
109 154, getpgrp 111 -, getsid 124 156, set_tid_address 218 96, set_robust_list 273 99,
get_robust_list 274 100, rseq 334 293, arch_prctl 158 -, sched_yield 24 124, sched_getaffinity 204 123,
sched_setaffinity 203 122, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, getpriority 140 141, getcpu 309 168,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
rt_sigsuspend 130 133, sigaltstack 131 132, alarm 37 -, getitimer 36 102, setitimer 38 103,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getgroups 115 158, getresuid 118 148, getresgid 120
150, setgroups 116 159, setuid 105 146, setgid 106 144, setresuid 117 147, setresgid 119 149, capget 125 90, capset
126 91, getrlimit 97 163, getrusage 98 165,
time 201 -, times 100 153, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114, getrandom 318 278, uname
63 160, sysinfo 99 179,
socketpair 53 199, connect 42 203, accept 43 202, accept4 288 242, bind 49 200, listen 50 201, sendto 44 206, recvfrom
45 207, sendmsg 46 211, recvmsg 47 212, sendmmsg 307 269, recvmmsg 299 243, shutdown 48 210, getsockname 51 204,
getpeername 52 205, setsockopt 54 208, getsockopt 55 209
"""
CALLS: dict[str, tuple[int | None, int | None]] = {
    name: (int(one) if one != "-" else None, int(other) if other != "-" else None)
    for name, one, other in (line.split() for line in TABLE.split(","))
}
KEYCTL, CLONE, CLONE3, SOCKET = (250, 219), (56, 220), (435, 435), (41, 198)
JOIN_SESSION_KEYRING = 1  # the one use of keyctl that is left: a new and empty keyring without a name
NEW_NAMESPACES = 0x7E020000  # all flags of clone that make one
UNIX, IPV4, IPV6, NETLINK = 1, 2, 10, 16  # families of sockets; each ends inside the sandbox
TYPES, PROTOCOLS = (1, 2, 3), (6, 17)  # stream, datagram, raw (without the right to it); TCP, UDP
# name: its numbers, which argument decides, and what it may be
BY_ARGUMENT: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    # copies and flags of descriptors, size of a pipe; no locks, leases, owners or notices
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030, 1032)),
    # is it a terminal, how wide; bytes that wait; close on exec, without waiting
    "ioctl": ((16, 29), 1, (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421)),
    # end with the parent, dump, name, what was given up, names of memory
    "prctl": ((157, 167), 0, (1, 2, 3, 4, 15, 16, 23, 38, 39, 0x53564D41)),
    # how one's own memory is used, freed, copied; not "page out" or "merge", by which others can be noticed
    "madvise": ((28, 233), 2, (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)),
    # all limits but that on core dumps, which the sandbox sets: only as it is no program of the machine is started by one
    "setrlimit": ((160, 164), 0, (0, 1, 2, 3, *range(5, 16))),
    "prlimit64": ((302, 261), 1, (0, 1, 2, 3, *range(5, 16))),
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # which column above, and the kernel's name for it
LAST = 480  # the numbers of all calls are smaller today
# of x86-64: the kernel's own way back from a probe, which no filter sees; from elsewhere it is an error
PROBES = {335, 336}

# instructions of the filter, and where a call's number and the lower halves of its arguments stand
LOAD, AND, EQUAL, GREATER, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD = 0, 4, 16, 24, 32
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
UNKNOWN_CALL = 0x00050000 | errno.ENOSYS
OTHER_NUMBERS = 0x40000000  # calls of x86-64 with numbers from here on: the same ones under other numbers
Line = tuple[int, int, int, int]


def supported() -> bool:
    return platform.machine() in MACHINES


def keyctl(machine: str | None = None) -> int:
    """The number of the call by which the program in the sandbox makes its keyring."""
    return KEYCTL[MACHINES[machine or platform.machine()][0]]


def allowed_numbers(machine: str | None = None) -> set[int]:
    """The numbers of all calls that are allowed whatever is asked of them."""
    column = MACHINES[machine or platform.machine()][0]
    return {number for numbers in CALLS.values() if (number := numbers[column]) is not None}


def refused_numbers(machine: str | None = None) -> list[int]:
    """The numbers of all calls that are refused whatever is asked of them."""
    column = MACHINES[machine or platform.machine()][0]
    asked = {KEYCTL[column], CLONE[column], SOCKET[column], *(one[0][column] for one in BY_ARGUMENT.values())}
    return sorted(set(range(LAST)) - allowed_numbers(machine) - asked - (PROBES if column == 0 else set()))


def call(number: int, lines: list[Line]) -> list[Line]:
    """What is done for one call: these lines, each way through which ends with an answer."""
    return [(EQUAL, 0, len(lines), number), *lines]


def one_of(values: tuple[int, ...]) -> list[Line]:
    """The end of what is done for a call: it is allowed if what was loaded is one of these."""
    tests = [(EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [*tests, (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]


def socket_lines() -> list[Line]:
    """Usual kinds of sockets, with no protocol that would load a part of the kernel that nobody uses."""
    other = [(LOAD, 0, 0, FIRST), (EQUAL, 3, 0, NETLINK), (LOAD, 0, 0, THIRD)]
    other += [(EQUAL, 2, 0, PROTOCOLS[0]), (EQUAL, 1, 0, PROTOCOLS[1]), (RETURN, 0, 0, REFUSE)]
    kinds = [(LOAD, 0, 0, SECOND), (AND, 0, 0, 0xF)]
    kinds += [(EQUAL, len(TYPES) - place, 0, kind) for place, kind in enumerate(TYPES)]
    kinds += [(RETURN, 0, 0, REFUSE), (LOAD, 0, 0, FIRST), *one_of((UNIX, IPV4, IPV6, NETLINK))]
    return [(LOAD, 0, 0, THIRD), (EQUAL, len(other), 0, 0), *other, *kinds]


def program(machine: str | None = None) -> bytes:
    """The filter: instructions of eight bytes each. Raises ``KeyError`` for a machine that is not supported."""
    column, architecture = MACHINES[machine or platform.machine()]
    lines: list[Line] = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL)]
    lines += [(LOAD, 0, 0, NUMBER)]
    if column == 0:
        lines += [(AT_LEAST, 0, 1, OTHER_NUMBERS), (RETURN, 0, 0, REFUSE)]
    for numbers, place, values in BY_ARGUMENT.values():
        lines += call(numbers[column], [(LOAD, 0, 0, (FIRST, SECOND, THIRD)[place]), *one_of(values)])
    # clone3 hides its flags in memory: the C library takes clone, as there is no clone3
    new = [(LOAD, 0, 0, FIRST), (ANY_BIT, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    lines += call(CLONE[column], new)
    lines += call(SOCKET[column], socket_lines())
    ring = [(LOAD, 0, 0, FIRST), (EQUAL, 0, 4, JOIN_SESSION_KEYRING)]
    ring += [(LOAD, 0, 0, SECOND), (EQUAL, 0, 2, 0), (LOAD, 0, 0, SECOND + 4)]  # both halves of the name
    ring += [(EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    lines += call(KEYCTL[column], ring)
    known = sorted(allowed_numbers(machine))
    starts = [number for number in known if number - 1 not in known]
    ends = [number for number in known if number + 1 not in known]
    for start, end in zip(starts, ends, strict=True):
        lines += [(AT_LEAST, 0, 2, start), (GREATER, 1, 0, end), (RETURN, 0, 0, ALLOW)]
    lines += [(RETURN, 0, 0, UNKNOWN_CALL)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
