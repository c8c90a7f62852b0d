"""The recursion: live, dream, live, dream, ...; Recursive Fixed Exploration is the same loop without dreaming.

Round 1 is the same in both arms: the same policy, bytes for bytes, and the same seeds. Before every later round the
dreaming arm develops versions of its policy, replays them on the trees of all finished rounds and deploys the best
(paper, section 3). What is in the run's folder decides where an interrupted run goes on.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dreamrsi import guidance as advice
from dreamrsi.agents import Agent, MoveAgent
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.grid_plan import GridPlan
from dreamrsi.guidance import Guidance
from dreamrsi.live import Live, Runner, Start
from dreamrsi.objective import history
from dreamrsi.policy_file import Deployed, starting_policy
from dreamrsi.processes import run_jobs
from dreamrsi.record import Attempt
from dreamrsi.run_folder import keep, make_folder, opened, round_name, whole
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.schedule import DEFAULT_BETA
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces, require_git

if TYPE_CHECKING:
    from dreamrsi.developers import Developer
    from dreamrsi.dream import Dream

Arm = Literal["fixed", "dream"]

Plan = Literal["policy", "rule", "none"]

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
    """

    number: int
    tree: Tree
    policy: Deployed
    name: str
    plan: GridPlan
    beta: float | None = None
    dream: Dream | None = None
    guidance: Guidance | None = None


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
    start: Literal["best", "seed"] = "best",
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
        A deployed policy broke its contract. What was recorded stays.
    """
    task = make(task) if isinstance(task, str) else task
    agent = MoveAgent() if agent is None else agent
    if arm not in ("fixed", "dream"):
        raise UserError(f"arm is {arm!r}; it is fixed or dream")
    for name, value in {"rounds": rounds, "workspaces": workspaces, "steps": steps, "versions": versions}.items():
        whole(name, value, 1)
    whole("seed", seed, 0)
    width = workspaces if width is None else whole("width", width, 1)
    workers = min(width, os.cpu_count() or 1) if workers is None else whole("workers", workers, 1)
    if not timeout > 0:
        raise UserError(f"timeout is {timeout!r}; it must be a positive number of seconds")
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
        if plan not in get_args(Plan):
            raise UserError(f"plan is {plan!r}; it is one of {', '.join(get_args(Plan))}")
        dreaming = _Dreaming(developer, versions, beta1, beta2, objective, revise, plan, max_rounds, width, seed)
        config |= {"developer": developer.name, **dreaming.settings}
    folder = Path(out)
    with opened(folder, config, grows="rounds"):
        store = Workspaces(folder / "workspaces.git")
        watch = Watch() if watch is None else watch
        live = Live(task, agent, store, folder, seed, workers, timeout, watch.attempt, run)
        caps = _Caps(workspaces, steps, width, workspaces * steps if max_rounds is None else max_rounds)
        return Recursion(arm, tuple(_rounds(live, caps, first, rounds, start, guidance, dreaming, watch)))


@dataclass(frozen=True)
class _Caps:
    workspaces: int
    steps: int
    width: int
    limit: int


@dataclass(frozen=True)
class _Dreaming:
    """How policies are developed in this run."""

    developer: Developer
    versions: int
    beta1: float | None
    beta2: float | None
    objective: Literal["eq1", "sweep"]
    revise: Literal["best", "latest"]
    plan: Plan
    max_rounds: int | None
    width: int
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """For the run's configuration."""
        names = ("versions", "beta1", "beta2", "objective", "revise", "plan")
        return {name: getattr(self, name) for name in names}

    def knob(self, beta: float, trees: Sequence[Tree], dream: Dream) -> tuple[float, str] | None:
        """What to set the selected policy's knob to, and why; None under Eq. 1, which knows no knob."""
        from dreamrsi.sweep_score import next_beta, sweep_score

        if self.objective != "sweep":
            return None
        grid = dream.grids[dream.selected.number]
        by_beta = {key: row for key, row in grid.items() if key is not None}
        bests = list(accumulate((tree.best for tree in trees), max))
        return next_beta(beta, bests, sweep_score(by_beta, history(trees), self.width) if by_beta else None)

    def grid(self, policy: SandboxedPolicy, trees: Sequence[Tree], caps: _Caps, present: GridPlan) -> GridPlan:
        """The caps of the next round; a plan that fails or may not be followed leaves them as they are."""
        from dreamrsi.grid_plan import Caps, check_plan, plan_grid, summarise

        budget = caps.workspaces * caps.steps
        limits = Caps(budget, budget, budget, present)
        summaries = [summarise(tree) for tree in trees]
        if self.plan == "rule":
            return plan_grid(summaries, limits)
        if self.plan == "none":
            return present
        try:
            return check_plan(policy.plan_grid([summary.to_json() for summary in summaries]), limits)
        except PolicyError as error:
            return GridPlan(present.branches, present.steps, f"plan failed: {error}; the present grid stays")

    def dream(self, number: int, trees: Sequence[Tree], current: Deployed, folder: Path) -> Dream:
        """Develop the policy of round ``number`` from the trees before it."""
        from dreamrsi.dream import dream
        from dreamrsi.objective import scaled_betas

        # The scale of the first tree with scores, once and for all: with a scale that moved, so would the trade.
        scaled = scaled_betas([next(tree for tree in trees if tree.best_attempt is not None)])
        return dream(
            trees,
            current.source,
            self.developer,
            versions=self.versions,
            beta1=scaled[0] if self.beta1 is None else self.beta1,
            beta2=scaled[1] if self.beta2 is None else self.beta2,
            width=self.width,
            max_rounds=self.max_rounds,
            objective=self.objective,
            revise=self.revise,
            seed=_seed(self.seed, number),
            folder=folder,
            current_notes=current.notes,
        )


def _rounds(
    live: Live,
    caps: _Caps,
    policy: Deployed,
    count: int,
    start: Literal["best", "seed"],
    guided: bool,
    dreaming: _Dreaming | None,
    watch: Watch,
) -> list[Round]:
    """Make the rounds that are not there, and read those that are; both by the same steps."""
    done: list[Round] = []
    best = seed = live.seed_start()
    place: dict[str, int] | None = None
    grid, beta = GridPlan(caps.workspaces, caps.steps, "as the run was asked for"), DEFAULT_BETA
    for number in range(1, count + 1):
        folder = live.folder / round_name(number)
        make_folder(folder)
        trees = [round_.tree for round_ in done]
        dreamt = knob = None
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
            path = folder / "tree.jsonl"
            watch.begun(number, deployed.name, grid.branches * grid.steps, attempts_there(path))
            tree = live.record(
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
            tree.name = round_name(number)  # not its path: equal runs in two folders dream alike
            done.append(Round(number, tree, policy, deployed.name, grid, deployed.beta, dreamt, told))
        watch.ended(done[-1])
        if number == 1:
            best = seed = Start(seed.commit, tree.root)
        best, place = later_start(best, place, number, tree)
    return done


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
        return sum(b'"branch":' in line for line in path.read_bytes().splitlines())
    except OSError:
        return 0


def _seed(seed: int, number: int) -> int:
    """The seed of the dream before round ``number``."""
    import numpy as np

    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])
