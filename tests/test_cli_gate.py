"""The commands around the gate as a user types them: exit codes, what is printed, and what is left on disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dreamrsi.console import Console
from dreamrsi.decision import RULES, decode
from dreamrsi.deploy import Deployment
from gate_fixtures import REFINE, STOP, World, usual
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures

ROOT = Path(__file__).parent.parent
NARROW = (
    STOP.replace(b"'stop'", b"'narrow'") + b"    def __init__(self):\n        super().__init__(width=2, bootstrap=2)\n"
)


@pytest.fixture(autouse=True)
def in_the_folder_of_the_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "world")


def shadows(world):
    return [part for path in world.shadow for part in ("--shadow", path)]


def gate_of(world, *more, policy=None):
    policy = policy or world.policy
    return ["gate", world.suite, "--policy", policy, "--current", world.current, *shadows(world), *more]


def test_freeze_prints_the_settings_and_whether_the_log_is_reproduced(dreamrsi, world, tmp_path):
    done = dreamrsi(
        "suite", "freeze", *world.trees, "--policy", world.current, "-o", "s", "--beta1", 0.02, "--beta2", 0.01
    )
    assert done.returncode == 0 and not done.stderr
    for said in (
        "current policy refine, sha256",
        "width 4, steps 6, branches 4, beta1 0.02, beta2 0.01; K 3",
        "neighbourhood: beta1 0.01 to 0.04, beta2 0.005 to 0.02; margin for a tie 0.02",
        "ok      log       attempts and best of all 3 trees, 3 of them its own log",
    ):
        assert said in done.stdout
    assert dreamrsi("suite", "check", "s").stdout == done.stdout
    assert dreamrsi("suite", "freeze", *world.trees, "--policy", world.current, "-o", "s").returncode == 2


def test_a_log_that_is_not_reproduced_is_said_at_once(dreamrsi, world):
    done = dreamrsi("suite", "freeze", *world.trees, "--policy", world.policy, "-o", "s")
    assert done.returncode == 1
    assert "failed  log       tree-0: logged are 24 attempts, best 9; replayed 15 attempts, best 9" in done.stdout
    foreign = [part for path in world.trees[:2] for part in ("--other", path)]
    done = dreamrsi("suite", "freeze", *world.trees, "--policy", world.current, "-o", "s2", *foreign)
    assert done.returncode == 0 and "1 of them its own log" in done.stdout


def test_the_folder_of_a_run_stands_for_its_rounds(dreamrsi, world, tmp_path):
    some, _ = usual()
    for number, tree in enumerate(some, 1):
        tree.save(tmp_path / "run" / f"round-{number:02d}" / "tree.jsonl")
    done = dreamrsi("suite", "freeze", "run", "--policy", world.current, "-o", "s")
    assert done.returncode == 0 and "3 trees: round-01, round-02, round-03" in done.stdout
    assert "without round-01" in dreamrsi("suite", "freeze", "world", "--policy", world.current, "-o", "t").stderr


def test_a_promotion_exits_with_0_and_leaves_a_record_beside_the_suite(dreamrsi, world):
    done = dreamrsi(*gate_of(world))
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "promoted: stop against refine"
    assert [line.split()[:2] for line in lines[5:13]] == [["ok", name] for name in RULES]
    folder = world.folder / "suite-decisions" / "decisions"
    assert lines[13] == f"decision 1: {folder / '0001.md'}" and len(lines) == 14
    assert decode((folder / "0001.json").read_bytes()).promoted
    assert (folder / "0001.md").read_text().startswith("# gate: stop promoted\n")


def test_on_a_terminal_everything_is_folded_to_its_width(dreamrsi, world, monkeypatch):
    lines = []
    monkeypatch.setattr(Console, "of_stdout", lambda: Console(lambda text: lines.extend(text.split("\n")), width=80))
    dreamrsi("suite", "check", world.suite)
    dreamrsi("deploy", "live", "--suite", world.suite)
    dreamrsi(*gate_of(world))
    assert any(line.startswith("promoted: ") for line in lines) and any(" <- deployed" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_gate_takes_files_of_policies_and_no_names(dreamrsi, world):
    done = dreamrsi(*gate_of(world, policy="early_stop:strikes=1"))
    assert done.returncode == 2 and "early_stop:strikes=1: needs a FILE.py, not a name" in done.stderr
    done = dreamrsi("suite", "freeze", *world.trees, "--policy", "early_stop", "-o", "s")
    assert done.returncode == 2 and "early_stop: needs a FILE.py, not a name" in done.stderr


def test_a_refusal_exits_with_1_and_says_why_and_what_a_reviewer_has_to_read(dreamrsi, world):
    narrow = world.write("narrow.py", NARROW)
    done = dreamrsi(*gate_of(world, policy=narrow))
    assert done.returncode == 1 and done.stdout.startswith("refused: narrow against refine\n")
    record = decode((world.folder / "suite-decisions" / "decisions" / "0001.json").read_bytes())
    assert (
        f"a named reviewer is missing; the diff, which the decision shows, has the sha256 {record.diff_sha256}"
        in done.stdout
    )
    review = ["--reviewer", "R. Reader", "--diff-sha256", record.diff_sha256]
    again = dreamrsi(*gate_of(world, *review, policy=narrow))
    assert "ok      review    read by R. Reader (widest batch: 4 -> 2" in again.stdout


@pytest.mark.parametrize("colour", [False, True])
def test_a_long_reason_is_folded_beside_its_rule(capsys, colour):
    console = Console(print, width=60, colour=colour)
    console.sentence(f"  {console.status('failed', 6)}  betas     ", "word " * 20)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert lines[0].startswith("  failed  betas     word") and len(lines) > 2
    assert all(line.startswith(" " * 20 + "word") and len(line) <= 60 for line in lines[1:])


def test_json_is_the_record(dreamrsi, world):
    done = dreamrsi(*gate_of(world, "--json"))
    assert json.loads(done.stdout)["outcome"] == "promoted"
    assert done.stdout.encode() == (world.folder / "suite-decisions" / "decisions" / "0001.json").read_bytes()


@pytest.mark.parametrize("lost", ["suite", "policy", "current", "shadow"])
def test_a_path_that_is_not_there_exits_with_2_and_decides_nothing(dreamrsi, world, lost):
    paths = {"suite": world.suite, "policy": world.policy, "current": world.current, "shadow": world.shadow[0]}
    paths[lost] = world.folder / "nowhere"
    done = dreamrsi("gate", paths.pop("suite"), *(part for name, path in paths.items() for part in (f"--{name}", path)))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "nowhere: is not there" in done.stderr
    assert not list(world.folder.glob("*-decisions"))


def test_a_changed_suite_exits_with_1_and_names_the_file(dreamrsi, world):
    (world.suite / "current.py").write_bytes(STOP)
    done = dreamrsi(*gate_of(world))
    assert done.returncode == 1 and "current.py was changed" in done.stdout


def test_deploy_gate_and_rollback(dreamrsi, world):
    done = dreamrsi("deploy", "live")
    assert done.returncode == 2 and "start with dreamrsi deploy live --suite SUITE" in done.stderr
    assert dreamrsi(*gate_of(world, "--deployment", "live")).returncode == 2
    done = dreamrsi("deploy", "live", "--suite", world.suite)
    assert done.returncode == 0 and done.stdout.startswith("deployed: refine, sha256")
    before = Deployment("live").pointer_file.read_bytes()
    narrow = world.write("narrow.py", NARROW)
    done = dreamrsi(*gate_of(world, "--deployment", "live", policy=narrow))
    assert done.returncode == 1 and done.stdout.endswith("deployed: the current policy, as before\n")
    assert Deployment("live").pointer_file.read_bytes() == before
    done = dreamrsi(*gate_of(world, "--deployment", "live"))
    assert done.returncode == 0 and done.stdout.endswith("deployed: the candidate\n")
    assert Deployment("live").source(Deployment("live").pointer()) == STOP
    assert "deployed is" in dreamrsi(*gate_of(world, "--deployment", "live")).stdout  # the suite is of another policy
    done = dreamrsi("rollback", "live", "--reason", "worse than it looked")
    assert done.returncode == 0 and done.stdout.startswith("deployed again: refine, sha256")
    assert Deployment("live").pointer_file.read_bytes() == before
    shown = dreamrsi("deploy", "live").stdout
    assert "a live round: at most 24 calls" in shown and "stop rolled back (worse than it looked)" in shown
    assert "narrow refused (" in shown and "refine deployed  <- deployed" in shown
    assert dreamrsi("rollback", "live", "--reason", "again").returncode == 2


def test_two_gates_at_once_are_locked_out(dreamrsi, world):
    with Deployment(world.folder / "suite-decisions").lock("gate"):
        command = [sys.executable, "-m", "dreamrsi", *map(str, gate_of(world))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "another gate is running" in done.stderr and not done.stdout
    assert not (world.folder / "suite-decisions" / "decisions").exists()
    assert world.current.read_bytes() == REFINE


@pytest.mark.slow
def test_the_walk_of_the_docs_does_what_it_says(tmp_path):
    text = (ROOT / "docs" / "shadow-in-a-month.md").read_text()
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, flags=re.S)
    assert [language for language, _ in blocks].count("sh") == 7
    (tmp_path / "synthetic").symlink_to(ROOT / "synthetic")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    said = []
    for language, code in blocks:
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "branch 6 held the winner (9.146, attempt 10): never opened" in said[2]
    assert said[2].count("refused: ") == 2 and said[3].startswith("promoted: stop against refine")
    assert "deployed: the candidate" in said[4]
    assert "  has to be rolled back: quality 1.4" in said[5] and "  deployed again: refine (decision 3)\n" in said[5]
    assert said[6] == "" and said[7].startswith("deployed: refine") and "stop rolled back (" in said[7]


def test_the_miss_that_the_docs_show_is_the_one_that_is_printed(dreamrsi, tmp_path):
    current = tmp_path / "current.py"
    current.write_bytes(REFINE)
    narrow = tmp_path / "narrow.py"
    narrow.write_bytes(REFINE + b"\n    def __init__(self):\n        super().__init__(width=4)\n")
    history = sorted((ROOT / "synthetic" / "history").glob("*.jsonl"))
    assert dreamrsi("suite", "freeze", *history, "--policy", current, "-o", "s").returncode == 0
    printed = dreamrsi("gate", "s", "--policy", narrow, "--current", current).stdout
    shown = re.findall(r"^    (failed  coverage.*\n.*)$", (ROOT / "docs" / "gate.md").read_text(), flags=re.M)[0]
    assert [line.strip() for line in shown.splitlines()] == [
        line.strip() for line in printed.splitlines() if "coverage" in line or "late-6b" in line
    ]


def test_the_checks_of_the_docs_are_those_of_the_gate():
    text = (ROOT / "docs" / "gate.md").read_text().split("## The checks")[1]
    rows = re.findall(r"^\| `(\w+)`(?: \(\d\))? \|", text, flags=re.M)
    assert rows == list(RULES)
