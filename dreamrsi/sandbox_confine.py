"""How a sandboxed process loads the source it is to run, and what it gives up before it does."""

from __future__ import annotations

import ast
import ctypes
import errno
import functools
import importlib.machinery
import os
import pwd
import resource
import signal
import sys
import types
from contextlib import suppress
from typing import Any

import msgspec

from dreamrsi.sandbox_calls import filter_calls
from dreamrsi.sandbox_channel import CHANNEL

MAX_TEXT = 2000
"""Characters of an error text that are kept."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWUSER = 0x10000000
_CAPABILITY_VERSION_3 = 0x20080522

_LATE = {
    "differential_evolution": ("multiprocessing",),
    "shgo": ("multiprocessing", "scipy.stats"),
    "COBYLA": ("scipy._lib.pyprima.cobyla.cobyla",),
    "COBYQA": ("scipy._lib.cobyqa",),
}
"""What parts of SciPy import only when they are called: a word in the source -> modules."""


class Setup(msgspec.Struct, array_like=True):
    """The first message: the source, and the limits to run it under.

    ``off`` switches guards off, for tests; ``program`` says that the source is a candidate program and no policy.
    """

    source: bytes
    file: str
    stem: str
    memory: int
    cpu_seconds: int
    off: list[str]
    program: bool = False


class LoadError(Exception):
    """The policy cannot be loaded; the text says where and what to do."""


def import_for(source: bytes) -> dict[str, str]:
    """Import whatever modules the source names, while files can still be opened; return what failed, and why.

    These are the libraries of this interpreter: the policy's own folder is not on the path, and nothing of the policy
    runs. Attributes of modules are looked up once, because many libraries load their parts at that moment.
    """
    failed: dict[str, str] = {}
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return failed  # loading will say what is wrong
    bound: dict[str, types.ModuleType] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = _import(alias.name, [], failed)
                if module is not None and alias.asname is None:
                    bound[alias.name.partition(".")[0]] = module
                elif alias.asname is not None:
                    bound[alias.asname] = sys.modules.get(alias.name, types.ModuleType("missing"))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            _import(node.module, [alias.name for alias in node.names], failed)
    for word, names in _LATE.items():
        if word.encode() in source and "scipy.optimize" in sys.modules:
            for name in names:
                _import(name, [], {})
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            with suppress(Exception):
                getattr(bound[node.value.id], node.attr)
    return failed


def _import(name: str, names: list[str], failed: dict[str, str]) -> types.ModuleType | None:
    if any(part.startswith("__") for part in name.split(".")):
        return None  # __main__ modules do things when they are imported
    try:
        module: types.ModuleType = __import__(name, fromlist=[n for n in names if not n.startswith("__")])
    except (Exception, SystemExit) as error:
        failed[name] = f"{type(error).__name__}: {error}"
        return None
    return module


def execute(setup: Setup, missing: dict[str, str]) -> types.ModuleType:
    """Execute the source as a module.

    Raises
    ------
    LoadError
        It cannot be compiled, imports what is not there, or raises.
    """
    file = setup.file
    module = types.ModuleType("program" if setup.program else "policy")
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    try:
        exec(compile(setup.source, file, "exec", dont_inherit=True), module.__dict__)  # nosec: this is the sandbox
    except SyntaxError as error:
        place = file if error.lineno is None else f"{file}, line {error.lineno}"
        raise LoadError(f"{place}: SyntaxError: {error.msg}; mend the line") from None
    except ImportError as error:
        reason = missing.get(error.name or "", text_of(error))
        place = where(error, file)
        raise LoadError(
            f"{place}: cannot import {error.name} ({reason}); install it, or import what is installed. Imports must be "
            "written as import statements: only those are carried out before no file can be opened any more"
        ) from None
    except BaseException as error:
        raise LoadError(f"{where(error, file)}: raised {text_of(error)} while it was loaded; mend the line") from None
    return module


def policy_class(module: types.ModuleType, file: str) -> type:
    """The module's class Policy.

    Raises
    ------
    LoadError
        There is none, it cannot be made without arguments, or it has no start() and choose().
    """
    made = module.__dict__.get("Policy")
    if not isinstance(made, type):
        raise LoadError(f"{file}: defines no class Policy; the class with start() and choose() must have that name")
    try:
        policy: Any = made()
    except BaseException as error:
        raise LoadError(
            f"{where(error, file)}: Policy() raised {text_of(error)}; its constructor must work without arguments"
        ) from None
    for method in ("start", "choose"):
        if not callable(getattr(policy, method, None)):
            raise LoadError(f"{file}: class Policy has no method {method}(); a policy has start() and choose()")
    return made


def where(error: BaseException, file: str) -> str:
    """The last line of the source that the error passed through."""
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    return file if line is None else f"{file}, line {line}"


def text_of(error: BaseException) -> str:
    """Kind and text of an error, bounded, in valid Unicode."""
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        return f"{kind}: out of memory"
    try:
        text = f"{kind}: {error}".encode(errors="replace").decode()[:MAX_TEXT]
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.EAGAIN):
            text += ": in the sandbox no file or socket can be opened and no process be started"
        if isinstance(error, OSError) and error.errno == errno.EPERM:
            text += ": in the sandbox only system calls that a calculation needs are carried out"
        if isinstance(error, ModuleNotFoundError):
            text += "; in the sandbox only what import statements of the source name is there"
    except Exception:
        return kind
    return text.removesuffix(": ")


# Confinement.


def confine(setup: Setup) -> None:
    """Give up, for good, everything a policy does not need. Each guard has a name by which a test switches it off."""
    off = set(setup.off)
    if "files" not in off:
        finders = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders]  # the others open files
    system = libc()
    if system is not None and "threads" not in off:
        _check_threads(setup.file)
    taken = _address_space()
    if "descriptors" not in off:
        _own_descriptors()
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (setup.cpu_seconds, setup.cpu_seconds + 1))
    if "user" not in off:
        _drop_user(system)
    if system is not None:
        system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the user was changed, which clears it
        system.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process of the same user reads this one's memory
    if "memory" not in off:
        with suppress(OSError, ValueError):  # macOS
            limit = taken + setup.memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if "processes" not in off:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if "files" not in off:
        # Zero, not the number of those that are open: a policy could close one and open another in its place.
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if system is not None and "calls" not in off and not filter_calls(system):
        raise LoadError(
            f"{setup.file}: this system lets no filter of system calls be set (seccomp, on x86_64 or aarch64), without "
            "which a policy could reach other processes; run it where there is one"
        )


def _check_threads(file: str) -> None:
    """A namespace of its own is for one thread alone, and a thread that runs already is held by no guard."""
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError as error:
        raise LoadError(f"{file}: the sandbox needs /proc to count its threads ({error.strerror}); mount it") from error
    if threads > 1:
        raise LoadError(f"{file}: a module that it imports starts a thread; import one that does not")


def _own_descriptors() -> None:
    """Keep the channel, and a /dev/null of its own: flags of one that is shared are still there for the next process.

    What an imported module has opened is closed.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.closerange(CHANNEL + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**16))


@functools.cache
def libc() -> ctypes.CDLL | None:
    """The C library, for calls that Python has no name for; Linux only."""
    return ctypes.CDLL(None) if sys.platform == "linux" else None


@functools.cache
def nobody() -> tuple[int, int]:
    """User and group of the unprivileged account."""
    try:
        account = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return account.pw_uid, account.pw_gid


def _address_space() -> int:
    """Bytes of address space that this process has taken so far; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _drop_user(system: ctypes.CDLL | None) -> None:
    """See no file system any more, and become nobody; an ordinary user does so in a user namespace, where allowed."""
    if os.getuid() == 0:
        user, group = nobody()
        try:
            os.chroot(".")  # an empty folder that belongs to the caller
            os.chdir("/")
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        except OSError as error:
            raise LoadError(
                f"the sandbox runs as root and cannot become nobody ({error.strerror}); run it as an ordinary user, or "
                "allow CAP_SETUID, CAP_SETGID and CAP_SYS_CHROOT"
            ) from error
    elif system is not None and system.unshare(_CLONE_NEWUSER) == 0:
        # In a namespace of its own a process cannot read the memory of one outside, not even the same user's.
        with suppress(OSError):
            os.chroot(".")
            os.chdir("/")
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        system.capset(header, (ctypes.c_uint32 * 6)())
