"""The command line. Every command calls one public function and prints what it returned.

Exit codes: 0 done, 1 a notebook of a study failed, 2 something that the user gave is wrong, 130 interrupted.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import dreamrsi as d
from dreamrsi.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    name="dreamrsi",
    help="Record discovery runs as trees, replay exploration policies on them, and see where the replay is blind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Trees = Annotated[list[Path], typer.Argument(metavar="TREE...", help="Tree files (JSON Lines).", show_default=False)]
Width = Annotated[int, typer.Option(min=1, help="W: the most picks a batch may hold.")]
MaxRounds = Annotated[int | None, typer.Option(min=1, help="K2; as many as a tree has attempts if not given.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Format = Literal["table", "csv", "md", "tex"]


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"dreamrsi {d.__version__}")
        raise typer.Exit


@app.command()
def study(
    profile: Annotated[str, typer.Option(help="quick (minutes) or full (hours; also writes figures/).")] = "quick",
    only: Annotated[list[str] | None, typer.Option(help="Run just this notebook, 03 say; may be given again.")] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Set a notebook's parameter, 02.corpora=50 say; again for more."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The export folder; runs/PROFILE if not given.")] = None,
) -> None:
    """Run the notebooks in order and export their figures and tables to runs/PROFILE."""
    from dreamrsi.study import run_study

    given = dict(_setting(text) for text in parameters or ())
    result = run_study(profile, out=out and out.absolute(), only=only or (), parameters=given, echo=typer.echo)
    raise typer.Exit(result.exit_code)


@app.command()
def replay(
    trees: Trees,
    policy: Annotated[str, typer.Option(help="NAME, NAME:key=value,... or FILE.py with a class Policy.")],
    width: Width = 8,
    max_rounds: MaxRounds = None,
    as_json: Json = False,
) -> None:
    """Walk recorded trees with one policy and print what it did, round by round."""
    with ExitStack() as stack:
        chosen = _policy(policy, stack)
        episodes = [(tree, d.replay(chosen, tree, width, max_rounds)) for tree in _load(trees)]
    if as_json:
        return typer.echo(json.dumps([_episode(tree, episode) for tree, episode in episodes], indent=1))
    for tree, episode in episodes:
        typer.echo(f"{tree.name}: {episode.policy}, width {width}")
        for line in _rounds(tree, episode):
            typer.echo(f"  {line}")
        reached = d.outcome(episode, tree)
        hit = "the best recorded" if reached.hit else f"regret {reached.regret:g} to the best recorded, {tree.best:g}"
        typer.echo(f"  {_REASONS[episode.reason]} after {episode.rounds} rounds and {episode.attempts} attempts")
        typer.echo(f"  best {episode.best:g}: {hit}")
        if not reached.opened:
            typer.echo("  NEVER OPENED: the best recorded score lies on a branch that this policy did not open")


@app.command()
def score(
    trees: Trees,
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy beside the built-in ones, as for replay; may be given again.")
    ] = None,
    beta1: Annotated[float | None, typer.Option(help="Cost of an attempt, in units of the score.")] = None,
    beta2: Annotated[
        float | None, typer.Option(help="Worth of an attempt more a round, in units of the score.")
    ] = None,
    width: Width = 8,
    max_rounds: MaxRounds = None,
    by_tree: Annotated[bool, typer.Option("--by-tree", help="One line a policy and tree instead of means.")] = False,
    output: Annotated[Format, typer.Option("--format", help="How to print the table.")] = "table",
) -> None:
    """Score the built-in policies, and your own, on recorded trees by Eq. 1 of the paper.

    Without --beta1 and --beta2 they follow the scale of the scores: beta1 is 0.2 % and beta2 0.5 % of the range from
    the worst to the best recorded score, the same shares as 0.02 and 0.05 on scores from 0 to 10.
    """
    from dreamrsi import compare

    loaded = d.history(_load(trees))
    b1, b2 = _betas(loaded, beta1, beta2)
    with ExitStack() as stack:
        chosen = [_policy(name, stack) for name in [*d.policies.BUILTIN, *(policy or ())]]
        settings: Any = {"width": width, "max_rounds": max_rounds, "beta1": b1, "beta2": b2}
        score_all = compare.by_tree if by_tree else compare.compare
        table = score_all(loaded, chosen, **settings).drop(columns="goes_on", errors="ignore")
    if output == "table":
        typer.echo(f"beta1 {b1:g}, beta2 {b2:g}, width {width}, {len(loaded)} trees; ratios to parallel_refine")
    typer.echo(_print(table, output))
    if output == "table" and table.never_opened.any():
        typer.echo("never_opened: the best score lies on a branch that the policy did not open; its V is blind there")


@app.command()
def tree(trees: Trees) -> None:
    """Print what a tree file holds: size, caps, statuses and the best score of every branch."""
    for loaded in _load(trees):
        header = loaded.header
        caps = f"caps {header.branches or 'none'} x {header.steps or 'none'}, width {header.width or 'unknown'}"
        synthetic = ", synthetic" if header.synthetic else ""
        typer.echo(
            f"{loaded.name}: {header.task}{synthetic}, {len(loaded.branches)} branches, {len(loaded)} attempts ({caps})"
        )
        root = "no score" if loaded.root is None else f"{loaded.root:g}"
        typer.echo(f"  root {root}, best {loaded.best:g}, recommended tag {header.recommended or 'none'}")
        for number, branch in enumerate(loaded.branches):
            chain = loaded.world.chains[number]
            failed = sum(attempt.score is None for attempt in branch)
            tag = f", tag {chain.tag}" if chain.tag else ""
            origin = f", from branch {chain.origin[0]} attempt {chain.origin[1]}" if chain.origin else ""
            best = chain.tops[-1]
            where = f"best {best:g} at attempt {chain.tops.index(best)}" if math.isfinite(best) else "no score"
            typer.echo(f"  branch {number}: {len(branch)} attempts, {failed} failed, {where}{tag}{origin}")


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="What is searched, such as circle_packing.")],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command resumes an interrupted run.")],
    policy: Annotated[str, typer.Option(help="NAME or NAME:key=value,...")] = "parallel_refine",
    workspaces: Annotated[int, typer.Option(min=1, help="The most branches.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="The most attempts a branch.")] = 11,
    width: Annotated[
        int | None, typer.Option(min=1, help="Attempts a round; as many as workspaces if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; one a core if not given.")] = None,
) -> None:
    """Record a live run: a policy drives the offline agent and the task's evaluator."""
    from dreamrsi.live import live_run

    def progress(done: int, total: int, attempt: d.Attempt) -> None:
        result = attempt.status if attempt.score is None else f"{attempt.score:.8g}"
        typer.echo(f"{done}/{total} branch {attempt.branch} attempt {attempt.attempt}: {attempt.tag} {result}")

    recorded = live_run(
        task,
        d.policies.make(policy),
        out,
        width=width or workspaces,
        branches=workspaces,
        steps=steps,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    typer.echo(f"{recorded.name}: {len(recorded)} attempts, best {recorded.best:.10g}")


_REASONS = {
    "stopped": "stopped by the policy",
    "rounds": "ended by the limit of rounds",
    "complete": "everything recorded was revealed",
    "failed": "failed",
}


def _setting(text: str) -> tuple[str, Any]:
    """``name=value``; the value is JSON where it can be, else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text}: write it as NAME=VALUE, or NOTEBOOK.NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _policy(text: str, stack: ExitStack) -> d.policies.Policy:
    """A built-in policy by name, or the user's file, which runs in the sandbox until the stack closes."""
    if text.endswith(".py"):
        from dreamrsi.sandbox import load_policy

        return stack.enter_context(load_policy(text))
    return d.policies.make(text)


def _load(paths: list[Path]) -> list[d.Tree]:
    return [d.Tree.load(path) for path in paths]


def _betas(trees: list[d.Tree], beta1: float | None, beta2: float | None) -> tuple[float, float]:
    """The betas that were given, and for those that were not what follows from the scale of the scores."""
    scaled = d.scaled_betas(trees)
    found = (scaled[0] if beta1 is None else beta1, scaled[1] if beta2 is None else beta2)
    if not all(map(math.isfinite, found)):
        raise UserError(f"beta1 and beta2 must be finite numbers; got {found[0]:g} and {found[1]:g}")
    return found


def _rounds(tree: d.Tree, episode: d.Episode) -> list[str]:
    """One line a round: the picks, and what they revealed."""
    lines = []
    order = iter(episode.order)
    counts = _reveals_a_round(tree, episode)
    best = -math.inf if tree.root is None else tree.root
    for number, (picks, count) in enumerate(zip(episode.picks, counts, strict=True)):
        shown = [tree.branches[b][a] for b, a in (next(order) for _ in range(count))]
        best = max([best, *(a.score for a in shown if a.score is not None)])
        names = " ".join("open" if pick == d.OPEN else str(pick) for pick in picks)
        lines.append(f"round {number:2d}  picks {names}  -> {count} attempts, best so far {best:g}")
    return lines


def _reveals_a_round(tree: d.Tree, episode: d.Episode) -> list[int]:
    """How many attempts each round revealed: the picks are walked once more."""
    from dreamrsi.replay import reveal
    from dreamrsi.tree import Prefix

    prefix = Prefix(tree.world, max(map(len, episode.picks), default=1))
    counts, reveals = [], list[int]()
    for picks in episode.picks:
        before = len(reveals)
        reveal(prefix, picks, reveals)
        counts.append(len(reveals) - before)
    return counts


def _episode(tree: d.Tree, episode: d.Episode) -> dict[str, Any]:
    reached = d.outcome(episode, tree)
    return {
        "tree": tree.name,
        "policy": episode.policy,
        "picks": episode.picks,
        "order": episode.order,
        "attempts": episode.attempts,
        "rounds": episode.rounds,
        "best": episode.best if math.isfinite(episode.best) else None,
        "reason": episode.reason,
        "hit": reached.hit,
        "opened": reached.opened,
    }


def _print(table: pd.DataFrame, output: Format) -> str:
    from dreamrsi import tables

    if output == "csv":
        return tables.to_csv(table).rstrip()
    if output == "tex":
        return tables.to_tex(table).rstrip()
    if output == "md":
        return tables.to_md(table).rstrip()
    return str(tables.cells(table).to_string(index=False))


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warning: {message}", err=True)


def main() -> None:
    """Run the command line; user's errors become one line and exit code 2."""
    warnings.showwarning = _warn
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except SystemExit as ended:
        if ended.code == 130:  # what typer makes of Ctrl-C
            typer.echo("interrupted; what was finished is kept", err=True)
        raise


if __name__ == "__main__":
    main()
