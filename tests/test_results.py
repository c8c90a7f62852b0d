"""What comes back from an attempt's child process: bounded, checked, and written by nobody else."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest

from dreamrsi import processes
from dreamrsi.agents import Context, Proposal
from dreamrsi.errors import RecordError
from dreamrsi.live import live_run
from dreamrsi.processes import Job, run_jobs
from dreamrsi.tasks import Evaluation
from live_fixtures import ALL, SMALL, start
from test_live_interrupted import SCRIPT
from toy_task import Toy, climb, spoil

FORGED = msgspec.msgpack.encode(Evaluation(score=99.0))


class Forger:
    """Writes the results of the attempt that it works for, under the names that one can think of, and fails."""

    name = "forger"

    def attempt(self, task, files, context):
        folder = os.path.dirname(os.getcwd())
        seen = sorted(os.listdir(folder))
        for name in ("evaluation", "-evaluation", *(f"{other}-evaluation" for other in seen)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(FORGED)
        raise RuntimeError(f"saw {seen}")


def one(agent, tmp_path, task=None, **settings):
    task = task or Toy(climb)
    job = Job(task, agent, task.seed_workspace(), Context(0))
    [(_, result)] = run_jobs({0: job}, tmp_path, 1, settings.get("timeout", 60.0), task.requires)
    return result


def test_what_an_attempt_starts_cannot_forge_its_score(tmp_path):
    result = one(Forger(), tmp_path)
    assert result.evaluation.status == "error" and result.evaluation.score is None
    assert "saw ['work']" in result.evaluation.error  # no name to learn from


class Large:
    name = "large"

    def attempt(self, task, files, context):
        return Proposal({**files, "ballast": bytes(5000)})


def test_a_result_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    assert one(Large(), tmp_path).evaluation.status == "ok"
    monkeypatch.setattr(processes, "MAX_RESULT_BYTES", 4000)
    result = one(Large(), tmp_path)
    assert result.evaluation.status == "error" and "at most 4000 are read" in result.evaluation.error


@pytest.mark.parametrize("files", [{"../escape": b""}, {".git/config": b""}])
def test_files_are_checked_where_they_arrive(tmp_path, files):
    child = processes._Running(None, tmp_path, str(tmp_path / "token"), 0.0)
    made = processes._Made(files, None, {})
    (tmp_path / "token-made").write_bytes(msgspec.msgpack.encode(made))
    (tmp_path / "token-evaluation").write_bytes(FORGED)
    result = processes._result(child, 0, 60.0)
    assert result.files is None and result.evaluation.status == "error"
    assert "malformed result" in result.evaluation.error


def test_what_a_candidate_prints_goes_nowhere(tmp_path):
    process = start(SCRIPT, tmp_path / "run", tmp_path, moves="toy_task.chatter")
    printed, errors = process.communicate(timeout=60)
    assert printed.split() == ["begun", *map(str, range(1, 13))] and errors == ""


def test_a_child_is_ended_by_a_timer_of_its_own(tmp_path):
    """Should nobody be there to end it any more."""
    result = one(Timed(), tmp_path)
    assert 60 < float(result.tag) < 60 + processes._GRACE + 1


class Timed:
    name = "timed"

    def attempt(self, task, files, context):
        import signal

        return Proposal(files, repr(signal.getitimer(signal.ITIMER_REAL)[0]))


def test_an_attempt_resumes_the_files_that_its_parent_left_scored_or_not(tmp_path):
    tree = live_run(Toy(spoil), ALL, tmp_path, seed=5, **{**SMALL, "branches": 1})
    commits = [attempt.commit for attempt in tree]
    assert [attempt.status for attempt in tree] == ["invalid"] * 3
    for commit, before in zip(commits[1:], commits, strict=False):
        command = ["git", "--git-dir", tmp_path / "workspaces.git", "rev-parse", f"{commit}^"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == before


def test_a_record_of_another_run_is_not_resumed(tmp_path):
    live_run(Toy(climb), ALL, tmp_path, seed=5, **SMALL)
    record = tmp_path / "round-01/tree.jsonl"
    record.write_text(record.read_text().replace('"seed":5', '"seed":6', 1))
    with pytest.raises(RecordError, match="line 1: seed differs from config.json"):
        live_run(Toy(climb), ALL, tmp_path, seed=5, **SMALL)
