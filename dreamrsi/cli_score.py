"""The command ``score``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from dreamrsi.policies import Policy
    from dreamrsi.score_report import Scored


def score(
    trees: Annotated[
        list[Path], typer.Argument(metavar="TREE...", help="Tree files, or folders of runs.", show_default=False)
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="A policy beside the built-in ones: NAME:key=value,... or FILE.py; may be given again.",
        ),
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Leave out the built-in policies that --policy does not name.")
    ] = False,
    beta1: Annotated[
        float | None, typer.Option(metavar="NUMBER", min=0, help="Cost of an attempt, in units of the score.")
    ] = None,
    beta2: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", min=0, help="Worth of an attempt more a round, in units of the score."),
    ] = None,
    width: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=1,
            help="W: the most picks a batch may hold; again for more rows. The recorded one if not given.",
        ),
    ] = None,
    max_rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="K2; as many as a tree has attempts if not given.")
    ] = None,
    normalise: Annotated[
        Literal["range"] | None,
        typer.Option(help="range divides the scores of a tree by (best - root), for mixed tasks."),
    ] = None,
    by_tree: Annotated[bool, typer.Option("--by-tree", help="One line a policy and tree instead of means.")] = False,
    output: Annotated[
        Literal["table", "csv", "md", "tex"], typer.Option("--format", help="How to print the table.")
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Also write tables, figures and one page, report.html, there."),
    ] = None,
) -> None:
    """Score policies, and the recorded run itself, on recorded trees by Eq. 1 of the paper.

    V = best - beta1*N + beta2*N/k for N attempts in k rounds. Without --beta1 and --beta2 they follow the scale of
    the scores: 0.2 % and 0.5 % of the range from the worst to the best recorded one, the same shares as 0.02 and 0.05
    on scores from 0 to 10. attained is the share of the way from the root to the best; opened counts branches, unopened
    trees whose winner's branch was never opened; random is the mean of 20 seeds.
    """
    from dreamrsi import score_report, score_text
    from dreamrsi.cli import _load, _policy
    from dreamrsi.errors import UserError
    from dreamrsi.policies import BUILTIN

    if only and not policy:
        raise UserError("--only leaves nothing to score; name the policies with --policy")
    if out is not None:
        _check_folder(out)
    names = list(dict.fromkeys([*([] if only else [name for name in BUILTIN if name != "random"]), *(policy or ())]))
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*; it scores -inf$")  # the line FAILED says it
        scored = score_report.score_trees(
            _load(trees),
            _told_apart(names, [_policy(name, stack) for name in names]),
            widths=width or [None],
            max_rounds=max_rounds,
            beta1=beta1,
            beta2=beta2,
            normalise=normalise,
            random_seeds=0 if only else score_report.RANDOM_SEEDS,
        )
    aside = output != "table"  # a table for machines stands alone on stdout
    for line in score_text.heading(scored):
        typer.echo(score_text.wrapped(line), err=aside)
    typer.echo("", err=aside)
    typer.echo(_table(scored, output, by_tree))
    _say("", score_text.warnings_of(scored), aside)
    _say(score_text.map_rule(scored), score_text.map_lines(scored), aside)
    _say("", [score_text.record_line(scored), *score_text.notes(scored)], aside)
    if out is not None:
        from dreamrsi import score_page

        page = score_page.write(scored, out)
        typer.echo(f"\n{page}: the page; figures and tables lie beside it", err=aside)


def _check_folder(out: Path) -> None:
    """Say before the work what would keep the page from being written."""
    from dreamrsi.errors import UserError

    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UserError(f"--out {out}: {there} is no folder that can be written to; give the name of a new folder")


def _told_apart(given: list[str], policies: list[Policy]) -> list[Policy]:
    """Name a file's policy after the file where its own name is taken: ``round-02/policy.py``, or the whole path."""
    from dreamrsi.compare import RECORDED
    from dreamrsi.sandbox import SandboxedPolicy

    taken = {RECORDED}
    for text, policy in sorted(zip(given, policies, strict=True), key=lambda pair: pair[0].endswith(".py")):
        if isinstance(policy, SandboxedPolicy):
            options = (policy.name, "/".join(Path(text).parts[-2:]), text)
            policy.name = next((name for name in options if name not in taken), policy.name)
        taken.add(policy.name)
    return policies


def _table(scored: Scored, output: Literal["table", "csv", "md", "tex"], by_tree: bool) -> str:
    from dreamrsi import score_text, tables

    if output == "table":
        return score_text.by_tree_text(scored) if by_tree else score_text.table_text(scored)
    table = score_text.named(scored.by_tree if by_tree else scored.table)
    if output == "csv":
        return tables.to_csv(table).rstrip()
    return {"md": tables.to_md, "tex": tables.to_tex}[output](table, digits=score_text.decimals(table)).rstrip()


def _say(title: str, lines: list[str], aside: bool) -> None:
    """A paragraph, with its title if it has one."""
    from dreamrsi.score_text import wrapped

    if not lines:
        return
    typer.echo("", err=aside)
    if title:
        typer.echo(wrapped(title), err=aside)
    for line in lines:
        typer.echo(wrapped(f"  {line}" if title else line, "  "), err=aside)
