"""A real Dask scheduler and its workers as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path

from dreamrsi import cluster as connection
from dreamrsi.errors import UserError


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


class Cluster:
    """Every process leads a session of its own, so that a worker dies with what it started."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.file = folder / "scheduler.json"
        self.start("scheduler", "--port", "0", "--scheduler-file", str(self.file))

    @cached_property
    def address(self):
        """Where the scheduler listens; it chose the port itself."""
        return until(self._address)

    def _address(self):
        assert self.processes[0].poll() is None, "the scheduler ended"
        try:
            return json.loads(self.file.read_text())["address"]
        except (OSError, ValueError):  # not there yet, or half of it
            return None

    def start(self, *arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}  # workers import the functions below
        log = open(self.folder / f"dask-{len(self.processes)}.log", "w")
        with log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    def worker(self, *options):
        """One process of one thread; without a nanny, that nothing starts it again, unless options are given."""
        return self.start("worker", self.address, "--nthreads", "1", *(options or ["--no-nanny"]))

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(30)


@contextmanager
def cluster(folder, workers, *options):
    """A scheduler and so many workers, all gone at the end."""
    running = Cluster(folder)
    try:
        for _ in range(workers):
            running.worker(*options)
        yield running
    finally:
        for process in reversed(running.processes):
            running.kill(process)


def ready(running, workers):
    """Wait for the scheduler and its workers."""
    from distributed import Client

    until(lambda: knocks(running.address))
    with Client(running.address, timeout=90, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=90)


def knocks(address):
    try:
        connection._knock(address)
    except UserError:
        return False
    return True


# Run on a worker


_done = count()


def gated(folder, function, *chunk):
    """Do two chunks a process, then say in a file that this process is in the middle and wait for the gate to open."""
    if next(_done) >= 2:
        (Path(folder) / f"held-{os.getpid()}").touch()
        until((Path(folder) / "open").exists)
    return function(*chunk)


def endless(marker):
    """Say that it has begun, and wait for what never comes."""
    Path(marker).touch()
    until(lambda: False, 600)
