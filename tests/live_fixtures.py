"""Settings of small live runs, one whole run to compare with, and runs in a process of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from dreamrsi import policies
from dreamrsi.live import live_run
from sandbox_fixtures import is_alive
from toy_task import Toy

SMALL = {"width": 3, "branches": 4, "steps": 3, "workers": 2, "timeout": 60.0}
ALL = policies.ParallelRefine(bootstrap=4)


def content(tree):
    """All that equal runs share: everything but seconds."""
    return tree.header, tree.batches, [msgspec.structs.replace(attempt, seconds=None) for attempt in tree.attempts]


@pytest.fixture(name="whole", scope="session")
def whole_run(tmp_path_factory):
    """One uninterrupted run, and the bytes of its record in the order in which they were appended."""
    out = tmp_path_factory.mktemp("whole")
    tree = live_run(Toy(), ALL, out, seed=5, **SMALL)
    return tree, (out / "round-01/tree.jsonl").read_bytes(), out


def start(script, out, tmp_path, moves="", before=""):
    """Run a script on the folder ``out`` in a process of its own; ``moves`` and ``before`` are put into its text."""
    path = tmp_path / "script.py"
    path.write_text(script.format(tests=str(Path(__file__).parent), moves=moves, before=before))
    return subprocess.Popen(
        [sys.executable, str(path), str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_after(process, lines, delay):
    """Kill a run when it has said so much, and a moment has passed; say whether it was still running."""
    for _ in range(lines):
        if not process.stdout.readline():
            break
    time.sleep(delay)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def none_is_left(pids):
    """Whether all processes that ``toy_task.Hang`` started, and left the ids of in ``pids``, are gone."""
    ids = [int(path.name) for path in pids.iterdir()]
    assert ids
    for _ in range(100):  # the kill has been sent; give it time to arrive
        if not any(map(is_alive, ids)):
            return True
        time.sleep(0.05)
    return False
