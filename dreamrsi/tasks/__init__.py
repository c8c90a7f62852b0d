"""Tasks: what a live run searches. A task is a seed workspace, ``evaluate(workspace) -> Evaluation``, and its moves.

A task that agents search by writing a program says so with a :class:`Program`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.record import Status
from dreamrsi.workspace import Files

Move = Callable[[Files, int], Files]
"""A move makes the next candidate. A function of (the parent's files, seed), bounded by iterations, never by time."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an evaluator found: a score if the candidate is ``ok``, else the reason why it has none.

    ``metrics`` are further numbers to keep with the attempt (JSON values); no policy sees them.

    Raises
    ------
    ValueError
        An ``ok`` without a finite score, or a score of a candidate that is not ``ok``.
    """

    score: float | None = None
    status: Status = "ok"
    error: str | None = None
    metrics: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.status != "ok" and self.score is not None:
            raise ValueError(f"a candidate that is {self.status} has no score; this one has {self.score!r}")
        if self.status == "ok" and not (isinstance(self.score, (int, float)) and math.isfinite(self.score)):
            raise ValueError(f"the score of a candidate that is ok is a finite number; this one is {self.score!r}")


def invalid(reason: str, **metrics: Any) -> Evaluation:
    """The evaluation of a candidate that breaks the task's rules."""
    return Evaluation(status="invalid", error=reason, metrics=metrics)


@dataclass(frozen=True)
class Program:
    """What an agent that writes programs works on; the program's ``solve(seed)`` makes the artifact.

    Wherever an agent leaves a workspace with the file ``path``, that program runs in the sandbox
    (:mod:`dreamrsi.programs`), and what ``solve`` returns becomes the file ``artifact``, in place of one that is there.

    Attributes
    ----------
    path : the file in the workspace that an agent edits; it defines ``solve(seed: int)``.
    artifact : the file that is made of what ``solve`` returns: a JSON value, in which arrays become lists.
    statement : what the program must do, for whoever writes it.
    seed : the first program.
    seconds : wall time of ``solve``, and of loading the source before it, without its imports.
    memory : bytes of address space beyond what its imports took.
    """

    path: str
    artifact: str
    statement: str
    seed: bytes
    seconds: float = 60.0
    memory: int = 2**30


def read_json(artifact: bytes | None, name: str, most: int) -> Any:
    """The JSON value of an artifact.

    Raises
    ------
    ValueError
        It is missing, has more than ``most`` bytes, or is not JSON; says which, by the artifact's name.
    """
    if artifact is None:
        raise ValueError(f"{name} is missing")
    if len(artifact) > most:
        raise ValueError(f"{name} has {len(artifact)} bytes; more than {most} are not read")
    try:
        return json.loads(artifact)
    except (ValueError, RecursionError) as error:  # ValueError: JSON, UTF-8, and integers of too many digits
        raise ValueError(f"{name} is not JSON ({error})") from None


class Task(Protocol):
    """What a live run asks of a task. Child processes get a copy of it, so it must be picklable and hold little."""

    @property
    def name(self) -> str:
        """Its name in records; ``make`` turns it back into the task."""

    @property
    def requires(self) -> Sequence[str]:
        """Modules worth importing once for all attempts; their versions go into the record."""

    @property
    def moves(self) -> Mapping[str, Move]:
        """Name -> move, for the offline agent."""

    @property
    def program(self) -> Program | None:
        """What an agent that writes programs works on; None, or no such attribute, where candidates are no programs."""

    def seed_workspace(self) -> Files:
        """The files that every branch starts from."""

    def evaluate(self, files: Files) -> Evaluation:
        """Score a workspace from its artifact alone; claims of the candidate count for nothing."""


def program_of(task: Task) -> Program | None:
    """The task's program; None for a task that has no such attribute either."""
    return getattr(task, "program", None)


TASKS = {
    "circle_packing": "dreamrsi.tasks.circle_packing:CirclePacking",
    "autocorrelation": "dreamrsi.tasks.autocorrelation:Autocorrelation",
    "sum_difference": "dreamrsi.tasks.sum_difference:SumDifference",
}
"""Name -> where the class of every built-in task is; it is imported when it is asked for."""


def make(text: str) -> Task:
    """Build a task from ``name`` or ``name:key=value,...``, values being whole numbers, as records name it.

    Raises
    ------
    UserError
        Unknown name or parameter, or a value that is not a whole number.
    """
    name, _, rest = text.partition(":")
    if name not in TASKS:
        raise UserError(
            f"there is no task {name!r}; choose one of {', '.join(TASKS)}. Your own task runs from Python: "
            "docs/adding-a-task.md"
        )
    module, _, attribute = TASKS[name].partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    known = list(inspect.signature(kind).parameters)
    values: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise UserError(f"task {name} has no parameter {key!r}; it has {', '.join(known) or 'none'}")
        try:
            values[key] = int(value)
        except ValueError:
            raise UserError(f"task {name}: {part!r} is not key=value with a whole number") from None
    task: Task = kind(**values)
    return task
