"""CodeEvolve, as JSON Lines: one object a program of an island. Its own checkpoints are pickles, which are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Log, Row
from dreamrsi.logs.source import Source, brief, decode
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ()


class Program(msgspec.Struct):
    """What is read of one line. ``island`` is the island that holds this copy, ``island_found`` where it was made."""

    id: str
    island: int
    island_found: int
    iteration_found: int
    returncode: int
    fitness: float | None = None
    parent_id: str | None = None
    generation: int | None = None
    prompt_id: str | None = None
    model_id: int | str | None = None
    inspiration_ids: list[str] = []
    eval_metrics: dict[str, Any] = {}
    error: str | None = None


def load(source: Source, options: Options) -> Log:
    """Read the programs of all islands. A migrant is there once an island; the copy of its home has the parent."""
    path = source.path
    if not path.is_file() or ".json" not in path.name:
        raise UserError(
            f"{path}: CodeEvolve's checkpoints are pickles, which run code when they are read; write their programs as "
            "JSON Lines, one object a program (docs/importing-a-log.md has the fields)"
        )
    homes: dict[str, Program] = {}
    abroad: dict[str, Program] = {}
    lines = 0
    for number, line in source.lines(path):
        where = f"{path}, line {number}"
        program = decode(line, Program, where)
        lines += 1
        if program.island != program.island_found:
            abroad.setdefault(program.id, program)
        elif homes.setdefault(program.id, program) is not program:
            raise UserError(f"{where}: program {program.id!r} is there twice on its own island {program.island}")
    strays = {name: program for name, program in abroad.items() if name not in homes}
    programs = [*homes.values(), *strays.values()]
    programs.sort(key=lambda p: (p.iteration_found, p.island_found))  # the islands run side by side
    notes = _islands(homes, strays)
    lost, said = _lost(homes)
    rows = [_row(program, program.id in strays) for program in programs]
    return Log(rows, "fitness", "max", "CodeEvolve maximises fitness", lines - len(programs), lost, notes + said)


def _row(program: Program, stray: bool) -> Row:
    start = program.parent_id is None and program.iteration_found == 0
    metrics = {
        "iteration": program.iteration_found,
        "island": program.island_found,
        "prompt": program.prompt_id,
        "model": program.model_id,
        "inspirations": program.inspiration_ids or None,
        "metrics": {k: v for k, v in program.eval_metrics.items() if not isinstance(v, (dict, list))},
    }
    return Row(
        id=program.id,
        parent=program.parent_id,
        score=program.fitness,
        status=_status(program),
        error=brief(program.error) if program.returncode else None,
        start=start,
        orphan=stray and not start,
        metrics=metrics,
    )


def _status(program: Program) -> Status:
    if program.returncode == 0:
        return "ok"
    return "timeout" if (program.error or "").startswith("TimeoutError") else "error"


def _islands(homes: dict[str, Program], strays: dict[str, Program]) -> list[str]:
    islands = sorted({program.island for program in homes.values()})
    notes = [f"islands {', '.join(map(str, islands))}" if islands else "no island"]
    if strays:
        whence = sorted({program.island_found for program in strays.values()})
        notes.append(
            f"{len(strays)} programs are migrants from island {', '.join(map(str, whence))}, which is not in the log "
            "itself: their parents are not recorded, and what else was made there is not counted"
        )
    return notes


def _lost(homes: dict[str, Program]) -> tuple[int, list[str]]:
    """The iterations of every island that left no program, up to the last one that did."""
    made: dict[int, set[int]] = {}
    for program in homes.values():
        made.setdefault(program.island, set()).add(program.iteration_found)
    total = sum(max(found) for found in made.values())
    lost = total - sum(len(found - {0}) for found in made.values())
    if not lost:
        return 0, []
    return lost, [f"{lost} of {total} iterations left no program; the programs' log does not say why"]
