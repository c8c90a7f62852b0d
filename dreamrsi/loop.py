"""The recursion: live, dream, live, dream, ...; Recursive Fixed Exploration is the same loop without dreaming.

Round 1 is the same in both arms: the same policy, bytes for bytes, and the same seeds. Before every later round the
dreaming arm develops versions of its policy, replays them on the trees of all finished rounds and deploys the best
(paper, section 3). What is in the run's folder decides where an interrupted run goes on.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from dreamrsi import guidance as advice
from dreamrsi.agents import Agent, MoveAgent
from dreamrsi.developers import Developer
from dreamrsi.dream import Dream
from dreamrsi.dreaming import Caps, Dreaming, Plan
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.grid_plan import GridPlan
from dreamrsi.guidance import Guidance
from dreamrsi.live import Live, Runner, Start
from dreamrsi.policy_file import Deployed, starting_policy
from dreamrsi.processes import run_jobs
from dreamrsi.record import Attempt
from dreamrsi.run_folder import keep, make_folder, opened, round_name, tidy, whole, workers_for
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.schedule import DEFAULT_BETA
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces, require_git

Arm = Literal["fixed", "dream"]

Origin = Literal["best", "seed"]

PRESETS = {"10x11": (10, 11), "32x20": (32, 20)}
"""Workspaces x steps of the paper's runs: 110 attempts a round, and 640."""


@dataclass(frozen=True)
class Round:
    """A finished round.

    Attributes
    ----------
    number : from 1.
    tree : its record.
    policy, name : what drove it.
    plan : its caps, and where they came from.
    beta : what the policy's knob was set to; None: its own default.
    dream, guidance : how the policy was found, and what was told; None in round 1 and where the run has none.
    failure : why the policy, which worked in replay, could not go on; the tree ends there. None if it could.
    """

    number: int
    tree: Tree
    policy: Deployed
    name: str
    plan: GridPlan
    beta: float | None = None
    dream: Dream | None = None
    guidance: Guidance | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Recursion:
    """All finished rounds of a run."""

    arm: Arm
    rounds: tuple[Round, ...]

    @property
    def best(self) -> float:
        """The best score of all rounds, the seed workspace's included."""
        return max(round_.tree.best for round_ in self.rounds)

    @property
    def attempts(self) -> int:
        """Attempts of all rounds: the calls of the agent."""
        return sum(len(round_.tree) for round_ in self.rounds)


class Watch:
    """What is told of a run as it goes on. This one does nothing; derive from it what does."""

    def begun(self, number: int, policy: str, total: int, there: int) -> None:
        """Round ``number`` begins under a policy; the caps allow ``total`` attempts and ``there`` are recorded."""

    def attempt(self, done: int, total: int, attempt: Attempt) -> None:
        """An attempt was recorded, the ``done``-th of its round."""

    def dreaming(self, number: int) -> None:
        """The policy of round ``number`` is being developed."""

    def dreamt(self, number: int, dream: Dream) -> None:
        """The policy of round ``number`` was selected."""

    def ended(self, round_: Round) -> None:
        """A round is complete."""

    def guarded(self, said: Sequence[str]) -> None:
        """What the guards of a gated round, which is complete, made of it, a line each."""


def recursion(
    task: Task | str,
    out: str | os.PathLike[str],
    *,
    arm: Arm = "fixed",
    agent: Agent | None = None,
    policy: Deployed | None = None,
    rounds: int = 1,
    workspaces: int = 10,
    steps: int = 11,
    width: int | None = None,
    seed: int = 0,
    start: Origin = "best",
    guidance: bool = False,
    developer: Developer | None = None,
    versions: int = 8,
    beta1: float | None = None,
    beta2: float | None = None,
    objective: Literal["eq1", "sweep"] = "eq1",
    revise: Literal["best", "latest"] = "best",
    plan: Plan = "policy",
    max_rounds: int | None = None,
    workers: int | None = None,
    timeout: float = 300.0,
    run: Runner = run_jobs,
    watch: Watch | None = None,
) -> Recursion:
    """Search a task in rounds, and go on where an earlier call with the same settings ended.

    Parameters
    ----------
    task : an object, or a name for :func:`dreamrsi.tasks.make`.
    out : folder of the run; see :mod:`dreamrsi.run_folder`.
    arm : ``dream`` develops the policy between the rounds, ``fixed`` does not.
    agent : what makes the candidates; :class:`~dreamrsi.agents.MoveAgent` if None.
    policy : of round 1; parallel refine if None.
    rounds : T. A finished run goes on if more are asked for.
    workspaces, steps : the caps of every round: the most branches, and attempts a branch.
    width : W, attempts at once; as many as workspaces if None.
    seed : of the run; the seeds of attempts, versions and confirmations follow from it.
    start : where the branches of later rounds start: at the best candidate so far, or at the task's seed again.
    guidance : whether agent and policy are told what worked in earlier rounds.
    developer : writes the versions; :class:`~dreamrsi.schedule_search.ScheduleSearch` if None.
    versions : M, the policies that a dream compares, the current one included.
    beta1, beta2 : of Eq. 1; if None they follow from the scores of round 1 (:func:`dreamrsi.scaled_betas`).
    objective, revise : see :func:`dreamrsi.dream.dream`. With ``sweep`` the policy's knob follows the rule of
        :func:`dreamrsi.sweep_score.next_beta` between rounds.
    plan : who may change workspaces and steps of the dreaming arm's later rounds, never their product: ``policy``, by
        its ``plan_grid`` if it has one; ``rule``, :func:`dreamrsi.grid_plan.plan_grid`; or ``none``.
    max_rounds : K2 of live runs and replays; as many as attempts if None.
    workers, timeout : attempts at once, and seconds for one with its evaluation.
    run : what makes attempts; see :mod:`dreamrsi.cluster_jobs` for a Dask cluster.
    watch : told of the progress.

    Returns
    -------
    Recursion
        Apart from seconds and the times of provenance it depends on neither ``workers`` nor interruptions.

    Raises
    ------
    UserError
        A setting is wrong; the folder cannot be written, is in use or holds a run with other settings; git is missing.
    PolicyError
        The policy of round 1 broke its contract. What was recorded stays. A developed one that does so in a live run
        ends that round, and the next begins with the policy before it.
    """
    task = make(task) if isinstance(task, str) else task
    agent = MoveAgent() if agent is None else agent
    for name, given, known in (("arm", arm, get_args(Arm)), ("start", start, get_args(Origin))):
        if given not in known:
            raise UserError(f"{name} is {given!r}; it is one of {', '.join(known)}")
    for name, value in {"rounds": rounds, "workspaces": workspaces, "steps": steps, "versions": versions}.items():
        whole(name, value, 1)
    whole("seed", seed, 0)
    width = workspaces if width is None else whole("width", width, 1)
    workers = workers_for(width, workers, timeout)
    if max_rounds is not None:
        whole("max_rounds", max_rounds, 1)
    if hasattr(agent, "check"):
        agent.check(task)
    require_git()
    first = starting_policy("parallel_refine") if policy is None else policy
    if arm == "dream" and developer is None:
        from dreamrsi.schedule_search import ScheduleSearch

        developer = ScheduleSearch()
    config: dict[str, Any] = {
        "task": task.name,
        "arm": arm,
        "agent": agent.name,
        "policy_sha256": first.sha256,
        "rounds": rounds,
        "workspaces": workspaces,
        "steps": steps,
        "width": width,
        "seed": seed,
        "start": start,
        "guidance": guidance,
        "max_rounds": max_rounds,
        "timeout": timeout,
    }
    dreaming = None
    if arm == "dream":
        assert developer is not None
        dreaming = Dreaming(developer, versions, beta1, beta2, objective, revise, plan, max_rounds, width, seed)
        dreaming.check()
        config |= {"developer": getattr(developer, "name", None), **dreaming.settings}
    SandboxedPolicy(first.source).close()  # whether it can be loaded
    folder = Path(out)
    with opened(folder, config, grows="rounds"):
        store = Workspaces(folder / "workspaces.git")
        watch = Watch() if watch is None else watch
        live = Live(task, agent, store, folder, seed, workers, timeout, watch.attempt, run)
        caps = Caps(workspaces, steps, width, workspaces * steps if max_rounds is None else max_rounds)
        return Recursion(arm, tuple(_rounds(live, caps, first, rounds, start, guidance, dreaming, watch)))


def _rounds(
    live: Live,
    caps: Caps,
    policy: Deployed,
    count: int,
    start: Origin,
    guided: bool,
    dreaming: Dreaming | None,
    watch: Watch,
) -> list[Round]:
    """Make the rounds that are not there, and read those that are; both by the same steps."""
    done: list[Round] = []
    first = policy
    best = seed = live.seed_start()
    place: dict[str, int] | None = None
    grid, beta = GridPlan(caps.workspaces, caps.steps, "as the run was asked for"), DEFAULT_BETA
    for number in range(1, count + 1):
        folder = live.folder / round_name(number)
        make_folder(folder)
        trees = [round_.tree for round_ in done]
        tidy(folder)
        dreamt = knob = None
        before = policy
        if dreaming is not None and any(tree.best_attempt is not None for tree in trees):
            watch.dreaming(number)
            dreamt = dreaming.dream(number, trees, policy, folder)
            policy = Deployed(dreamt.selected.source, dreamt.selected.notes)
            knob = dreaming.knob(beta, trees, dreamt)
            watch.dreamt(number, dreamt)
        told = advice.summarise(trees) if guided and trees else None
        if told is not None:
            keep(folder / "guidance.json", _json(asdict(told)))
        keep(folder / "policy.py", policy.source)
        with SandboxedPolicy(policy.source) as deployed:
            if knob is not None:
                beta = deployed.beta = knob[0]
            if dreaming is not None and dreamt is not None:
                grid = dreaming.grid(deployed, trees, caps, grid)
            keep(folder / "round.json", _json({"plan": asdict(grid), "beta": knob}))
            watch.begun(number, deployed.name, grid.branches * grid.steps, attempts_there(folder / "tree.jsonl"))
            record = partial(
                live.record,
                deployed,
                caps.width,
                grid.branches,
                grid.steps,
                limit=caps.limit,
                number=number,
                start=best if start == "best" else seed,
                guidance=told,
                provenance={"policy_sha256": policy.sha256, "start": place if start == "best" else None},
            )
            tree, failure = _recorded(record, folder, policy.sha256 != first.sha256)
            tree.name = round_name(number)  # not its path: equal runs in two folders dream alike
            done.append(Round(number, tree, policy, deployed.name, grid, deployed.beta, dreamt, told, failure))
        watch.ended(done[-1])
        if failure is not None:
            policy = before
        if number == 1:
            best = seed = Start(seed.commit, tree.root)
        best, place = later_start(best, place, number, tree)
    return done


def _recorded(record: Callable[[], Tree], folder: Path, developed: bool) -> tuple[Tree, str | None]:
    """The tree of a round; where a developed policy broke its contract what there is of it, and what went wrong.

    A failure is written down, so that the round stays as it is when the run is resumed.
    """
    note, path = folder / "failure.json", folder / "tree.jsonl"
    if not note.exists():
        try:
            return record(), None
        except PolicyError as error:
            if not developed or not path.exists():
                raise
            keep(note, _json({"error": str(error)}))
    try:
        return Tree.load(path), str(json.loads(note.read_bytes())["error"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{note}: is not what this run wrote there ({error!r}); remove it to try the round again"
        ) from error


def later_start(
    best: Start, place: dict[str, int] | None, number: int, tree: Tree
) -> tuple[Start, dict[str, int] | None]:
    """Where rounds after this one start, and which attempt that is: the best one so far that left files."""
    top = tree.best_attempt
    if top is None or top.commit is None or (best.score is not None and _score(top) <= best.score):
        return best, place
    return Start(top.commit, top.score), {"round": number, "branch": top.branch, "attempt": top.attempt}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _score(attempt: Attempt) -> float:
    return -math.inf if attempt.score is None else attempt.score


def attempts_there(path: Path) -> int:
    """Attempts that an earlier call recorded, for the progress; the record itself is read and checked later."""
    try:
        return sum(line.startswith(b'{"branch":') for line in path.read_bytes().splitlines())
    except OSError:
        return 0
