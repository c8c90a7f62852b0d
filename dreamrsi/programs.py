"""Candidate programs: functions of untrusted source, called in a process of their own.

The process is one of the sandbox (``docs/sandbox.md``): it can open no file, start nothing, sees no environment and
nothing of the caller. Whatever a program does, its caller gets a :class:`Result` and never an exception.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from dreamrsi.sandbox_child import Loaded
from dreamrsi.sandbox_confine import MAX_TEXT, Setup
from dreamrsi.sandbox_program import Call, Done, Given, Go
from dreamrsi.sandbox_server import Gone, Late, Process, Server, check_limits, printable, shared
from dreamrsi.sandbox_values import pack, unpack
from dreamrsi.tasks import Program

MAX_SOURCE = 2**20
"""Bytes that a program's source may have."""

MAX_NUMBERS = 10**6
"""Numbers that the arrays of an artifact may have together: as texts they take up to 25 bytes each, as objects more."""

_MAX_ANSWER = 2**16  # bytes that are read of any answer but a value
_IMPORT_SECONDS = 120.0  # for the libraries that a program imports; its own time starts after them
_TOKEN = 8  # bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may take.

    Attributes
    ----------
    seconds : wall time of one call, and of loading the source before the first, without its imports.
    memory : bytes of address space beyond what the imports took, arguments included. Not enforced on macOS.
    cpu_seconds : CPU time of the process, its imports and all calls together.
    output : bytes that a value may have.

    Raises
    ------
    UserError
        One of them is no positive number.
    """

    seconds: float = 60.0
    memory: int = 2**30
    cpu_seconds: int = 600
    output: int = 2**24

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a call.

    Attributes
    ----------
    status : ``ok``, ``error`` or ``timeout``.
    value : what the function returned, in JSON values and arrays; None if the call failed.
    reason : why there is no value.
    seconds : wall time of the function's work, by the caller's clock; 0 if it did not get that far.
    untimed : seconds in which the process took the arguments, and gave the value. Work that hides there shows here.
    """

    status: Literal["ok", "error", "timeout"]
    value: Any = None
    reason: str | None = None
    seconds: float = 0.0
    untimed: tuple[float, float] = (0.0, 0.0)


def call(
    source: bytes,
    function: str,
    arguments: Iterable[Any] = (),
    *,
    file: str = "program.py",
    limits: Limits | None = None,
) -> Result:
    """Load a program into a fresh process, call one of its functions, and end the process.

    Parameters
    ----------
    source : of the program, at most ``MAX_SOURCE`` bytes.
    function : the name of a function that it defines.
    arguments : JSON values and NumPy arrays of numbers, passed by position. Arrays arrive as copies.
    file : the name that reasons give to the source.
    limits : the defaults of :class:`Limits` if None.

    Raises
    ------
    TypeError, ValueError, OverflowError, RecursionError
        An argument is no such value. Nothing that the program does raises.
    """
    with Candidate(source, file, limits=limits) as candidate:
        return candidate.call(function, *arguments)


def make_artifact(program: Program, source: bytes, seed: int, *, scratch: str | os.PathLike[str]) -> Result:
    """Run a task's program: the value of the result, if it is ok, is the content of the artifact as bytes.

    It has a sandbox of its own, which is gone afterwards, so that nothing is left where an attempt is killed.

    Parameters
    ----------
    source : of the program that an agent left.
    seed : passed to its ``solve``.
    scratch : a folder for what little the sandbox needs there.
    """
    limits = Limits(program.seconds, program.memory, cpu_seconds=math.ceil(2 * program.seconds) + 60)
    with (
        contextlib.closing(Server(folder=scratch)) as server,
        Candidate(source, program.path, limits=limits, _server=server) as candidate,
    ):
        result = candidate.call("solve", seed)
    if result.status != "ok":
        return result
    try:
        return Result("ok", artifact_bytes(result.value), None, result.seconds, result.untimed)
    except (ValueError, RecursionError) as error:
        problem = "too deep a nesting" if isinstance(error, RecursionError) else error
        return Result("error", None, f"{program.path}: solve() returned {problem}", result.seconds, result.untimed)


def artifact_bytes(value: Any) -> bytes:
    """A value as the JSON text of an artifact, arrays as lists, one item of an outer list a line.

    Every float reads back the same. Infinities and NaN are written as Python writes them; judges refuse them.

    Raises
    ------
    ValueError
        It holds complex numbers, floats wider than float64, or more than ``MAX_NUMBERS`` numbers in arrays.
    RecursionError
        It is nested too deep.
    """
    numbers = 0

    def plain(part: Any) -> Any:
        nonlocal numbers
        if part.dtype.kind == "c":
            raise ValueError("complex numbers, which JSON has none of")
        if part.dtype.kind == "f" and part.dtype.itemsize > 8:
            raise ValueError(f"numbers of {part.dtype}; make them float64")
        numbers += part.size
        if numbers > MAX_NUMBERS:
            raise ValueError(f"arrays of more than {MAX_NUMBERS:,} numbers, which is too much for an artifact")
        return part.tolist()

    if hasattr(value, "tolist"):
        value = plain(value)
    if isinstance(value, list):
        text = "[" + ",\n ".join(json.dumps(item, default=plain) for item in value) + "]"
    else:
        text = json.dumps(value, default=plain)
    return (text + "\n").encode()


class Candidate:
    """A program in a process of its own. Close it, or use it in a ``with`` statement.

    All calls share the process, and with it what the program keeps in memory between them. Once the process is gone,
    through a timeout say, or could not load the source, every call gives that same failure.
    """

    def __init__(
        self,
        source: bytes,
        file: str = "program.py",
        *,
        limits: Limits | None = None,
        _off: Iterable[str] = (),
        _server: Server | None = None,
    ) -> None:
        self._file = file
        self._limits = limits or Limits()
        self._off = list(_off)
        self._process: Process | None = None
        self.failure: Result | None = None
        if len(source) > MAX_SOURCE:
            self._fail("error", f"has {len(source)} bytes; a program may have {MAX_SOURCE}")
            return
        self._process = (_server or shared()).fork()
        try:
            self._load(source)
        except Gone as error:
            self._gone(error)
        except msgspec.MsgspecError as error:
            self._fail("error", f"talked to the sandbox while it was loaded ({error})")
        except BaseException:
            self.close()
            raise

    def call(self, function: str, *arguments: Any) -> Result:
        """Call a function of the program; as :func:`call`, which says what may be passed and what comes back."""
        packed = pack(list(arguments))
        if self.failure is not None:
            return self.failure
        try:
            return self._call(msgspec.msgpack.encode(Call(function, packed)))
        except Gone as error:
            return self._gone(error)
        except ValueError as error:  # msgspec's errors among them
            return self._fail("error", f"gave a malformed answer: {error}")
        except BaseException:  # Ctrl-C: question and answer would no longer go together
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
        if self.failure is None:
            self.failure = Result("error", None, f"{self._file}: was closed")

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, source: bytes) -> None:
        process, limits = self._process, self._limits
        assert process is not None
        stem = Path(self._file).stem
        setup = Setup(source, self._file, stem, limits.memory, limits.cpu_seconds, self._off, program=True)
        process.send(msgspec.msgpack.encode(setup), limits.seconds)
        process.receive(_IMPORT_SECONDS, "importing its libraries", self._cap(_MAX_ANSWER))
        answer = process.receive(limits.seconds, "loading", self._cap(_MAX_ANSWER))
        loaded = msgspec.msgpack.decode(answer, type=Loaded)
        if loaded.name is None:
            self.failure = Result("error", None, printable(loaded.error or f"{self._file}: cannot be loaded", MAX_TEXT))
            process.end()

    def _call(self, question: bytes) -> Result:
        process, name = self._process, "its call"
        assert process is not None
        start = time.monotonic()
        deadline = start + self._limits.seconds
        process.send(question, self._limits.seconds)
        process.receive(deadline - time.monotonic(), "taking its arguments", self._cap(_MAX_ANSWER))
        token = os.urandom(_TOKEN)
        went = time.monotonic()
        process.send(msgspec.msgpack.encode(Go(token)), self._limits.seconds)
        answer = process.receive(self._limits.seconds, name, self._cap(_MAX_ANSWER))
        returned = time.monotonic()
        done = msgspec.msgpack.decode(answer, type=Done)
        if done.token != token and "token" not in self._off:
            raise ValueError("it answered before it was asked")
        seconds = returned - went
        if done.error is not None:
            return Result("error", None, printable(done.error, MAX_TEXT), seconds, (went - start, 0.0))
        process.send(b"", self._limits.seconds)
        answer = process.receive(self._limits.seconds, "giving its value", self._cap(self._limits.output))
        untimed = (went - start, time.monotonic() - returned)
        given = msgspec.msgpack.decode(answer, type=Given)
        if given.error is not None:
            reason = printable(f"{self._file}: the value cannot be sent ({given.error})", MAX_TEXT)
            return Result("error", None, reason, seconds, untimed)
        try:
            return Result("ok", unpack(given.value), None, seconds, untimed)
        except ValueError as error:
            reason = printable(f"{self._file}: the value cannot be read ({error})", MAX_TEXT)
            return Result("error", None, reason, seconds, untimed)

    def _cap(self, size: int) -> int | None:
        return None if "output" in self._off else size + 64  # what a message needs around its content

    def _gone(self, error: Gone) -> Result:
        return self._fail("timeout" if isinstance(error, Late) else "error", str(error))

    def _fail(self, status: Literal["error", "timeout"], problem: str) -> Result:
        self.close()
        self.failure = Result(status, None, printable(f"{self._file}: {problem}", MAX_TEXT))
        return self.failure
