"""Gated live rounds: what kills them, what takes their policy back, and that a crash leaves nothing of it undone."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dreamrsi as d
from dreamrsi.decision import RULES, Check, Decision, Named
from dreamrsi.deploy import Deployment
from dreamrsi.freeze import freeze
from dreamrsi.gated import gated_run
from dreamrsi.loop import Watch
from dreamrsi.suite import Suite
from gate_fixtures import REFINE
from loop_fixtures import tree_content
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures
from strategies import tree_of
from toy_task import Toy, climb

CANDIDATE = REFINE.replace(b"'refine'", b"'candidate'")
LOW = [0.1, 0.2, 0.3]  # a branch of a round that anything is better than
SEED = 5


def deployed(folder, last, before=None):
    """A deployment: refine, and then a candidate held to the numbers of a round with these branches."""
    folder.mkdir()
    paths = []
    for number, chains in enumerate([before or last, last]):
        paths.append(folder / f"tree-{number}.jsonl")
        tree_of([[score + number / 100 for score in chain] for chain in chains]).save(paths[-1])
    current, candidate = folder / "current.py", folder / "candidate.py"
    current.write_bytes(REFINE)
    candidate.write_bytes(CANDIDATE)
    suite = freeze(paths, current, folder / "suite", width=3, branches=4, steps=3, beta1=0.1, beta2=0.1, last=2)
    place = Deployment(folder / "live")
    place.start(suite)
    before = place.pointer_file.read_bytes()
    decision = Decision(
        kind="gate",
        outcome="promoted",
        time="2026-01-01T00:00:00+00:00",
        suite=suite.sha256,
        policy=Named("candidate", hashlib.sha256(CANDIDATE).hexdigest()),
        current=Named("refine", suite.current_sha256),
        settings=suite.manifest.settings,
        checks=tuple(Check(name, True, {}, "") for name in RULES),
    )
    place.promote(decision, place.record(decision), candidate, folder / "suite")
    return SimpleNamespace(place=place, refine=before, candidate=place.pointer_file.read_bytes(), folder=folder)


class Told(Watch):
    def __init__(self):
        self.said = []

    def guarded(self, said):
        self.said += said


def run(world, rounds=1, watch=None, **settings):
    given = {"workers": 2, "timeout": 60.0, "seed": SEED, **settings}
    return gated_run(Toy(climb), world.place.folder, world.folder / "run", rounds=rounds, watch=watch, **given)


def kinds(world):
    return [(decision.kind, decision.outcome) for decision in world.place.decisions()[2:]]


def verdict(world, number=1):
    return json.loads((world.folder / f"run/round-{number:02}/gated.json").read_bytes())


def replays(world, found):
    """Whether the policy of every round, replayed on its record, picks what it picked."""
    for round_ in found.found.rounds:
        tree = d.Tree.load(world.folder / f"run/round-{round_.number:02}/tree.jsonl")
        again = d.replay(d.policies.ParallelRefine(), tree, 3)
        if again.picks != tree.picks or again.attempts != len(tree):
            return False
    return True


@pytest.fixture(name="calm", scope="module")
def calm_run(tmp_path_factory):
    """A round in which no guard fires."""
    world = deployed(tmp_path_factory.mktemp("calm") / "world", [LOW] * 3)
    watch = Told()
    return world, run(world, watch=watch), watch.said


def test_a_round_within_its_numbers_changes_nothing(calm):
    world, found, said = calm
    (round_,) = found.found.rounds
    assert round_.name == "candidate" and round_.policy.source == CANDIDATE and len(round_.tree) == 9
    assert found.verdicts[0].killed is None and found.verdicts[0].fired == ()
    assert world.place.pointer_file.read_bytes() == world.candidate and kinds(world) == []
    assert said == [f"no guard fired: 9 of at most 9 calls, best {round_.tree.best:.6g} after 0.31"]
    assert (world.folder / "run/round-01/deployed.json").read_bytes() == world.candidate
    assert replays(world, found)


@pytest.mark.parametrize(
    ("last", "calls", "why"),
    [
        ([LOW, LOW, LOW[:2]], 6, "the next batch would make 9 calls, and the ceiling is 8"),
        ([LOW[:2]] * 3, 6, "6 calls were made, and the ceiling is 6"),
        ([LOW[:1], LOW[:1]], 0, "the next batch would make 3 calls, and the ceiling is 2"),
    ],
)
def test_the_ceiling_ends_a_round_before_the_batch_that_goes_beyond_it(tmp_path, last, calls, why):
    world = deployed(tmp_path / "world", last)
    found = run(world)
    (round_,) = found.found.rounds
    assert found.verdicts[0].killed == why and len(round_.tree) == calls
    assert ("kill", "killed") in kinds(world) and verdict(world)["killed"] == why
    assert replays(world, found) and not d.Tree.load(world.folder / "run/round-01/tree.jsonl").branches[4:]
    if calls:  # a kill alone takes nothing back
        assert kinds(world) == [("kill", "killed")] and world.place.pointer_file.read_bytes() == world.candidate
    else:  # nothing was scored
        assert found.verdicts[0].fired == ("no attempt of the round has a score",)
        assert world.place.pointer_file.read_bytes() == world.refine
    again = run(world)
    assert tree_content(again.found.rounds[0].tree) == tree_content(round_.tree) and again.verdicts == found.verdicts
    assert len(kinds(world)) == 1 + (not calls)  # and nothing is decided twice


def test_a_drop_in_quality_takes_the_policy_back_and_the_next_round_runs_under_the_one_before(tmp_path):
    world = deployed(tmp_path / "world", [[99.0] * 3] * 3)
    watch = Told()
    with pytest.raises(d.UserError, match="refine has to go .*first policy here and there is none to go back to"):
        run(world, rounds=3, watch=watch)  # round 2, under refine, drops as much
    assert world.place.pointer_file.read_bytes() == world.refine
    assert kinds(world) == [("rollback", "rolled back")]
    (fired,) = world.place.decisions()[-1].fired
    assert "run, round 1: quality" in fired and "more than 2 percent below the last round's 99.01" in fired
    assert watch.said[1] == "deployed again: refine (decision 3)" and "has to be rolled back" in watch.said[0]
    policies = [(world.folder / f"run/round-{number:02}/policy.py").read_bytes() for number in (1, 2)]
    assert policies == [CANDIDATE, REFINE] and not (world.folder / "run/round-03").exists()
    with pytest.raises(d.UserError, match="none to go back to"):  # the same command says the same
        run(world, rounds=3)


def test_a_best_attempt_where_the_last_round_never_was_takes_the_policy_back_unless_required(tmp_path, calm):
    branch = calm[1].found.rounds[0].tree.best_attempt.branch
    assert branch > 0
    few = [[0.1] * (9 // branch + 1)] * branch  # enough calls on the branches before that one
    world = deployed(tmp_path / "fires", few)
    found = run(world)
    assert found.verdicts[0].fired == (
        f"the best attempt sits on branch {branch}, which the last round never opened ({branch} were) "
        "and the gate did not require",
    )
    assert kinds(world) == [("rollback", "rolled back")] and world.place.pointer_file.read_bytes() == world.refine
    held = [*few, [0.2]]  # the tree before had its winner there, so the gate required that branch
    world = deployed(tmp_path / "required", few, before=held)
    assert run(world).verdicts[0].fired == ()
    assert kinds(world) == [] and world.place.pointer_file.read_bytes() == world.candidate


def test_a_pointer_that_was_changed_by_hand_is_refused(tmp_path):
    world = deployed(tmp_path / "world", [LOW] * 3)
    more = json.loads(world.candidate)
    more["frozen"]["calls"] = 1000
    world.place.pointer_file.write_text(json.dumps(more))
    with pytest.raises(d.UserError, match="was changed by hand"):
        run(world)
    assert not (world.folder / "run").exists()

    class Meddler(Watch):
        def guarded(self, said):
            world.place.pointer_file.write_text(json.dumps(more))

    world.place.pointer_file.write_bytes(world.candidate)
    with pytest.raises(d.UserError, match="was changed by hand"):
        run(world, rounds=2, watch=Meddler())
    assert not (world.folder / "run/round-02/tree.jsonl").exists()
    world.place.roll_back(["it was changed"])
    assert world.place.pointer_file.read_bytes() == world.refine
    copy = world.folder / "run/round-01/deployed.json"
    copy.write_text(copy.read_text().replace('"calls": 9', '"calls": 10'))
    with pytest.raises(d.UserError, match=r"round-01/deployed.json: was changed by hand"):
        run(world)


def test_a_round_goes_on_only_under_the_pointer_that_it_was_begun_under(tmp_path):
    world = deployed(tmp_path / "world", [LOW] * 3)

    class Stop(Watch):
        def attempt(self, done, total, attempt):
            if done == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(world, watch=Stop())
    world.place.roll_back(["by hand"])
    with pytest.raises(d.UserError, match=r"was begun under candidate .*not what is deployed"):
        run(world)
    assert len(kinds(world)) == 1


def test_a_gate_and_a_gated_round_keep_each_other_out(tmp_path):
    world = deployed(tmp_path / "world", [LOW] * 3)
    with world.place.lock("gate"), pytest.raises(d.UserError, match="another gate or gated round is running"):
        run(world)

    class Gate(Watch):
        def attempt(self, done, total, attempt):
            with pytest.raises(d.UserError, match="another gate is running"), world.place.lock("gate"):
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(world, watch=Gate())


CRASH = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from dreamrsi.gated import gated_run
from dreamrsi.loop import Watch
from toy_task import Toy, climb

folder, last = Path(sys.argv[1]), sys.argv[2]
real = os.replace


def replace(source, target, **named):
    real(source, target, **named)
    if str(target).endswith(last):
        os.kill(os.getpid(), signal.SIGKILL)


class Killed(Watch):
    def attempt(self, done, total, attempt):
        if str(done) == last:
            os.kill(os.getpid(), signal.SIGKILL)


os.replace = replace
gated_run(Toy(climb), folder / "live", folder / "run", workers=2, timeout=60.0, seed={seed}, watch=Killed())
"""


def test_whatever_a_kill_leaves_undone_is_done_by_the_same_command(tmp_path):
    last = [[99.0] * 3, [99.0] * 3, [99.0]]  # seven calls: killed after six, and the quality drops
    whole = deployed(tmp_path / "whole", last)
    expected = run(whole)
    world = deployed(tmp_path / "world", last)
    script = tmp_path / "script.py"
    script.write_text(CRASH.format(tests=str(Path(__file__).parent), seed=SEED))
    kill, back = ("decisions/0003.md", "decisions/0003.json"), ("decisions/0004.md", "decisions/0004.json")
    steps = ["run/round-01/deployed.json", "2", "5", "gated.json", *kill, *back, "live/deployed.json", "nothing"]
    for step in steps:  # each goes on after the one before was killed, and is killed once this file is in place
        command = [sys.executable, str(script), str(world.folder), step]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == (0 if step == "nothing" else -signal.SIGKILL), (step, done.stderr)
        now = world.place.pointer_file.read_bytes()  # the exact bytes of one of both, at every moment
        assert now == (world.refine if step in steps[-2:] else world.candidate), step
    found = run(world)
    assert found.verdicts == expected.verdicts and found.verdicts[0].killed and found.verdicts[0].fired
    assert tree_content(found.found.rounds[0].tree) == tree_content(expected.found.rounds[0].tree)
    assert replays(world, found)
    # the rollback that was recorded and cut off is recorded again
    assert [kind for kind, _ in kinds(world)] == ["kill", "rollback", "rollback"]
    assert whole.place.pointer_file.read_bytes() == whole.refine


def test_the_command_says_what_fired_and_what_it_needs(dreamrsi, tmp_path):
    out = ["--out", tmp_path / "run"]
    refused = [
        (["--policy", "early_stop"], "--gated runs what is deployed"),
        (["--arm", "dream"], "--gated runs what is deployed"),
        ([], "nothing is deployed"),
    ]
    for arguments, message in refused:
        done = dreamrsi("run", "circle_packing:n=5", "--gated", tmp_path / "none", *arguments, *out)
        assert done.returncode == 2 and message in done.stderr and not (tmp_path / "run").exists()
    world = deployed(tmp_path / "world", [[99.0] * 3, [99.0] * 3, [99.0]])
    gated = ["run", "circle_packing:n=5", "--gated", world.place.folder, *out]
    done = dreamrsi(*gated, "--steps", "7")
    assert done.returncode == 2 and "steps is 7, and what is deployed was judged with 3" in done.stderr
    done = dreamrsi(*gated)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[0] == "round 1 of 1: candidate"
    assert "  killed: the next batch would make 9 calls, and the ceiling is 7" in lines
    assert any(line.startswith("  has to be rolled back: quality ") for line in lines)
    assert "  the kill is decision 3" in lines and "  deployed again: refine (decision 4)" in lines
    assert Suite.load(world.folder / "suite")  # nothing of the suite was touched
