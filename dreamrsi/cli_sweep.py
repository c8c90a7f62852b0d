"""The command ``sweep``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    import pandas as pd

    from dreamrsi.tree import Tree


def sweep(
    trees: Annotated[
        list[Path], typer.Argument(metavar="TREE...", help="Tree files, or folders of runs.", show_default=False)
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY", help="NAME or NAME:key=value,...; may be given again. All but random if none is given."
        ),
    ] = None,
    width: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, help="W; may be given again. The recorded one if none is given."),
    ] = None,
    max_rounds: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", min=1, help="K2; may be given again. As many as a tree has attempts if none is given."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask scheduler, tcp://HOST:PORT, whose workers do it instead."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes at once; one a core if not given.")
    ] = None,
    output: Annotated[Literal["table", "csv"], typer.Option("--format", help="How to print the table.")] = "table",
) -> None:
    """Replay policies on trees at every width and limit of rounds: one row each, in the order given.

    The rows are the same wherever they are computed. V at any betas is arithmetic on them: quality - beta1*attempts +
    beta2*attempts/rounds.
    """
    from dreamrsi import policies, tables
    from dreamrsi.cli import _load
    from dreamrsi.errors import UserError
    from dreamrsi.sweep import sweep as run

    if scheduler and workers:
        raise UserError("--workers are processes on this machine; a cluster has the workers that it has. Give one")
    names = policy or [name for name in policies.BUILTIN if name != "random"]
    loaded = _load(trees)
    table = run(
        loaded,
        names,
        widths=width or [None],
        max_rounds=max_rounds or [None],
        n_jobs=workers or -1,
        scheduler=scheduler,
    )
    typer.echo(
        f"policies: {table.policy.nunique()}, trees: {len(loaded)}, episodes: {len(table)}", err=output != "table"
    )
    typer.echo(tables.to_csv(table).rstrip() if output == "csv" else _text(table, loaded, limited=bool(max_rounds)))


def _text(table: pd.DataFrame, trees: list[Tree], *, limited: bool) -> str:
    """The rows in 80 columns where that can be: trees by short names, the limit of rounds where it was given."""
    from dreamrsi import score_text

    names = dict(zip([tree.name for tree in trees], score_text.short_names(trees), strict=True))
    shown = score_text.named(table).assign(tree=table.tree.map(names)).rename(columns={"width": "W"})
    shown["unopened"] = ~shown.pop("opened")  # the winner's branch, as `score` has it
    if not limited:
        shown = shown.drop(columns="max_rounds")
    for column in shown.columns:
        if shown[column].dtype.kind == "b":
            shown[column] = shown[column].map({True: "yes", False: "no"})
        elif shown[column].dtype.kind == "f":
            digits = {"quality": 6, "attained": 4}.get(column, 3)
            shown[column] = [f"{value:.{digits}g}" for value in shown[column]]
    return score_text.fitted(shown.astype(str))
