"""ShinkaEvolve: a SQLite database with its write-ahead log. Both are copied first, since opening would change them."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Log, Row
from dreamrsi.logs.source import Source, brief, decode, moment, number, seconds
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ()
NEEDED = ("id", "parent_id", "generation", "combined_score", "correct")
SHOWN = ("archive_inspiration_ids", "top_k_inspiration_ids")  # programs shown beside the parent
WANTED = (*NEEDED, "timestamp", "island_idx", "metadata", "text_feedback", "public_metrics", *SHOWN)
REJECTED = frozenset(  # proposals that were paid for and never evaluated
    {
        "novelty_rejected",
        "llm_output_invalid",
        "patch_apply_failed",
        "evaluation_submit_failed",
        "proposal_generation_failed",
    }
)
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
Cells = dict[str, Any]


def load(source: Source, options: Options) -> Log:
    """Read the programs, and the proposals that failed before they were evaluated."""
    if source.path.is_file():
        return _read(source, source.path)
    found = [p for p in sorted(source.path.glob("*.sqlite")) if p.name != "prompts.sqlite"]
    if not found:
        raise UserError(f"{source.path}: holds no .sqlite file; give the folder of the results or the database")
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise UserError(f"{source.path}: holds several databases ({names}); give the path of one")
    return _read(source, found[0])


def _read(source: Source, path: Path) -> Log:
    try:
        with _copy(source, path) as database:
            tables = _tables(database)
            if "programs" not in tables:
                raise UserError(f"{path}: has no table `programs`; is it a database of ShinkaEvolve?")
            if missing := [name for name in NEEDED if name not in tables["programs"]]:
                raise UserError(f"{path}: table `programs` has no column `{missing[0]}`")
            columns = [name for name in WANTED if name in tables["programs"]]
            programs = list(_select(database, "programs", columns))
            proposals = []
            if {"generation", "status", "details"} <= tables.get("attempt_log", set()):
                wanted = [c for c in ("generation", "status", "details", "created_at") if c in tables["attempt_log"]]
                proposals = [p for p in _select(database, "attempt_log", wanted) if p["status"] == "failed"]
    except sqlite3.Error as error:
        raise UserError(f"{path}: is no whole SQLite database ({error})") from error
    return _log(programs, proposals, "attempt_log" in tables, path)


@contextmanager
def _copy(source: Source, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy, which reads tables and does nothing else: no function, no view, no trigger."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "copy.sqlite"
        source.copy(path, copied)
        for ending in ("-wal", "-journal"):
            if Path(f"{path}{ending}").is_file():
                source.copy(Path(f"{path}{ending}"), Path(f"{copied}{ending}"))
        with closing(sqlite3.connect(copied)) as database:
            database.text_factory = lambda data: data.decode(errors="replace")
            database.execute("PRAGMA trusted_schema = OFF")
            yield database


def _tables(database: sqlite3.Connection) -> dict[str, set[str]]:
    """The ordinary tables and their columns."""
    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    names = [str(name) for name, sql in rows if "virtual" not in str(sql)[:30].lower()]
    found = {}
    for name in set(names) & {"programs", "attempt_log"}:
        found[name] = {str(row[1]) for row in database.execute(f"PRAGMA table_info({name})")}
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
    return found


def _select(database: sqlite3.Connection, table: str, columns: Sequence[str]) -> Iterator[Cells]:
    for row in database.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # names from WANTED, never from the log
        yield dict(zip(columns, row, strict=True))


def _log(programs: list[Cells], proposals: list[Cells], has_log: bool, path: Path) -> Log:
    for program in programs:
        program["metadata"] = _object(program.get("metadata"), f"{path}, program {program['id']}: metadata")
    present = {str(p["id"]) for p in programs}
    aliases = {}
    for program in programs:
        original = program["metadata"].get("_original_program_id")
        if program["metadata"].get("_is_island_copy") and original in present and original != program["id"]:
            aliases[str(program["id"])] = str(original)
    timed = [(_time(p.get("timestamp")), _row(p, aliases, path)) for p in programs if str(p["id"]) not in aliases]
    others: dict[str, int] = {}
    for count, proposal in enumerate(proposals):
        details = _object(proposal["details"], f"{path}, attempt_log: details")
        kind = str(details.get("failure_class"))
        if kind in REJECTED:
            timed.append((_time(proposal.get("created_at")), _proposal(count, kind, proposal, details, aliases)))
        else:
            others[kind] = others.get(kind, 0) + 1
    timed.sort(key=lambda entry: (entry[0], entry[1].metrics["generation"]))
    rows = [row for _, row in timed]
    notes = ["seconds are those of the evaluation"]
    if not has_log:
        notes.append("there is no attempt_log: proposals that were never evaluated left nothing and are not counted")
    if others:
        listed = ", ".join(f"{kind} {n}" for kind, n in sorted(others.items()))
        notes.append(f"failed entries of attempt_log that are not rejected proposals were not read: {listed}")
    lost, said = _lost(rows)
    because = "ShinkaEvolve maximises combined_score"
    return Log(rows, "combined_score", "max", because, len(aliases), lost, notes + said)


def _lost(rows: list[Row]) -> tuple[int, list[str]]:
    made = {row.metrics["generation"] for row in rows}
    last = max(made, default=0)
    lost = last - len(made - {0})
    return lost, [f"{lost} of {last} generations left neither a program nor a rejected proposal"] if lost else []


def _row(program: Cells, aliases: dict[str, str], path: Path) -> Row:
    where = f"{path}, program {program['id']}"
    score, generation = program["combined_score"], program["generation"]
    if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
        raise UserError(f"{where}: `combined_score` is {score!r:.60}, not a number")
    if not isinstance(generation, int) or generation < 0:
        raise UserError(f"{where}: `generation` is {generation!r:.60}, not a whole number from 0")
    meta = program["metadata"]
    parent = program["parent_id"]
    status: Status = "ok"
    error = None
    if program["correct"] != 1:
        error = brief(meta.get("stderr_log")) or brief(program.get("text_feedback")) or brief(meta.get("stdout_log"))
        status = "error" if meta.get("evaluation_failed") else "invalid"
    kept = {key: meta[key] for key in ("patch_name", "model_name", "api_costs") if key in meta}
    public = _object(program.get("public_metrics"), f"{where}: public_metrics")
    return Row(
        id=str(program["id"]),
        parent=None if parent is None else aliases.get(str(parent), str(parent)),
        score=None if score is None else float(score),
        status=status,
        error=error,
        tag=str(meta["patch_type"]) if meta.get("patch_type") else None,
        seconds=seconds(meta.get("compute_time")),
        start=generation == 0 and parent is None,
        metrics={
            "generation": generation,
            "island": program.get("island_idx"),
            "inspirations": _shown(program, where) or None,
            **kept,
            "metrics": {key: value for key, value in public.items() if not isinstance(value, (dict, list))},
        },
    )


def _shown(program: Cells, where: str) -> list[str]:
    found = [program.get(name) for name in SHOWN]
    return [name for text in found if text for name in decode(str(text).encode(errors="replace"), list[str], where)]


def _proposal(count: int, kind: str, proposal: Cells, details: Cells, aliases: dict[str, str]) -> Row:
    parent = details.get("parent_id")
    generation = proposal["generation"]
    return Row(
        id=f"proposal {count}",
        parent=None if parent is None else aliases.get(str(parent), str(parent)),
        status="rejected",
        error=kind,
        tag=str(details["patch_type"]) if details.get("patch_type") else None,
        orphan=parent is None,
        metrics={"generation": generation if isinstance(generation, int) and generation >= 0 else 0},
    )


def _object(text: Any, where: str) -> dict[str, Any]:
    """A column that holds a JSON object as text, or nothing."""
    if text in (None, "", "null"):
        return {}
    return decode(str(text).encode(errors="replace"), dict[str, Any], where)


def _time(value: Any) -> float:
    """Seconds since 1970, of a number or an ISO text; 0 for anything else, which leaves the generation to sort by."""
    found = number(value)
    return found if found is not None else moment(str(value)) or 0.0
