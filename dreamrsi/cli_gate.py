"""The commands ``suite``, ``gate``, ``deploy`` and ``rollback``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dreamrsi.console import Console
    from dreamrsi.decision import Check, Decision
    from dreamrsi.suite import Suite

suite_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="SUITE", help="Folder of a frozen suite.", show_default=False)]
Steps = Annotated[int | None, typer.Option(metavar="N", min=1, help="The depth: the most attempts a branch.")]
Workspaces = Annotated[int | None, typer.Option(metavar="N", min=1, help="The most branches.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(suite_app, name="suite", short_help="Freeze what a gate judges by, and check it.")
    suite_app.command(short_help="Freeze trees, the current policy and the settings.")(freeze)
    suite_app.command(short_help="Check a suite, and that its policy reproduces its log.")(check)
    app.command(short_help="Decide whether a policy may replace the current one.")(gate)
    app.command(short_help="Show what is deployed, or start a deployment.")(deploy)
    app.command(short_help="Deploy again what was deployed before.")(rollback)


def freeze(
    trees: Annotated[
        list[Path],
        typer.Argument(metavar="TREE...", help="Tree files, or folders of runs, in the order they closed."),
    ],
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The current policy.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The suite's folder, which must not exist.")],
    width: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="W that it is deployed with; the recorded one.")
    ] = None,
    steps: Steps = None,
    workspaces: Workspaces = None,
    beta1: Annotated[
        float | None, typer.Option(metavar="NUMBER", min=0, help="Cost of an attempt, in units of the score.")
    ] = None,
    beta2: Annotated[
        float | None, typer.Option(metavar="NUMBER", min=0, help="Worth of an attempt more a round.")
    ] = None,
    around: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="The neighbourhood: from LOW to HIGH times each beta."),
    ] = (0.5, 2.0),
    margin: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", min=0, help="What counts as a tie there; beta1, one attempt's cost."),
    ] = None,
    last: Annotated[
        int, typer.Option(metavar="N", min=1, help="K: coverage looks at the winners of so many trees.")
    ] = 3,
    max_drop: Annotated[
        float, typer.Option(metavar="NUMBER", help="The share of quality that may be lost; only stricter.")
    ] = 0.02,
    max_rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="K2; as many as a tree has attempts.")
    ] = None,
    other: Annotated[
        list[Path] | None, typer.Option(metavar="TREE", help="A tree that another policy recorded; may be given again.")
    ] = None,
) -> None:
    """Freeze trees, the current policy and the settings that a gate judges by, with the hashes of it all.

    Then replay the policy: it has to reproduce its log. Exit code 1 if it does not; no gate passes on such a suite.
    """
    from dreamrsi.freeze import freeze as run
    from dreamrsi.freeze import multiples

    _there([policy])
    frozen = run(
        tree_files(trees),
        policy,
        out,
        width=width,
        steps=steps,
        branches=workspaces,
        beta1=beta1,
        beta2=beta2,
        around=multiples(*around),
        margin=margin,
        last=last,
        max_drop=max_drop,
        max_rounds=max_rounds,
        others=tree_files(other or []),
    )
    _say_suite(frozen)


def check(suite: Folder) -> None:
    """Check every hash of a suite, and that replaying its policy reproduces its log. Exit code 1 if it does not."""
    from dreamrsi.suite import Suite

    _say_suite(Suite.load(suite))


def gate(
    suite: Folder,
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The candidate.")],
    current: Annotated[Path, typer.Option(metavar="FILE", help="The current policy, the one pinned in the suite.")],
    shadow: Annotated[
        list[Path] | None,
        typer.Option(metavar="TREE", help="A tree that closed after the suite was frozen; two are needed, in order."),
    ] = None,
    width: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="W of the candidate's deployment; as frozen.")
    ] = None,
    steps: Steps = None,
    workspaces: Workspaces = None,
    beta1: Annotated[float | None, typer.Option(metavar="NUMBER", min=0, help="To judge by; as frozen.")] = None,
    beta2: Annotated[float | None, typer.Option(metavar="NUMBER", min=0, help="To judge by; as frozen.")] = None,
    beta: Annotated[
        float | None, typer.Option(metavar="NUMBER", min=0, max=1, help="The policy's knob; as frozen.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(metavar="NAME", help="Who read the diff.")] = None,
    diff_sha256: Annotated[
        str | None, typer.Option(metavar="HASH", help="Of the diff that was read; the gate prints the one it expects.")
    ] = None,
    deployment: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Deploy there what is promoted, and keep the decision there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as one JSON object.")] = False,
) -> None:
    """Decide whether a policy may replace the current one. Every rule has to pass; docs/gate.md explains them.

    The decision is kept as JSON and as markdown, with the diff, in DIR or beside the suite in SUITE-decisions.
    Exit codes: 0 promoted, 1 refused, 2 something that was given is not there.
    """
    from dreamrsi.console import Console
    from dreamrsi.deploy import Deployment
    from dreamrsi.gate import gate as run

    _there([suite, policy, current, *(shadow or ())])
    records = Deployment(deployment or suite.absolute().parent / f"{suite.absolute().name}-decisions")
    with records.lock("gate"):
        deployed = records.deployed() if deployment else None
        decision = run(
            suite,
            policy,
            current,
            shadow=shadow or (),
            width=width,
            steps=steps,
            branches=workspaces,
            beta1=beta1,
            beta2=beta2,
            beta=beta,
            reviewer=reviewer,
            diff_sha256=diff_sha256,
            deployed=deployed,
        )
        number = records.record(decision)
        if deployment and decision.promoted:
            records.promote(decision, number, policy, suite)
    if as_json:
        typer.echo(decision.json().decode().rstrip())
    else:
        _say_decision(Console.of_stdout(), decision)
        typer.echo(f"decision {number}: {records.folder / 'decisions' / f'{number:04d}.md'}")
        if deployment:
            typer.echo(f"deployed: {'the candidate' if decision.promoted else 'the current policy, as before'}")
    raise typer.Exit(0 if decision.promoted else 1)


def deploy(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.", show_default=False)],
    suite: Annotated[
        Path | None, typer.Option(metavar="SUITE", help="Start: deploy the current policy of this suite.")
    ] = None,
) -> None:
    """Show what is deployed and every decision, or start a deployment with the policy that runs already."""
    from dreamrsi.console import Console
    from dreamrsi.decision import describe, percent, plain
    from dreamrsi.deploy import Deployment
    from dreamrsi.suite import Suite

    records = Deployment(folder)
    if suite:
        with records.lock("gate"):
            records.start(Suite.load(suite))
    now, console = records.deployed(), Console.of_stdout()
    console.sentence("", f"deployed: {plain(now.policy.name)}, sha256 {now.policy.sha256}")
    console.sentence("  ", f"with {describe(now.settings)}")
    held = now.frozen
    required = f", and branches {', '.join(map(str, held.required))} that the gate required" if held.required else ""
    console.sentence("  a live round: ", f"at most {held.calls} calls;")
    console.sentence("    ", f"quality at most {percent(held.max_drop)} below {held.quality:.6g};")
    console.sentence("    ", f"its best attempt on one of the first {held.opened} branches{required}")
    for number, decision in enumerate(records.decisions(), 1):
        name = plain(decision.policy.name) if decision.policy else "a policy that cannot be loaded"
        why = "; ".join(decision.fired) or ", ".join(check.name for check in decision.checks if not check.passed)
        here = "  <- deployed" if number == now.decision else ""
        said = f"{name} {decision.outcome}{f' ({plain(why)})' if why else ''}{here}"
        console.sentence(f"{number:4d}  {decision.time}  ", said)


def rollback(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.", show_default=False)],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept in the decision.")],
) -> None:
    """Deploy again what was deployed before, by restoring the exact bytes of the pointer."""
    from dreamrsi.decision import plain
    from dreamrsi.deploy import Deployment

    records = Deployment(folder)
    _there([folder])
    with records.lock("gate"):
        number = records.roll_back([reason])
        now = records.deployed()
    typer.echo(f"deployed again: {plain(now.policy.name)}, sha256 {now.policy.sha256} (decision {number})")


def _there(paths: list[Path]) -> None:
    """Tell a misspelt path, or a name, from evidence that is not good enough."""
    from dreamrsi.errors import UserError
    from dreamrsi.policies import BUILTIN

    for path in paths:
        if not path.exists() and str(path).partition(":")[0] in BUILTIN:
            raise UserError(f"{path}: needs a FILE.py, not a name; docs/adding-a-policy.md shows how to write one")
        if not path.exists():
            raise UserError(f"{path}: is not there; give the path of something that exists")


def tree_files(paths: list[Path]) -> list[Path]:
    """The files, and those of runs where a folder is given."""
    from dreamrsi.errors import UserError

    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("round-*/tree.jsonl")) if path.is_dir() else [path]
        if not found:
            trees = f"its trees, {path}/*.jsonl," if any(path.glob("*.jsonl")) else "a tree file"
            raise UserError(f"{path}: is a folder without round-01/tree.jsonl; give {trees} or the folder of a run")
        files += found
    return files


def _say_suite(suite: Suite) -> None:
    from dreamrsi.console import Console, counted
    from dreamrsi.decision import describe, plain, show
    from dreamrsi.gate import reproduces

    manifest, console = suite.manifest, Console.of_stdout()
    console.sentence("", f"suite {suite.folder}, sha256 {suite.sha256}")
    console.sentence("  ", f"{counted(len(suite.trees), 'tree')}: {', '.join(tree.name for tree in suite.trees)}")
    console.sentence("  ", f"current policy {plain(manifest.policy)}, sha256 {suite.current_sha256}")
    console.sentence("  ", f"{describe(manifest.settings)}; K {manifest.last}")
    spans = [f"{show(min(values))} to {show(max(values))}" for values in (manifest.beta1s, manifest.beta2s)]
    console.sentence(
        "  neighbourhood: ", f"beta1 {spans[0]}, beta2 {spans[1]}; margin for a tie {show(manifest.margin)}"
    )
    check = reproduces(suite)
    _say_check(console, check)
    raise typer.Exit(0 if check.passed else 1)


def _say_decision(console: Console, decision: Decision) -> None:
    from dreamrsi.decision import describe, plain

    names = [plain(named.name) if named else "?" for named in (decision.policy, decision.current)]
    console.sentence("", f"{decision.outcome}: {names[0]} against {names[1]}")
    for label, named in (("candidate", decision.policy), ("current", decision.current)):
        if named:
            console.sentence(f"  {label:9} ", f"sha256 {named.sha256}")
    if decision.suite:
        console.sentence("  suite     ", f"sha256 {decision.suite}")
    if decision.settings:
        console.sentence("  ", f"deployed with {describe(decision.settings)}")
    for check in decision.checks:
        _say_check(console, check)


def _say_check(console: Console, check: Check) -> None:
    """One rule: its outcome, and its reason folded beside it."""
    from dreamrsi.decision import plain

    start = f"  {console.status('ok' if check.passed else 'failed', 6)}  {check.name:<9} "
    first, *more = plain(check.reason, keep="\n").split("\n")
    console.sentence(start, first)
    for line in more:
        console.sentence(" " * 20, line)
