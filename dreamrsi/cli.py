"""The command line. Every command calls one public function and prints what it returned.

Exit codes: 0 done, 1 a notebook of a study failed, 2 something that the user gave is wrong, 130 interrupted.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import textwrap
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dreamrsi as d
from dreamrsi import cli_gate, cli_import, cli_run, cli_score, cli_sweep, traces
from dreamrsi.errors import RecordError, UserError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="dreamrsi",
    help="Record discovery runs as trees, replay exploration policies on them, and see where the replay is blind.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Trees = Annotated[
    list[Path], typer.Argument(metavar="TREE...", help="Tree files, or folders of runs.", show_default=False)
]
Width = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="W: the most picks a batch may hold; the recorded one if not given."),
]
MaxRounds = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="K2; as many as a tree has attempts if not given.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(f"dreamrsi {d.__version__}")
        raise typer.Exit


@app.command(short_help="Run the notebooks; export figures and tables.")
def study(
    profile: Annotated[str, typer.Option(metavar="NAME", help="quick, or full, which also renews figures/.")] = "quick",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run just this notebook, 03 say; may be given again.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Set a notebook's parameter, 02.corpora=50 say; again for more."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The export folder; runs/PROFILE if not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run the notebooks even if nothing changed.")] = False,
    as_json: Json = False,
) -> None:
    """Run the notebooks that changed, in order, and export their figures and tables to runs/PROFILE."""
    from dreamrsi.console import Console
    from dreamrsi.study import run_study

    given = dict(_setting(text) for text in parameters or ())
    console = Console() if as_json else Console.of_stdout()
    result = run_study(
        profile, out=out and out.absolute(), only=only or (), parameters=given, force=force, console=console
    )
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=1))
    raise typer.Exit(result.exit_code)


@app.command(short_help="Walk recorded trees with one policy, round by round.")
def replay(
    trees: Trees,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="NAME, NAME:key=value,... or FILE.py with a class Policy.")
    ],
    width: Width = None,
    max_rounds: MaxRounds = None,
    as_json: Json = False,
) -> None:
    """Walk recorded trees with one policy and print what it did, round by round."""
    from dreamrsi.console import counted

    with ExitStack() as stack:
        chosen = _policy(policy, stack)
        loaded = [(tree, width or tree.header.width or 8) for tree in _load(trees)]
        episodes = [(tree, d.replay(chosen, tree, w, max_rounds)) for tree, w in loaded]
    if as_json:
        return typer.echo(json.dumps([_episode(tree, episode) for tree, episode in episodes], indent=1))
    for (tree, episode), (_, used) in zip(episodes, loaded, strict=True):
        typer.echo(f"{tree.name}: {episode.policy}, width {used}")
        for line in traces.brief(episode, tree):
            typer.echo(f"  {line}")
        made = f"{counted(episode.rounds, 'round')} and {counted(episode.attempts, 'attempt')}"
        typer.echo(f"  {traces.REASONS[episode.reason]} after {made}")
        reached = d.outcome(episode, tree)
        if not math.isfinite(tree.best):
            typer.echo("  nothing in this tree has a score")
        elif reached.hit:
            typer.echo(f"  best {episode.best:.10g}: the best recorded")
        else:
            typer.echo(
                f"  best {episode.best:.10g}: regret {reached.regret:.4g} to the best recorded, {tree.best:.10g}"
            )
        if not reached.opened:
            typer.echo("  NEVER OPENED: the best recorded score lies on a branch that this policy did not open")


app.command(short_help="Score policies, and the record itself, on recorded trees by Eq. 1.")(cli_score.score)
app.command(short_help="Replay policies at many settings, here or on a Dask cluster.")(cli_sweep.sweep)
cli_gate.register(app)
app.command("import", short_help="Read another system's run log into a tree file.")(cli_import.import_log)


@app.command(short_help="List the built-in policies and their parameters.")
def policies() -> None:
    """List the built-in policies as other commands take them: parameters, which may be left out, and the rule."""
    for name, policy in d.policies.BUILTIN.items():
        given = inspect.signature(policy).parameters.values()
        shown = ",".join(f"{p.name}={'N' if p.default in (p.empty, None) else p.default}" for p in given)
        typer.echo(f"{name}:{shown}" if given else name)
        rule = (inspect.getdoc(policy) or "").replace("``", "")
        for paragraph in rule.split("\n\n"):
            typer.echo(textwrap.fill(paragraph, 80, initial_indent="    ", subsequent_indent="    "))


@app.command(short_help="Print what a tree file holds.")
def tree(trees: Trees) -> None:
    """Print what a tree file holds: size, caps, statuses and the best score of every branch."""
    from dreamrsi.console import Console, counted

    console = Console.of_stdout()
    for loaded in _load(trees):
        header = loaded.header
        named = (("branches", header.branches), ("steps", header.steps))
        caps = ", ".join(f"{name} {value}" for name, value in named if value)
        known = f"caps: {caps}" if caps else "no caps recorded"
        known += f"; width {header.width}" if header.width else ""
        synthetic = ", synthetic" if header.synthetic else ""
        size = f"{counted(len(loaded.branches), 'branch')}, {counted(len(loaded), 'attempt')}"
        console.sentence(f"{loaded.name}: ", f"{header.task}{synthetic}, {size} ({known})")
        root = "no score" if loaded.root is None else f"{loaded.root:g}"
        console.line(f"  root {root}, best {loaded.best:g}, recommended tag {header.recommended or 'none'}")
        for number, branch in enumerate(loaded.branches):
            chain = loaded.world.chains[number]
            failed = sum(attempt.score is None for attempt in branch)
            tag = f", tag {chain.tag}" if chain.tag else ""
            origin = f", from branch {chain.origin[0]} attempt {chain.origin[1]}" if chain.origin else ""
            best = chain.tops[-1]
            where = f"best {best:g} at attempt {chain.tops.index(best)}" if math.isfinite(best) else "no score"
            made = counted(len(branch), "attempt")
            console.sentence(f"  branch {number}: ", f"{made}, {failed} failed, {where}{tag}{origin}")


app.command(short_help="Search a task in rounds, with or without dreaming.")(cli_run.run)


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
    """The trees in the files, and those of runs where a folder is given."""
    return [_tree(file) for file in cli_gate.tree_files(paths)]


def _tree(file: Path) -> d.Tree:
    try:
        return d.Tree.load(file)
    except RecordError as error:
        if f"{file}, line 1:" in str(error):  # perhaps no tree at all
            raise UserError(f"{error}. Other systems' logs: dreamrsi import") from error
        raise


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
            typer.echo("interrupted; what was finished is kept, the same command goes on", err=True)
        raise


if __name__ == "__main__":
    main()
