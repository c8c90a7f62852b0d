"""Recursions killed at random points: the same command goes on, and everything ends as if nothing had happened."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import dreamrsi as d
from live_fixtures import kill_after
from loop_fixtures import content, files, run

SCRIPT = """
import sys, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")
from dreamrsi.loop import Watch
from loop_fixtures import run
class Told(Watch):
    def begun(self, *_): print("begun", flush=True)
    def attempt(self, *_): print("attempt", flush=True)
    def dreaming(self, *_): print("dreaming", flush=True)
    def ended(self, *_): print("ended", flush=True)
run(sys.argv[1], developer=None, versions=4, watch=Told())
print("complete", flush=True)
"""


def start(out, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    return subprocess.Popen([sys.executable, str(path), str(out)], stdout=subprocess.PIPE, text=True)


@pytest.fixture(name="whole", scope="module")
def whole_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    return run(out, developer=None, versions=4), out


def killed_and_resumed(whole, tmp_path, seed, times):
    """Kill one run ``times`` times; compare what it ends as, file by file, with the uninterrupted one."""
    draw = random.Random(seed)
    out = tmp_path / "run"
    kills = 0
    while kills < times:
        was_running = kill_after(start(out, tmp_path), draw.randint(0, 5), draw.uniform(0, 0.3))
        kills += was_running
        if not was_running:
            break
    assert kills >= min(times, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a torn line, which is another test
        found = run(out, developer=None, versions=4)
    assert content(found) == content(whole[0])
    assert files(out) == files(whole[1])
    for round_ in found.rounds:
        lines = (out / f"round-{round_.number:02}/tree.jsonl").read_bytes().splitlines()
        assert len(lines) == 1 + len(round_.tree.batches) + len(round_.tree)  # nothing is there twice
        assert d.Tree.load(out / f"round-{round_.number:02}/tree.jsonl").attempts == round_.tree.attempts
    return kills


def test_killed_and_resumed(whole, tmp_path):
    killed_and_resumed(whole, tmp_path, 1, 3)


@pytest.mark.slow
def test_killed_at_30_random_points(whole, tmp_path):
    kills, seed = 0, 2
    while kills < 30:
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += killed_and_resumed(whole, folder, seed, 10)
        seed += 1
