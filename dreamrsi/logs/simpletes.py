"""SimpleTES: nodes.json (or nodes.json.gz), failure.json, policy.json and metadata.json of one saved state."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Log, Row
from dreamrsi.logs.source import Source, brief, decode, moment, readable, seconds
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

T = TypeVar("T")
TAKES = ()
NODES = ("nodes.json", "nodes.json.gz")


class Node(msgspec.Struct):
    """What is read of a program. Some exported copies hold numbers, lists and objects as text."""

    id: str
    score: Any = None
    metrics: Any = None
    parent_ids: Any = None
    gen_id: Any = None
    chain_idx: Any = None
    created_at: str | None = None


class Failure(msgspec.Struct):
    """What is read of an entry of failure.json. It has neither an id nor parents."""

    type: str
    reason: str | None = None
    gen_id: Any = None
    chain_idx: Any = None
    created_at: str | None = None


class State(msgspec.Struct):
    """What is read of metadata.json."""

    completed_evaluations: int = 0
    generation_failures: int = 0
    evaluation_failures: int = 0
    generation_cancellations: int = 0


class Policy(msgspec.Struct):
    """What is read of policy.json: the batches by gen_id, and the nodes that every chain kept."""

    name: str | None = None
    state: dict[str, Any] = {}


def load(source: Source, options: Options) -> Log:
    """Read the programs and the failures. The first of ``parent_ids`` is the parent, the others are in the metrics."""
    path = source.path if source.path.is_file() else _nodes(_state_folder(source.path))
    nodes = decode(_unpacked(source, path), list[Node], path)
    failures = _beside(source, path, "failure.json", list[Failure], [])
    policy = _beside(source, path, "policy.json", Policy, Policy())
    state = _beside(source, path, "metadata.json", State, State())
    kept = {str(i) for chain in _values(policy.state.get("chain_history")) for i in chain if isinstance(i, str)}
    rows, times = [], []
    parents: dict[int, str] = {}
    for place, node in enumerate(nodes):
        row = _row(node, f"{path}, node {place} ({node.id})", kept if policy.state else None)
        if row.metrics["batch"] is not None and row.parent is not None:
            parents.setdefault(row.metrics["batch"], row.parent)
        rows.append(row)
        times.append(node.created_at)
    beside = path.parent / "failure.json"
    for place, failure in enumerate(failures):
        rows.append(_failed(failure, place, parents, policy, f"{beside}, entry {place}"))
        times.append(failure.created_at)
    rows = _in_order(rows, times)
    _number_rounds(rows)
    lost, notes = _account(state, failures)
    notes.insert(0, f"state {path.parent.name}")
    if several := sum("inspirations" in row.metrics for row in rows):
        notes.append(f"{several} programs were shown more parents than one; the first one is the parent here")
    return Log(rows, "score", "max", "SimpleTES maximises the score", 0, lost, notes)


def _state_folder(path: Path) -> Path:
    """The folder with the nodes: this one, or its latest state. Names are times of day, and turn over at midnight."""
    if any((path / name).is_file() for name in NODES):
        return path
    states = [p for p in (*path.glob("db_state_*"), *path.glob("ckpt_*")) if any((p / n).is_file() for n in NODES)]
    if not states:
        runs = sorted(str(p.parent.relative_to(path)) for p in path.glob("**/db_state_*"))
        hint = f"; it holds the runs {', '.join(dict.fromkeys(runs))}: give one" if runs else ""
        raise UserError(f"{path}: holds no nodes.json and no db_state_*/{hint}")
    return max(states, key=lambda p: (_completed(p), (p / "metadata.json" if _completed(p) else p).stat().st_mtime_ns))


def _completed(folder: Path) -> int:
    try:
        return decode((folder / "metadata.json").read_bytes(), State, folder).completed_evaluations
    except (OSError, UserError):
        return 0


def _nodes(folder: Path) -> Path:
    return next(folder / name for name in NODES if (folder / name).is_file())


def _unpacked(source: Source, path: Path) -> bytes:
    data = source.read(path)
    with readable(path):
        return gzip.decompress(data) if path.suffix == ".gz" else data


def _beside(source: Source, path: Path, name: str, kind: type[T], without: T) -> T:
    file = path.parent / name
    return decode(source.read(file), kind, file) if file.is_file() else without


def _row(node: Node, where: str, kept: set[str] | None) -> Row:
    metrics = _loose(node.metrics, dict, {}, f"{where}: metrics")
    shown = _loose(node.parent_ids, list, [], f"{where}: parent_ids")
    batch = _whole(node.gen_id, f"{where}: gen_id")
    score = _score(node.score, f"{where}: score")
    error = brief(metrics.get("error"))
    status: Status = "error" if error else "ok"
    more: dict[str, Any] = {"batch": batch, "chain": _whole(node.chain_idx, f"{where}: chain_idx")}
    if kept is not None:
        more["kept_by_policy"] = node.id in kept
    if len(shown) > 1:
        more["inspirations"] = [str(name) for name in shown[1:]]
    more["metrics"] = {k: v for k, v in metrics.items() if k != "error" and not isinstance(v, (dict, list))}
    return Row(
        id=node.id,
        parent=str(shown[0]) if shown else None,
        score=score,
        status=status,
        error=error,
        seconds=seconds(metrics.get("eval_time")),
        start=not shown and batch is None,
        metrics=more,
    )


def _failed(failure: Failure, place: int, parents: Mapping[int, str], policy: Policy, where: str) -> Row:
    """A failure's parent is that of its siblings, the programs of the same batch; else what the policy noted."""
    batch = _whole(failure.gen_id, f"{where}: gen_id")
    parent = parents.get(batch) if batch is not None else None
    if parent is None and batch is not None:
        noted = policy.state.get("batches")
        entry = noted.get(str(batch)) if isinstance(noted, dict) else None
        shown = entry.get("inspirations") if isinstance(entry, dict) else None
        parent = shown[0] if isinstance(shown, list) and shown and isinstance(shown[0], str) else None
    reason = (failure.reason or "").lower()
    status: Status = "timeout" if "timeout" in reason or "timed out" in reason else "error"
    return Row(
        id=f"failure {place}",
        parent=parent,
        status="rejected" if failure.type == "generation" else status,
        error=brief(failure.reason) or failure.type,
        orphan=parent is None,
        metrics={"batch": batch, "chain": _whole(failure.chain_idx, f"{where}: chain_idx")},
    )


def _in_order(rows: list[Row], times: list[str | None]) -> list[Row]:
    """By the time of creation; a row without one stays behind the row before it."""
    keys, last = [], -math.inf
    for text in times:
        found = moment(text or "")
        last = last if found is None else found
        keys.append(last)
    return [rows[place] for place in sorted(range(len(rows)), key=keys.__getitem__)]


def _number_rounds(rows: list[Row]) -> None:
    """A batch is a round: its candidates were made side by side. Rounds count from 0 in the order of the batches."""
    batches = sorted({row.metrics["batch"] for row in rows if row.metrics["batch"] is not None})
    rounds = {batch: place for place, batch in enumerate(batches)}
    for row in rows:
        row.round = rounds.get(row.metrics["batch"])


def _account(state: State, failures: Sequence[Failure]) -> tuple[int, list[str]]:
    notes = []
    lost = max(0, state.generation_failures + state.evaluation_failures - len(failures))
    if lost:
        notes.append(f"metadata.json counts {lost} failures more than failure.json holds")
    if state.generation_cancellations:
        notes.append(f"{state.generation_cancellations} generations were cancelled; they are not counted as attempts")
    return lost, notes


def _values(value: Any) -> list[list[Any]]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [chain for chain in found if isinstance(chain, list)]


def _loose(value: Any, kind: type[T], without: T, where: str) -> T:
    """A list or object, which may be JSON in a string."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = value or None
    if value is None:
        return without
    if not isinstance(value, kind):
        raise UserError(f"{where} is {value!r:.60}, not {'a list' if kind is list else 'an object'}")
    return value


def _score(value: Any, where: str) -> float | None:
    try:
        if not isinstance(value, bool):
            return None if value in (None, "") else float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"{where} is {value!r:.60}, not a number")


def _whole(value: Any, where: str) -> int | None:
    found = _score(value, where)
    if found is None:
        return None
    if not math.isfinite(found) or not found.is_integer():
        raise UserError(f"{where} is {value!r:.60}, not a whole number")
    return int(found)
