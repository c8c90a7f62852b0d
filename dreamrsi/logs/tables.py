"""Tables: CSV (tab-separated if the name ends in .tsv) and JSON Lines, with columns named by the user."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Log, Row
from dreamrsi.logs.source import Source, brief, decode, moment
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ("columns", "statuses", "root")
FIELDS = ("score", "id", "parent", "branch", "order", "status", "error", "tag", "seconds", "round")
NO_SCORE = frozenset({"", "nan", "none", "null", "na", "n/a", "-", "inf", "+inf", "-inf", "infinity", "-infinity"})
WORDS: dict[str, Status] = {  # true and false are not among them: a column `is_buggy` would be read the wrong way round
    **dict.fromkeys(("ok", "valid", "success", "succeeded", "completed", "complete", "done", "passed"), "ok"),
    **dict.fromkeys(("invalid", "infeasible", "incorrect"), "invalid"),
    **dict.fromkeys(("error", "failed", "failure", "fail", "crash", "crashed", "exception"), "error"),
    **dict.fromkeys(("timeout", "timed_out", "timed out"), "timeout"),
    **dict.fromkeys(("rejected", "skipped"), "rejected"),
    **dict.fromkeys(("unknown", "pending", "running"), "unknown"),
}
KEPT = 200  # characters of a cell that has no field of its own; longer ones are code or prose


def load(source: Source, options: Options) -> Log:
    """Read the rows of a table. Its columns are named by the user; what follows what is ``parent`` or ``branch``."""
    columns = _columns(options)
    path = source.path
    if not path.is_file():
        raise UserError(f"{path}: is a folder; give the file with the table")
    if options.format == "jsonl":
        table = _json_lines(source, path)
    else:
        table = read_csv(source, path, "\t" if path.suffix == ".tsv" else ",")
    found: list[tuple[float, Row, str | None]] = []
    unseen = set(columns.values())
    for where, cells in table:
        unseen = (
            {name for name in unseen if name not in cells and name.split(".")[0] not in cells} if unseen else unseen
        )
        cell = _Cells(where, cells, columns)
        key = _moment(cell) if "order" in columns else 0.0
        branch = cell.required("branch") if "branch" in columns else None
        found.append((key, _row(cell, options, len(found) + 1), branch))
    if unseen:
        raise UserError(
            f"{path}: no row has a column {min(unseen)!r}; the names are those of the header line or object"
        )
    found.sort(key=lambda entry: entry[0])  # keeps the order of the file where there is no other
    if "branch" in columns:
        _chain(found)
    notes = ["a table cannot say which attempts left no row; those are not counted"]
    if options.root is None:
        first = "" if "id" in columns else "--column id=NAME and "
        notes.append(f"if a row is the start, name it with {first}--root ID")
    if "status" not in columns:
        notes.append(
            "no column says how attempts ended: without a score they are errors if an error is logged, else unknown"
        )
    return Log([row for _, row, _ in found], f"column {columns['score']}", notes=notes)


def _columns(options: Options) -> dict[str, str]:
    columns = dict(options.columns)
    if wrong := [name for name in columns if name not in FIELDS]:
        raise UserError(f"{wrong[0]!r} is no field of an attempt; name columns for {', '.join(FIELDS)}")
    missing = []
    if "score" not in columns:
        missing.append("which column is the score: --column score=NAME")
    if "parent" not in columns and "branch" not in columns:
        missing.append(
            "what follows what: --column id=NAME and --column parent=NAME, or --column branch=NAME for rows that "
            "continue the last row of the same branch"
        )
    if missing and options.direction is None:
        missing.append("which scores are better: --direction max or min")
    if missing:
        raise UserError(f"say {'; '.join(missing)}")
    if "parent" in columns and "branch" in columns:
        raise UserError("--column parent=NAME and --column branch=NAME both say what follows what; give one of them")
    if "parent" in columns and "id" not in columns:
        raise UserError("parents are named by their id; say --column id=NAME")
    if options.root and "id" not in columns:
        raise UserError("--root is an id; say --column id=NAME")
    for word, status in options.statuses.items():
        if status not in get_args(Status):
            raise UserError(f"--status {word}={status}: a status is one of {', '.join(get_args(Status))}")
    return columns


class _Cells:
    """One row of the table, by the user's columns. ``where`` names file and line."""

    def __init__(self, where: str, cells: dict[str, Any], columns: dict[str, str]) -> None:
        self.where = where
        self.cells = cells
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        """What the column of this field holds; None if there is no such column, or nothing in it."""
        column = self._columns.get(name)
        if column is None:
            return None
        value: Any = self.cells
        for part in [column] if column in self.cells else column.split("."):  # a.b: b inside a
            value = value.get(part) if isinstance(value, dict) else None
        return value.strip() or None if isinstance(value, str) else value

    def text(self, name: str) -> str | None:
        value = self[name]
        if isinstance(value, (dict, list)):
            raise self.flaw(name, f"is {type(value).__name__}, not text")
        return None if value is None else str(value)

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.flaw(name, "is empty or not there")
        return value

    def number(self, name: str) -> float | None:
        value = self[name]
        if isinstance(value, bool) or isinstance(value, (dict, list)):
            raise self.flaw(name, f"is {value!r}, not a number")
        try:
            return None if value is None else float(value)
        except (ValueError, OverflowError):
            raise self.flaw(name, f"is {value!r:.60}, not a number") from None

    def flaw(self, name: str, problem: str) -> UserError:
        return UserError(f"{self.where}: {name} (column {self._columns[name]!r}) {problem}")


def _row(cell: _Cells, options: Options, count: int) -> Row:
    identity = cell.required("id") if "id" in options.columns else f"row {count}"
    raw = cell["score"]
    score = None if isinstance(raw, str) and raw.lower() in NO_SCORE else cell.number("score")
    parent = cell.text("parent")
    round_ = cell.number("round")
    if round_ is not None and not (round_ >= 0 and round_.is_integer()):
        raise cell.flaw("round", "is not a whole number from 0")
    seconds = cell.number("seconds")
    used = {name.split(".")[0] for name in options.columns.values()}
    return Row(
        id=identity,
        parent=None if parent == options.root else parent,
        score=score,
        status=_status(cell, options, score),
        error=brief(cell.text("error")),
        tag=cell.text("tag"),
        seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
        round=None if round_ is None else int(round_),
        start=options.root is not None and identity == options.root,
        metrics={key: value for key, value in cell.cells.items() if key not in used and _short(value)},
    )


def _short(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and 0 < len(value) <= KEPT)


def _status(cell: _Cells, options: Options, score: float | None) -> Status:
    if "status" not in options.columns:
        return "ok" if score is not None else "error" if cell.text("error") else "unknown"
    word = cell.text("status")
    if word is None:
        return "unknown" if score is None else "ok"
    if word in options.statuses:
        return cast(Status, options.statuses[word])
    if word.lower() in WORDS:
        return WORDS[word.lower()]
    raise cell.flaw("status", f"says {word!r}; say what that means, as --status {word}=ok|invalid|error|...")


def _moment(cell: _Cells) -> float:
    """A number, or a date and time in ISO format, to sort by."""
    value = cell["order"]
    found = moment(value) if isinstance(value, str) else None
    if found is None:
        found = cell.number("order")
    if found is None or not math.isfinite(found):
        raise cell.flaw("order", "is empty" if found is None else f"is {found}")
    return found


def _chain(found: list[tuple[float, Row, str | None]]) -> None:
    """Every row continues the last one of its branch."""
    tails: dict[str | None, str] = {}
    for _, row, branch in found:
        if not row.start:
            row.parent = tails.get(branch)
            tails[branch] = row.id


def _json_lines(source: Source, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in source.lines(path):
        where = f"{path}, line {number}"
        yield where, decode(line, dict[str, Any], where)


def read_csv(source: Source, path: Path, delimiter: str, quoted: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every row below the header line as (place, column: cell)."""
    try:
        text = source.read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    limit = csv.field_size_limit(max(len(text), 1))  # a column may hold whole programs
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        lines = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; was the file cut off?") from error
    finally:
        csv.field_size_limit(limit)  # the limit is the whole process's: it goes back before anything is yielded
    names = lines[0][1] if lines else []
    if len(set(names)) < len(names):
        raise UserError(f"{path}, line 1: the header line names a column twice")
    for number, cells in lines[1:]:
        if not cells:
            continue
        where = f"{path}, line {number}"
        if len(cells) != len(names):
            raise UserError(f"{where}: has {len(cells)} cells, the header line {len(names)}; was the file cut off?")
        yield where, dict(zip(names, cells, strict=True))
