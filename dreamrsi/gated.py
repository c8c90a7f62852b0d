"""Gated live rounds: the pointer says what runs, its frozen numbers when a round is killed and when a policy goes back.

Every round keeps the exact bytes of the pointer that it runs under (``round-NN/deployed.json``) and, once it is closed,
what the guards say of it (``gated.json``), before anything is done about that. So whatever a crash leaves undone is
done by the same command.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dreamrsi import guidance as advice
from dreamrsi.agents import Agent, MoveAgent
from dreamrsi.decision import plain, show
from dreamrsi.deploy import POINTER, Deployment, Pointer
from dreamrsi.errors import UserError
from dreamrsi.grid_plan import GridPlan
from dreamrsi.guards import Frozen, kill, rollback_reasons
from dreamrsi.live import Live, Runner, Start
from dreamrsi.loop import Recursion, Round, Watch, attempts_there, later_start
from dreamrsi.policy_file import Deployed
from dreamrsi.processes import run_jobs
from dreamrsi.run_folder import keep, make_folder, opened, round_name, tidy, whole, workers_for
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces, require_git

VERDICT = "gated.json"


@dataclass(frozen=True)
class Verdict:
    """What the guards say of a closed round: why it was killed (None: it was not), and what takes its policy back."""

    killed: str | None
    fired: tuple[str, ...]


@dataclass(frozen=True)
class GatedRun:
    """All finished rounds of a gated run, and the guards' verdict on each."""

    found: Recursion
    verdicts: tuple[Verdict, ...]


def gated_run(
    task: Task | str,
    deployment: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    agent: Agent | None = None,
    rounds: int = 1,
    workspaces: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    start: Literal["best", "seed"] = "best",
    guidance: bool = False,
    workers: int | None = None,
    timeout: float = 300.0,
    run: Runner = run_jobs,
    watch: Watch | None = None,
) -> GatedRun:
    """Search a task under whatever is deployed, each round held to the numbers of the last frozen one.

    A round ends before the batch that would go beyond the ceiling on calls. Once it is closed, its policy is rolled
    back if :func:`~dreamrsi.guards.rollback_reasons` has any; the next round runs under what the pointer says then.
    Nothing else can change the deployment meanwhile.

    Parameters
    ----------
    task, agent, rounds, seed, start, guidance, workers, timeout, run, watch : as for :func:`dreamrsi.loop.recursion`.
    deployment : folder of the deployment. Its pointer says which policy runs, at which width, caps and knob.
    out : folder of the run. A call with the same settings goes on where an earlier one ended.
    workspaces, steps : the caps, where the deployed settings have none; 10 and 11 if None.

    Raises
    ------
    UserError
        Nothing is deployed, or the pointer was changed by hand; a round was begun under another pointer than the
        present one; the policy has to be rolled back and there is none to go back to; and as for the recursion.
    PolicyError
        The deployed policy broke its contract. What was recorded stays.
    """
    task = make(task) if isinstance(task, str) else task
    agent = MoveAgent() if agent is None else agent
    whole("rounds", rounds, 1)
    whole("seed", seed, 0)
    place = Deployment(deployment)
    pointer = place.deployed()
    caps = _Caps(workspaces, steps)
    caps.plan(pointer)  # refuse before anything is written
    workers = workers_for(pointer.settings.width, workers, timeout)
    if hasattr(agent, "check"):
        agent.check(task)
    require_git()
    config: dict[str, Any] = {
        "task": task.name,
        "arm": "gated",
        "deployment": str(place.folder.resolve()),
        "agent": agent.name,
        "rounds": rounds,
        "workspaces": workspaces,
        "steps": steps,
        "seed": seed,
        "start": start,
        "guidance": guidance,
        "timeout": timeout,
    }
    folder = Path(out)
    watch = Watch() if watch is None else watch
    with place.lock("gate or gated round"), opened(folder, config, grows="rounds"):
        store = Workspaces(folder / "workspaces.git")
        live = Live(task, agent, store, folder, seed, workers, timeout, watch.attempt, run)
        return _rounds(live, place, caps, rounds, start, guidance, watch)


@dataclass(frozen=True)
class _Caps:
    """The caps that were asked for: they stand in for those that the deployed settings do not have."""

    workspaces: int | None
    steps: int | None

    def plan(self, pointer: Pointer) -> GridPlan:
        """The caps of a round under this pointer."""
        settings = pointer.settings
        branches = self._cap("workspaces", settings.branches, self.workspaces, 10)
        return GridPlan(branches, self._cap("steps", settings.steps, self.steps, 11), "as deployed")

    @staticmethod
    def _cap(name: str, deployed: int | None, given: int | None, default: int) -> int:
        if deployed is not None and given not in (None, deployed):
            raise UserError(f"{name} is {given}, and what is deployed was judged with {deployed}; leave it out")
        return deployed or whole(name, given or default, 1)


class _Ceiling:
    """Asked before every batch; keeps why it ended the round."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        self.reason: str | None = None

    def __call__(self, calls: int, batch: int) -> bool:
        self.reason = kill(calls, self.frozen, batch)
        return self.reason is not None


def _rounds(
    live: Live,
    place: Deployment,
    caps: _Caps,
    count: int,
    start: Literal["best", "seed"],
    guided: bool,
    watch: Watch,
) -> GatedRun:
    """Make the rounds that are not there, and read those that are; both by the same steps."""
    done: list[Round] = []
    verdicts: list[Verdict] = []
    best = seed = live.seed_start()
    origin: dict[str, int] | None = None
    for number in range(1, count + 1):
        folder = live.folder / round_name(number)
        make_folder(folder)
        tidy(folder)
        content, pointer = _begun(place, folder)
        source, plan, settings = place.source(pointer), caps.plan(pointer), pointer.settings
        trees = [round_.tree for round_ in done]
        told = advice.summarise(trees) if guided and trees else None
        knob = None if settings.beta is None else (settings.beta, "as deployed")
        keep(folder / "policy.py", source)
        keep(folder / "round.json", _json({"plan": asdict(plan), "beta": knob}))
        ceiling = _Ceiling(pointer.frozen)
        with SandboxedPolicy(source) as policy:
            if settings.beta is not None:
                policy.beta = settings.beta
            watch.begun(number, policy.name, plan.branches * plan.steps, attempts_there(folder / "tree.jsonl"))
            tree = live.record(
                policy,
                settings.width,
                plan.branches,
                plan.steps,
                limit=plan.branches * plan.steps,
                number=number,
                start=best if start == "best" else seed,
                guidance=told,
                provenance={"policy_sha256": pointer.policy.sha256, "start": origin if start == "best" else None},
                halt=ceiling,
            )
            tree.name = round_name(number)
            done.append(Round(number, tree, Deployed(source), policy.name, plan, settings.beta, guidance=told))
        watch.ended(done[-1])
        verdict = Verdict(ceiling.reason, rollback_reasons(tree, pointer.frozen))
        keep(folder / VERDICT, _json({"pointer": hashlib.sha256(content).hexdigest(), **asdict(verdict)}))
        verdicts.append(verdict)
        last = not (live.folder / round_name(number + 1) / POINTER).exists()
        watch.guarded(_said(verdict, tree, pointer))
        if last:
            watch.guarded(_act(place, content, verdict, f"{live.folder.resolve()}, round {number}"))
        if number == 1:
            best = seed = Start(seed.commit, tree.root)
        best, origin = later_start(best, origin, number, tree)
    return GatedRun(Recursion("fixed", tuple(done)), tuple(verdicts))


def _begun(place: Deployment, folder: Path) -> tuple[bytes, Pointer]:
    """The pointer that a round runs under: what is deployed now for a new one, what it was begun under for others."""
    path = folder / POINTER
    if not path.exists():
        content = _present(place)
        pointer = place.check(content, place.pointer_file)
        keep(path, content)
        return content, pointer
    content = path.read_bytes()
    pointer = place.check(content, path)
    if not (folder / VERDICT).exists() and content != _present(place):
        raise UserError(
            f"{folder}: was begun under {pointer.policy.name} ({pointer.policy.sha256[:12]}), which is not what is "
            f"deployed in {place.folder} now; begin a run in another folder"
        )
    return content, pointer


def _act(place: Deployment, content: bytes, verdict: Verdict, name: str) -> list[str]:
    """Do what follows from a verdict, unless an earlier call did, and say what was done.

    A round whose pointer is not deployed any more has been dealt with: only its rollback, or a person, changes that.
    """
    said = []
    if content != _present(place):
        return ["its policy is not deployed any more"]
    if verdict.killed:
        reason = f"{name}: {verdict.killed}"
        known = any((decision.kind, decision.fired) == ("kill", (reason,)) for decision in place.decisions())
        if not known:
            said.append(f"the kill is decision {place.killed(reason)}")
    if verdict.fired:
        pointer = place.check(content, place.pointer_file)
        if pointer.previous is None:
            raise UserError(
                f"{place.folder}: {plain(pointer.policy.name)} has to go ({'; '.join(verdict.fired)}), but it is the "
                f"first policy here and there is none to go back to; deploy another one through the gate"
            )
        number = place.roll_back([f"{name}: {reason}" for reason in verdict.fired])
        said.append(f"deployed again: {plain(place.deployed().policy.name)} (decision {number})")
    return said


def _said(verdict: Verdict, tree: Tree, pointer: Pointer) -> list[str]:
    """What the guards found, a line each."""
    said = [f"killed: {verdict.killed}"] if verdict.killed else []
    said += [f"has to be rolled back: {reason}" for reason in verdict.fired]
    held = pointer.frozen
    within = f"{len(tree)} of at most {held.calls} calls, best {show(tree.best)} after {show(held.quality)}"
    return said or [f"no guard fired: {within}"]


def _present(place: Deployment) -> bytes:
    """The bytes of the pointer, whatever they are."""
    try:
        return place.pointer_file.read_bytes()
    except OSError as error:
        raise UserError(f"{place.pointer_file}: cannot be read ({error.strerror})") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
