"""Attempts on a Dask cluster: the same child processes, started on its workers instead of here.

An attempt is a function of its job, so one that is lost with a worker is made again on another. A worker makes one
attempt at a time; start as many as there are cores: ``dask worker ADDRESS --nworkers 8 --nthreads 1``.
"""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dreamrsi import cluster
from dreamrsi.errors import UserError
from dreamrsi.processes import Job, Key, Result, packed, run_packed

if TYPE_CHECKING:
    from distributed import Client

    from dreamrsi.live import Runner

_one_at_a_time = threading.Lock()


@contextmanager
def cluster_runner(scheduler: str) -> Iterator[Runner]:
    """What a run needs to make its attempts on a cluster; see ``run`` of :func:`dreamrsi.loop.recursion`.

    Parameters
    ----------
    scheduler : its address, tcp://HOST:PORT. The workers have this very package and what the task needs.

    Raises
    ------
    UserError
        The cluster cannot be reached or used, or is lost on the way. The run can be resumed.
    """
    with cluster.connected(scheduler) as client:

        def run(
            jobs: Mapping[Key, Job], scratch: Path, workers: int, timeout: float, preload: Sequence[str] = ()
        ) -> Iterator[tuple[Key, Result]]:
            """As :func:`dreamrsi.processes.run_jobs`; ``scratch`` and ``workers`` are those of the cluster."""
            return _run(client, scheduler, jobs, timeout, tuple(preload))

        yield run


def _run(
    client: Client, scheduler: str, jobs: Mapping[Key, Job], timeout: float, preload: tuple[str, ...]
) -> Iterator[tuple[Key, Result]]:
    from distributed import KilledWorker, as_completed
    from distributed.client import ClosedClientError

    package, libraries = cluster.package(), _libraries(preload)
    futures = {}
    try:
        for key, job in jobs.items():
            work = (packed(job), timeout, preload, libraries)
            futures[client.submit(cluster.checked, package, _attempt, *work, pure=False)] = key
        for future in as_completed(list(futures), loop=client.loop):
            yield futures[future], future.result()
    except KilledWorker as error:
        raise UserError(f"{scheduler}: the same attempt ended several workers: {error}; resume the run") from error
    except (CancelledError, ClosedClientError, OSError) as error:
        raise UserError(f"{scheduler}: the scheduler was lost ({error}); resume the run") from error
    finally:
        if client.status == "running":
            client.cancel(list(futures))  # a child that runs ends at its deadline


def _attempt(payload: bytes, timeout: float, preload: tuple[str, ...], libraries: dict[str, str | None]) -> Result:
    """Make one attempt on a worker, if that has the libraries of the caller."""
    found = _libraries(preload)
    for name, version in libraries.items():
        if found[name] != version:
            theirs, ours = found[name] or "none", version or "none"
            raise UserError(f"worker {platform.node()}: has {name} {theirs}, the caller {ours}; install the same there")
    try:
        with _one_at_a_time, tempfile.TemporaryDirectory(prefix="dreamrsi-attempt-") as scratch:
            [(_, result)] = run_packed({0: payload}, Path(scratch), 1, timeout, preload)
    except OSError as error:
        raise UserError(f"worker {platform.node()}: cannot make an attempt ({error}); mend it there") from error
    return result


def _libraries(preload: Sequence[str]) -> dict[str, str | None]:
    """Module -> the version of the distribution that is named like it; None where there is none."""
    found: dict[str, str | None] = {}
    for name in {module.partition(".")[0] for module in preload}:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
