"""Attempts in child processes: nothing that an attempt started survives it, however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dreamrsi.live import live_run
from dreamrsi.policies import ParallelRefine
from live_fixtures import none_is_left, start
from toy_task import Toy

MOVE = f"""
import os, signal, subprocess, time
from pathlib import Path

class Move:
    __name__ = "move"
    def __init__(self, pids, end):
        self.pids, self.end = Path(pids), end
        self.pids.mkdir(exist_ok=True)
    def __call__(self, files, seed):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        script = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=2).pid)"
        orphan = int(subprocess.run([{sys.executable!r}, "-c", script], stdout=subprocess.PIPE).stdout)
        session = subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
        for pid in (orphan, session):
            (self.pids / str(pid)).touch()
        time.sleep(1000 if self.end == "hang" else 0)
        return files
"""

SCRIPT = (
    """
import sys
sys.path.insert(0, {tests!r})
import toy_task
from dreamrsi import policies
from dreamrsi.live import live_run
"""
    + MOVE.replace("{", "{{").replace("}", "}}")
    + """
live_run(toy_task.Toy(Move({moves})), policies.ParallelRefine(bootstrap=1), sys.argv[1], branches=1, steps=1)
"""
)


@pytest.fixture(name="make")
def class_of_moves():
    space = {"__name__": "__main__"}
    exec(MOVE, space)
    return space["Move"]


@pytest.mark.parametrize(("end", "status"), [("hang", "timeout"), ("return", "ok")])
def test_what_left_the_session_goes_with_its_attempt(tmp_path, make, end, status):
    task = Toy(make(tmp_path / "pids", end))
    tree = live_run(task, ParallelRefine(bootstrap=1), tmp_path / "run", branches=1, steps=1, timeout=5)
    assert [attempt.status for attempt in tree.attempts] == [status]
    assert len(list((tmp_path / "pids").iterdir())) == 2
    assert none_is_left(tmp_path / "pids")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_run_that_is_interrupted_or_killed(tmp_path, number):
    pids = tmp_path / "pids"
    process = start(SCRIPT, tmp_path / "run", tmp_path, moves=f"{str(pids)!r}, 'hang'")
    deadline = time.monotonic() + 30
    while not pids.exists() or len(list(pids.iterdir())) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert none_is_left(pids)


def test_without_the_guard_it_would_survive(tmp_path, make):
    """The twin: killing the process group alone leaves both."""
    pids = tmp_path / "pids"
    script = MOVE + f"\nimport os\nos.setsid()\nMove({str(pids)!r}, 'hang')({{}}, 0)"
    process = subprocess.Popen([sys.executable, "-c", script])
    while not pids.exists() or len(list(pids.iterdir())) < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for path in pids.iterdir():
        os.kill(int(path.name), signal.SIGKILL)  # raises where it is gone
