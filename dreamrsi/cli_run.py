"""The command ``run``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dreamrsi.console import Console, duration
from dreamrsi.errors import UserError
from dreamrsi.loop import PRESETS, Recursion, Round, Watch, recursion
from dreamrsi.policy_file import starting_policy
from dreamrsi.record import Attempt

if TYPE_CHECKING:
    from dreamrsi.dream import Dream


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="What is searched, such as circle_packing.")],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command resumes an interrupted run.")],
    arm: Annotated[
        Literal["fixed", "dream"], typer.Option(help="dream develops the policy between rounds, fixed does not.")
    ] = "fixed",
    agent: Annotated[
        Literal["moves", "command"], typer.Option(help="moves: the task's own, offline; command: a coding agent.")
    ] = "moves",
    policy: Annotated[
        str | None, typer.Option(help="Of round 1: NAME, NAME:key=value,... or FILE.py; parallel_refine.")
    ] = None,
    gated: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run what is deployed there, guarded; killed and rolled back by its numbers."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="T; a finished run goes on if more are asked for.")] = 1,
    workspaces: Annotated[int | None, typer.Option(min=1, help="The most branches a round; 10 if not given.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="The most attempts a branch; 11 if not given.")] = None,
    preset: Annotated[
        Literal["10x11", "32x20"] | None, typer.Option(help="Workspaces x steps of the paper's runs.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="W: attempts at once; as many as workspaces if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    start: Annotated[
        Literal["best", "seed"], typer.Option(help="Later rounds start at the best so far, or at the task's seed.")
    ] = "best",
    guidance: Annotated[
        bool, typer.Option("--guidance", help="Tell agent and policy what worked in earlier rounds.")
    ] = False,
    versions: Annotated[int, typer.Option(min=1, help="M: policies that a dream compares, the current one too.")] = 8,
    beta1: Annotated[
        float | None, typer.Option(min=0, help="Cost of an attempt; 0.2 % of the range of round 1's scores.")
    ] = None,
    beta2: Annotated[
        float | None, typer.Option(min=0, help="Worth of an attempt more a round; 0.5 % of that range.")
    ] = None,
    objective: Annotated[
        Literal["eq1", "sweep"], typer.Option(help="Eq. 1, or the sweep score of appendix B.2.")
    ] = "eq1",
    revise: Annotated[
        Literal["best", "latest"], typer.Option(help="Which version the developer revises next.")
    ] = "best",
    plan: Annotated[
        Literal["policy", "rule", "none"],
        typer.Option(help="Who may change workspaces and steps of later rounds, never their product (dream)."),
    ] = "policy",
    developer: Annotated[
        Literal["schedule", "command"], typer.Option(help="schedule: offline; command: a coding agent.")
    ] = "schedule",
    command: Annotated[
        str | None,
        typer.Option(metavar="TEMPLATE", help="The coding agent: claude, codex, gemini, or a command line."),
    ] = None,
    developer_command: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="The same for policies; --command if not given.")
    ] = None,
    agent_seconds: Annotated[float, typer.Option(min=1, help="For one call of a command.")] = 900.0,
    pass_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A variable that commands may see; again for more.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds for an attempt: 300, with a command --agent-seconds and 300.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; one a core if not given.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, tcp://HOST:PORT, for the attempts.")
    ] = None,
) -> None:
    """Search a task in rounds: live run, dream, live run, ... (dream), or live runs alone (fixed).

    Every round is a tree, round-NN/tree.jsonl in the run's folder, under the policy beside it; dream.json says how that
    was found. Attempts are commits in workspaces.git. Kill it at any moment and run the same command: it goes on.
    With --gated, exit code 1 says that the guards took a policy back.
    """
    if preset is not None and (workspaces is not None or steps is not None):
        raise UserError("--preset sets workspaces and steps; give one or the other")
    if gated is not None and (arm != "fixed" or policy is not None or preset is not None or width is not None):
        raise UserError(
            "--gated runs what is deployed, as it is deployed; leave out --arm, --policy, --preset, --width"
        )
    _refuse_idle(context, arm, agent, developer)
    if timeout is not None and agent == "command" and timeout < agent_seconds:
        raise UserError(f"--timeout {timeout:g} ends an attempt before --agent-seconds {agent_seconds:g} are over")
    caps = PRESETS[preset] if preset is not None else (workspaces or 10, steps or 11)
    commands = _commands(agent, developer, command, developer_command, agent_seconds, pass_env or [])
    if timeout is None:
        timeout = 300.0 + (agent_seconds if agent == "command" else 0.0)
    with ExitStack() as stack:
        settings: dict[str, Any] = dict(commands)
        if scheduler is not None:
            from dreamrsi.cluster_jobs import cluster_runner

            if workers is not None:
                raise UserError("--workers are processes on this machine; a cluster has the workers that it has")
            settings["run"] = stack.enter_context(cluster_runner(scheduler))
        shared = {"rounds": rounds, "seed": seed, "start": start, "guidance": guidance, "workers": workers}
        settings |= {**shared, "timeout": timeout, "watch": _Progress(Console.of_stdout(), rounds, caps[0] * caps[1])}
        if gated is not None:
            _run_gated(task, gated, out, workspaces, steps, settings)
            return
        found = recursion(
            task,
            out,
            arm=arm,
            policy=starting_policy(policy or "parallel_refine"),
            workspaces=caps[0],
            steps=caps[1],
            width=width,
            versions=versions,
            beta1=beta1,
            beta2=beta2,
            objective=objective,
            revise=revise,
            plan=plan,
            **settings,
        )
    typer.echo(_summary(found))


def _refuse_idle(context: typer.Context, arm: str, agent: str, developer: str) -> None:
    """Refuse options that would do nothing here: whoever gave them expects something else."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    commands = agent == "command" or developer == "command"
    for name in given:
        option = "--" + name.replace("_", "-")
        if name in _OF_DREAMING and arm != "dream":
            raise UserError(f"{option} does nothing without --arm dream; add that, or leave it out")
        if name in _OF_COMMANDS and not commands:
            raise UserError(f"{option} does nothing without --agent command or --developer command; add one of them")
        if name == "developer_command" and developer != "command":
            raise UserError(f"{option} does nothing without --developer command; add that, or leave it out")


def _run_gated(
    task: str, deployment: Path, out: Path, workspaces: int | None, steps: int | None, settings: dict[str, Any]
) -> None:
    """Live rounds under what is deployed; exit code 1 if a policy was taken back."""
    from dreamrsi.gated import gated_run

    settings.pop("developer", None)
    run = gated_run(task, deployment, out, workspaces=workspaces, steps=steps, **settings)
    typer.echo(_summary(run.found))
    raise typer.Exit(1 if any(verdict.fired for verdict in run.verdicts) else 0)


def _commands(
    agent: str, developer: str, command: str | None, developer_command: str | None, seconds: float, names: list[str]
) -> dict[str, Any]:
    """The agent and the developer that are commands."""
    made: dict[str, Any] = {}
    if agent == "command":
        from dreamrsi.command_agent import CommandAgent

        made["agent"] = CommandAgent(_command(command, "--command", seconds, names))
    if developer == "command":
        from dreamrsi.command_developer import CommandDeveloper

        template = developer_command or command
        made["developer"] = CommandDeveloper(_command(template, "--developer-command", seconds, names))
    return made


def _command(template: str | None, option: str, seconds: float, names: list[str]) -> Any:
    from dreamrsi.commands import Command

    if not template:
        raise UserError(f"give the coding agent's command: {option} claude, say, or a whole command line")
    return Command(template, seconds, names)


_OF_DREAMING = ("versions", "beta1", "beta2", "objective", "revise", "plan", "developer")
_OF_COMMANDS = ("command", "agent_seconds", "pass_env")


class _Progress(Watch):
    """A line for every round, and between them one that is written over; for a log, a line for every attempt."""

    def __init__(self, console: Console, rounds: int, attempts: int) -> None:
        self._console = console
        self._rounds = rounds
        self._all = rounds * attempts
        self._begun = time.monotonic()
        self._made = 0  # in this call
        self._best = -math.inf
        self._number = 0

    def begun(self, number: int, policy: str, total: int, there: int) -> None:
        """A round begins."""
        self._number = number
        self._console.line(
            f"round {number} of {self._rounds}: {policy}" + (f", {there} attempts there" if there else "")
        )

    def attempt(self, done: int, total: int, attempt: Attempt) -> None:
        """An attempt was made."""
        self._made += 1
        if attempt.score is not None:
            self._best = max(self._best, attempt.score)
        result = attempt.status if attempt.score is None else f"{attempt.score:.8g}"
        tag = attempt.tag or "-"
        if self._console.is_live:  # what is cut off where the terminal is narrow comes last
            left = f"{self._left(done, total)}, best {self._best:.8g}"
            self._console.running(f"  {done}/{total}, {left}, last {result} by {tag}")
        else:
            self._console.line(f"{done}/{total} branch {attempt.branch} attempt {attempt.attempt}: {tag} {result}")

    def dreaming(self, number: int) -> None:
        """A dream begins."""
        self._console.running(f"dreaming before round {number}")

    def dreamt(self, number: int, dream: Dream) -> None:
        """A dream is over."""
        chosen = dream.selected
        kept = "kept the current policy" if chosen.number == 0 else f"selected version {chosen.number}"
        failed = sum(version.error is not None for version in dream.versions)
        self._console.line(f"dream before round {number}: {len(dream.versions)} versions, {failed} failed, {kept}")
        self._console.line(f"  its value is {chosen.value:.6g}, the current policy's {dream.current.value:.6g}")
        for other, reason in dream.disqualified.items():
            self._console.line(f"  version {other} was disqualified: {reason}")

    def ended(self, round_: Round) -> None:
        """A round is complete."""
        tree = round_.tree
        self._best = max(self._best, tree.best)
        failed = sum(attempt.score is None for attempt in tree)
        size = f"{len(tree)} attempts, {failed} failed, {len(tree.branches)} branches, {len(tree.batches)} batches"
        self._console.line(f"  {size}")
        self._console.line(f"  best of the round {tree.best:.10g}, so far {self._best:.10g}")
        if round_.failure is not None:
            self._console.sentence("  ended early: ", f"{round_.failure}; the next round begins with the policy before")

    def guarded(self, said: Sequence[str]) -> None:
        """The guards of a gated round."""
        for line in said:
            self._console.line(f"  {line}")

    def _left(self, done: int, total: int) -> str:
        """At most how long it will take: policies may stop early."""
        each = (time.monotonic() - self._begun) / self._made
        rest = self._all - (self._number - 1) * total - done
        return f"at most {duration(rest * each)} left"


def _summary(found: Recursion) -> str:
    return f"{found.arm}: {len(found.rounds)} rounds, {found.attempts} attempts, best {found.best:.10g}"
