"""The command ``run``, registered by :mod:`dreamrsi.cli`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dreamrsi.cli_progress import Progress
from dreamrsi.console import Console, counted
from dreamrsi.errors import UserError
from dreamrsi.loop import PRESETS, Recursion, recursion
from dreamrsi.policy_file import starting_policy
from dreamrsi.tasks import TASKS


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help=f"What is searched: {', '.join(TASKS)}.")],
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
        settings |= {**shared, "timeout": timeout, "watch": Progress(Console.of_stdout(), rounds, caps[0] * caps[1])}
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


def _summary(found: Recursion) -> str:
    rounds = counted(len(found.rounds), "round")
    return f"{found.arm}: {rounds}, {found.attempts} attempts, best {found.best:.10g}"
