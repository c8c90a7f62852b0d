"""Other systems' run logs, read into trees."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from dreamrsi.errors import UserError
from dreamrsi.logs.report import Report, account, settle
from dreamrsi.logs.rows import Direction, Log, Row, grow
from dreamrsi.logs.source import Source, strict
from dreamrsi.record import Header, Root
from dreamrsi.tree import Tree

__all__ = ["FORMATS", "Imported", "Log", "Options", "Report", "Row", "read"]


class Imported(NamedTuple):
    """The tree of a foreign log, and the report of what was kept and what the log could not say."""

    tree: Tree
    report: Report


@dataclass(frozen=True)
class Options:
    """What the user said about a log.

    Attributes
    ----------
    format : the key of :data:`FORMATS`.
    direction : ``max`` or ``min``, where the log does not say it.
    score : the metric to score by, for formats with several.
    columns : field: the log's name for it, for the plain formats.
    statuses : a status word of the log: one of ours, for the plain formats.
    root : the id of the starting program, for the plain formats.
    """

    format: str
    direction: Direction | None = None
    score: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None


class Importer(Protocol):
    """What a module of this package defines."""

    TAKES: tuple[str, ...]  # the options it uses besides direction

    def load(self, source: Source, options: Options) -> Log:
        """Read the rows of a log."""
        ...


FORMATS: dict[str, tuple[str, str]] = {  # name: module, what it reads
    "csv": ("tables", "a table with a header line (.tsv: tab-separated); --column names the columns"),
    "jsonl": ("tables", "JSON Lines, one object an attempt; --column names the fields"),
    "openevolve": ("openevolve", "OpenEvolve: a checkpoint, the folder of all checkpoints, or an evolution trace"),
    "codeevolve": ("codeevolve", "CodeEvolve as JSON Lines, one object a program"),
    "shinka": ("shinka", "ShinkaEvolve: the folder of the results, or its SQLite database"),
    "simpletes": ("simpletes", "SimpleTES: nodes.json, or the folder of a saved state or of an instance"),
    "aide": ("aide", "AIDE or MLEvolve: journal.json, or its folder"),
    "skydiscover": ("openevolve", "SkyDiscover: a checkpoint, or the folder of all checkpoints"),
    "autoresearch": ("autoresearch", "autoresearch: results.tsv, or its folder"),
}


def read(
    format: str,
    path: str | os.PathLike[str],
    *,
    task: str | None = None,
    direction: Direction | None = None,
    score: str | None = None,
    columns: Mapping[str, str] | None = None,
    statuses: Mapping[str, str] | None = None,
    root: str | None = None,
) -> Imported:
    """Read the log of another system into a tree. Nothing of the log is changed or executed.

    Parameters
    ----------
    format : a key of :data:`FORMATS`.
    path : the file or folder of the log.
    task : what was searched; the name of the file or folder if not given.
    direction, score, columns, statuses, root : see :class:`Options`.

    Raises
    ------
    UserError
        The log is of another format, cut off, or contradicts itself; or the direction of the score is not known, or
        contradicts the one given; or an option does not go with the format.
    """
    if format not in FORMATS:
        raise UserError(f"{format!r} is no format of a log; choose one of {', '.join(FORMATS)}")
    importer = cast(Importer, importlib.import_module(f"dreamrsi.logs.{FORMATS[format][0]}"))
    options = Options(format, direction, score, columns or {}, statuses or {}, root)
    given = {name: value for name, value in asdict(options).items() if value and name != "format"}
    for name in given:
        if name != "direction" and name not in importer.TAKES:
            raise UserError(f"{format} logs take no {name}; leave it out")
    if direction not in (None, "max", "min"):
        raise UserError(f"direction is {direction!r}; give max or min")
    try:
        source = Source(path)
        with _uncollected():
            log = importer.load(source, options)
            way, because = settle(log, direction)
            grown = grow(log.rows, way)
    except RecursionError as error:
        raise UserError(f"{path}: is nested too deeply") from error
    except OSError as error:  # a folder that may not be listed, a name that is too long
        raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from error
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error
    report = account(format, log, grown, way, because)
    provenance = _provenance(source, report, given)
    header = Header(task=str(strict(task or source.name)), root=Root(grown.root), provenance=provenance)
    return Imported(Tree(header, grown.attempts, name=str(path)), report)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Rows hold no cycles; looking for some among ever more of them takes half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _provenance(source: Source, report: Report, given: dict[str, Any]) -> dict[str, Any]:
    from dreamrsi import __version__

    return {
        "dreamrsi": __version__,
        "log": source.digest(),
        "options": strict(given),
        "import": strict(report.as_dict()),
    }
