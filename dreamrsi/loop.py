"""The recursion: live, dream, live, dream, ...; Recursive Fixed Exploration is the same loop without dreaming.

Round 1 is the same in both arms: the same policy, bytes for bytes, and the same seeds. Before every later round the
dreaming arm develops versions of its policy, replays them on the trees of all finished rounds and deploys the best
(paper, section 3). What is in the run's folder decides where an interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dreamrsi import guidance as advice
from dreamrsi.agents import Agent, MoveAgent
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.files import atomic_write
from dreamrsi.guidance import Guidance
from dreamrsi.live import Live, Runner, Start
from dreamrsi.processes import run_jobs
from dreamrsi.record import Attempt
from dreamrsi.run_folder import make_folder, opened, round_name, whole
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces

if TYPE_CHECKING:
    from dreamrsi.developers import Developer
    from dreamrsi.dream import Dream

Arm = Literal["fixed", "dream"]

PRESETS = {"10x11": (10, 11), "32x20": (32, 20)}
"""Workspaces x steps of the paper's runs: 110 attempts a round, and 640."""


@dataclass(frozen=True)
class Deployed:
    """A policy as it is deployed: its source, and what its developer wants to know of it again."""

    source: bytes
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """What the policy is: the hash of its bytes, in hexadecimal."""
        return hashlib.sha256(self.source).hexdigest()


@dataclass(frozen=True)
class Round:
    """A finished round: its number from 1, its tree, the policy that drove it, and how that was found."""

    number: int
    tree: Tree
    policy: Deployed
    name: str
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
    objective, revise : see :func:`dreamrsi.dream.dream`.
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
        dreaming = _Dreaming(developer, versions, beta1, beta2, objective, revise, max_rounds, width, seed)
        config |= {"developer": developer.name, **dreaming.settings}
    folder = Path(out)
    with opened(folder, config, grows="rounds"):
        store = Workspaces(folder / "workspaces.git")
        watch = Watch() if watch is None else watch
        live = Live(task, agent, store, folder, seed, workers, timeout, watch.attempt, run)
        caps = _Caps(workspaces, steps, width, workspaces * steps if max_rounds is None else max_rounds)
        return Recursion(arm, tuple(_rounds(live, caps, first, rounds, start, guidance, dreaming, watch)))


def starting_policy(text: str) -> Deployed:
    """The source of a built-in policy, from ``name`` or ``name:key=value,...``, or of a file that ends in ``.py``.

    Raises
    ------
    UserError
        Unknown name or parameter, or the file cannot be read.
    """
    from dreamrsi import policies
    from dreamrsi.schedule import PARALLEL_REFINE, source

    if text.endswith(".py"):
        try:
            return Deployed(Path(text).read_bytes())
        except OSError as error:
            raise UserError(f"{text}: cannot be read ({error.strerror}); give the path of a policy's file") from error
    made = policies.make(text)
    if text == "parallel_refine":
        return Deployed(source(PARALLEL_REFINE, text), {"schedule": PARALLEL_REFINE.to_json()})
    kind = type(made).__name__
    given = ", ".join(text.partition(":")[2].split(",")) or ("seed=0" if kind == "Random" else "")
    lines = [
        f'"""The built-in policy {made.name}."""\n',
        f"from dreamrsi.policies import {kind}\n\n",
        f"class Policy({kind}):",
        f"    name = {made.name!r}\n",
        "    def __init__(self) -> None:",
        f"        super().__init__({given})",
    ]
    return Deployed("\n".join(lines).encode() + b"\n")


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
    max_rounds: int | None
    width: int
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """For the run's configuration."""
        names = ("versions", "beta1", "beta2", "objective", "revise")
        return {name: getattr(self, name) for name in names}

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
    seed = live.seed_start()
    best, place = seed, None
    for number in range(1, count + 1):
        folder = live.folder / round_name(number)
        make_folder(folder)
        trees = [round_.tree for round_ in done]
        dreamt = None
        if dreaming is not None and any(tree.best_attempt is not None for tree in trees):
            watch.dreaming(number)
            dreamt = dreaming.dream(number, trees, policy, folder)
            policy = Deployed(dreamt.selected.source, dreamt.selected.notes)
            watch.dreamt(number, dreamt)
        told = advice.summarise(trees) if guided and trees else None
        if told is not None:
            _keep(folder / "guidance.json", (json.dumps(asdict(told), indent=1) + "\n").encode())
        _keep(folder / "policy.py", policy.source)
        with SandboxedPolicy(policy.source) as deployed:
            path = folder / "tree.jsonl"
            watch.begun(number, deployed.name, caps.workspaces * caps.steps, _attempts_there(path))
            tree = live.record(
                deployed,
                caps.width,
                caps.workspaces,
                caps.steps,
                limit=caps.limit,
                number=number,
                start=best if start == "best" else seed,
                guidance=told,
                provenance={"policy_sha256": policy.sha256, "start": place if start == "best" else None},
            )
            tree.name = round_name(number)  # not its path: equal runs in two folders dream alike
            done.append(Round(number, tree, policy, deployed.name, dreamt, told))
        watch.ended(done[-1])
        if number == 1:
            best = seed = Start(seed.commit, tree.root)
        top = tree.best_attempt
        if top is not None and top.commit is not None and (best.score is None or _score(top) > best.score):
            best = Start(top.commit, top.score)
            place = {"round": number, "branch": top.branch, "attempt": top.attempt}
    return done


def _score(attempt: Attempt) -> float:
    return -math.inf if attempt.score is None else attempt.score


def _attempts_there(path: Path) -> int:
    """Attempts that an earlier call recorded, for the progress; the record itself is read and checked later."""
    try:
        return sum(b'"branch":' in line for line in path.read_bytes().splitlines())
    except OSError:
        return 0


def _keep(path: Path, content: bytes) -> None:
    """Write a file of a round, or see that it is what it was: the bytes that were scored are the bytes that run."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        atomic_write(path, content)
        return
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); restore it, or choose another folder") from error
    if found != content:
        raise PolicyError(f"{path}: is not what this run wrote there; remove the file, or choose another folder")


def _seed(seed: int, number: int) -> int:
    """The seed of the dream before round ``number``."""
    import numpy as np

    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])
