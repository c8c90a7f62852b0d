"""Attempts on a real Dask cluster: the same run as here, also when a worker dies in the middle."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster_fixtures import cluster, ready, until
from dreamrsi import cluster as connection
from dreamrsi.agents import Context
from dreamrsi.cluster_jobs import _attempt, _libraries, cluster_runner
from dreamrsi.errors import UserError
from dreamrsi.processes import Job, packed
from loop_fixtures import content, run
from toy_task import Gated, Toy, climb, fail, leave, spoil


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A loaded machine needs a while to start a scheduler."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 90)


def test_a_scheduler_that_is_not_there_is_said():
    with pytest.raises(UserError, match="give the scheduler's address"), cluster_runner("nowhere"):
        pass


@pytest.mark.slow
def test_a_run_on_a_cluster_is_the_run_here(tmp_path):
    task = Toy(climb, spoil, fail, leave)
    here = run(tmp_path / "here", "fixed", 2, task)
    with cluster(tmp_path, 1, "--nworkers", "2") as two:  # as docs/scale.md says, under a nanny each
        ready(two, 2)
        with cluster_runner(two.address) as runner:
            there = run(tmp_path / "there", "fixed", 2, task, run=runner)
    assert content(there) == content(here)
    assert {attempt.status for round_ in there.rounds for attempt in round_.tree} >= {"ok", "error"}


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    task = Toy(Gated(gate))
    with cluster(tmp_path, workers=2) as two:
        ready(two, 2)

        def kill_one():
            until(lambda: len(list(gate.glob("held-*"))) == 2)  # both workers are in an attempt
            two.kill(two.processes[-1])
            (gate / "open").touch()

        with cluster_runner(two.address) as runner, ThreadPoolExecutor(1) as beside:
            killed = beside.submit(kill_one)
            there = run(tmp_path / "there", "fixed", 1, task, run=runner)
            killed.result()
    here = run(tmp_path / "here", "fixed", 1, task)
    assert content(there) == content(here)
    assert len(list(gate.glob("held-*"))) > 9 + 9  # the lost attempt was made again


def test_a_worker_says_what_it_lacks(monkeypatch, tmp_path):
    job = packed(Job(Toy(climb), None, {"value": b"1.0"}, Context(0)))
    ours = _libraries(["numpy", "toy_task"])
    assert ours["numpy"] and ours["toy_task"] is None
    assert _attempt(job, 60.0, ("toy_task",), {"toy_task": None}).evaluation.score == 1.0
    with pytest.raises(UserError, match=r"worker .*: has numpy \d.*, the caller 0.1; install the same there"):
        _attempt(job, 60.0, ("numpy",), {"numpy": "0.1"})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(UserError, match="worker .*: cannot make an attempt .*No such file"):
        _attempt(job, 60.0, (), {})
