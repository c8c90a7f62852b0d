"""A live run: a policy drives an agent and an evaluator, W attempts at a time, and the record of it is a tree.

What a round of batches means is defined in one place, :mod:`dreamrsi.replay`: a live run makes the attempts that the
picks call for, adds them to a growing world and then reveals them there. So replaying the recording policy repeats
the record. One call records one tree; :mod:`dreamrsi.loop` records one after the other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi.agents import Agent, Context, MoveAgent
from dreamrsi.errors import RecordError, UserError
from dreamrsi.guidance import Guidance
from dreamrsi.policies import Policy
from dreamrsi.prefix import OPEN, Prefix, World
from dreamrsi.processes import Job, Result, run_jobs
from dreamrsi.record import Attempt, Batch, Header, Record, RecordWriter, Root, read_record
from dreamrsi.replay import ask, check_batch, reveal
from dreamrsi.run_folder import discard_run, make_folder, opened, round_name, versions, whole, workers_for
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces, require_git

__all__ = ["discard_run", "live_run"]

Progress = Callable[[int, int, Attempt], None]
"""Called after every attempt with (attempts there, attempts that the caps allow, the attempt)."""

Place = tuple[int, int]
"""(branch, attempt)."""

Runner = Callable[[Mapping[Place, Job], Path, int, float, Sequence[str]], Iterator[tuple[Place, Result]]]
"""What makes attempts: :func:`dreamrsi.processes.run_jobs`, or the same on a cluster."""

Halt = Callable[[int, int], bool]
"""Asked before every batch with (attempts there, attempts of the batch): whether the round ends here."""


def live_run(
    task: Task | str,
    policy: Policy,
    out: str | os.PathLike[str],
    *,
    agent: Agent | None = None,
    width: int = 8,
    branches: int = 10,
    steps: int = 11,
    seed: int = 0,
    workers: int | None = None,
    timeout: float = 300.0,
    max_rounds: int | None = None,
    recommended: str | None = None,
    progress: Progress | None = None,
) -> Tree:
    """Let a policy explore a task, and record it in ``out``; go on where an earlier call with the same settings ended.

    The run ends when the policy returns an empty batch, when all branches x steps attempts are made, or after
    ``max_rounds``. An attempt that crashes, hangs or gives nonsense is recorded with its status and error.
    Apart from ``seconds`` the tree depends on neither ``workers`` nor interruptions, given the same versions of the
    libraries and a deterministic agent and evaluator.

    Parameters
    ----------
    task : an object, or a name for :func:`dreamrsi.tasks.make`.
    policy : an object; see :func:`dreamrsi.policies.make`.
    out : folder of the run: ``config.json``, ``round-01/tree.jsonl`` and ``workspaces.git``.
    agent : what makes the candidates; :class:`~dreamrsi.agents.MoveAgent` if None.
    width, branches, steps : W and the caps; an OPEN beyond ``branches`` creates nothing.
    seed : of the run; each attempt's seed follows from it, the branch and the attempt.
    workers : attempts at once; the smaller of ``width`` and the number of processors if None.
    timeout : seconds that one attempt may take, its evaluation included.
    max_rounds : K2; branches x steps if None.
    recommended : the tag recommended to policies that take advice.
    progress : called after every attempt.

    Returns
    -------
    Tree
        With the recorded batches as ``tree.picks``.

    Raises
    ------
    UserError
        The folder cannot be written, is in use, or holds a run with other settings; git is missing; the seed workspace
        cannot be evaluated.
    PolicyError
        The policy raised or broke its contract. The record stays and can be resumed.
    """
    task = make(task) if isinstance(task, str) else task
    for name, value in {"width": width, "branches": branches, "steps": steps}.items():
        whole(name, value, 1)
    whole("seed", seed, 0)
    workers = workers_for(width, workers, timeout)
    agent = MoveAgent() if agent is None else agent
    limit = branches * steps if max_rounds is None else whole("max_rounds", max_rounds, 1)
    config = {
        "task": task.name,
        "agent": agent.name,
        "policy": policy.name,
        "policy_sha256": getattr(policy, "sha256", None),  # of a policy file: the bytes that ran
        "width": width,
        "branches": branches,
        "steps": steps,
        "seed": seed,
        "timeout": timeout,
        "max_rounds": max_rounds,
        "recommended": recommended,
    }
    require_git()
    folder = Path(out)
    with opened(folder, config):
        live = Live(task, agent, Workspaces(folder / "workspaces.git"), folder, seed, workers, timeout)
        live = replace(live, progress=progress)
        return live.record(policy, width, branches, steps, limit=limit, recommended=recommended)


@dataclass(frozen=True)
class Start:
    """Where a round starts: a commit, and the score of what it holds."""

    commit: str
    score: float | None


@dataclass(frozen=True)
class Live:
    """What all rounds of a run share. ``run`` makes the attempts."""

    task: Task
    agent: Agent
    store: Workspaces
    folder: Path
    seed: int
    workers: int
    timeout: float
    progress: Progress | None = None
    run: Runner = run_jobs

    def seed_start(self) -> Start:
        """The task's seed workspace, not evaluated yet."""
        files = self.task.seed_workspace()
        return Start(self.store.save(files, "refs/heads/root", f"{self.task.name}: the seed workspace"), None)

    def record(
        self,
        policy: Policy,
        width: int,
        branches: int,
        steps: int,
        *,
        limit: int,
        number: int = 1,
        start: Start | None = None,
        guidance: Guidance | None = None,
        recommended: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        halt: Halt | None = None,
    ) -> Tree:
        """Record one round, or the rest of it, in ``round-NN/tree.jsonl``.

        Parameters
        ----------
        policy : drives it.
        width, branches, steps, limit : W, the caps and K2.
        number : of the round, from 1; the seeds of its attempts follow from it.
        start : None for the task's seed workspace, which is evaluated.
        guidance : told to the agent; what it recommends is ``recommended`` unless that is given.
        provenance : further entries of the header's.
        halt : may end the round before any batch, by what it is asked with alone: a resumed round ends at the same one.
        """
        if recommended is None and guidance is not None:
            recommended = guidance.recommended
        header = Header(
            task=self.task.name,
            width=width,
            branches=branches,
            steps=steps,
            policy=policy.name,
            seed=self.seed,
            recommended=recommended,
            provenance={"agent": self.agent.name, **versions(self.task), **(provenance or {})},
        )
        scratch = (self.folder / "scratch").absolute()
        path = self.folder / round_name(number) / "tree.jsonl"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a run that was killed
        for folder in (scratch, path.parent):
            make_folder(folder)
        try:
            first = self.seed_start() if start is None else start
            _Round(self, scratch, policy, number, first, guidance, halt).record(path, header, limit)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return Tree.load(path)


@dataclass
class _Round:
    """One round on its way: what it needs, and the attempts made so far."""

    live: Live
    scratch: Path
    policy: Policy
    number: int
    start: Start
    guidance: Guidance | None
    halt: Halt | None = None
    attempts: dict[Place, Attempt] = field(default_factory=dict)

    def record(self, path: Path, header: Header, limit: int) -> None:
        """Make the round, or the rest of it, with ``path`` as its record."""
        earlier = _read_earlier(path)
        if earlier is None:
            score = self._evaluate_root() if self.start.score is None else self.start.score
            header = msgspec.structs.replace(header, root=Root(score))
            writer, batches = RecordWriter(path, header), []
        else:
            header = _same_header(path, earlier.header, header)
            writer, batches = RecordWriter.resume(path, earlier), earlier.batches
            self.attempts = {(attempt.branch, attempt.attempt): attempt for attempt in earlier.attempts}
        with writer:
            self._explore(path, header, limit, writer, batches)

    def _evaluate_root(self) -> float | None:
        task = self.live.task
        job = Job(task, None, self.live.store.load(self.start.commit), Context(0))
        [(_, result)] = run_jobs({0: job}, self.scratch, 1, self.live.timeout, task.requires)
        evaluation = result.evaluation
        if evaluation.status not in ("ok", "invalid"):
            raise UserError(f"task {task.name}: its seed workspace cannot be evaluated ({evaluation.error})")
        return evaluation.score

    def _explore(self, path: Path, header: Header, limit: int, writer: RecordWriter, batches: list[Batch]) -> None:
        assert header.width and header.branches and header.steps
        world = World(header)
        prefix = Prefix(world, header.width)
        total = header.branches * header.steps
        reveals: list[int] = []
        held: list[Batch] = []
        recorded = {batch.round: batch for batch in batches}
        ask(self.policy.name, self.policy.start, header.width, 0)
        while len(reveals) < total and prefix.round < limit:
            name = self.policy.name
            picks = check_batch(name, prefix, ask(name, self.policy.choose, prefix, prefix.round))
            if not picks:
                break
            places = _places(prefix, picks, header.branches)
            if self.halt is not None and self.halt(len(reveals), len(places)):
                break
            batch = Batch(picks, prefix.round, len(places))
            if prefix.round < len(batches):
                _same_batch(path, batch, recorded.get(prefix.round))
            else:
                held.append(batch)
                # A batch that creates nothing waits for one that does: a replay ends with the last attempt, so
                # trailing empty rounds must not be in the record either.
                for line in held if places else ():
                    writer.append(line)
                held = [] if places else held
            self._make(places, batch.round, len(reveals), total, header, writer)
            for place in places:
                world.add(place[0], self.attempts[place])
            reveal(prefix, picks, reveals)
        if prefix.round < len(batches) or len(reveals) < len(self.attempts):
            _same_batch(path, None, recorded.get(prefix.round))

    def _make(
        self, places: list[Place], round_: int, seq: int, total: int, header: Header, writer: RecordWriter
    ) -> None:
        """Make those attempts of a batch that are not there yet; record each as it is finished."""
        live = self.live
        numbers = {place: seq + k for k, place in enumerate(places)}
        parents = {place: self._parent(place, header) for place in places if place not in self.attempts}
        jobs = {
            place: Job(live.task, live.agent, live.store.load(commit), self._context(place, score))
            for place, (commit, score) in parents.items()
        }
        results = live.run(jobs, self.scratch, live.workers, live.timeout, live.task.requires)
        with contextlib.closing(results):  # type: ignore[type-var]  # a generator, whose close() ends the children
            for place, result in results:
                attempt = self._attempt(place, round_, numbers[place], parents[place][0], result)
                writer.append(attempt)
                self.attempts[place] = attempt
                if live.progress is not None:
                    live.progress(len(self.attempts), total, attempt)

    def _context(self, place: Place, score: float | None) -> Context:
        branch, number = place
        earlier = tuple(self.attempts[branch, k] for k in range(number))
        return Context(attempt_seed(self.live.seed, *place, self.number), score, earlier, self.guidance)

    def _parent(self, place: Place, header: Header) -> tuple[str, float | None]:
        """The nearest ancestor that left files: its commit and its score."""
        branch, number = place
        for earlier in range(number - 1, -1, -1):
            attempt = self.attempts[branch, earlier]
            if attempt.commit is not None:
                return attempt.commit, attempt.score
        return self.start.commit, header.root.score

    def _attempt(self, place: Place, round_: int, seq: int, parent: str, result: Result) -> Attempt:
        branch, number = place
        evaluation = result.evaluation
        commit = None
        if result.files is not None:
            found = evaluation.status if evaluation.score is None else repr(evaluation.score)
            message = f"branch {branch}, attempt {number}: {result.tag or self.live.agent.name}, {found}"
            ref = f"refs/attempts/{round_name(self.number)}/{branch}/{number}"
            commit = self.live.store.save(result.files, ref, message, parent)
        return Attempt(
            branch=branch,
            attempt=number,
            seq=seq,
            round=round_,
            score=evaluation.score,
            status=evaluation.status,
            error=evaluation.error,
            tag=result.tag,
            seconds=round(result.seconds, 3),
            commit=commit,
            metrics=evaluation.metrics,
        )


def attempt_seed(seed: int, branch: int, attempt: int, number: int = 1) -> int:
    """The seed of one attempt of round ``number``, 64 bits.

    It depends on its place alone, neither on order nor on the number of workers.
    """
    import numpy as np

    place = (branch, attempt) if number == 1 else (branch, attempt, number)
    high, low = np.random.SeedSequence(seed, spawn_key=place).generate_state(2)
    return int(high) << 32 | int(low)


def _places(prefix: Prefix, picks: tuple[int, ...], cap: int) -> list[Place]:
    """The attempts that a batch creates, in the order of its picks."""
    places: list[Place] = []
    opened = len(prefix.branches)
    for pick in picks:
        if pick != OPEN:
            places.append((pick, prefix.branches[pick].attempts))
        elif opened < cap:
            places.append((opened, 0))
            opened += 1
    return places


def _read_earlier(path: Path) -> Record | None:
    """The record to resume; None where there is none, or where the run was cut off while it wrote the header."""
    try:
        with open(path, "rb") as file:
            torn = not file.readline().endswith(b"\n")
        if torn:
            path.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: is no record to resume ({error.strerror}); choose another folder") from error
    return None if torn else read_record(path)


def _same_header(path: Path, found: Header, wanted: Header) -> Header:
    """The recorded header, if it says the same; provenance may differ, with a warning about versions."""
    for key in ("task", "width", "branches", "steps", "policy", "seed", "recommended"):
        if getattr(found, key) != getattr(wanted, key):
            raise RecordError(f"{path}, line 1: {key} differs from config.json - at `$.{key}`; choose another folder")
    before, now = found.provenance.get("versions"), wanted.provenance["versions"]
    if before != now:
        warnings.warn(
            f"{path}: the run was begun with {before} and goes on with {now}; it may not be repeatable", stacklevel=5
        )
    return found


def _same_batch(path: Path, made: Batch | None, recorded: Batch | None) -> None:
    if made != recorded or recorded is None:
        where = f"{path}, round {made.round if made else recorded.round if recorded else 0}"
        raise UserError(
            f"{where}: the policy picks {made.picks if made else 'nothing'}, but the record says "
            f"{recorded.picks if recorded else 'nothing'}; a policy must be deterministic. Choose another folder"
        )
