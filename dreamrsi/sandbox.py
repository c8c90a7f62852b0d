"""Policies that are source files, run in a process of their own that never receives unrevealed data.

``load_policy`` gives an object that replay and live runs use like any other policy. ``replay_sandboxed`` screens one
version on many trees at once. Either way the policy's process holds a copy of the prefix that grows with what was
revealed; the caller keeps the episode, checks every batch against its own prefix and counts. What the sandbox stops
and what it does not is in ``docs/sandbox.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi.errors import IllegalBatch, PolicyError, UserError
from dreamrsi.prefix import Prefix
from dreamrsi.replay import Episode
from dreamrsi.sandbox_child import FLUSH, MAX_ANSWERS, Answer, Ask, Loaded, Plan, Planned
from dreamrsi.sandbox_confine import MAX_TEXT, Setup
from dreamrsi.sandbox_feed import Feed, Walk
from dreamrsi.sandbox_server import Gone, Process, Server, check_limits, printable, shared, shutdown
from dreamrsi.sandbox_values import unpack
from dreamrsi.tree import Tree

__all__ = ["Limits", "SandboxedPolicy", "load_policy", "replay_sandboxed", "shutdown"]

MAX_SOURCE = 2**20
"""Bytes a policy's source may have."""

_MAX_MESSAGE = 2**20  # bytes that are read of one message from a policy's process; more where the width is large
_MAX_PLAN = 2**16  # bytes of a plan
_IMPORT_SECONDS = 60.0  # for the libraries that a policy imports; the policy's own time starts after them
_MAX_NAME = 100
_TOTAL_AN_ATTEMPT = 0.05  # seconds that a replay of many trees has for each of their attempts, beyond Limits.total


@dataclass(frozen=True, slots=True)
class Limits:
    """What a policy may take.

    Attributes
    ----------
    seconds : wall time of one ``choose()`` with the ``start()`` before it; also of loading, without its imports.
    memory : bytes of address space beyond what the imports took. Not enforced on macOS.
    cpu_seconds : CPU time of one process, all its episodes together.
    total : wall time of all choices of one replay in lockstep (:func:`replay_sandboxed`; with ``fresh``, of one
        episode), and 0.05 s more for every attempt that its trees hold. Live runs have no such limit.

    Raises
    ------
    UserError
        One of them is no positive number.
    """

    seconds: float = 5.0
    memory: int = 2**30
    cpu_seconds: int = 600
    total: float = 60.0

    def __post_init__(self) -> None:
        check_limits(self)


def load_policy(path: str | os.PathLike[str], *, limits: Limits | None = None) -> SandboxedPolicy:
    """Load a policy from its source file into a sandbox process.

    Parameters
    ----------
    path : a Python file that defines ``class Policy`` with ``start(width)``, ``choose(prefix)`` and a constructor that
        needs no argument. It may import installed libraries, and built-in policies from :mod:`dreamrsi.policies`.
    limits : the defaults of :class:`Limits` if None.

    Returns
    -------
    SandboxedPolicy
        Close it, or use it in a ``with`` statement: its process lives until then.

    Raises
    ------
    PolicyError
        The file cannot be read, or the policy not be loaded; names file and line, and says what to do.
    """
    return SandboxedPolicy(_read(path), Path(path).name, limits=limits)


def replay_sandboxed(
    source: str | os.PathLike[str] | bytes,
    trees: Sequence[Tree],
    width: int = 8,
    max_rounds: int | None = None,
    *,
    beta: float | None = None,
    fresh: bool = False,
    limits: Limits | None = None,
) -> list[Episode]:
    """Replay one version of a policy on many trees.

    All episodes run in lockstep in one process, a message a round. That is fast, and it lets a policy remember from
    one tree what helps it on another; with ``fresh`` every episode has a process of its own, so that a difference
    between the two shows a policy that remembers.

    Parameters
    ----------
    source : path of a policy's file, or its content.
    width, max_rounds : as for :func:`dreamrsi.replay`.
    beta : set on the policy before each episode, if given.

    Returns
    -------
    list of Episode
        One a tree. Where the policy failed, the episode is a failed one, and the others go on.

    Raises
    ------
    PolicyError
        The policy cannot be loaded.
    """
    if isinstance(source, bytes):
        content, file = source, "policy.py"
    else:
        content, file = _read(source), Path(source).name
    episodes = []
    for together in [[tree] for tree in trees] if fresh else [trees]:
        with SandboxedPolicy(content, file, limits=limits) as policy:
            policy.beta = beta
            episodes += policy.replay_all(together, width, max_rounds)
    return episodes


class SandboxedPolicy:
    """A policy in a process of its own. Close it, or use it in a ``with`` statement.

    Every episode gets a new ``Policy()``. All episodes of one object share the process, and with it the memory of the
    policy's module; after a process has died, the next episode starts a new one.

    Attributes
    ----------
    name : the class attribute ``name`` if it has one, else the name of the file without ``.py``.
    source, sha256 : the bytes that run, and their hash in hexadecimal.
    beta : set on the policy at the start of the next episodes; None leaves it alone.
    default_beta : the policy's own; None if it has no such attribute.
    """

    def __init__(
        self,
        source: bytes,
        file: str = "policy.py",
        *,
        limits: Limits | None = None,
        _off: Iterable[str] = (),
        _server: Server | None = None,
    ) -> None:
        if len(source) > MAX_SOURCE:
            raise PolicyError(f"{file}: has {len(source)} bytes; a policy may have {MAX_SOURCE}")
        self.source = source
        self.sha256 = hashlib.sha256(source).hexdigest()
        self.beta: float | None = None
        self._file = file
        self._limits = limits or Limits()
        self._off = list(_off)
        self._cap = None if "output" in self._off else _MAX_MESSAGE
        self._given_server = _server
        self._process: Process | None = None
        self._closed = False
        self._total = self._left = math.inf  # seconds for all choices of a replay, and what is left of them
        self._feed: Feed | None = None
        loaded = self._launch()
        self.name = printable(loaded.name or "", _MAX_NAME) or Path(file).stem
        self.default_beta = loaded.beta

    def start(self, width: int) -> None:
        """Begin a fresh episode."""
        self._begin(width)

    def choose(self, prefix: Prefix) -> Sequence[int]:
        """Ask for the next batch.

        Raises
        ------
        PolicyError
            It raised, took too long, ended, or answered nonsense; names policy and round.
        """
        if self._feed is None:
            self._feed = Feed(0, prefix, self.beta)
        try:
            [answer] = self._ask([self._feed.ask()])
        except Gone as error:
            raise self._error(prefix.round, str(error)) from None
        if isinstance(answer, dict):
            raise self._refusal(prefix.round, answer)
        self._feed.batch = answer
        return answer

    def replay_all(self, trees: Sequence[Tree], width: int = 8, max_rounds: int | None = None) -> list[Episode]:
        """Replay on many trees in lockstep: one message a round carries the choices of all episodes that still run.

        Returns one episode a tree; where the policy failed, a failed one.
        """
        if width < 1:
            raise UserError(f"width is {width}; a batch needs room for at least one pick")
        self._begin(width)
        self._total = self._left = self._limits.total + _TOTAL_AN_ATTEMPT * sum(map(len, trees))
        walks = [Walk(self, number, tree, width, max_rounds) for number, tree in enumerate(trees)]
        running = [walk for walk in walks if walk.episode is None]
        while running:
            answers: list[Answer] = []
            try:
                self._ask([walk.feed.ask() for walk in running], answers)
            except Gone as error:
                gone = str(error)
            for walk, answer in zip(running, answers, strict=False):
                walk.take(answer)
            for walk in running[len(answers) :]:  # the process is gone, and their episodes with it
                walk.fail(self._error(walk.prefix.round, gone))
            running = [walk for walk in running if walk.episode is None]
        return [walk.episode for walk in walks if walk.episode is not None]

    def plan_grid(self, summaries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Ask a new ``Policy()`` for the caps of the next live run; None if it has no ``plan_grid`` or wants none.

        That policy has a process of its own, so that its episodes are the same with and without a plan.

        Parameters
        ----------
        summaries : of finished runs, plain JSON values.

        Returns
        -------
        dict or None
            What the policy returned, as plain JSON values; a dataclass arrives as a dict. Its meaning is not checked.

        Raises
        ------
        PolicyError
            It raised, took too long, ended, or returned something else.
        """
        settings: Any = {"limits": self._limits, "_off": self._off, "_server": self._given_server}
        with SandboxedPolicy(self.source, self._file, **settings) as other:
            plan = other._plan(Plan(self.beta, list(summaries)))
        if plan is not None and type(plan) is not dict:
            raise PolicyError(f"policy {self.name}: plan_grid() returned a {type(plan).__name__}; it must be a dict")
        return plan

    def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._process is not None:
            self._process.end()

    def __enter__(self) -> SandboxedPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            with contextlib.suppress(Exception):
                self.close()

    def __repr__(self) -> str:
        return f"<sandboxed policy {self.name}, sha256 {self.sha256[:12]}>"

    def _begin(self, width: int) -> None:
        if self._closed:
            raise PolicyError(f"policy {self.name}: was closed; load it again")
        if self._process is None or not self._process.usable:
            if self._process is not None:
                self._process.end()
            self._launch()
        if self._cap is not None:
            self._cap = _MAX_MESSAGE + MAX_ANSWERS * 5 * width  # a pick takes at most five bytes
        self._feed = None
        self._total = self._left = math.inf

    def _launch(self) -> Loaded:
        """Start the process and let it load the policy."""
        limits, file = self._limits, self._file
        setup = Setup(self.source, file, Path(file).stem, limits.memory, limits.cpu_seconds, self._off)
        process = self._process = (self._given_server or shared()).fork()
        try:
            process.send(msgspec.msgpack.encode(setup), limits.seconds)
            process.receive(_IMPORT_SECONDS, "importing its libraries", self._cap)
            answer = process.receive(limits.seconds, "loading", self._cap)
            loaded = msgspec.msgpack.decode(answer, type=Loaded)
        except Gone as error:
            raise PolicyError(f"{file}: {error}; mend what it does while it is loaded") from None
        except msgspec.MsgspecError as error:
            process.end()
            raise PolicyError(f"{file}: talked to the sandbox while it was loaded ({error})") from None
        except BaseException:
            process.end()
            raise
        if loaded.name is None:
            process.end()
            raise PolicyError(printable(loaded.error or f"{file}: cannot be loaded", MAX_TEXT))
        return loaded

    def _ask(self, asks: list[Ask], answers: list[Answer] | None = None) -> list[Answer]:
        """Get an answer to each question, in order; those that came before a failure are in ``answers``."""
        answers = [] if answers is None else answers
        process = self._process
        assert process is not None
        deadline = time.monotonic() + self._left
        try:
            process.send(_encode(asks), self._limits.seconds)
            while len(answers) < len(asks):
                part = _decode(self._receive(process, deadline - time.monotonic()))
                if not 0 < len(part) <= len(asks) - len(answers):
                    raise msgspec.ValidationError(f"{len(part)} answers to {len(asks) - len(answers)} questions")
                answers += part
        except msgspec.MsgspecError as error:
            process.end()
            raise Gone(f"its process gave a malformed answer: {error}") from None
        except Gone:
            raise
        except BaseException:  # Ctrl-C: question and answer would no longer go together
            process.end()
            raise
        finally:
            self._left = deadline - time.monotonic()
        return answers

    def _receive(self, process: Process, left: float) -> bytes:
        """The next answers. What took less than FLUSH may wait for the choice that follows it."""
        seconds = self._limits.seconds
        if left < seconds + FLUSH:
            return process.receive(left, "all choices of this replay together", self._cap, self._total)
        return process.receive(seconds + FLUSH, "choose()", self._cap, seconds)

    def _plan(self, question: Plan) -> Any:
        process = self._process
        assert process is not None
        try:
            process.send(msgspec.msgpack.encode(question), self._limits.seconds)
            answer = process.receive(self._limits.seconds, "plan_grid()", _MAX_PLAN)
            planned = msgspec.msgpack.decode(answer, type=Planned)
            if planned.error is None:
                return None if planned.plan is None else unpack(planned.plan, arrays=False)
        except Gone as error:
            raise PolicyError(f"policy {self.name}: {error}") from None
        except ValueError as error:  # msgspec's errors among them
            raise PolicyError(f"policy {self.name}: plan_grid() gave a malformed answer: {error}") from None
        raise PolicyError(f"policy {self.name}: plan_grid() raised {printable(planned.error, MAX_TEXT)}")

    def _error(self, round_: int, problem: str) -> PolicyError:
        return PolicyError(f"policy {self.name}, round {round_}: {problem}")

    def _refusal(self, round_: int, answer: dict[str, str]) -> PolicyError:
        if "illegal" in answer:
            text = printable(answer["illegal"], MAX_TEXT)  # that of check_batch, if the policy left it alone
            named = text.startswith(f"policy {self.name}, round {round_}")
            return IllegalBatch(text if named else f"policy {self.name}, round {round_}: {text}")
        return self._error(round_, "raised " + printable(answer.get("raised", "something"), MAX_TEXT))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Answer]).decode


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_SOURCE + 1)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); give the path of a policy's file") from error
