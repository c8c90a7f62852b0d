"""What runs on the other side of the sandbox: a server that forks, and the processes that run policies and programs.

The server is a fresh interpreter that has seen nothing but this package and numpy: no tree, no policy, no secret of
the caller. It never runs untrusted code; it forks a process for every policy or candidate program, which confines
itself before it executes the first line of the source. Everything a policy learns about a tree arrives here as messages
that carry what was revealed and nothing else. What is said here to be a guard is described in ``docs/sandbox.md``.
"""

from __future__ import annotations

import gc
import heapq
import os
import signal
import socket
import struct
import time
from contextlib import suppress
from typing import Any

import msgspec

from dreamrsi.errors import IllegalBatch
from dreamrsi.prefix import Branch, Prefix, World
from dreamrsi.record import Attempt, Header, Root, Status
from dreamrsi.replay import check_batch, reveal
from dreamrsi.sandbox_calls import ready
from dreamrsi.sandbox_channel import CHANNEL, receive, send
from dreamrsi.sandbox_confine import (
    MAX_TEXT,
    LoadError,
    Setup,
    confine,
    execute,
    import_for,
    libc,
    nobody,
    policy_class,
    text_of,
    where,
)
from dreamrsi.sandbox_program import answer_calls
from dreamrsi.sandbox_values import pack

REQUEST = struct.Struct("<cq")  # to the server: what to do, and with which process
REPLY = struct.Struct("<qi")  # from the server: a process id and a wait status
MAX_ANSWERS = 100  # in one message
FLUSH = 0.02
"""Seconds after which answers that are there are sent, though others are still to come: the caller waits for each."""
_EXIT_WAIT = 0.5  # seconds that a process which closed its channel has to end, so that its exit code is known


class Loaded(msgspec.Struct, array_like=True):
    """The answer to the setup. ``name`` is None where loading failed, and ``error`` says why."""

    name: str | None
    error: str | None
    beta: float | None


class Start(msgspec.Struct, array_like=True):
    """What is known at the start of an episode: what :class:`~dreamrsi.prefix.Prefix` takes from a tree's header."""

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


class Plan(msgspec.Struct):
    """Another question: what :meth:`plan_grid` says to summaries of finished runs (plain JSON values)."""

    beta: float | None
    summaries: list[dict[str, Any]]


class Planned(msgspec.Struct, array_like=True):
    """The answer to it: the plan, packed; None where the policy has no such method."""

    plan: bytes | None
    error: str | None


Answer = list[int] | dict[str, str]
"""A batch, or {"illegal" or "raised": what went wrong}."""


# The server.


def serve(control_fd: int) -> None:
    """Fork processes at the caller's request until it hangs up; then end them all."""
    with suppress(ImportError):
        import numpy.random  # noqa: F401  # most policies that import anything import this; it is forked with the rest
    control = socket.socket(fileno=control_fd)
    # What is set up at the first use is set up here, once.
    libc()
    nobody()
    ready()
    import_for(b"import dreamrsi.policies")
    gc.freeze()  # collections in the processes leave these objects, and so the shared pages, alone
    running: set[int] = set()
    try:
        control.sendall(REPLY.pack(os.getpid(), 0))  # raises where the caller has been killed meanwhile
        _serve(control, running)
    finally:
        for process in running:
            _end(process, 0.0)
        with suppress(OSError):
            os.rmdir(os.getcwd())  # the caller made it, and may have been killed


def _serve(control: socket.socket, running: set[int]) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(control, REQUEST.size, 1)
        if len(message) < REQUEST.size:
            return
        command, process = REQUEST.unpack(message)
        if command == b"f":
            process = os.fork()
            if process == 0:
                _process(fds[0])
            running.add(process)
            os.close(fds[0])
            control.sendall(REPLY.pack(process, 0))
        elif process in running:
            running.discard(process)
            control.sendall(REPLY.pack(process, _end(process, _EXIT_WAIT if command == b"w" else 0.0)))


def _end(process: int, wait: float) -> int:
    """Kill a process and its group, after ``wait`` seconds in which it may end by itself; return its wait status."""
    limit = time.monotonic() + wait
    ended, status = 0, 0
    while wait and not ended and time.monotonic() < limit:
        ended, status = os.waitpid(process, os.WNOHANG)
        time.sleep(0.002)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    if not ended:
        os.kill(process, signal.SIGKILL)  # it may be too young to have its own group
        status = os.waitpid(process, 0)[1]
    return status


# A sandboxed process.


def _process(fd: int) -> None:
    """Run one policy or program on the given channel and never return."""
    try:
        os.setsid()
        os.dup2(1, 2)  # the server's own errors go to the caller
        os.dup2(fd, CHANNEL)
        os.closerange(CHANNEL + 1, 1024)  # the server's own channel among them
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the caller has hung up
            _work()
        os._exit(0)
    finally:
        os._exit(1)


def _work() -> None:
    setup = msgspec.msgpack.decode(receive(), type=Setup)
    try:
        missing = import_for(setup.source)
        send(b"")  # the imports are done: from here on the policy's own time counts
        confine(setup)
        module = execute(setup, missing)
        made = None if setup.program else policy_class(module, setup.file)
    except LoadError as error:
        send(msgspec.msgpack.encode(Loaded(None, str(error)[:MAX_TEXT], None)))
        return
    if made is None:
        send(msgspec.msgpack.encode(Loaded(setup.stem, None, None)))
        return answer_calls(module, setup.file)
    name = getattr(made, "name", None)
    name = name if isinstance(name, str) else setup.stem
    beta = getattr(made, "beta", None)
    beta = float(beta) if isinstance(beta, (int, float)) else None
    send(msgspec.msgpack.encode(Loaded(name, None, beta)))
    _answer(made, name, setup.file)


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
            if origin is not None and origin[0] < len(branches) and origin[1] < branches[origin[0]]._n:
                heapq.heappush(prefix._available, number)  # its origin was revealed before the fork was known
            attempt = Attempt(branch=number, attempt=0, seq=0, score=score, status=status, tag=tag, origin=origin)
            world.add(number, attempt)
        reveal(prefix, self.batch, self.reveals)
        prefix._open_failed = news.open_failed


def _answer(made: type, name: str, file: str) -> None:
    """Answer questions until the caller hangs up."""
    decode = msgspec.msgpack.Decoder(list[Ask] | Plan).decode
    encode = msgspec.msgpack.Encoder().encode
    episodes: dict[int, _Episode] = {}
    while True:
        asks = decode(receive())
        if isinstance(asks, Plan):
            send(encode(_plan(made, asks, file)))
            continue
        known, episodes = episodes, {}
        answers: list[tuple[int, ...] | dict[str, str]] = []
        sent = time.monotonic()
        for ask in asks:
            answers.append(_choose(made, name, file, ask, known, episodes))
            if len(answers) == MAX_ANSWERS or time.monotonic() - sent > FLUSH:
                send(encode(answers))
                answers = []
                sent = time.monotonic()
        if answers:
            send(encode(answers))


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
        return {"raised": f"{text_of(error)} ({where(error, file)})"}


def _plan(made: type, question: Plan, file: str) -> Planned:
    try:
        policy: Any = made()
        if not hasattr(policy, "plan_grid"):
            return Planned(None, None)
        if question.beta is not None:
            policy.beta = question.beta
        return Planned(pack(policy.plan_grid(question.summaries)), None)
    except BaseException as error:
        return Planned(None, f"{text_of(error)} ({where(error, file)})")
