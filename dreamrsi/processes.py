"""Attempts in child processes: each in a process and session of its own, with a deadline, ended as a group.

Whatever happens in the child becomes an :class:`Result`. Children are forked from a server process that has
imported what the task needs, so they start in milliseconds. They never import the caller's main module: a run
works from a script without ``if __name__ == "__main__"`` and from a notebook, and classes defined there are sent
by value. This is a guard against accidents, not against a hostile candidate.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from dreamrsi import keeper
from dreamrsi.agents import Agent, AgentFailure, Context, Proposal
from dreamrsi.errors import UserError
from dreamrsi.record import Status
from dreamrsi.tasks import Evaluation, Program, Task, program_of
from dreamrsi.workspace import Files, check_files

Key = TypeVar("Key", bound=Hashable)

MAX_RESULT_BYTES = 64 * 2**20
_MAX_TEXT = 2000
_UNWRITABLE = os.EX_IOERR
"""The exit code of a child whose disk would not take its result: no fault of the attempt, so it is not recorded."""
_GRACE = 10.0  # seconds after the deadline when a child ends itself, should the run be gone by then
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Job:
    """An attempt to be made: the agent resumes ``files``, the task evaluates; ``files`` themselves without an agent."""

    task: Task
    agent: Agent | None
    files: Files
    context: Context


@dataclass(frozen=True)
class Result:
    """What became of a job. ``files`` is None where the agent left none; ``seconds`` is wall time."""

    evaluation: Evaluation
    files: dict[str, bytes] | None
    tag: str | None
    seconds: float


class _Made(msgspec.Struct, frozen=True):
    files: dict[str, bytes]
    tag: str | None
    metrics: dict[str, Any]


class _Failure(msgspec.Struct, frozen=True):
    text: str
    status: Status = "error"
    metrics: dict[str, Any] = {}
    tag: str | None = None


@dataclass
class _Running:
    """``results`` begins the names of the result files; what an attempt starts does not know it, to forge one."""

    process: BaseProcess
    folder: Path
    results: str
    begun: float


def run_jobs(
    jobs: Mapping[Key, Job], scratch: Path, workers: int, timeout: float, preload: Sequence[str] = ()
) -> Iterator[tuple[Key, Result]]:
    """Run jobs, ``workers`` at a time, and yield each result as it is there.

    Closing the generator, or any exception in it, ends the children that still run.

    Parameters
    ----------
    scratch : an existing folder; every child works in a fresh folder below it, which is removed afterwards.
    timeout : seconds from the start of a child to its end by force.
    preload : modules imported once in the server process.

    Raises
    ------
    UserError
        A job cannot be sent to a child process, or the disk does not take what it made.
    """
    return run_packed({key: packed(job) for key, job in jobs.items()}, scratch, workers, timeout, preload)


def run_packed(
    payloads: Mapping[Key, bytes], scratch: Path, workers: int, timeout: float, preload: Sequence[str] = ()
) -> Iterator[tuple[Key, Result]]:
    """The same for jobs that are packed already, as they travel to another machine."""
    context = _context(preload)
    waiting = list(payloads)[::-1]
    running: dict[Key, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                key = waiting.pop()
                folder = _make_folder(scratch)
                results = str(folder / secrets.token_hex(16))
                given = (payloads[key], str(folder), results, timeout + _GRACE)
                make = partial(context.Process, target=_child, args=given)
                running[key] = _Running(make(), folder, results, time.monotonic())
                _start(running[key], make)
            for key in _finished(running, timeout):
                child = running[key]
                exitcode = _end(child)
                del running[key]
                result = _result(child, exitcode, timeout)
                shutil.rmtree(child.folder, ignore_errors=True)
                yield key, result
    finally:
        for child in running.values():
            _end(child)
            shutil.rmtree(child.folder, ignore_errors=True)


def _make_folder(scratch: Path) -> Path:
    """A folder for the results of one child, and in it ``work``, where the child works."""
    try:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        (folder / "work").mkdir()
    except OSError as error:
        raise UserError(f"{scratch}: cannot be written ({error.strerror}); make room, then resume the run") from error
    return folder


def _start(child: _Running, make: Callable[[], BaseProcess]) -> None:
    """Start a child; once more if the fork server turns out to be dead, which starts a new one."""
    for last in (False, True):
        try:
            with _anonymous_main():
                child.process.start()
            return
        except OSError as error:
            if last:
                problem = f"no child process can be started ({error}); close other programs and resume the run"
                raise UserError(problem) from error
            child.process = make()


_preloaded: set[str] = {"dreamrsi.processes"}


def _context(preload: Sequence[str]) -> ForkServerContext:
    """The fork server's context. The server is started anew when a task needs modules that it has not imported yet.

    Without that every attempt of a second task in one notebook would import its libraries itself, which takes seconds.
    """
    context = multiprocessing.get_context("forkserver")
    if not _preloaded.issuperset(preload):
        _preloaded.update(preload)
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way
    context.set_forkserver_preload(sorted(_preloaded))
    return context


def packed(job: Job) -> bytes:
    """A job as bytes, for a process that may know neither the main module nor a notebook's definitions."""
    import cloudpickle  # pickles by value what the main module or a notebook defines

    try:
        payload: bytes = cloudpickle.dumps(job)
    except Exception as error:
        raise UserError(
            f"task {job.task.name} cannot be sent to a child process ({type(error).__name__}: {error}); "
            "keep open files, locks and the like out of the task and the agent"
        ) from error
    return payload


@contextmanager
def _anonymous_main() -> Iterator[None]:
    """Hide the main module while a process starts: its child would import it, and so run a plain script again.

    Also that this process may be a daemon, as a cluster's worker under its nanny is: those may have no children, for
    fear that they stay behind. Ours do not.
    """
    main = sys.modules["__main__"]
    own = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # there is no public way
    daemon = own.pop("daemon", None)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if daemon is not None:
            own["daemon"] = daemon


def _finished(running: Mapping[Key, _Running], timeout: float) -> list[Key]:
    """Wait until a child has ended or its time is up; return those for which that holds."""
    deadline = min(child.begun for child in running.values()) + timeout
    sentinels = [child.process.sentinel for child in running.values()]
    ready = multiprocessing.connection.wait(sentinels, max(0.0, deadline - time.monotonic()))
    now = time.monotonic()
    return [key for key, child in running.items() if child.process.sentinel in ready or now >= child.begun + timeout]


def _end(child: _Running) -> int | None:
    """End a child and all that it started; return how it had ended by itself, None if it had not."""
    process = child.process
    if process.pid is None:
        return None
    exitcode = process.exitcode
    if exitcode is None:
        keeper.end_tree(process.pid)  # also what left its session; a child that ended by itself has done that
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what is in its session even so, after a crash say
    process.join()
    process.close()
    return exitcode


def _result(child: _Running, exitcode: int | None, timeout: float) -> Result:
    seconds = time.monotonic() - child.begun
    files: dict[str, bytes] | None = None
    tag: str | None = None
    metrics: dict[str, Any] = {}
    try:
        made = _read(child.results + "-made", _Made)
        if made is not None:
            files, tag, metrics = check_files(made.files), made.tag, made.metrics
        evaluation = _read(child.results + "-evaluation", Evaluation)
        failure = _read(child.results + "-failure", _Failure)
    except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
        evaluation, failure = None, _Failure(f"malformed result: {error}")
    if evaluation is None and failure is None and exitcode == _UNWRITABLE:
        raise UserError(
            f"{child.folder.parent}: an attempt could not write its result, maybe because the disk is full; "
            "make room, then resume the run"
        )
    if evaluation is None:
        if failure is None:
            if exitcode is None:
                failure = _Failure(f"took longer than {timeout:g} s", "timeout")
            elif exitcode < 0:
                failure = _Failure(f"the process died of {_signal_name(-exitcode)}")
            else:
                failure = _Failure(f"the process ended with exit code {exitcode} before it gave a result")
        metrics, tag = failure.metrics or metrics, failure.tag or tag
        evaluation = Evaluation(status=failure.status, error=failure.text)
    if metrics:
        evaluation = msgspec.structs.replace(evaluation, metrics={**evaluation.metrics, "agent": metrics})
    return Result(evaluation, files, tag, seconds)


T = TypeVar("T")


def _read(name: str, kind: type[T]) -> T | None:
    path = Path(name)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return None
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"{size} bytes; at most {MAX_RESULT_BYTES} are read")
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# What follows runs in the child.


def _child(payload: bytes, folder: str, results: str, limit: float) -> None:
    os.setsid()
    signal.setitimer(signal.ITIMER_REAL, limit)  # SIGALRM ends the process unless it is handled
    keeper.adopt()
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    os.chdir(work := os.path.join(folder, "work"))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # solvers print; a run's output is its record
        os.dup2(null, stream)
    os.environ.update(_ONE_THREAD)  # for libraries loaded from here on
    stage = "loading"
    try:
        from threadpoolctl import threadpool_limits

        job: Job = pickle.loads(payload)
        with threadpool_limits(1):  # for those that are loaded
            files = job.files
            if job.agent is not None:
                stage = f"agent {job.agent.name}"
                proposal = job.agent.attempt(job.task, files, job.context)
                if not isinstance(proposal, Proposal):
                    raise TypeError(f"returned {type(proposal).__name__}; it must return a Proposal")
                files = check_files(proposal.files)
                program = program_of(job.task)
                runs = program is not None and program.path in files
                if program is not None and runs:
                    files.pop(program.artifact, None)  # made by an earlier program, if by any
                _write(results, "made", _Made(files, proposal.tag, dict(proposal.metrics)))
                if program is not None and runs:
                    stage = "program"
                    files = {**files, program.artifact: _run_program(program, files, job.context.seed, folder)}
                    _write(results, "made", _Made(files, proposal.tag, dict(proposal.metrics)))
            stage = "evaluator"
            evaluation = job.task.evaluate(files)
            if not isinstance(evaluation, Evaluation):
                raise TypeError(f"returned {type(evaluation).__name__}; it must return an Evaluation")
            _write(results, "evaluation", evaluation)
    except AgentFailure as failure:
        text = _tidy(f"{stage}: {failure.text}", work)
        _write(results, "failure", _Failure(text, failure.status, failure.metrics, failure.tag))
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the attempt failed, whatever it was
        _write(results, "failure", _Failure(_tidy(f"{stage}: {type(error).__name__}: {error}", work)))
    _leave(0)


def _end_with_the_run() -> None:
    """End this child and all that it started once the run is gone, after a kill -9 say."""
    run = multiprocessing.parent_process()
    assert run is not None
    multiprocessing.connection.wait([run.sentinel])
    keeper.end_own()
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(code: int) -> NoReturn:
    """End this child with all that it started; do not wait for threads that the candidate left behind."""
    keeper.end_own()
    os._exit(code)


def _run_program(program: Program, files: Files, seed: int, folder: str) -> bytes:
    """Run the workspace's program in the sandbox; return the artifact that it makes."""
    from dreamrsi.programs import make_artifact

    result = make_artifact(program, files[program.path], seed, scratch=folder)
    if result.status != "ok":
        raise AgentFailure(result.reason or "", result.status)
    artifact: bytes = result.value
    return artifact


def _tidy(text: str, work: str) -> str:
    """A text that is the same in every run: without the folder's name, bounded, in valid Unicode."""
    return text.replace(work, ".")[:_MAX_TEXT].encode(errors="replace").decode()


def _write(results: str, name: str, value: Any) -> None:
    """Write a result so that it is there whole or not at all; end the process if the disk does not take it."""
    content = msgspec.msgpack.encode(value, enc_hook=_plain)
    temporary = f"{results}.{name}"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, f"{results}-{name}")
    except OSError:
        _leave(_UNWRITABLE)


def _plain(value: Any) -> Any:
    """A NumPy number as Python's own."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a JSON value")
