"""The tree of one run, and the prefix of it that a policy may see."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dreamrsi.errors import RecordError
from dreamrsi.files import atomic_write
from dreamrsi.record import (
    Attempt,
    Batch,
    Header,
    Record,
    TornRecordWarning,
    encode_lines,
    read_record,
)

OPEN = -1
"""The pick that starts the next branch; every other pick is the number of a branch to extend."""

_NOTHING = -math.inf  # the score of a failed attempt wherever scores are compared


class Chain:
    """One branch as the replay reads it: a list of scores and what follows from each of its beginnings.

    ``tops[i]`` and ``stalls[i]`` are the best score, and the attempts since it was reached, after attempt ``i``.
    They are stored once so that a policy's question costs one look-up however long the branch is.
    """

    __slots__ = ("origin", "scores", "stalls", "statuses", "tag", "tops")

    def __init__(self, tag: str | None = None, origin: tuple[int, int] | None = None) -> None:
        self.tag = tag
        self.origin = origin
        self.scores: list[float] = []
        self.statuses: list[str] = []
        self.tops: list[float] = []
        self.stalls: list[int] = []

    def append(self, score: float | None, status: str) -> None:
        """Add the outcome of the branch's next attempt."""
        value = _NOTHING if score is None else score
        top = self.tops[-1] if self.tops else _NOTHING
        improved = value > top
        self.scores.append(value)
        self.statuses.append(status)
        self.tops.append(value if improved else top)
        self.stalls.append(0 if improved else (self.stalls[-1] if self.stalls else 0) + 1)


class World:
    """A tree as the replay walks it, or as a live run makes it grow.

    ``roots`` are the branches that start at the root, ``children`` the branches that fork from an attempt.
    """

    __slots__ = ("chains", "children", "header", "roots")

    def __init__(self, header: Header) -> None:
        self.header = header
        self.chains: list[Chain] = []
        self.roots: list[int] = []
        self.children: dict[tuple[int, int], list[int]] = {}

    def add(self, branch: int, attempt: Attempt) -> None:
        """Add an attempt at the end of a branch; the first one creates the branch."""
        if branch == len(self.chains):
            self.chains.append(Chain(attempt.tag, attempt.origin))
            forks = self.roots if attempt.origin is None else self.children.setdefault(attempt.origin, [])
            forks.append(branch)
        self.chains[branch].append(attempt.score, attempt.status)


class Branch:
    """What a policy may see of one opened branch. Read-only; always shows the present state of the prefix.

    ``number`` is its place in the order in which this episode opened branches, and the pick that extends it.
    """

    __slots__ = ("_chain", "_ended", "_n", "_picked", "_recorded", "number", "origin")

    def __init__(self, number: int, recorded: int, chain: Chain, origin: tuple[int, int] | None, ended: bool) -> None:
        self.number = number
        self.origin = origin  # the (branch, attempt) it forked from, in this episode's numbers; None for the root
        self._recorded = recorded  # its number in the record
        self._chain = chain
        self._n = 1
        self._ended = ended
        self._picked = -1  # the last round that picked this branch

    @property
    def attempts(self) -> int:
        """Attempts revealed so far."""
        return self._n

    @property
    def ended(self) -> bool:
        """Nothing more can come: the cap is reached, or a pick has revealed nothing."""
        return self._ended

    @property
    def best(self) -> float:
        """The best score so far; -inf while nothing was scored."""
        return self._chain.tops[self._n - 1]

    @property
    def last(self) -> float:
        """The score of the leaf; -inf if that attempt failed."""
        return self._chain.scores[self._n - 1]

    @property
    def status(self) -> str:
        """The status of the leaf."""
        return self._chain.statuses[self._n - 1]

    @property
    def failures(self) -> int:
        """Attempts in a row, up to the leaf, that were not scored."""
        scores, n = self._chain.scores, self._n
        return next((i for i in range(n) if scores[n - 1 - i] > _NOTHING), n)

    @property
    def stalled(self) -> int:
        """Attempts in a row, up to the leaf, that did not improve on the branch's best."""
        return self._chain.stalls[self._n - 1]

    @property
    def scores(self) -> tuple[float, ...]:
        """All scores so far, -inf for a failed attempt."""
        return tuple(self._chain.scores[: self._n])

    @property
    def tag(self) -> str | None:
        """The tag of the first attempt."""
        return self._chain.tag

    def __repr__(self) -> str:
        ended = ", ended" if self._ended else ""
        return f"<branch {self.number}: {self._n} attempts, best {self.best:g}, last {self.last:g}{ended}>"


class Branches(Sequence[Branch]):
    """The opened branches, read-only, in the order they were opened."""

    __slots__ = ("_list",)

    def __init__(self, opened: list[Branch]) -> None:
        self._list = opened

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, place: Any) -> Any:
        return self._list[place]

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._list)


class Prefix:
    """The part of a tree revealed so far: all that a policy may see. Costs nothing to hand out, and is read-only."""

    __slots__ = (
        "_available",
        "_best",
        "_cap",
        "_next",
        "_numbers",
        "_open_failed",
        "_opened",
        "_revealed",
        "_round",
        "_width",
        "_world",
        "branches",
    )

    def __init__(self, world: World, width: int) -> None:
        header = world.header
        self.branches = Branches([])
        self._world = world
        self._width = width
        self._round = 0
        self._best = _NOTHING if header.root.score is None else header.root.score
        self._opened = self.branches._list
        self._cap = math.inf if header.branches is None else header.branches
        self._next = 0  # how many of the world's roots are opened
        self._available: list[int] = []  # a heap: unopened branches that fork from what is revealed
        self._numbers: dict[int, int] = {}  # where branches fork: recorded number -> number in this episode
        self._open_failed = -1  # attempts revealed before the round in which an OPEN last revealed nothing
        self._revealed = 0

    @property
    def width(self) -> int:
        """The most picks a batch may hold."""
        return self._width

    @property
    def round(self) -> int:
        """Rounds finished; 0 at the first choice."""
        return self._round

    @property
    def root(self) -> float | None:
        """The root's score, None if it has none."""
        return self._world.header.root.score

    @property
    def best(self) -> float:
        """The best score so far, the root's included; -inf while there is none."""
        return self._best

    @property
    def attempts(self) -> int:
        """Attempts revealed so far."""
        return self._revealed

    @property
    def advice(self) -> str | None:
        """The tag that guidance recommended before the run, or None."""
        return self._world.header.recommended

    @property
    def can_open(self) -> bool:
        """False once the cap is reached or an OPEN has revealed nothing.

        Where branches fork, an OPEN that found nothing may find something after the next reveal, so it may be
        tried again then.
        """
        if len(self._opened) >= self._cap:
            return False
        return self._open_failed < 0 or (bool(self._world.children) and self._revealed > self._open_failed)

    def __repr__(self) -> str:
        return f"<prefix: round {self._round}, {len(self._opened)} branches, {self._revealed} attempts>"


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
        top = max((chain.tops[-1] for chain in self.world.chains), default=_NOTHING)
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
