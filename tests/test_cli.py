"""The commands as a user types them: output, exit codes, and one clear message for what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import dreamrsi as d

CORPUS = Path(__file__).parent.parent / "synthetic" / "history"
LATE = str(CORPUS / "late-6a.jsonl")
MATH = str(CORPUS / "math.jsonl")


def in_a_process(*arguments):
    command = [sys.executable, "-m", "dreamrsi", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_replay_takes_the_width_of_the_record(dreamrsi, tmp_path):
    tree = d.Tree.load(LATE)
    header = msgspec.structs.replace(tree.header, width=2, branches=4)
    d.Tree(header, [a for a in tree if a.branch < 4]).save(tmp_path / "narrow.jsonl")
    out = dreamrsi("replay", tmp_path / "narrow.jsonl", "--policy", "early_stop").stdout
    assert "early_stop, width 2" in out and "round  0  picks open open  ->" in out


def test_policies_are_listed_as_they_are_typed(dreamrsi):
    out = dreamrsi("policies").stdout
    for name in d.policies.BUILTIN:
        assert f"\n{name}" in "\n" + out
    assert "early_stop:strikes=2,width=N,bootstrap=N" in out and "random:seed=N\n" in out
    assert "`" not in out and max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_a_run_is_recorded_under_a_policy_file_and_read_by_its_folder(dreamrsi, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format(body="return [-1] * self.width if not prefix.round else []"))
    run = ["run", "circle_packing", "--policy", path, "--workspaces", "2", "--out", tmp_path / "run"]
    assert dreamrsi(*run).returncode == 0
    assert "2 branches, 2 attempts" in dreamrsi("tree", tmp_path / "run").stdout
    path.write_text(path.read_text() + "\n# changed\n")
    again = dreamrsi(*run)
    assert again.returncode == 2 and "policy_sha256 was" in again.stderr


def test_replay_shows_the_rounds_and_flags_a_branch_never_opened(dreamrsi):
    done = dreamrsi("replay", LATE, "--policy", "parallel_refine:width=4")
    assert done.returncode == 0
    assert "round  0  picks open open open open  -> 4 attempts, best so far" in done.stdout
    assert "stopped by the policy after 11 rounds and 44 attempts" in done.stdout
    assert "NEVER OPENED" in done.stdout
    assert "NEVER OPENED" not in dreamrsi("replay", LATE, "--policy", "early_stop").stdout


def test_replay_for_machines(dreamrsi):
    found = json.loads(dreamrsi("replay", LATE, "--policy", "early_stop", "--json").stdout)
    assert [(row["attempts"], row["rounds"], row["hit"]) for row in found] == [(44, 11, True)]
    assert len(found[0]["order"]) == 44


def test_tree_says_what_a_file_holds(dreamrsi):
    out = dreamrsi("tree", MATH).stdout
    assert "8 branches, 88 attempts (caps: branches 8, steps 11; width 8)" in out and "synthetic" in out
    assert out.count("\n  branch ") == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "nowhere.jsonl"], "error: nowhere.jsonl: cannot be read"),
        (["replay", MATH, "--policy", "greedy"], "error: there is no policy 'greedy'; choose one of"),
        (["replay", MATH, "--policy", "early_stop:strikes=0"], "error: strikes is 0; it must be"),
        (["replay", MATH, "--policy", "nowhere.py"], "nowhere.py"),
        (["replay", MATH, "--policy", "early_stop", "--width", "0"], "--width"),
        (["score", MATH, "--beta1", "-1"], "--beta1"),
        (["score", MATH, "--beta1", "inf"], "error: beta1 and beta2 must be finite"),
        (
            ["tree", str(CORPUS)],
            f"without round-01/tree.jsonl; give its trees, {CORPUS}/*.jsonl, or the folder of a run",
        ),
        (["tree", str(CORPUS.parent.parent)], "without round-01/tree.jsonl; give a tree file or the folder of a run"),
        (["tree", str(CORPUS.parent / "README.md")], "Other systems' logs: dreamrsi import"),
        (["replay", MATH, "--policy", "mine.py:k=3"], "mine.py:k=3: a policy file takes no parameters"),
        (["sweep", MATH, "--policy", "mine.py"], "mine.py: a policy file cannot be used here; name a built-in policy"),
        (["run", "knitting", "--out", "x"], "Your own task runs from Python: docs/adding-a-task.md"),
        (["run", "circle_packing:m=8", "--out", "x"], "task circle_packing has no parameter 'm'; it has n"),
        (["run", "circle_packing", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["study", "--profile", "huge"], "huge"),
        (["study", "--set", "02.corpra=3"], "has no parameter 'corpra'; did you mean 'corpora'?"),
        (["study", "--set", "02.corpora=ten"], "parameter corpora is 'ten' (str); it must be int"),
        (["study", "--set", "02.corpora=NaN"], "corpora"),
        (["study", "--set", "corpora"], "write it as NAME=VALUE"),
    ],
)
def test_a_user_s_error_is_one_message_and_exit_code_2(dreamrsi, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = dreamrsi(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_tree_names_file_line_and_field(dreamrsi, tmp_path):
    path = tmp_path / "bad.jsonl"
    lines = Path(MATH).read_text().splitlines()
    path.write_text("\n".join([*lines[:4], lines[4].replace('"score":', '"scroe":'), *lines[5:]]))
    done = dreamrsi("score", path)
    assert done.returncode == 2
    assert "bad.jsonl, line 5: Object contains unknown field `scroe`" in done.stderr


def test_a_torn_tree_is_scored_with_a_warning(tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_bytes(Path(MATH).read_bytes()[:-30])
    done = in_a_process("score", path)
    assert done.returncode == 0
    assert "warning: " in done.stderr and "the last line is torn" in done.stderr


POLICY = """
class Policy:
    name = "mine"
    def start(self, width):
        self.width = width
    def choose(self, prefix):
        {body}
"""


def test_a_policy_file_that_raises_scores_minus_infinity_and_the_others_go_on(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format(body="return [1 // 0]"))
    done = in_a_process("score", MATH, "--policy", path)
    assert done.returncode == 0
    assert "FAILED: mine, round 0: ZeroDivisionError" in done.stdout and "ZeroDivisionError" not in done.stderr
    assert "early_stop" in done.stdout and "UNOPENED: mine" not in done.stdout
    done = in_a_process("replay", MATH, "--policy", path)
    assert done.returncode == 2 and "raised ZeroDivisionError" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_one_line_and_keeps_what_is_done(tmp_path):
    command = [
        sys.executable,
        "-m",
        "dreamrsi",
        "run",
        "circle_packing",
        "--out",
        str(tmp_path / "run"),
        "--workspaces",
        "2",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("1/22 ") for line in lines)
            os.kill(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "interrupted; what was finished is kept" in err and "Traceback" not in err
    time.sleep(0.5)
    record = (tmp_path / "run" / "round-01" / "tree.jsonl").read_text()
    assert '"attempt":0' in record
    done = in_a_process("tree", tmp_path / "run" / "round-01" / "tree.jsonl")
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["score", "sweep", "replay", "gate", "deploy", "import", "suite freeze", "study"])
def test_options_are_named_in_the_user_s_words(dreamrsi, command):
    options = dreamrsi(*command.split(), "--help").stdout.split("\nOptions:")[1]
    assert not re.search(r"<(list|str|int|float|path|directory|tuple)", options)


def test_a_sweep_fits_into_80_columns_and_its_csv_holds_everything(dreamrsi):
    arguments = ["sweep", *sorted(CORPUS.glob("*.jsonl")), "--policy", "semantic_guidance", "--width", "4"]
    first, head, *lines = dreamrsi(*arguments).stdout.splitlines()
    assert first == "policies: 1, trees: 6, episodes: 6" and max(map(len, [head, *lines])) <= 80
    assert head.split()[:3] == ["policy", "tree", "W"] and head.split()[-1] == "unopened"
    rows = [line.split() for line in lines]
    assert [row[1] for row in rows] == sorted(path.stem for path in CORPUS.glob("*.jsonl"))
    late = next(row for row in rows if row[1] == "late-6a")
    assert late[-1] == "yes"  # its winner's branch stays closed at a width of 4
    assert "max_rounds" in dreamrsi(*arguments, "--max-rounds", "9").stdout
    table = dreamrsi(*arguments, "--format", "csv").stdout.splitlines()
    assert table[0].startswith("policy,tree,width,max_rounds,quality") and LATE in "\n".join(table)


def test_one_of_a_kind_is_not_plural_and_missing_caps_are_said_in_words(dreamrsi, tmp_path):
    path = tmp_path / "one.jsonl"
    attempt = {"branch": 0, "attempt": 0, "seq": 0, "score": 1.0, "status": "ok"}
    path.write_text("\n".join(map(json.dumps, [{"format": "dreamrsi.tree/1", "task": "t"}, attempt])))
    out = dreamrsi("tree", path).stdout
    assert f"{path}: t, 1 branch, 1 attempt (no caps recorded)" in out and "branch 0: 1 attempt, 0 failed" in out
    assert "after 1 round and 1 attempt\n" in dreamrsi("replay", path, "--policy", "early_stop").stdout
