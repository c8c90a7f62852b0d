"""The gate: a promotion, the rules ``frozen``, ``sound`` and ``log``, and what holds a decision together.

For each rule there is a world in which it alone fails, and one in which its evidence is missing. Those of the other
rules are in ``test_gate_rules.py`` and ``test_gate_shadow_review.py``.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.decision import RULES, Check, Decision, Named, Settings, decode, diff_text
from dreamrsi.deploy import Deployment
from dreamrsi.rules import CHECKS
from dreamrsi.suite import SUMS, Suite
from gate_fixtures import (
    LOSER,
    NARROW,
    REFINE,
    SLEEPS,
    STOP,
    climber,
    failures,
    make_world,  # noqa: F401 - the fixture ``world``
    reason,
    usual,
    world_tree,
)
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401 - fixtures
from strategies import recording, tree_of


def test_a_candidate_that_holds_every_rule_is_promoted(world):
    decision = world().gate()
    assert failures(decision) == [] and decision.promoted and decision.outcome == "promoted"
    assert [check.name for check in decision.checks] == list(RULES)
    assert decision.check("gain").evidence["means"] == [
        {"policy": "candidate", "V": pytest.approx(9.1 - 0.02 * 15 + 0.01 * 2.5), "quality": 9.1, "attempts": 15},
        {"policy": "current", "V": pytest.approx(9.1 - 0.02 * 24 + 0.01 * 4), "quality": 9.1, "attempts": 24},
    ]


# frozen


def test_only_frozen_fails_where_the_current_policy_is_not_the_pinned_one(world):
    made = world()
    made.current.write_bytes(REFINE + b"# a comment\n")
    decision = made.gate()
    assert failures(decision) == ["frozen"] and "pinned in the suite" in reason(decision, "frozen")


def deployed(made, **settings):
    """The pointer of a deployment of a world's current policy, with other settings."""
    pointer = Deployment(made.folder / "live").start(Suite.load(made.suite))
    return msgspec.structs.replace(pointer, settings=msgspec.structs.replace(pointer.settings, **settings))


def test_only_frozen_fails_where_another_policy_is_deployed(world):
    made = world()
    pointer = deployed(made)
    assert made.gate(deployed=pointer).promoted
    decision = made.gate(deployed=msgspec.structs.replace(pointer, policy=Named("x", "0" * 64)))
    assert failures(decision) == ["frozen"] and "deployed is 000000000000" in reason(decision, "frozen")


def test_a_policy_that_is_deployed_otherwise_than_the_suite_says_is_not_what_was_compared(world):
    made = world()
    decision = made.gate(deployed=deployed(made, width=5))
    assert failures(decision) == ["frozen", "review"] and "width: 5 -> 4" in reason(decision, "frozen")


def test_a_cost_term_that_changed_by_freezing_anew_needs_a_reviewer_too(world):
    made = world()
    pointer = deployed(made, beta1=0.03)
    decision = made.gate(deployed=pointer)
    assert failures(decision) == ["review"] and "beta1: 0.03 -> 0.02" in reason(decision, "review")
    assert made.gate(deployed=pointer, reviewer="R. Reader", diff_sha256=decision.diff_sha256).promoted


def test_only_frozen_fails_where_the_current_policy_is_missing(world):
    made = world()
    made.current.unlink()
    decision = made.gate()
    assert failures(decision) == ["frozen"] and "cannot be read" in reason(decision, "frozen")


@pytest.mark.parametrize("lost", [SUMS, "suite.json", "current.py", "trees/000-tree-0.jsonl"])
def test_nothing_passes_on_a_suite_that_lacks_a_file(world, lost):
    made = world()
    (made.suite / lost).unlink()
    decision = made.gate()
    assert failures(decision) == list(RULES) and lost.split("/")[-1] in reason(decision, "frozen")
    assert not decision.promoted and "frozen failed" in reason(decision, "coverage")


def test_nothing_passes_where_there_is_no_suite(world):
    assert failures(world().gate(suite="nowhere")) == list(RULES)


def test_limits_that_were_loosened_in_a_suite_are_refused(world):
    made = world()
    made.reseal(max_attempts=0.99)
    assert "may be made stricter" in reason(made.gate(), "frozen")


# sound

REMEMBERS = b"""
from dreamrsi.policies import EarlyStop

episodes = 0


class Policy(EarlyStop):
    name = "remembers"

    def start(self, width):
        global episodes
        super().start(width)
        episodes += 1
        self.strikes = 2 if episodes == 1 else 3
"""

DRAWS = b"""
import os, random

from dreamrsi.policies import EarlyStop


class Policy(EarlyStop):
    name = "draws"

    def choose(self, prefix):
        batch = super().choose(prefix)
        random.Random(os.urandom(8)).shuffle(batch)
        return batch
"""


@pytest.mark.parametrize("source", [REMEMBERS, DRAWS], ids=["remembers", "draws"])
def test_only_sound_fails_for_a_candidate_that_chooses_otherwise_in_a_fresh_process(world, source):
    decision = world(policy=source).gate()
    assert failures(decision) == ["sound"] and "chose otherwise in a fresh process" in reason(decision, "sound")


def test_a_current_policy_that_remembers_is_found_too(world):
    source = REMEMBERS.replace(b"EarlyStop", b"ParallelRefine").replace(
        b"self.strikes = 2 if episodes == 1 else 3", b"self._first = 4 if episodes == 1 else 3"
    )
    assert "sound" in failures(world(current=source).gate())


def test_no_candidate_no_promotion(world):
    made = world()
    made.policy.unlink()
    decision = made.gate()
    assert failures(decision) == list(RULES)[1:] and "cannot be read" in reason(decision, "sound")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"class Policy:\n  def", "line 2"),
        (b"raise RuntimeError('no')", "no"),
        (b"while True: pass", "loading"),
        (b"\xff\xfe", "candidate cannot be used"),
        (SLEEPS, "choose()"),
        (policy_source("1 / 0"), "ZeroDivisionError"),
        (policy_source("return [99]"), "branch 99"),
        (policy_source("import os; os._exit(0)"), "ended"),
    ],
    ids=["syntax", "raises", "hangs at load", "bytes", "hangs", "crashes", "illegal", "exits"],
)
def test_a_candidate_that_fails_is_refused_by_name_and_nothing_that_needs_it_passes(world, source, why):
    decision = world(policy=source).gate()
    assert why in reason(decision, "sound")
    assert not {"gain", "coverage", "betas", "shadow", "review"} - set(failures(decision))


def test_a_candidate_that_fails_in_shadow_alone_is_refused(world):
    broken = b"    def choose(self, prefix):\n        return [9] if prefix.root else super().choose(prefix)\n"
    some, _ = usual()
    decision = world(policy=STOP + broken, trees=some, shadow=[world_tree(1, 9.3), world_tree(3, 9.4, root=1.0)]).gate()
    assert failures(decision) == ["sound", "shadow"] and "in shadow" in reason(decision, "sound")


# log


def test_only_log_fails_where_the_replay_does_not_give_the_log(world):
    some, _ = usual()
    wide = tree_of([climber(9.1), LOSER, LOSER, LOSER, LOSER], steps=6, branches=5, width=4)
    decision = world(trees=[some[0], wide, some[2]]).gate()
    assert failures(decision) == ["log"]
    assert reason(decision, "log") == "tree-1: logged are 30 attempts, best 9.1; replayed 24 attempts, best 9.1"


def test_log_fails_where_count_and_best_agree_but_the_recorded_batches_do_not(world):
    some, _ = usual()
    one_by_one = d.replay(d.policies.GreedyBest(), some[1], 4)
    decision = world(trees=[some[0], recording(some[1], one_by_one), some[2]]).gate()
    assert len(one_by_one.order) == 24 and failures(decision) == ["log"]


def test_only_log_fails_where_no_tree_is_a_log_of_the_current_policy(world):
    decision = world(others=(0, 1, 2)).gate()
    assert failures(decision) == ["log"] and "no tree of the suite was recorded by" in reason(decision, "log")


def test_what_the_current_policy_did_on_another_s_tree_has_to_stay_the_same(world):
    made = world(others=(1,))
    assert made.gate().promoted
    entries = [msgspec.structs.replace(e, attempts=23) if not e.own else e for e in freeze_entries(made)]
    made.reseal(trees=tuple(entries))
    decision = made.gate()
    assert failures(decision) == ["log"] and "logged are 23 attempts" in reason(decision, "log")


def freeze_entries(made):
    return Suite.load(made.suite).manifest.trees


def test_a_claim_in_the_suite_does_not_replace_the_log_itself(world):
    made = world()
    made.reseal(trees=tuple(msgspec.structs.replace(entry, attempts=1, best=99.0) for entry in freeze_entries(made)))
    rows = made.gate().check("log").evidence["trees"]
    assert [row["logged attempts"] for row in rows] == [24, 24, 24]


# what holds a decision together


def test_a_rule_that_raises_fails(world, monkeypatch):
    def broken(evidence):
        raise ZeroDivisionError("oops")

    for name in CHECKS:
        monkeypatch.setitem(CHECKS, name, broken)
        decision = world().gate()
        assert failures(decision) == [name] and "ZeroDivisionError: oops" in reason(decision, name)
        monkeypatch.undo()


@given(st.permutations(list(RULES)), st.sets(st.sampled_from(list(RULES)), max_size=3), st.integers(0, 8))
def test_only_a_complete_decision_whose_rules_all_passed_promotes(order, failed, kept):
    checks = tuple(Check(name, name not in failed, {}, "") for name in order[:kept])
    decision = Decision(kind="gate", outcome="promoted", time="", checks=checks)
    assert decision.promoted == (order[:kept] == list(RULES) and not failed)


def test_a_record_is_read_back_and_says_what_a_person_needs(world):
    decision = world(policy=NARROW.replace(b"width=4", b"width=2")).gate()
    again = decode(decision.json())
    assert again.json() == decision.json() and again.promoted is False
    text = decision.markdown()
    for said in (decision.diff_sha256, decision.suite, "**FAILED**", "| tree-2 | 3 | 5 | 9.2 | 0 | never opened", "+"):
        assert said in text


def test_what_a_policy_is_called_or_holds_cannot_forge_the_record(world):
    source = STOP.replace(b"'stop'", b"'a | b\\n# promoted\\x1b[31m'") + "# ```\n# \u202e reversed\n".encode()
    decision = world(policy=source).gate()
    text = decision.markdown()
    assert "\n# promoted" not in text and "\x1b" not in text and "\u202e" not in text
    assert "````diff" in text and "\\u202e" in text


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_different_sources_have_different_diffs(one, other):
    at = Settings(width=1)
    assert (diff_text(b"x", one, at, at) == diff_text(b"x", other, at, at)) == (one == other)
