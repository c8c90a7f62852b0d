"""The command ``import``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dreamrsi.errors import UserError

Pairs = list[str] | None


def import_log(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help="What wrote the log; `list` lists the formats.")],
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="The file or folder of the log.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="TREE", help="The tree file to write.")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="What was searched; the name of PATH if not given.")
    ] = None,
    direction: Annotated[
        str | None, typer.Option(metavar="WAY", help="max or min, where the log does not say it.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric to score by, for logs with several.")
    ] = None,
    column: Annotated[
        Pairs, typer.Option(metavar="FIELD=NAME", help="csv, jsonl: the log's name for a field; again for more.")
    ] = None,
    status: Annotated[
        Pairs, typer.Option(metavar="WORD=STATUS", help="csv, jsonl: what a word of the status column means.")
    ] = None,
    root: Annotated[str | None, typer.Option(metavar="ID", help="csv, jsonl: the id of the starting program.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object for machines.")] = False,
) -> None:
    """Read another system's run log into a tree file, and report what was kept and what the log cannot say.

    The log is not changed, and nothing in it is executed. Higher scores are better in a tree: where lower ones are in
    the log, the tree holds -score.
    """
    from dreamrsi import logs
    from dreamrsi.console import Console, counted

    console = Console.of_stdout()
    if format == "list":
        for name, (_, about) in logs.FORMATS.items():
            console.sentence(f"{name:14} ", about)
        return
    if path is None or out is None:
        raise UserError("give a format, the path of the log, and -o with the tree file to write")
    if direction not in (None, "max", "min"):
        raise UserError(f"--direction {direction}: give max or min")
    _check_out(out)
    columns, statuses = _pairs("--column FIELD=NAME", "score", column), _pairs("--status WORD=STATUS", "", status)
    tree, report = logs.read(
        format,
        path,
        task=task,
        direction=direction,  # type: ignore[arg-type]  # checked above
        score=score,
        columns=columns,
        statuses=statuses,
        root=root,
    )
    tree.save(out)
    if as_json:
        return typer.echo(json.dumps(report.as_dict() | {"tree": str(out)}, indent=1))
    console.line(f"{path}: {format} log of {tree.header.task}")
    for line in report.lines():
        start, mark, rest = line.partition(": ")
        console.sentence(f"  {start}{mark}", rest)
    best = f"best {tree.best:.10g}" if tree.best > float("-inf") else "nothing has a score"
    console.line(f"{out}: {counted(len(tree.branches), 'branch')}, {counted(len(tree), 'attempt')}, {best}")


def _check_out(out: Path) -> None:
    """Only a tree may be written over: a file of the log, or of anything else, stays as it is."""
    from dreamrsi.record import FORMAT

    if not out.exists():
        return
    if out.is_file():
        with out.open("rb") as file:
            if FORMAT.encode() in file.readline(100_000):
                return
    raise UserError(f"{out}: is there and is no tree file; it is not written over, choose another name")


def _pairs(form: str, example: str, given: Pairs) -> dict[str, str]:
    pairs = {}
    option, _, pattern = form.partition(" ")
    for text in given or ():
        name, _, value = text.partition("=")
        if not name or not value:
            say = f"; say {option} {example}={name}" if example and name else ""
            raise UserError(f"{option} {text}: write it as {pattern}{say}")
        pairs[name] = value
    return pairs
