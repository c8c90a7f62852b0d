"""A real Dask scheduler and its workers as processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Cluster:
    """Every process leads a session of its own, so that a worker dies with what it started."""

    def __init__(self, folder):
        self.folder = folder
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self.processes = []
        self.start("scheduler", "--port", str(port))

    def start(self, *arguments):
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        log = open(self.folder / f"dask-{len(self.processes)}.log", "w")
        with log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def worker(self):
        """One process of one thread; without a nanny, that nothing starts it again."""
        return self.start("worker", self.address, "--nthreads", "1", "--no-nanny")

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(30)


@contextmanager
def cluster(folder, workers):
    """A scheduler and so many workers, all gone at the end."""
    running = Cluster(folder)
    try:
        for _ in range(workers):
            running.worker()
        yield running
    finally:
        for process in reversed(running.processes):
            running.kill(process)
