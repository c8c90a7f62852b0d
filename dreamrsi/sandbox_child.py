"""What runs on the other side of the sandbox: a server that forks, and the processes that run policies.

The server is a fresh interpreter that has seen nothing but this package and numpy: no tree, no policy, no secret of
the caller. It never runs untrusted code; it forks a process for every policy, which confines itself before it
executes the first line of the policy's source. Everything a policy learns about a tree arrives here as messages that
carry what was revealed and nothing else. What is said here to be a guard is described in ``docs/sandbox.md``.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import functools
import gc
import heapq
import importlib.machinery
import os
import pwd
import resource
import signal
import socket
import struct
import sys
import time
import types
from contextlib import suppress
from typing import Any

import msgspec

from dreamrsi.errors import IllegalBatch
from dreamrsi.record import Attempt, Header, Root, Status
from dreamrsi.replay import check_batch, reveal
from dreamrsi.tree import Branch, Prefix, World

MAX_TEXT = 2000
"""Characters of an error text that are kept."""

CHANNEL = 3  # the descriptor of a policy's process on which questions come and answers go
REQUEST = struct.Struct("<cq")  # to the server: what to do, and with which process
REPLY = struct.Struct("<qi")  # from the server: a process id and a wait status
_LENGTH = struct.Struct("<I")
_FLUSH = 0.5  # seconds after which answers that are there are sent, though others are still to come
_EXIT_WAIT = 0.5  # seconds that a process which closed its channel has to end, so that its exit code is known
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWUSER = 0x10000000
_CAPABILITY_VERSION_3 = 0x20080522


class Setup(msgspec.Struct, array_like=True):
    """The first message: the source, and the limits to run it under. ``off`` switches guards off, for tests."""

    source: bytes
    file: str
    stem: str
    memory: int
    cpu_seconds: int
    off: list[str]


class Loaded(msgspec.Struct, array_like=True):
    """The answer to it. ``name`` is None where loading failed, and ``error`` says why."""

    name: str | None
    error: str | None
    beta: float | None


class Start(msgspec.Struct, array_like=True):
    """What is known at the start of an episode: what :class:`~dreamrsi.tree.Prefix` takes from a tree's header."""

    width: int
    beta: float | None
    root: float | None
    advice: str | None
    branches: int | None
    steps: int | None
    forks: bool


Seen = tuple[float, Status]
"""Score (-inf for a failure) and status of a revealed attempt."""


class News(msgspec.Struct, array_like=True):
    """What the last batch revealed: by each extending pick (None: nothing), by each branch that was opened."""

    extended: list[Seen | None]
    opened: list[tuple[float, Status, str | None, tuple[int, int] | None]]
    open_failed: int


class Ask(msgspec.Struct, array_like=True):
    """One question, for the next batch of one episode. Episodes that a message leaves out are over."""

    episode: int
    start: Start | None
    news: News | None


Answer = list[int] | dict[str, str]
"""A batch, or {"illegal" or "raised": what went wrong}."""


# The server.


def serve(control_fd: int) -> None:
    """Fork processes at the caller's request until it hangs up; then end them all."""
    with suppress(ImportError):
        import numpy.random  # noqa: F401  # most policies that import anything import this; it is forked with the rest
    control = socket.socket(fileno=control_fd)
    _libc(), _nobody()  # looked up here once, not in every process
    gc.freeze()  # collections in the processes leave these objects, and so the shared pages, alone
    control.sendall(REPLY.pack(os.getpid(), 0))
    running: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(control, REQUEST.size, 1)
        if len(message) < REQUEST.size:
            break
        command, process = REQUEST.unpack(message)
        if command == b"f":
            process = os.fork()
            if process == 0:
                _policy_process(fds[0])
            running.add(process)
            os.close(fds[0])
            control.sendall(REPLY.pack(process, 0))
        elif process in running:
            running.discard(process)
            control.sendall(REPLY.pack(process, _end(process, _EXIT_WAIT if command == b"w" else 0.0)))
    for process in running:
        _end(process, 0.0)


def _end(process: int, wait: float) -> int:
    """Kill a process and its group, after ``wait`` seconds in which it may end by itself; return its wait status."""
    limit = time.monotonic() + wait
    while wait and time.monotonic() < limit:
        # Looked at without reaping it: as long as it is a zombie, its number and its group's are not given to others.
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.002)
    for kill in (os.killpg, os.kill):  # the group may not be there yet
        with suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


# A policy's process.


def _policy_process(fd: int) -> None:
    """Run one policy on the given channel and never return."""
    try:
        os.setsid()
        os.dup2(fd, CHANNEL)
        os.closerange(CHANNEL + 1, 1024)  # the server's own channel among them
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the caller has hung up
            _work()
        os._exit(0)
    finally:
        os._exit(1)


def _work() -> None:
    setup = msgspec.msgpack.decode(_receive(), type=Setup)
    try:
        missing = _import_for(setup.source)
        _send(b"")  # the imports are done: from here on the policy's own time counts
        _confine(setup)
        made = _load(setup, missing)
    except _LoadError as error:
        _send(msgspec.msgpack.encode(Loaded(None, str(error)[:MAX_TEXT], None)))
        return
    name = getattr(made, "name", None)
    name = name if isinstance(name, str) else setup.stem
    beta = getattr(made, "beta", None)
    beta = float(beta) if isinstance(beta, (int, float)) else None
    _send(msgspec.msgpack.encode(Loaded(name, None, beta)))
    _answer(made, name, setup.file)


def _receive() -> bytes:
    size = _LENGTH.unpack(_exactly(_LENGTH.size))[0]
    return _exactly(size)


def _exactly(size: int) -> bytes:
    chunks = []
    while size:
        chunk = os.read(CHANNEL, size)
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _send(body: bytes) -> None:
    view = memoryview(_LENGTH.pack(len(body)) + body)
    while view:
        view = view[os.write(CHANNEL, view) :]


# Loading.


class _LoadError(Exception):
    """The policy cannot be loaded; the text says where and what to do."""


def _import_for(source: bytes) -> dict[str, str]:
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


def _load(setup: Setup, missing: dict[str, str]) -> type:
    """Execute the source and return its class Policy."""
    file = setup.file
    module = types.ModuleType("policy")
    sys.modules["policy"] = module  # dataclasses and pickle look there
    try:
        exec(compile(setup.source, file, "exec", dont_inherit=True), module.__dict__)  # nosec: this is the sandbox
    except SyntaxError as error:
        raise _LoadError(f"{file}, line {error.lineno}: SyntaxError: {error.msg}; mend the line") from None
    except ImportError as error:
        reason = missing.get(error.name or "", _text(error))
        where = _where(error, file)
        raise _LoadError(
            f"{where}: cannot import {error.name} ({reason}); install it, or import what is installed. Imports must be "
            "written as import statements: only those are loaded before files are closed to the policy"
        ) from None
    except BaseException as error:
        raise _LoadError(f"{_where(error, file)}: raised {_text(error)} while it was loaded; mend the line") from None
    made = module.__dict__.get("Policy")
    if not isinstance(made, type):
        raise _LoadError(f"{file}: defines no class Policy; the class with start() and choose() must have that name")
    try:
        policy: Any = made()
    except BaseException as error:
        raise _LoadError(
            f"{_where(error, file)}: Policy() raised {_text(error)}; its constructor must work without arguments"
        ) from None
    for method in ("start", "choose"):
        if not callable(getattr(policy, method, None)):
            raise _LoadError(f"{file}: class Policy has no method {method}(); a policy has start() and choose()")
    return made


def _where(error: BaseException, file: str) -> str:
    """The last line of the policy that the error passed through."""
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    return file if line is None else f"{file}, line {line}"


def _text(error: BaseException) -> str:
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        return f"{kind}: out of memory"
    try:
        text = f"{kind}: {error}".encode(errors="replace").decode()[:MAX_TEXT]
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.EAGAIN):
            text += ": a policy can open no files or sockets and start no processes"
    except Exception:
        return kind
    return text.removesuffix(": ")


# Confinement.


def _confine(setup: Setup) -> None:
    """Give up, for good, everything a policy does not need. Each guard has a name by which a test switches it off."""
    off = set(setup.off)
    if "files" not in off:
        finders = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders]  # the others open files
    libc = _libc()
    taken = _address_space()
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (setup.cpu_seconds, setup.cpu_seconds + 1))
    if "user" not in off:
        _drop_user(libc)
    if libc is not None:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the user was changed, which clears it
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process of the same user reads this one's memory
    if "memory" not in off:
        with suppress(OSError, ValueError):  # macOS
            limit = taken + setup.memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if "processes" not in off:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if "files" not in off:
        # Zero, not the number of those that are open: a policy could close one and open another in its place.
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


@functools.cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


@functools.cache
def _nobody() -> tuple[int, int]:
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


def _drop_user(libc: ctypes.CDLL | None) -> None:
    """See no file system any more, and become nobody; an ordinary user does so in a user namespace, where allowed."""
    if os.getuid() == 0:
        user, group = _nobody()
        try:
            os.chroot(".")  # an empty folder that belongs to the caller
            os.chdir("/")
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        except OSError as error:
            raise _LoadError(
                f"the sandbox runs as root and cannot become nobody ({error.strerror}); run it as an ordinary user, or "
                "allow CAP_SETUID, CAP_SETGID and CAP_SYS_CHROOT"
            ) from error
    elif libc is not None and libc.unshare(_CLONE_NEWUSER) == 0:
        # In a namespace of its own a process cannot read the memory of one outside, not even the same user's.
        with suppress(OSError):
            os.chroot(".")
            os.chdir("/")
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        libc.capset(header, (ctypes.c_uint32 * 6)())


# Episodes.


class _Episode:
    """The copy of an episode on this side: a world that grows with what was revealed, and the policy that walks it."""

    def __init__(self, policy: Any, start: Start) -> None:
        header = Header(task="", branches=start.branches, steps=start.steps, recommended=start.advice)
        self.world = World(msgspec.structs.replace(header, root=Root(start.root)))
        if start.forks:
            self.world.children[-1, -1] = []  # an origin that no branch has: the prefix only asks whether there are any
        self.prefix = Prefix(self.world, start.width)
        self.reveals: list[int] = []
        self.batch: tuple[int, ...] = ()
        self.policy = policy
        if start.beta is not None:
            policy.beta = start.beta
        policy.start(start.width)

    def learn(self, news: News) -> None:
        """Add what the last batch revealed to the world, then reveal it as any replay does."""
        world, prefix = self.world, self.prefix
        branches: list[Branch] = prefix.branches  # type: ignore[assignment]
        seen = iter(news.extended)
        for pick in self.batch:
            if pick >= 0:
                outcome = next(seen)
                if outcome is not None:
                    world.chains[pick].append(*outcome)
        for score, status, tag, origin in news.opened:
            number = len(world.chains)
            if origin is not None and origin[1] < branches[origin[0]]._n:
                heapq.heappush(prefix._available, number)  # its origin was revealed before the fork was known
            attempt = Attempt(branch=number, attempt=0, seq=0, score=score, status=status, tag=tag, origin=origin)
            world.add(number, attempt)
        reveal(prefix, self.batch, self.reveals)
        prefix._open_failed = news.open_failed


def _answer(made: type, name: str, file: str) -> None:
    """Answer questions until the caller hangs up."""
    decode = msgspec.msgpack.Decoder(list[Ask]).decode
    encode = msgspec.msgpack.Encoder().encode
    episodes: dict[int, _Episode] = {}
    while True:
        asks = decode(_receive())
        known, episodes = episodes, {}
        answers: list[tuple[int, ...] | dict[str, str]] = []
        sent = time.monotonic()
        for ask in asks:
            answers.append(_choose(made, name, file, ask, known, episodes))
            if time.monotonic() - sent > _FLUSH:
                _send(encode(answers))
                answers = []
                sent = time.monotonic()
        if answers:
            _send(encode(answers))


def _choose(
    made: type, name: str, file: str, ask: Ask, known: dict[int, _Episode], episodes: dict[int, _Episode]
) -> tuple[int, ...] | dict[str, str]:
    try:
        if ask.start is not None:
            episode = _Episode(made(), ask.start)
        else:
            episode = known[ask.episode]
        episodes[ask.episode] = episode
        if ask.news is not None:
            episode.learn(ask.news)
        episode.batch = check_batch(name, episode.prefix, episode.policy.choose(episode.prefix))
        return episode.batch
    except IllegalBatch as error:
        return {"illegal": str(error)[:MAX_TEXT].encode(errors="replace").decode()}
    except BaseException as error:
        where = _where(error, file)
        return {"raised": f"{_text(error)} ({where})"}
