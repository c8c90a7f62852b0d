"""autoresearch: results.tsv, one line an experiment; every one starts from the last that was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Log, Row
from dreamrsi.logs.source import Source, brief
from dreamrsi.logs.tables import read_csv
from dreamrsi.record import Status

if TYPE_CHECKING:
    from dreamrsi.logs import Options

TAKES = ()
NEEDED = ("commit", "val_bpb", "status")
WORDS: dict[str, Status] = {"keep": "ok", "discard": "ok", "crash": "error"}


def load(source: Source, options: Options) -> Log:
    """Read the lines in their order. The first one, if it was kept, is the baseline and so the starting program.

    A crash is logged with 0.000000, the best value of all where lower is better: it has no score.
    """
    path = source.file("results.tsv")
    rows: list[Row] = []
    last: str | None = None
    for where, cells in read_csv(source, path, "\t", quoted=False):  # written by hand: a quote is a quote
        if missing := [name for name in NEEDED if name not in cells]:
            raise UserError(f"{path}: the header line has no column `{missing[0]}`; is it autoresearch's results.tsv?")
        word = cells["status"].strip().lower()
        if word not in WORDS:
            raise UserError(f"{where}: status is {cells['status']!r:.60}, not keep, discard or crash")
        row = Row(
            id=f"line {len(rows) + 2}",
            parent=last,
            score=_number(cells["val_bpb"], where, WORDS[word]),
            status=WORDS[word],
            error=brief(cells.get("description")) if WORDS[word] != "ok" else None,
            commit=cells["commit"] or None,
            start=not rows and word == "keep",
            metrics={name: value for name, value in cells.items() if name not in NEEDED and value},
        )
        row.metrics["decision"] = word
        if word == "keep":
            last = row.id
        rows.append(row)
    notes = ["the table holds no times, and nothing of experiments that were never written down"]
    if rows and not rows[0].start:
        notes.append("the first experiment was not kept, so that the baseline is not in the log")
    return Log(rows, "val_bpb", "min", "autoresearch minimises val_bpb", notes=notes)


def _number(text: str, where: str, status: Status) -> float | None:
    try:
        return float(text)
    except ValueError:
        if status != "ok" and text.strip().lower() in ("", "-", "n/a", "nan", "none"):
            return None
        raise UserError(f"{where}: val_bpb is {text!r:.60}, not a number") from None
