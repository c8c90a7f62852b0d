"""The command ``run`` with a coding agent's command line for candidates and policies, end to end, by a stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import dreamrsi as d

HERE = Path(__file__).parent
AGENT = f"{sys.executable} {HERE / 'stand_in_packer.py'}"
DEVELOPER = f"{sys.executable} {HERE / 'stand_in_developer.py'} good good"
RUN = ["run", "circle_packing:n=4", "--arm", "dream", "--agent", "command", "--developer", "command"]
CAPS = ["--rounds", "2", "--workspaces", "2", "--steps", "4", "--versions", "2", "--agent-seconds", "60"]


def git(out, *arguments):
    command = ["git", "--git-dir", str(out / "workspaces.git"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_stand_in_agent_writes_candidates_and_policies(dreamrsi, tmp_path, monkeypatch):
    out, notes = tmp_path / "run", tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("STAND_IN_NOTES", str(notes))
    commands = ["--command", AGENT, "--developer-command", DEVELOPER, "--pass-env", "STAND_IN_NOTES"]
    command = [*RUN, *CAPS, *commands, "--guidance", "--out", out]
    done = dreamrsi(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("dream: 2 rounds, ")

    first = d.Tree.load(out / "round-01/tree.jsonl")
    for branch in first.branches:
        assert [a.status for a in branch] == ["ok", "ok", "error", "ok"]
        assert [a.score and round(a.score, 9) for a in branch] == [0.8, 0.84, None, 0.92]
        assert "ZeroDivisionError" in branch[2].error and "solve.py, line 2" in branch[2].error
        assert [a.tag for a in branch] == ["Larger circles", "Larger circles", "Larger circles", "Mend the division"]
        last = branch[3].commit
        assert set(git(out, "ls-tree", "-r", "--name-only", last).split()) >= {"packing.json", "solve.py"}
        assert "1 / 0" in git(out, "show", f"{branch[2].commit}:solve.py")
        assert "proposals/003.md" in git(out, "diff", "--name-only", branch[2].commit, last)
        assert len(git(out, "log", "--format=%H", last).split()) == 5  # four attempts on the seed

    dream = json.loads((out / "round-02/dream.json").read_bytes())
    assert [version["error"] for version in dream["versions"]] == [None, None]
    assert json.loads((out / "round-02/guidance.json").read_bytes())["weights"].keys() == {
        "Larger circles",
        "Mend the division",
    }
    second = d.Tree.load(out / "round-02/tree.jsonl")
    assert second.root == first.best
    again = dreamrsi(*command)  # nothing is left to do, and nobody is asked
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    assert d.Tree.load(out / "round-02/tree.jsonl").attempts == second.attempts
