"""The part of a tree that is revealed: all that a policy may see of it, and the growing record behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dreamrsi.record import Attempt, Header

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
