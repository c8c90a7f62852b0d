"""AIDE and MLEvolve: journal.json. The config.yaml beside it asks for objects to be built, and is not read."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Direction, Log, Row
from dreamrsi.logs.source import Source, brief, decode, seconds
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ()


class Node(msgspec.Struct):
    """What is read of a node. Its own ``parent`` and ``children`` are always empty on disk."""

    id: str
    step: int | None = None
    ctime: float | None = None
    metric: Any = None
    is_buggy: bool | None = None
    exc_type: str | None = None
    exc_info: Any = None
    exec_time: Any = None
    analysis: Any = None
    stage: str | None = None  # from here on MLEvolve's
    branch_id: Any = None
    is_valid: bool | None = None


class Journal(msgspec.Struct):
    """What is read of the file."""

    nodes: list[Node]
    node2parent: dict[str, str | None]


def load(source: Source, options: Options) -> Log:
    """Read the nodes; drafts start at the root, which has no score. The direction is that of all scored nodes."""
    path = source.file("journal.json")
    journal = decode(source.read(path), Journal, path)
    places = sorted(range(len(journal.nodes)), key=lambda place: _key(journal.nodes[place], place))
    rows = []
    ways: Counter[bool] = Counter()
    for place in places:
        node = journal.nodes[place]
        value, maximize = _metric(node, f"{path}, node {place} ({node.id}): metric")
        row = _row(node, value, journal.node2parent.get(node.id))
        if row.status == "ok" and value is not None and math.isfinite(value) and maximize is not None:
            ways[maximize] += 1
        rows.append(row)
    direction, because = _direction(ways, str(path))
    known = {node.id for node in journal.nodes}
    notes = ["seconds are those of the execution"]
    if strays := len(journal.node2parent.keys() - known):
        notes.append(f"node2parent names {strays} nodes that are not in the journal")
    if (path.parent / "config.yaml").exists():
        notes.append("config.yaml was not read: its tags ask for objects to be built")
    lost, said = _lost(journal.nodes)
    return Log(rows, "metric.value", direction, because, 0, lost, notes + said)


def _key(node: Node, place: int) -> tuple[float, float, int]:
    return (float(place) if node.step is None else node.step, node.ctime or 0.0, place)


def _metric(node: Node, where: str) -> tuple[float | None, bool | None]:
    """Value and direction. MLEvolve may write numbers as text."""
    metric = node.metric
    value, maximize = (metric.get("value"), metric.get("maximize")) if isinstance(metric, dict) else (metric, None)
    if maximize in ("True", "False"):
        maximize = maximize == "True"
    if maximize is not None and not isinstance(maximize, bool):
        raise UserError(f"{where}.maximize is {maximize!r:.60}, not true, false or null")
    if value in (None, "None", ""):
        return None, maximize
    try:
        if not isinstance(value, bool):
            return float(value), maximize
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"{where}.value is {value!r:.60}, not a number")


def _direction(ways: Counter[bool], path: str) -> tuple[Direction | None, str]:
    if len(ways) == 2:
        raise UserError(
            f"{path}: {ways[True]} scored nodes say that higher is better (metric.maximize), {ways[False]} that lower "
            "is; their scores are of different metrics and cannot be compared: import a copy without some"
        )
    if not ways:
        return None, ""
    return ("max" if ways[True] else "min"), f"metric.maximize of {ways.total()} scored nodes"


def _row(node: Node, value: float | None, parent: str | None) -> Row:
    status, error = _status(node)
    return Row(
        id=node.id,
        parent=parent,
        score=value,
        status=status,
        error=error,
        tag=node.stage,
        seconds=seconds(node.exec_time),
        start=node.stage == "root" and parent is None,
        metrics={"step": node.step, "branch": node.branch_id},
    )


def _status(node: Node) -> tuple[Status, str | None]:
    if node.is_buggy is None:
        return "unknown", "the journal does not say whether it worked"
    if node.is_buggy and node.exc_type:
        arguments = node.exc_info.get("args") if isinstance(node.exc_info, dict) else None
        why = str(arguments[0]) if isinstance(arguments, list) and arguments else ""
        text = brief(f"{node.exc_type}: {brief(why) or ''}".rstrip(": "))
        return ("timeout" if node.exc_type == "TimeoutError" else "error"), text
    if node.is_buggy:
        return "invalid", brief(node.analysis)
    if node.is_valid is False:
        return "invalid", "is_valid is false"
    return "ok", None


def _lost(nodes: list[Node]) -> tuple[int, list[str]]:
    steps = {node.step for node in nodes if node.step is not None and node.step >= 0}
    lost = max(steps, default=-1) + 1 - len(steps)
    return lost, [f"{lost} of {max(steps) + 1} steps left no node"] if lost else []
