"""The tree of one run: attempts in branches, checked."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dreamrsi.errors import RecordError
from dreamrsi.files import atomic_write
from dreamrsi.prefix import OPEN, World
from dreamrsi.record import (
    Attempt,
    Batch,
    Header,
    Record,
    TornRecordWarning,
    encode_lines,
    read_record,
)


class Tree:
    """The record of one run.

    Attributes
    ----------
    header : caps, task, origin of the record.
    attempts : every attempt in the order of ``seq``.
    branches : one list of attempts a branch, in the order the branches were opened.
    batches : the picks of every round as a live run recorded them; empty in other records.
    name : where it came from, for messages.

    Raises
    ------
    RecordError
        The attempts do not form a tree: a duplicate, a gap in a branch, an origin that does not exist or comes later,
        a cap exceeded, a ``seq`` used twice, a score that is not finite or does not go with the status; or the recorded
        batches are not those that make these attempts.
    """

    def __init__(
        self,
        header: Header,
        attempts: Iterable[Attempt],
        batches: Iterable[Batch] = (),
        name: str = "tree",
        lines: Sequence[int] | None = None,
    ) -> None:
        self.header = header
        self.name = name
        given = list(attempts)
        where = {id(a): n for a, n in zip(given, lines, strict=True)} if lines is not None else {}
        self.attempts = sorted(given, key=lambda attempt: attempt.seq)
        self.batches = tuple(sorted(batches, key=lambda batch: batch.round))
        self.branches = _grow(self, where)
        _check_batches(self)
        self.world = World(header)
        for attempt in self.attempts:
            self.world.add(attempt.branch, attempt)

    @property
    def best(self) -> float:
        """The best recorded score, the root's included; -inf if nothing was scored."""
        top = max((chain.tops[-1] for chain in self.world.chains), default=-math.inf)
        return top if self.root is None else max(top, self.root)

    @property
    def best_attempt(self) -> Attempt | None:
        """The earliest attempt with the best score; None if no attempt was scored."""
        scored = [attempt for attempt in self.attempts if attempt.score is not None]
        return max(scored, key=lambda attempt: (attempt.score, -attempt.seq), default=None)

    @property
    def root(self) -> float | None:
        """The root's score."""
        return self.header.root.score

    @property
    def picks(self) -> tuple[tuple[int, ...], ...]:
        """The recorded batches, pick for pick; empty where the record has none."""
        return tuple(batch.picks for batch in self.batches)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tree:
        """Read a tree from a JSON Lines file.

        The attempts of a batch that was cut off are left out with a warning: the rest is a tree of whole rounds.

        Raises
        ------
        RecordError
            Names file, line and field of the first flaw.
        """
        record = whole_rounds(read_record(path), str(path))
        return cls(record.header, record.attempts, record.batches, str(path), record.lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tree; the file is there whole or not at all."""
        atomic_write(Path(path), encode_lines(self.header, self.attempts, self.batches))

    def __len__(self) -> int:
        return len(self.attempts)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self.attempts)

    def __repr__(self) -> str:
        size = f"{len(self.branches)} branches, {len(self)} attempts"
        return f"<tree {self.name}: {self.header.task}, {size}, best {self.best:g}>"


def whole_rounds(record: Record, name: str) -> Record:
    """Leave out a last batch whose attempts are not all there, as after a crash; with a warning."""
    if not record.batches:
        return record
    last = max(record.batches, key=lambda batch: batch.round)
    there = sum(attempt.round == last.round for attempt in record.attempts)
    if there >= last.attempts:
        return record
    warnings.warn(
        f"{name}: round {last.round} was cut off with {there} of {last.attempts} attempts and was left out; "
        "resume the run to finish it",
        TornRecordWarning,
        stacklevel=3,
    )
    kept = [(a, n) for a, n in zip(record.attempts, record.lines, strict=True) if a.round != last.round]
    batches = sorted((batch for batch in record.batches if batch is not last), key=lambda batch: batch.round)
    while batches and batches[-1].attempts == 0:  # a live run records those only before a batch that creates something
        batches.pop()
    return Record(record.header, [a for a, _ in kept], batches, [n for _, n in kept], record.size)


def _grow(tree: Tree, where: dict[int, int]) -> list[list[Attempt]]:
    """Sort the attempts into branches and check that they form a tree."""

    def flaw(attempt: Attempt, field: str, problem: str) -> RecordError:
        line = f", line {where[id(attempt)]}" if id(attempt) in where else ""
        return RecordError(
            f"{tree.name}{line}, branch {attempt.branch}, attempt {attempt.attempt}: {problem} - at `$.{field}`"
        )

    branches: list[list[Attempt]] = []
    root = tree.header.root.score
    if root is not None and not math.isfinite(root):
        raise RecordError(f"{tree.name}: the root's score is {root}; give a finite number or null - at `$.root.score`")
    for place, attempt in enumerate(tree.attempts):
        if (attempt.score is None) is (attempt.status == "ok"):
            raise flaw(attempt, "score", f"status is {attempt.status!r}; an attempt has a score exactly if it is ok")
        if attempt.score is not None and not math.isfinite(attempt.score):
            raise flaw(attempt, "score", f"the score is {attempt.score}; a score is finite, a failure has none")
        if attempt.branch < 0:
            raise flaw(attempt, "branch", "branches are counted from 0")
        if place and attempt.seq == tree.attempts[place - 1].seq:
            raise flaw(attempt, "seq", f"seq {attempt.seq} is used twice")
        if attempt.branch > len(branches):
            raise flaw(
                attempt, "branch", f"branches are numbered in the order they were opened; {len(branches)} comes next"
            )
        if attempt.branch == len(branches):
            branches.append([])
        branch = branches[attempt.branch]
        if attempt.attempt < len(branch):
            raise flaw(attempt, "attempt", "is recorded twice")
        if attempt.attempt > len(branch):
            raise flaw(attempt, "attempt", f"its parent, attempt {attempt.attempt - 1}, is missing or has a later seq")
        if attempt.origin is not None:
            source, index = attempt.origin
            if attempt.attempt > 0:
                raise flaw(attempt, "origin", "only the first attempt of a branch has an origin")
            if source >= attempt.branch or index >= len(branches[source]):
                raise flaw(attempt, "origin", f"the origin, branch {source} attempt {index}, is not recorded before it")
        branch.append(attempt)
    _check_caps(tree.name, tree.header, branches)
    return branches


def _check_batches(tree: Tree) -> None:
    """Where batches are recorded, they are all there and make exactly the attempts that are there."""
    if not tree.batches:
        return
    cap = math.inf if tree.header.branches is None else tree.header.branches
    made: dict[int | None, list[int]] = {}
    for attempt in tree.attempts:
        made.setdefault(attempt.round, []).append(attempt.branch)
    opened = 0
    for number, batch in enumerate(tree.batches):
        if batch.round != number:
            raise RecordError(f"{tree.name}: the batch of round {number} is missing or there twice - at `$.round`")
        expected = []
        for pick in batch.picks:
            if pick != OPEN:
                expected.append(pick)
            elif opened < cap:
                expected.append(opened)
                opened += 1
        found = made.pop(number, [])
        if found != expected or batch.attempts != len(found):
            problem = f"its picks make attempts on branches {expected}, recorded are {found}"
            raise RecordError(f"{tree.name}: round {number} contradicts its batch: {problem} - at `$.picks`")
    if made:
        raise RecordError(f"{tree.name}: attempts of round {min(made, key=str)} have no batch - at `$.round`")


def _check_caps(name: str, header: Header, branches: list[list[Attempt]]) -> None:
    if header.branches is not None and len(branches) > header.branches:
        problem = f"has {len(branches)} branches; the header caps them at {header.branches} - at `$.branches`"
        raise RecordError(f"{name}: {problem}")
    for number, branch in enumerate(branches):
        if header.steps is not None and len(branch) > header.steps:
            problem = f"has {len(branch)} attempts; the header caps them at {header.steps} - at `$.steps`"
            raise RecordError(f"{name}: branch {number} {problem}")
