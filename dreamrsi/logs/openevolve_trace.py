"""OpenEvolve's evolution trace: JSON Lines (gzip too) or one JSON file, one entry an iteration that made a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.logs.openevolve import COMBINED, MAXIMISED, _hash, choose_score, judge, short
from dreamrsi.logs.rows import Direction, Log, Row
from dreamrsi.logs.source import Source, decode, strict

if TYPE_CHECKING:
    from dreamrsi.logs import Options


class Entry(msgspec.Struct):
    """What is read of one iteration. Code is there only if the run was told to keep it."""

    iteration: int
    child_id: str
    parent_id: str | None = None
    child_metrics: dict[str, Any] = {}
    parent_metrics: dict[str, Any] = {}
    child_code: str | None = None
    parent_code: str | None = None
    generation: int | None = None
    island_id: int | None = None
    artifacts: dict[str, Any] | None = None


class Whole(msgspec.Struct):
    """The trace as one JSON file."""

    traces: list[Entry]


def load_trace(source: Source, options: Options) -> Log:
    """Read a trace. Programs that are only ever parents are the start, copies of programs, or from before the trace."""
    entries = list(_entries(source, source.path))
    for entry in entries:
        entry.child_code, entry.parent_code = _hash(entry.child_code), _hash(entry.parent_code)
    metric = choose_score((entry.child_metrics for entry in entries), options, str(source.path))
    entries.sort(key=lambda entry: entry.iteration)
    starts, aliases = _only_parents(entries)
    rows = []
    for name, entry in starts.items():
        score, status, error = judge(entry.parent_metrics, metric, {})
        rows.append(Row(id=name, score=score, status=status, error=error, start=True))
    for entry in entries:
        score, status, error = judge(entry.child_metrics, metric, entry.artifacts or {})
        rows.append(
            Row(
                id=entry.child_id,
                parent=aliases.get(entry.parent_id or "", entry.parent_id),
                score=score,
                status=status,
                error=error,
                orphan=entry.parent_id is None,
                metrics={
                    "iteration": entry.iteration,
                    "generation": entry.generation,
                    "island": entry.island_id,
                    "metrics": short(entry.child_metrics),
                },
            )
        )
    notes = []
    last = max((entry.iteration for entry in entries), default=0)
    lost = max(0, last - len({entry.iteration for entry in entries if entry.iteration > 0}))
    if lost:
        notes.append(f"{lost} of {last} iterations left no program; a trace does not say why")
    if aliases:
        notes.append(f"{len(aliases)} parents are copies of earlier programs, with the same code and metrics")
    direction: Direction | None = "max" if metric == COMBINED else None
    return Log(rows, f"child_metrics.{metric}", direction, MAXIMISED, len(aliases), lost, notes)


def _entries(source: Source, path: Path) -> Iterator[Entry]:
    if path.suffix in (".h5", ".hdf5"):
        raise UserError(f"{path}: HDF5 is not read; write the trace as jsonl or json")
    if path.suffix != ".json":
        for number, line in source.lines(path):
            where = f"{path}, line {number}"
            yield decode(line, Entry, where)
        return
    data = source.read(path)
    if data.lstrip()[:1] == b"[":
        yield from decode(data, list[Entry], path)
    else:
        yield from decode(data, Whole, path).traces


def _only_parents(entries: list[Entry]) -> tuple[dict[str, Entry], dict[str, str]]:
    """Programs that only occur as parents: the starting programs with an entry that shows them, and copies.

    A parent of a first-generation child is the starting program. Another one is a copy (a migrant) if an earlier
    child has the same code and the same metrics; without code that cannot be told, and the parent counts as missing.
    """
    made = {entry.child_id for entry in entries}
    shown = {e.parent_id: e for e in reversed(entries) if e.parent_id is not None and e.parent_id not in made}
    alone = len(shown) == 1 and all(entry.generation is None for entry in entries)
    starts = {name: entry for name, entry in shown.items() if entry.generation == 1 or alone}
    first: dict[str, Entry] = {}
    for entry in entries:
        if entry.child_code is not None:
            first.setdefault(_print(entry.child_code, entry.child_metrics), entry)
    aliases = {}
    for name, entry in shown.items():
        if name not in starts and entry.parent_code is not None:
            twin = first.get(_print(entry.parent_code, entry.parent_metrics))
            if twin is not None and twin.iteration < entry.iteration:
                aliases[name] = twin.child_id
    return starts, aliases


def _print(code: str, metrics: dict[str, Any]) -> str:
    return code + repr(sorted(strict(metrics).items()))
