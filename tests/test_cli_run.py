"""The command ``run``: what it prints, what it leaves, and what it refuses."""

from __future__ import annotations

import json

import pytest

import dreamrsi as d
from dreamrsi import cli_progress, cli_run
from dreamrsi.console import Console
from loop_fixtures import run
from toy_task import Toy, fail

SMALL = ["--workspaces", "2", "--steps", "2", "--rounds", "2"]


def test_both_arms_begin_alike_and_say_what_they_do(dreamrsi, tmp_path):
    printed = {}
    for arm in ("fixed", "dream"):
        out = tmp_path / arm
        versions = ["--versions", "3"] if arm == "dream" else []
        done = dreamrsi("run", "circle_packing:n=5", *SMALL, "--arm", arm, *versions, "--out", out)
        assert done.returncode == 0, done.stderr
        printed[arm] = done.stdout.splitlines()
    fixed, dream = printed["fixed"], printed["dream"]
    assert fixed[0] == dream[0] == "round 1 of 2: parallel_refine"
    assert {line.partition(" ")[2] for line in fixed[1:5]} == {line.partition(" ")[2] for line in dream[1:5]}
    assert fixed[5:7] == dream[5:7] and fixed[5] == "  4 attempts, 0 failed, 2 branches, 2 batches"
    assert fixed[6].startswith("  best of the round ")
    assert dream[7].startswith("dream before round 2: 3 versions, 0 failed, ")
    assert dream[8].startswith("  its value is ")
    assert fixed[-1].startswith("fixed: 2 rounds, 8 attempts, best ")
    trees = [d.Tree.load(tmp_path / arm / "round-01/tree.jsonl") for arm in ("fixed", "dream")]
    assert [a.score for a in trees[0]] == [a.score for a in trees[1]]
    again = dreamrsi("run", "circle_packing:n=5", *SMALL, "--arm", "fixed", "--out", tmp_path / "fixed")
    assert again.stdout.splitlines()[0] == "round 1 of 2: parallel_refine, 4 attempts already made"
    assert again.stdout.splitlines()[-1] == fixed[-1]
    assert again.stdout.splitlines()[3] == "round 2 of 2: parallel_refine, 4 attempts already made"
    assert "2 branches, 4 attempts" in dreamrsi("tree", tmp_path / "fixed").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "10x11", "--steps", "3"], "--preset sets workspaces and steps; give one or the other"),
        (["--agent", "command"], "give the coding agent's command: --command claude"),
        (["--arm", "dream", "--developer", "command"], "--developer-command claude"),
        (["--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], "a cluster has the workers that it has"),
        (["--scheduler", "127.0.0.1"], "give the scheduler's address as tcp://HOST:PORT"),
        (["--policy", "nowhere.py"], "nowhere.py: cannot be read"),
        (["--arm", "both"], "both"),
        (["--versions", "4"], "--versions does nothing without --arm dream"),
        (["--developer", "command", "--command", "sh"], "--developer does nothing without --arm dream"),
        (["--command", "claude"], "--command does nothing without --agent command or --developer command"),
        (["--arm", "dream", "--pass-env", "KEY"], "--pass-env does nothing without"),
        (
            ["--arm", "dream", "--agent", "command", "--command", "sh", "--developer-command", "sh"],
            "--developer-command",
        ),
        (["--agent", "command", "--command", "sh", "--timeout", "60"], "ends an attempt before --agent-seconds 900"),
        (["--timeout", "inf"], "timeout is inf"),
        (["--arm", "dream", "--beta1", "inf"], "beta1"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(dreamrsi, arguments, message, tmp_path):
    done = dreamrsi("run", "circle_packing", *arguments, "--out", tmp_path / "run")
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_presets_are_the_paper_s(dreamrsi, tmp_path, monkeypatch):
    asked = {}

    def recursion(task, out, **settings):
        asked.update(settings)
        raise d.UserError("enough")

    monkeypatch.setattr(cli_run, "recursion", recursion)
    for preset, caps in {"10x11": (10, 11), "32x20": (32, 20)}.items():
        assert "enough" in dreamrsi("run", "circle_packing", "--preset", preset, "--out", tmp_path).stderr
        assert (asked["workspaces"], asked["steps"]) == caps


def test_a_terminal_has_one_line_that_says_how_long_it_will_take():
    shown, lines = [], []
    progress = cli_progress.Progress(Console(lines.append, live=shown.append, width=120), rounds=3, attempts=4)
    progress.begun(2, "early_stop", 4, 0)
    progress.attempt(1, 4, d.Attempt(branch=0, attempt=0, seq=0, score=1.5, status="ok", tag="climb"))
    progress.attempt(2, 4, d.Attempt(branch=1, attempt=0, seq=1, score=None, status="error"))
    assert lines == ["round 2 of 3: early_stop", "  error: no reason was given"]
    assert "  1/4, at most 0 s left, best 1.5, last 1.5 by climb" in shown[0]
    assert "  2/4, at most 0 s left, best 1.5, last error by -" in shown[-1]


def test_a_run_says_everything_that_is_needed_to_run_it_again(dreamrsi, tmp_path):
    out = tmp_path / "run"
    assert (
        dreamrsi("run", "circle_packing:n=3", *SMALL, "--arm", "dream", "--versions", "2", "--out", out).returncode == 0
    )
    config = json.loads((out / "config.json").read_bytes())
    assert config["task"] == "circle_packing:n=3" and config["arm"] == "dream" and config["rounds"] == 2
    assert config["developer"] == "schedule" and config["versions"] == 2 and config["seed"] == 0


class Failing(Toy):
    """Every attempt of one kind fails, for reasons that are told apart."""

    def __init__(self):
        super().__init__(fail, name="failing")


def test_why_attempts_and_versions_fail_is_said_once(tmp_path):
    lines = []
    watch = cli_progress.Progress(Console(lines.append), rounds=1, attempts=6)
    run(tmp_path / "run", "dream", 2, task=Failing(), watch=watch, workspaces=2)
    assert sum("broken in ." in line for line in lines) == 1  # in six attempts and two rounds
    assert lines.count("  6 attempts, 6 failed (6 error), 2 branches, 3 batches") == 2
    assert lines.count("  nothing was scored; the start has 1") == 2

    lines.clear()
    run(tmp_path / "other", "dream", 2, developer=Clueless(), watch=watch)
    assert "  version 1 failed: clueless wrote no version: RuntimeError: no idea" in lines


class Clueless:
    name = "clueless"

    def develop(self, request):
        raise RuntimeError("no idea")
