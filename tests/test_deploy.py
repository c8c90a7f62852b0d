"""What is deployed: one rename changes it, a crash never does by half, and rollback restores bytes."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.decision import RULES, Check, Decision, Named, Settings
from dreamrsi.deploy import Deployment
from dreamrsi.freeze import freeze
from dreamrsi.guards import Frozen, frozen_numbers, kill, rollback_reasons
from dreamrsi.suite import Suite
from gate_fixtures import REFINE, STOP, World, climber, world_tree
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures
from strategies import tree_of


def sha(content):
    return hashlib.sha256(content).hexdigest()


def decision(world, source=STOP, **changed):
    """A gate's decision in which every rule passed."""
    suite = Suite.load(world.suite)
    known = {
        "kind": "gate",
        "outcome": "promoted",
        "time": "2026-01-01T00:00:00+00:00",
        "suite": suite.sha256,
        "policy": Named("stop", sha(source)),
        "current": Named("refine", suite.current_sha256),
        "settings": Settings(width=4, steps=6, branches=4, beta1=0.02, beta2=0.01),
        "checks": tuple(Check(name, True, {"list": (1, 2)}, "") for name in RULES),
    }
    return Decision(**{**known, **changed})


@pytest.fixture
def place(tmp_path):
    """A world, and a deployment in which its current policy is deployed."""
    world = World(tmp_path / "world")
    deployment = Deployment(tmp_path / "deployment")
    deployment.start(Suite.load(world.suite))
    return SimpleNamespace(world=world, deployment=deployment, before=deployment.pointer_file.read_bytes())


def promote(place, **changed):
    decided = decision(place.world, **changed)
    return place.deployment.promote(decided, place.deployment.record(decided), place.world.policy, place.world.suite)


def test_a_deployment_starts_with_what_runs_already(place):
    pointer = place.deployment.pointer()
    assert pointer.policy == Named("refine", sha(REFINE)) and pointer.previous is None and pointer.decision == 1
    assert place.deployment.source(pointer) == REFINE
    assert pointer.frozen == Frozen(24, 9.2, 4, (), 0.02)
    with pytest.raises(d.UserError, match="a gate replaces it"):
        place.deployment.start(Suite.load(place.world.suite))


def test_what_was_promoted_is_deployed_with_its_settings(place):
    promote(place, settings=Settings(width=3, steps=5, branches=4, beta1=0.1, beta2=0.2))
    pointer = Deployment(place.deployment.folder).pointer()
    assert pointer.policy == Named("stop", sha(STOP)) and place.deployment.source(pointer) == STOP
    assert pointer.settings.width == 3 and pointer.decision == 2 and pointer.previous == sha(place.before)


def test_rollback_restores_the_exact_bytes_however_often(place):
    states = [place.before]
    for number in range(3):
        source = STOP + b"# %d\n" % number
        place.world.policy.write_bytes(source)
        now = place.deployment.pointer()
        promote(place, policy=Named(f"stop{number}", sha(source)), current=now.policy)
        states.append(place.deployment.pointer_file.read_bytes())
    assert len(set(states)) == 4
    for state in states[-2::-1]:
        place.deployment.roll_back(["the round was worse"])
        assert place.deployment.pointer_file.read_bytes() == state
        place.deployment.pointer()
    with pytest.raises(d.UserError, match="is the first policy here"):
        place.deployment.roll_back(["again"])
    last = place.deployment.decisions()[-1]
    assert (last.kind, last.outcome, last.fired) == ("rollback", "rolled back", ("the round was worse",))
    assert (last.policy.name, last.current.name) == ("stop0", "refine")


def unchanged(place, match, **changed):
    files = {path: path.read_bytes() for path in (place.deployment.pointer_file,)}
    with pytest.raises(d.UserError, match=match):
        promote(place, **changed)
    assert {path: path.read_bytes() for path in files} == files


def test_a_candidate_that_changed_after_it_was_judged_is_not_deployed(place):
    place.world.policy.write_bytes(STOP + b"\n")
    unchanged(place, "changed after it was judged")


def test_a_suite_that_changed_after_the_judgement_deploys_nothing(place):
    decided = decision(place.world)
    place.world.reseal(last=1)
    number = place.deployment.record(decided)
    with pytest.raises(d.UserError, match="is not the suite"):
        place.deployment.promote(decided, number, place.world.policy, place.world.suite)
    assert place.deployment.pointer_file.read_bytes() == place.before


def test_only_a_decision_that_promotes_and_is_on_record_deploys(place):
    failed = tuple(Check(name, name != "coverage", {}, "") for name in RULES)
    unchanged(place, "did not promote", checks=failed)
    unchanged(place, "did not promote", checks=())
    unchanged(place, "did not promote", kind="first")
    unchanged(place, "another policy was deployed meanwhile", current=Named("x", "0" * 64))
    number = place.deployment.record(decision(place.world, checks=failed))
    with pytest.raises(d.UserError, match="is another one"):
        place.deployment.promote(decision(place.world), number, place.world.policy, place.world.suite)
    with pytest.raises(d.UserError, match="cannot be read"):
        place.deployment.promote(decision(place.world), 99, place.world.policy, place.world.suite)
    assert place.deployment.pointer_file.read_bytes() == place.before


def test_nothing_is_promoted_where_nothing_is_deployed(place, tmp_path):
    empty = Deployment(tmp_path / "empty")
    decided = decision(place.world)
    with pytest.raises(d.UserError, match="nothing is deployed yet"):
        empty.promote(decided, empty.record(decided), place.world.policy, place.world.suite)
    with pytest.raises(d.UserError, match="nothing is deployed"):
        empty.roll_back(["x"])
    assert empty.pointer() is None


def test_what_was_tampered_with_is_found_and_not_deployed(place):
    promote(place)
    after = place.deployment.pointer_file.read_bytes()
    old = place.deployment.folder / "policies" / f"{sha(REFINE)}.py"
    old.write_bytes(REFINE + b"#")
    with pytest.raises(d.UserError, match="was changed since it was deployed"):
        place.deployment.roll_back(["x"])
    old.write_bytes(REFINE)
    (earlier,) = (place.deployment.folder / "pointers").iterdir()
    earlier.write_bytes(place.before.replace(b"refine", b"refuse"))
    with pytest.raises(d.UserError, match="was changed since"):
        place.deployment.roll_back(["x"])
    assert place.deployment.pointer_file.read_bytes() == after
    (place.deployment.folder / "policies" / f"{sha(STOP)}.py").write_bytes(STOP + b"#")
    with pytest.raises(d.UserError, match="was changed since"):
        place.deployment.pointer()
    earlier.write_bytes(place.before)
    place.deployment.roll_back(["its file is damaged"])  # which needs nothing of what is deployed but the pointer
    assert place.deployment.pointer_file.read_bytes() == place.before
    place.deployment.pointer_file.write_bytes(place.before[:-9])
    with pytest.raises(d.UserError, match="is damaged"):
        place.deployment.pointer()


def test_two_at_once_are_locked_out(place):
    with place.deployment.lock("gate"):
        with (
            pytest.raises(d.UserError, match="another gate is running"),
            Deployment(place.deployment.folder).lock("gate"),
        ):
            pass
    with place.deployment.lock("gate"):
        pass


CRASH = """
import os, signal, sys
from pathlib import Path

import msgspec

from dreamrsi.decision import Decision
from dreamrsi.deploy import Deployment

folder, policy, suite, decided, at, before, what = sys.argv[1:]
deployment = Deployment(folder)
calls = 0


def counted(name):
    real = getattr(os, name)

    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == int(at) and before == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if calls == int(at):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, call)


for name in ("replace", "fsync"):  # every file that is written is synced, then renamed
    counted(name)
with deployment.lock("gate"):
    if what == "promote":
        decision = msgspec.json.decode(Path(decided).read_bytes(), type=Decision)
        deployment.promote(decision, deployment.record(decision), policy, suite)
    else:
        deployment.roll_back(["test"])
"""


def crash(place, tmp_path, at, when, what):
    """Run it in a process that kills itself at a step; return whether it got through."""
    decided = tmp_path / "decided.json"
    decided.write_bytes(decision(place.world).json())
    files = [place.deployment.folder, place.world.policy, place.world.suite, decided]
    command = [sys.executable, "-c", CRASH, *map(str, files), str(at), when, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_between_decision_and_pointer_change_leaves_the_old_policy_deployed(place, tmp_path, when):
    killed = 0
    while not crash(place, tmp_path, killed + 1, when, "promote"):
        killed += 1
        now = place.deployment.pointer_file.read_bytes()
        pointer = place.deployment.pointer()  # whole, and its policy is there
        if now != place.before:
            break
        assert pointer.policy.name == "refine" and place.deployment.source(pointer) == REFINE
    # record.md, record.json, policy, previous pointer, pointer: a sync and a rename each
    assert killed == 10
    assert place.deployment.pointer().policy.name == "stop"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_during_a_rollback_leaves_one_of_both_pointers_whole(place, tmp_path, when):
    promote(place)
    after = place.deployment.pointer_file.read_bytes()
    killed = 0
    while not crash(place, tmp_path, killed + 1, when, "rollback"):
        killed += 1
        now = place.deployment.pointer_file.read_bytes()
        assert now in (place.before, after)
        place.deployment.pointer()
        if now == place.before:
            break
        assert now == after
    assert killed == 6 and place.deployment.pointer_file.read_bytes() == place.before


# the guards of a live round

FROZEN = Frozen(24, 9.0, 4, (6,), 0.02)


@given(st.integers(0, 60), st.integers(0, 30))
def test_a_live_round_never_makes_more_calls_than_the_ceiling(calls, batch):
    assert (kill(calls, FROZEN, batch) is None) == (calls < 24 and calls + batch <= 24)
    assert kill(calls, None, batch) is not None


def test_a_kill_says_why():
    assert kill(24, FROZEN) == "24 calls were made, and the ceiling is 24"
    assert kill(20, FROZEN, 5) == "the next batch would make 25 calls, and the ceiling is 24"


def round_with(best, branch, branches=8):
    return tree_of([[1.0, best] if number == branch else [1.0, 1.5] for number in range(branches)])


@pytest.mark.parametrize(
    ("tree", "fired"),
    [
        (round_with(9.0, 3), []),
        (round_with(8.83, 0), []),
        (round_with(8.81, 0), ["quality 8.81 is more than 2 percent below the last round's 9"]),
        (round_with(9.5, 6), []),
        (round_with(9.5, 4), ["the best attempt sits on branch 4, which the last round never opened (4 were)"]),
        (round_with(1.6, 7), ["quality", "branch 7"]),
        (tree_of([[None]]), ["no attempt of the round has a score"]),
    ],
)
def test_a_round_is_rolled_back_for_lost_quality_or_a_winner_off_the_map(tree, fired):
    found = rollback_reasons(tree, FROZEN)
    assert len(found) == len(fired) and all(part in said for part, said in zip(fired, found, strict=True))


def test_without_frozen_numbers_a_round_is_rolled_back():
    assert rollback_reasons(round_with(9.9, 0), None) == ("the numbers of the last frozen round are missing",)


def test_the_frozen_numbers_are_those_of_the_last_round_and_of_the_winners_that_coverage_requires(tmp_path):
    world = World(tmp_path / "w")
    chains = [[4.0]] * 5 + [climber(9.7)]
    late = tmp_path / "late.jsonl"
    tree_of(chains, steps=6, branches=8, width=8).save(late)
    last = tmp_path / "last.jsonl"
    world_tree(1, 9.5).save(last)
    suite = freeze([late, *world.trees[:1], last], world.current, tmp_path / "s", beta1=0.02, beta2=0.01)
    assert frozen_numbers(suite) == Frozen(24, 9.5, 4, (5,), 0.02)
    suite = freeze([late, *world.trees[:2], last], world.current, tmp_path / "s2", beta1=0.02, beta2=0.01)
    assert frozen_numbers(suite).required == ()


def test_a_killed_round_is_on_record(place):
    number = place.deployment.killed("24 calls were made, and the ceiling is 24")
    assert number == 2 and place.deployment.decisions()[-1].outcome == "killed"
    text = (place.deployment.folder / "decisions" / "0002.md").read_text()
    assert "the ceiling is 24" in text and "refine killed" in text
    record = json.loads((place.deployment.folder / "decisions" / "0002.json").read_text())
    assert record["format"] == "dreamrsi.decision/1" and record["policy"]["sha256"] == sha(REFINE)
    assert msgspec.json.decode(json.dumps(record), type=Decision).fired
