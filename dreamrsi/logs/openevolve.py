"""OpenEvolve and SkyDiscover: folders of checkpoints, one JSON file a program; traces are in openevolve_trace.py."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dreamrsi.console import counted
from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Direction, Log, Row
from dreamrsi.logs.source import Source, brief, decode, strict
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ("score",)
COMBINED = "combined_score"
FAILED = frozenset({"error", "timeout"})  # metrics that are nothing else mark a failure
MAXIMISED = "the system maximises combined_score"
_MIGRANT = re.compile(r"_migrant_\d+$")  # how migrants were named in 2025


class Program(msgspec.Struct):
    """What is read of one program's file. SkyDiscover says ``solution`` where OpenEvolve says ``code``."""

    id: str
    code: str | None = None
    solution: str | None = None
    parent_id: str | None = None
    generation: int = 0
    iteration_found: int = 0
    timestamp: float = 0.0
    metrics: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    artifacts_json: str | None = None
    artifacts: dict[str, Any] | None = None
    other_context_ids: list[str] | None = None  # SkyDiscover: what else was shown
    island: int | None = None  # not in the file: from the checkpoint's metadata.json


class Metadata(msgspec.Struct):
    """What is read of a checkpoint's metadata.json. Without ``islands``, every program counts."""

    last_iteration: int
    islands: list[list[str]] | None = None
    archive: list[str] = []


def load(source: Source, options: Options) -> Log:
    """Read a checkpoint, all checkpoints below an output folder, or the file of a trace."""
    if source.path.is_file():
        from dreamrsi.logs.openevolve_trace import load_trace

        return load_trace(source, options)
    folders = _checkpoints(source.path)
    programs: dict[str, Program] = {}
    ignored, absent, last = set[str](), set[str](), 0
    for folder in folders:
        meta = decode(source.read(folder / "metadata.json"), Metadata, folder / "metadata.json")
        last = max(last, meta.last_iteration)
        found = _read_programs(source, folder)
        kept = _of_this_run(found, meta)
        ignored |= found.keys() - kept.keys()
        absent |= {name for island in meta.islands or () for name in island} - found.keys()
        _merge(programs, kept, folder)
    ignored -= programs.keys()
    notes = _notes(source.path, folders, ignored, absent - programs.keys())
    originals, copies = collapse(programs.values())
    metric = choose_score((p.metrics for p in originals), options, str(source.path))
    rows = [_row(program, metric) for program in originals]
    seen = {p.iteration_found for p in originals if 0 < p.iteration_found <= last}
    if lost := max(0, last - len(seen)):
        notes.append(
            f"{lost} of {last} iterations left no program: no valid change, or evicted from the population; "
            "the log does not say which"
        )
    direction: Direction | None = "max" if metric == COMBINED else None
    return Log(rows, f"metrics.{metric}", direction, MAXIMISED, copies, lost, notes)


def _checkpoints(path: Path) -> list[Path]:
    """The folders of checkpoints, the earliest first."""
    if (path / "programs").is_dir():
        return [path]
    found = [p for p in (*path.glob("checkpoint_*"), *path.glob("checkpoints/checkpoint_*")) if p.is_dir()]
    numbered = sorted((int(p.name.rpartition("_")[2]), p) for p in found if p.name.rpartition("_")[2].isdecimal())
    if not numbered:
        raise UserError(
            f"{path}: holds neither programs/ nor checkpoint_N/; give a checkpoint, the folder that holds the "
            "checkpoints, or the file of an evolution trace"
        )
    return [p for _, p in numbered]


def _read_programs(source: Source, folder: Path) -> dict[str, Program]:
    programs: dict[str, Program] = {}
    names = sorted(name for name in os.listdir(folder / "programs") if name.endswith(".json"))
    for path in (os.path.join(folder, "programs", name) for name in names):
        program = decode(source.read(path), Program, path)
        if programs.setdefault(program.id, program) is not program:
            raise UserError(f"{path}: its id {program.id!r} is also that of another file")
    return programs


def _of_this_run(found: dict[str, Program], meta: Metadata) -> dict[str, Program]:
    """The programs of this run. Saving never deletes, so that a folder may hold files of an earlier run too.

    What an island or the archive lists is of this run. A program that was displaced from its island is listed
    nowhere: it counts if its links to parents or children lead to one that is, and its iteration had been reached.
    """
    if meta.islands is None:
        return found
    listed = {name for island in (*meta.islands, meta.archive) for name in island}
    reached = {p.id: p for p in found.values() if p.id in listed or p.iteration_found <= meta.last_iteration}
    links: dict[str, list[str]] = {}
    for program in reached.values():
        if program.parent_id in reached:
            links.setdefault(program.id, []).append(program.parent_id)
            links.setdefault(program.parent_id, []).append(program.id)
    kept = listed & reached.keys()
    ahead = list(kept)
    while ahead:
        for name in links.get(ahead.pop(), ()):
            if name not in kept:
                kept.add(name)
                ahead.append(name)
    for number, island in enumerate(meta.islands):
        for name in island:
            if name in reached:
                reached[name].island = number
    return {name: program for name, program in reached.items() if name in kept}


def _merge(programs: dict[str, Program], more: dict[str, Program], folder: Path) -> None:
    """Add the programs of a later checkpoint; what both hold must be the same program."""
    for name, program in more.items():
        program.code = _hash(program.code if program.code is not None else program.solution)
        known = programs.setdefault(name, program)
        if known is not program and (
            (known.parent_id, known.code) != (program.parent_id, program.code)
            or strict(known.metrics) != strict(program.metrics)
        ):
            raise UserError(f"{folder}: program {name!r} is not the one of the same id in an earlier checkpoint")


def _hash(code: str | None) -> str | None:
    """Code is only compared; a hundred thousand programs need not stay in memory for that."""
    return None if code is None else hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()


def collapse(programs: Iterable[Program]) -> tuple[list[Program], int]:
    """Leave out copies of programs: migrants, and what fills an empty island. Returns the others, and how many went.

    A migrant is a program of its own in the log, with its original as parent. Where the original was evicted, the
    first copy stands for it, and its parent is not known.
    """
    by_id = {p.id: p for p in programs}
    original_of = {p.id: p.parent_id for p in by_id.values() if p.parent_id is not None and _is_copy(p, by_id)}
    kept = {name: p for name, p in by_id.items() if name not in original_of}
    found: dict[str, str] = {}
    for name in original_of:
        trail, at = [], name
        while at in original_of and at not in found:
            trail.append(at)
            found[at] = at  # a mark: coming back here would be a circle
            at = original_of[at]
        if found.get(at) == at:
            raise UserError(f"program {at!r} is a copy of itself")
        found.update(dict.fromkeys(trail, found.get(at, at)))
    for name, original in found.items():
        if original not in kept:
            stand_in = by_id[name]
            kept[original] = msgspec.structs.replace(stand_in, id=original, parent_id=None)
            kept[original].metadata = {**stand_in.metadata, "stands_for_evicted": True}
    for program in kept.values():
        program.parent_id = found.get(program.parent_id or "", program.parent_id)
    ordered = sorted(kept.values(), key=lambda p: (p.iteration_found, p.timestamp, p.id))
    return ordered, len(by_id) - len(kept)


def _is_copy(program: Program, by_id: Mapping[str, Program]) -> bool:
    if program.metadata.get("migrant") is True or _MIGRANT.search(program.id):
        return True
    parent = by_id.get(program.parent_id or "")
    return (
        parent is not None
        and parent is not program
        and program.code is not None
        and (program.code, program.generation) == (parent.code, parent.generation)
        and strict(program.metrics) == strict(parent.metrics)
    )


def choose_score(metrics: Iterable[Mapping[str, Any]], options: Options, where: str) -> str:
    """Return the metric to score by: the user's, else combined_score; an error that lists the candidates without it."""
    names: dict[str, None] = {}
    for found in metrics:
        if not found.keys() <= FAILED:
            names.update((name, None) for name, value in found.items() if _is_number(value))
    wanted = options.score or COMBINED
    if names and wanted not in names:
        listed = ", ".join(list(names)[:20])
        raise UserError(f"{where}: no program has the metric {wanted!r}; say --score NAME, of these: {listed}")
    return wanted


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _raw(value: Any) -> float | None:
    try:
        return float(value) if _is_number(value) else None
    except OverflowError:
        return math.inf


def judge(
    metrics: Mapping[str, Any], metric: str, artifacts: Mapping[str, Any]
) -> tuple[float | None, Status, str | None]:
    """Return score, status and error. ``{"error": 0.0}`` alone marks a failure: that 0 is no score."""
    score = _raw(metrics.get(metric))
    why = (artifacts[key] for key in ("traceback", "stderr", "error", "error_type") if artifacts.get(key))
    text = brief(next(why, None)) if artifacts else None
    if metrics.get("timeout") is True or artifacts.get("timeout") is True:
        return score, "timeout", text
    if "error" in metrics and (metrics.keys() <= FAILED or score is None):
        return None, "error", text or brief(metrics["error"] if isinstance(metrics["error"], str) else None)
    if isinstance(metrics.get("error"), str) and metrics["error"].strip():
        return score, "error", brief(metrics["error"])
    if score is None and artifacts.get("failure_stage"):
        return None, "error", text or f"failed in {artifacts['failure_stage']}"
    if score is None and any(metrics.get(f"stage{n}_passed") in (0, False) for n in (1, 2, 3)):
        return None, "invalid", text or "a stage of the evaluation was not passed"
    if score is None:
        return None, "unknown", text or f"no metric {metric!r}"
    return score, "ok", None


def _row(program: Program, metric: str) -> Row:
    score, status, error = judge(program.metrics, metric, _artifacts(program))
    stands_for = program.metadata.get("stands_for_evicted") is True
    start = program.parent_id is None and program.iteration_found == 0 and program.generation == 0
    metrics = {
        "iteration": program.iteration_found,
        "generation": program.generation,
        "island": program.metadata.get("island") if program.island is None else program.island,
        "inspirations": program.other_context_ids or None,
        "metrics": short(program.metrics),
    }
    return Row(
        id=program.id,
        parent=program.parent_id,
        score=score,
        status=status,
        error=error,
        start=start,
        orphan=stands_for and not start,
        metrics=metrics,
    )


def short(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that are numbers, truths or a few words."""
    return {k: v for k, v in metrics.items() if not isinstance(v, (dict, list)) and len(str(v)) <= 200}


def _artifacts(program: Program) -> Mapping[str, Any]:
    if program.artifacts is not None or not program.artifacts_json:
        return program.artifacts or {}
    try:
        return decode(program.artifacts_json.encode(errors="replace"), dict[str, Any], "artifacts_json")
    except UserError:  # only explains a failure; a broken explanation is none
        return {}


def _notes(path: Path, folders: list[Path], ignored: set[str], absent: set[str]) -> list[str]:
    notes = [f"{counted(len(folders), 'checkpoint')} read, {folders[0].name} to {folders[-1].name}"]
    if ignored:
        notes.append(
            f"{len(ignored)} program files belong to no island and to no program of this run; they were left out"
        )
    if absent:
        notes.append(f"{len(absent)} programs are listed in an island and have no file")
    if folders == [path] and len(list(path.parent.glob("checkpoint_*"))) > 1:
        notes.append(
            "other checkpoints lie beside this one; the folder that holds them all may have what was evicted here"
        )
    if traces := sorted(p.name for p in path.glob("evolution_trace.*")):
        notes.append(f"{traces[0]} is there too and was not read; import it by its path to compare")
    return notes
