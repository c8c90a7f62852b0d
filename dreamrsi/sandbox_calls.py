"""The system calls that a sandboxed process may still make: a filter (seccomp) that lets those of a calculation pass.

What a process can do to others, or leave behind for the next one, it does by system calls: shared memory, keys,
signals, names of files. The list says what may pass: what nobody thought of, and what a later kernel adds, is refused.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
import sys

_NUMBERS: dict[str, tuple[int | None, int | None]] = {  # on x86_64, on aarch64; the most frequent ones first
    "read": (0, 63),
    "write": (1, 64),
    "futex": (202, 98),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "getpid": (39, 172),
    # Clocks and pauses
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "pause": (34, None),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "sched_yield": (24, 124),
    "restart_syscall": (219, 128),
    # What the process knows of itself
    "uname": (63, 160),
    "getcwd": (79, 17),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),
    # Its signals and threads
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "exit": (60, 93),
    "exit_group": (231, 94),
    # Its four descriptors
    "readv": (19, 65),
    "writev": (20, 66),
    "lseek": (8, 62),
    "fstat": (5, 80),
    "close": (3, 57),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    # These fail by the limits of descriptors and of processes, with an error that says more than that of this filter
    "open": (2, None),
    "openat": (257, 56),
    "socket": (41, 198),
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    # These pass for some values of an argument: _ONLY
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "prlimit64": (302, 261),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "prctl": (157, 167),
}
_SECCOMP = (317, 277)
_FIRST_NEW = 424  # numbers from here on are younger than 2019; the C library has another way where one is missing

_SELF = -1  # stands for the process's own number
_ONLY: dict[str, tuple[int, tuple[int, ...]]] = {  # call -> which argument, and its values that pass
    "kill": (0, (_SELF,)),
    "tkill": (0, (_SELF,)),  # the only thread has the number of the process
    "tgkill": (0, (_SELF,)),
    "rt_sigqueueinfo": (0, (_SELF,)),
    "prlimit64": (0, (0, _SELF)),
    "sched_getaffinity": (0, (0, _SELF)),
    "sched_getparam": (0, (0, _SELF)),
    "sched_getscheduler": (0, (0, _SELF)),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL; others lock, leave marks on what is open, or have signals sent
    "fcntl": (1, (0, 1, 2, 3, 4)),
    "ioctl": (1, (0x5401,)),  # TCGETS: whether it is a terminal
    # Get PDEATHSIG, DUMPABLE, NO_NEW_PRIVS and the name, and set the name: it takes none of its own guards back
    "prctl": (0, (2, 3, 39, 16, 15)),
}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of the filter
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16  # places in what it looks at
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SET_MODE_FILTER, _ALL_THREADS = 1, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def supported() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return os.uname().machine in _ARCHITECTURES and sys.maxsize > 2**32


def filter_calls(system: ctypes.CDLL) -> bool:
    """Refuse this process all system calls but the listed ones, for good, with EPERM; say whether that was done.

    ``no_new_privs`` must be set, then it needs no privilege.
    """
    if not supported():
        return False
    which, _ = _ARCHITECTURES[os.uname().machine]
    code = ready().replace(_PLACE, struct.pack("<I", os.getpid()))
    program = _Program(len(code) // 8, code)
    numbers = [ctypes.c_long(n) for n in (_SECCOMP[which], _SET_MODE_FILTER, _ALL_THREADS)]
    answer: int = system.syscall(*numbers, ctypes.byref(program))
    return answer == 0


def ready() -> bytes:
    """Prepare the filter, which then is there for all processes that are forked from this one."""
    return _filter(os.uname().machine) if supported() else b""


_PLACE = b"\xff\xee\xdd\xcc"  # where a process's number goes; no value that passes and no instruction looks like it


@functools.cache
def _filter(machine: str) -> bytes:
    """The filter's instructions, with a place for the number of the process."""
    which, architecture = _ARCHITECTURES[machine]
    numbers = {name: pair[which] for name, pair in _NUMBERS.items()}
    lines: list[tuple[int, int | str, int, int]] = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),  # else it is a call in the way of another architecture, with other numbers
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_AT_LEAST, 0, 1, _FIRST_NEW),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    lines += [(_IF_EQUAL, "allow", 0, n) for name, n in numbers.items() if n is not None and name not in _ONLY]
    place = int.from_bytes(_PLACE, "little")
    for name, (argument, values) in _ONLY.items():
        number = numbers[name]
        assert number is not None
        passes = [(_IF_EQUAL, "allow", 0, place if value == _SELF else value) for value in values]
        lines.append((_IF_EQUAL, 0, 2 + len(passes), number))
        lines += [(_LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument), *passes, (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    lines += [(_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    last = len(lines) - 1
    packed = []
    for here, (what, then, otherwise, value) in enumerate(lines):
        jump = last - here - 1 if isinstance(then, str) else then
        packed.append(struct.pack("<HBBI", what, jump, otherwise, value))
    return b"".join(packed)
