"""A live run: a policy drives an agent and an evaluator, W attempts at a time, and the record of it is a tree.

What a round means is defined in one place, :mod:`dreamrsi.replay`: a live run makes the attempts that the picks
call for, adds them to a growing world and then reveals them there. So replaying the recording policy repeats the
record.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi.agents import Agent, Context, MoveAgent
from dreamrsi.errors import RecordError, UserError
from dreamrsi.files import atomic_write, locked
from dreamrsi.policies import Policy
from dreamrsi.prefix import OPEN, Prefix, World
from dreamrsi.processes import Job, Result, run_jobs
from dreamrsi.record import Attempt, Batch, Header, Record, RecordWriter, Root, read_record
from dreamrsi.replay import ask, check_batch, reveal
from dreamrsi.tasks import Task, make
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces

Progress = Callable[[int, int, Attempt], None]
"""Called after every attempt with (attempts there, attempts that the caps allow, the attempt)."""

Place = tuple[int, int]
"""(branch, attempt)."""

CONFIG_FORMAT = "dreamrsi.run/1"
ROUND = "round-01"


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
        _whole(name, value, 1)
    _whole("seed", seed, 0)
    workers = min(width, os.cpu_count() or 1) if workers is None else _whole("workers", workers, 1)
    if not timeout > 0:
        raise UserError(f"timeout is {timeout!r}; it must be a positive number of seconds")
    agent = MoveAgent() if agent is None else agent
    limit = branches * steps if max_rounds is None else _whole("max_rounds", max_rounds, 1)
    config = {
        "format": CONFIG_FORMAT,
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
    folder = Path(out)
    _check_ours(folder)
    with locked(folder, "live run"):
        _check_config(folder / "config.json", config)
        store = Workspaces(folder / "workspaces.git")
        scratch = (folder / "scratch").absolute()
        run = _Run(task, agent, policy, store, scratch, seed, workers, timeout, progress)
        header = Header(
            task=task.name,
            width=width,
            branches=branches,
            steps=steps,
            policy=policy.name,
            seed=seed,
            recommended=recommended,
            provenance={"agent": agent.name, **versions(task)},
        )
        return run.record(folder / ROUND / "tree.jsonl", header, limit)


def discard_run(folder: str | os.PathLike[str]) -> None:
    """Remove the folder of an earlier run, so that the next one starts afresh; nothing happens if it is not there.

    Raises
    ------
    UserError
        The folder is not a run's, as its ``config.json`` would say; a run is at work in it; it cannot be removed.
    """
    folder = Path(folder)
    if not os.path.lexists(folder):
        return
    try:
        found = json.loads((folder / "config.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != CONFIG_FORMAT:
        raise UserError(f"{folder}: has no config.json of a run, so it was left as it is; give the folder of a run")
    with locked(folder, "live run"):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise UserError(f"{folder}: cannot be removed ({error.strerror or error}); remove it yourself") from error


def versions(task: Task) -> dict[str, Any]:
    """What a result depends on besides its settings: versions of Python, this package and the task's libraries."""
    from dreamrsi import __version__

    names = {module.partition(".")[0] for module in task.requires}
    found = {"python": platform.python_version(), "dreamrsi": __version__}
    for name in sorted(names):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {"versions": found, "system": platform.system(), "machine": platform.machine()}


@dataclass
class _Run:
    """One run on its way: what it needs, and what it has made so far."""

    task: Task
    agent: Agent
    policy: Policy
    store: Workspaces
    scratch: Path
    seed: int
    workers: int
    timeout: float
    progress: Progress | None
    attempts: dict[Place, Attempt] = field(default_factory=dict)

    def record(self, path: Path, header: Header, limit: int) -> Tree:
        """Make the run, or the rest of it, with ``path`` as its record."""
        files = self.task.seed_workspace()
        self.root = self.store.save(files, "refs/heads/root", f"{self.task.name}: the seed workspace")
        shutil.rmtree(self.scratch, ignore_errors=True)  # left by a run that was killed
        for folder in (self.scratch, path.parent):
            _make_folder(folder)
        try:
            earlier = _read_earlier(path)
            if earlier is None:
                header = msgspec.structs.replace(header, root=Root(self._evaluate_root()))
                writer, batches = RecordWriter(path, header), []
            else:
                header = _same_header(path, earlier.header, header)
                writer, batches = RecordWriter.resume(path, earlier), earlier.batches
                self.attempts = {(attempt.branch, attempt.attempt): attempt for attempt in earlier.attempts}
            with writer:
                self._explore(path, header, limit, writer, batches)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return Tree.load(path)

    def _evaluate_root(self) -> float | None:
        job = Job(self.task, None, self.task.seed_workspace(), Context(0))
        [(_, result)] = run_jobs({0: job}, self.scratch, 1, self.timeout, self.task.requires)
        evaluation = result.evaluation
        if evaluation.status not in ("ok", "invalid"):
            raise UserError(f"task {self.task.name}: its seed workspace cannot be evaluated ({evaluation.error})")
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
        numbers = {place: seq + k for k, place in enumerate(places)}
        parents = {place: self._parent(place, header) for place in places if place not in self.attempts}
        jobs = {
            place: Job(self.task, self.agent, self.store.load(commit), self._context(place, score))
            for place, (commit, score) in parents.items()
        }
        results = run_jobs(jobs, self.scratch, self.workers, self.timeout, self.task.requires)
        with contextlib.closing(results):  # type: ignore[type-var]  # a generator, whose close() ends the children
            for place, result in results:
                attempt = self._attempt(place, round_, numbers[place], parents[place][0], result)
                writer.append(attempt)
                self.attempts[place] = attempt
                if self.progress is not None:
                    self.progress(len(self.attempts), total, attempt)

    def _context(self, place: Place, score: float | None) -> Context:
        branch, number = place
        earlier = tuple(self.attempts[branch, k] for k in range(number))
        return Context(attempt_seed(self.seed, *place), score, earlier)

    def _parent(self, place: Place, header: Header) -> tuple[str, float | None]:
        """The nearest ancestor that left files: its commit and its score."""
        branch, number = place
        for earlier in range(number - 1, -1, -1):
            attempt = self.attempts[branch, earlier]
            if attempt.commit is not None:
                return attempt.commit, attempt.score
        return self.root, header.root.score

    def _attempt(self, place: Place, round_: int, seq: int, parent: str, result: Result) -> Attempt:
        branch, number = place
        evaluation = result.evaluation
        commit = None
        if result.files is not None:
            found = evaluation.status if evaluation.score is None else repr(evaluation.score)
            message = f"branch {branch}, attempt {number}: {result.tag or self.agent.name}, {found}"
            commit = self.store.save(result.files, f"refs/attempts/{ROUND}/{branch}/{number}", message, parent)
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


def attempt_seed(seed: int, branch: int, attempt: int) -> int:
    """The seed of one attempt, 64 bits: depends on its place alone, neither on order nor on the number of workers."""
    import numpy as np

    high, low = np.random.SeedSequence(seed, spawn_key=(branch, attempt)).generate_state(2)
    return int(high) << 32 | int(low)


def _whole(name: str, value: int, least: int) -> int:
    if type(value) is not int or value < least:
        raise UserError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return value


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


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds something else, before anything is written into it."""
    try:
        others = sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{folder}: is no folder for a run ({error.strerror}); choose another folder") from error
    if others and "config.json" not in others:
        raise UserError(f"{folder}: is no run's folder, it holds {others[0]}; choose a new or empty folder")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another folder for the run") from error


def _check_config(path: Path, config: dict[str, Any]) -> None:
    """Write the configuration, or compare it with the one that is there."""
    if not path.exists():
        atomic_write(path, json.dumps(config, indent=1) + "\n")
        return
    try:
        found = json.loads(path.read_bytes())
        differing = [key for key in config if found[key] != config[key]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not the configuration of a run ({error!r}); choose another folder") from error
    if differing:
        what = "; ".join(f"{key} was {found[key]!r} and is now {config[key]!r}" for key in differing)
        raise UserError(f"{path}: this folder holds another run: {what}. Give the same settings or another folder")


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
