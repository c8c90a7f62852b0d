"""From the rows of a foreign log to the attempts of a tree: what every importer shares."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dreamrsi.errors import UserError
from dreamrsi.logs.source import strict
from dreamrsi.record import Attempt, Status

Direction = Literal["max", "min"]


@dataclass(slots=True)
class Row:
    """One row of a log, in the log's own words.

    ``id`` and ``parent`` are the log's; ``score`` is raw, as logged. ``start`` marks the starting program, which is
    no attempt. ``orphan`` says that the row has a parent and the log does not say which.
    """

    id: str
    parent: str | None = None
    score: float | None = None
    status: Status = "ok"
    error: str | None = None
    tag: str | None = None
    seconds: float | None = None
    round: int | None = None
    commit: str | None = None
    start: bool = False
    orphan: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass
class Log:
    """What an importer found: rows in the order in which they were made, and what it has to say about them.

    ``copies`` were collapsed already; ``lost`` are attempts that the log shows and that left no row. ``direction`` is
    what the log says, with ``because``; None where it does not say. ``score`` names what the score is.
    """

    rows: list[Row]
    score: str
    direction: Direction | None = None
    because: str = ""
    copies: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class Grown:
    """The attempts of a tree, and what became of the rows on the way."""

    attempts: list[Attempt]
    root: float | None
    copies: int
    missing: int
    orphans: int
    moved: int
    dropped: int
    endless: int
    starts: int


def grow(rows: Sequence[Row], direction: Direction) -> Grown:
    """Make attempts of rows. The first child continues its parent's branch, every later one starts a branch there.

    Rows keep their order, except that none comes before its parent. A row whose parent is not in the log starts a
    branch at the root and says so in its metrics. A failure has no score, whatever number the log gives it. O(n log n).

    Raises
    ------
    UserError
        The parents go round in a circle, or two rows of one id contradict each other.
    """
    kept, copies = _once(rows)
    root, kept, starts, at_root = _take_root(kept, direction)
    index = {row.id: place for place, row in enumerate(kept)}
    parents = [-1 if row.parent is None else index.get(row.parent, -1) for row in kept]
    order = _parents_first(kept, parents)
    grown = Grown([], root, copies, 0, 0, _moved(order), 0, 0, starts)
    places: list[tuple[int, int]] = [(0, 0)] * len(kept)
    lengths: list[int] = []
    for seq, place in enumerate(order):
        row, parent = kept[place], parents[place]
        lost = parent < 0 and row.parent is not None and row.parent not in at_root
        grown.missing += lost
        grown.orphans += row.orphan
        origin = None
        if parent >= 0 and lengths[places[parent][0]] == places[parent][1] + 1:
            branch = places[parent][0]
        else:
            branch, origin = len(lengths), places[parent] if parent >= 0 else None
            lengths.append(0)
        places[place] = (branch, lengths[branch])
        lengths[branch] += 1
        grown.attempts.append(_attempt(row, grown, places[place], seq, origin, lost, direction))
    return grown


def _attempt(
    row: Row,
    grown: Grown,
    place: tuple[int, int],
    seq: int,
    origin: tuple[int, int] | None,
    lost: bool,
    direction: Direction,
) -> Attempt:
    score, status, error = _outcome(row, direction)
    finite = row.score is not None and math.isfinite(row.score)
    metrics: dict[str, Any] = {"id": strict(row.id)}
    if lost or row.orphan:
        metrics["parent_missing"] = strict(row.parent)
    if row.score is not None and score is None:
        grown.dropped += finite
        grown.endless += not finite
        metrics["logged_score"] = strict(row.score)
    return Attempt(
        branch=place[0],
        attempt=place[1],
        seq=seq,
        round=row.round,
        score=score,
        status=status,
        error=strict(error),
        tag=strict(row.tag),
        origin=origin,
        seconds=row.seconds,
        commit=strict(row.commit),
        metrics=metrics | {key: strict(value) for key, value in row.metrics.items() if value is not None},
    )


def _outcome(row: Row, direction: Direction) -> tuple[float | None, Status, str | None]:
    """The score, higher being better, and the status that goes with it."""
    if row.status != "ok":
        return None, row.status, row.error
    if row.score is None:
        return None, "unknown", row.error or "the log has no score"
    if not math.isfinite(row.score):
        return None, "invalid", row.error or f"the log's score is {row.score}"
    return (row.score if direction == "max" else 0.0 - row.score), "ok", row.error


def _once(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Every id once; equal rows are copies, different ones an error."""
    first: dict[str, Row] = {}
    for row in rows:
        known = first.setdefault(row.id, row)
        if known is not row and repr(known) != repr(row):  # by text, since NaN differs from itself
            raise UserError(f"id {row.id!r} is there twice and the rows contradict each other; keep one of them")
    return list(first.values()), len(rows) - len(first)


def _take_root(rows: list[Row], direction: Direction) -> tuple[float | None, list[Row], int, set[str]]:
    """Take the starting programs out: score of the root, the other rows, how many starts, and their ids.

    Starts of different scores cannot be one root: they stay, as attempts under a root without a score.
    """
    starts = [row for row in rows if row.start]
    outcomes = {_outcome(row, direction)[0] for row in starts}
    if len(outcomes) > 1:
        return None, rows, 0, set()
    others = [row for row in rows if not row.start]
    return next(iter(outcomes), None), others, len(starts), {row.id for row in starts}


def _parents_first(rows: list[Row], parents: list[int]) -> list[int]:
    """The places of the rows, each after its parent and otherwise as early as it stood."""
    children: list[list[int]] = [[] for _ in rows]
    for place, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(place)
    ready = [place for place, parent in enumerate(parents) if parent < 0]  # sorted, and so a heap
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for child in children[place]:
            heapq.heappush(ready, child)
    if len(order) < len(rows):
        raise UserError(f"the parents go round in a circle: {_circle(rows, parents, set(order))}")
    return order


def _circle(rows: list[Row], parents: list[int], placed: set[int]) -> str:
    """Name the rows of one circle, as child <- parent."""
    place = next(place for place in range(len(rows)) if place not in placed)
    seen: dict[int, int] = {}
    while place not in seen:
        seen[place] = len(seen)
        place = parents[place]
    circle = [rows[p].id for p, turn in seen.items() if turn >= seen[place]]
    shown = circle if len(circle) <= 5 else [*circle[:4], "...", circle[-1]]
    return " has the parent ".join([*shown, circle[0]])


def _moved(order: list[int]) -> int:
    """How many rows stood before their parents: those that an earlier row overtakes."""
    moved, last = 0, -1
    for place in order:
        moved += place < last
        last = max(last, place)
    return moved
