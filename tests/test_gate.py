"""The gate: for each rule a world in which it alone fails, and one in which its evidence is missing."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.coverage import as_deployed, coverage, winners, workspaces_needed
from dreamrsi.decision import RULES, Check, Decision, Named, Settings, decode, diff_text
from dreamrsi.deploy import Deployment
from dreamrsi.freeze import freeze
from dreamrsi.gate import gate
from dreamrsi.rules import CHECKS, keeps_quality
from dreamrsi.suite import SUMS, Suite
from gate_fixtures import (
    CREEPER,
    LATE,
    LOSER,
    REFINE,
    SLEEPS,
    STOP,
    World,
    climber,
    failures,
    usual,
    world_tree,
)
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401 - fixtures
from strategies import policies, recording, tree_of, trees

SYNTHETIC = Path(__file__).parent.parent / "synthetic"


@pytest.fixture
def world(tmp_path):
    """Make a world; several in one test get folders of their own."""
    made = []

    def make(**kwargs):
        made.append(World(tmp_path / f"world-{len(made)}", **kwargs))
        return made[-1]

    return make


def reason(decision, name):
    return decision.check(name).reason


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


# gain


def test_only_gain_fails_where_fewer_than_a_fifth_of_the_attempts_are_saved(world):
    trees = [world_tree(w, t, losers=CREEPER) for w, t in ((0, 9.0), (2, 9.1), (3, 9.2))]
    decision = world(trees=trees).gate()
    assert failures(decision) == ["gain"]
    assert reason(decision, "gain") == "24 attempts a tree are more than 80 percent of 24"


def test_only_gain_fails_where_quality_is_worse_on_an_older_tree(world):
    some, _ = usual()
    missed = tree_of([climber(8.9), LOSER, LOSER, LATE], steps=6, branches=4, width=4)
    decision = world(trees=[missed, *some]).gate()
    assert failures(decision) == ["gain"] and "mean quality" in reason(decision, "gain")


def test_gain_and_betas_fail_where_the_suite_has_no_betas(world):
    made = world()
    made.reseal(settings=Settings(width=4, steps=6, branches=4))
    decision = made.gate()
    assert failures(decision) == ["gain", "betas"] and "not in the suite" in reason(decision, "gain")


# coverage


def test_only_coverage_fails_where_the_winner_was_on_two_branches_and_one_was_left(world):
    some, _ = usual()
    tie = tree_of([climber(9.0), LOSER, LOSER, LATE], steps=6, branches=4, width=4)
    decision = world(trees=[some[0], tie, some[2]]).gate()
    assert failures(decision) == ["coverage"]
    assert reason(decision, "coverage") == (
        "tree-1: branch 3 held the winner (9, attempt 5): opened, but left after attempt 2"
    )


def test_coverage_looks_at_the_last_k_trees_only(world):
    some, _ = usual()
    tie = tree_of([climber(9.0), LOSER, LOSER, LATE], steps=6, branches=4, width=4)
    assert world(trees=[tie, *some]).gate().promoted
    assert failures(world(trees=[tie, *some], last=4).gate()) == ["coverage"]


def test_only_coverage_fails_where_there_are_fewer_trees_than_it_looks_at(world):
    made = world()
    made.reseal(last=4)
    decision = made.gate()
    assert failures(decision) == ["coverage"] and "has 3 trees" in reason(decision, "coverage")
    made.reseal(last=0)
    assert failures(made.gate()) == ["coverage"]


def test_a_depth_that_does_not_reach_the_winner_is_a_miss(world):
    decision = world().gate(steps=5)
    assert "coverage" in failures(decision) and "left after attempt 4" in reason(decision, "coverage")


def test_workspaces_that_do_not_reach_the_winner_are_a_miss(world):
    decision = world().gate(branches=3)
    missed = "tree-2: branch 3 held the winner (9.2, attempt 5): never opened (3 of 4 branches were opened)"
    assert missed in reason(decision, "coverage")


def test_width_four_is_refused_on_the_late_branch_trees(tmp_path):
    for name, source in (("refine.py", REFINE), ("narrow.py", NARROW)):
        (tmp_path / name).write_bytes(source)
    history = sorted((SYNTHETIC / "history").glob("*.jsonl"))
    shadow = [SYNTHETIC / "heldout" / name for name in ("late-0.jsonl", "math.jsonl")]
    betas = {"beta1": synthetic.BETA1, "beta2": synthetic.BETA2}
    freeze(history, tmp_path / "refine.py", tmp_path / "suite", **betas)
    decision = gate(tmp_path / "suite", tmp_path / "narrow.py", tmp_path / "refine.py", shadow=shadow)
    check = decision.check("coverage")
    assert not decision.promoted and not check.passed
    late = "branch 6 held the winner ({}, attempt 10): never opened (4 of 8 branches were opened)"
    assert check.reason == f"late-6a: {late.format(9.146)}\nlate-6b: {late.format(9.1128)}"
    assert decision.check("sound").passed and decision.check("log").passed and decision.check("shadow").passed
    (tmp_path / "stop.py").write_bytes(STOP)
    assert gate(tmp_path / "suite", tmp_path / "stop.py", tmp_path / "refine.py", shadow=shadow).promoted


NARROW = REFINE.replace(b"    name = 'refine'\n", b"    def __init__(self):\n        super().__init__(width=4)\n")


@given(trees(), policies, st.integers(1, 5))
@settings(deadline=None, max_examples=150)
def test_a_winner_is_covered_exactly_if_the_episode_revealed_it(tree, policy, width):
    episode = d.replay(policy, tree, width)
    rows = coverage(tree, episode)
    assert [(row.branch, row.attempt) for row in rows] == winners(tree)
    assert {(r.branch, r.attempt) for r in rows if r.missed is None} == set(winners(tree)) & set(episode.order)
    best = max((a.score for a in tree if a.score is not None), default=None)
    holders = {a.branch for a in tree if a.score is not None and a.score == best}
    assert {branch for branch, _ in winners(tree)} == holders
    assert workspaces_needed(tree) == max(holders, default=-1) + 1


@given(trees(forks=False), policies, st.integers(1, 7), st.integers(1, 6), st.integers(1, 4))
@settings(deadline=None, max_examples=150)
def test_caps_cut_a_tree_to_what_a_run_with_them_could_have_seen(tree, policy, branches, steps, width):
    cut = as_deployed(tree, Settings(width=width, steps=steps, branches=branches))
    kept = [(a.branch, a.attempt, a.score) for a in tree if a.branch < branches and a.attempt < steps]
    assert [(a.branch, a.attempt, a.score) for a in cut] == kept
    assert cut.header.steps <= steps and cut.header.branches <= branches
    episode = d.replay(policy, cut, width)
    assert all(b < branches and a < steps for b, a in episode.order)
    assert as_deployed(tree, Settings(width=width)) is tree


def test_a_tree_that_forks_is_not_cut():
    tree = tree_of([[1.0, 2.0], [3.0, 4.0]], origins={1: (0, 1)})
    assert len(as_deployed(tree, Settings(width=2, steps=2))) == 4
    with pytest.raises(d.UserError, match="fork"):
        as_deployed(tree, Settings(width=2, steps=1))


# betas


def test_only_betas_fails_where_the_candidate_wins_at_the_frozen_setting_alone(world):
    decision = world(beta2=0.05).gate()  # ahead by 9*beta1 - 1.5*beta2
    assert failures(decision) == ["betas"]
    worst = decision.check("betas").evidence["worst"]
    assert worst == {"beta1": 0.01, "beta2": 0.1, "ahead": pytest.approx(9 * 0.01 - 1.5 * 0.1)}
    assert world(beta2=0.05, margin=0.07).gate().promoted  # a stated margin makes it a tie


@pytest.mark.parametrize(
    "lacking",
    [
        {"beta1s": ()},
        {"beta2s": ()},
        {"margin": None},
        {"margin": -1.0},
        {"beta1s": (0.02,)},
        {"beta2s": (0.01, 0.01)},
        {"beta1s": (0.03, 0.04)},
    ],
)
def test_only_betas_fails_where_no_neighbourhood_is_declared(world, lacking):
    made = world()
    made.reseal(**lacking)
    decision = made.gate()
    assert failures(decision) == ["betas"] and "cannot be checked" in reason(decision, "betas")


def test_a_setting_beyond_the_declared_neighbourhood_needs_one_of_its_own(world):
    assert "not within its declared neighbourhood" in reason(world().gate(beta1=0.05), "betas")


# shadow


def test_only_shadow_fails_where_attempts_are_not_saved_on_one_of_the_trees(world):
    _, since = usual()
    decision = world(shadow=[since[0], world_tree(2, 9.5, losers=CREEPER)]).gate()
    assert failures(decision) == ["shadow"] and "24 attempts are more than 80 percent of 24" in reason(
        decision, "shadow"
    )


def test_only_shadow_fails_where_quality_drops_on_one_of_the_trees(world):
    _, since = usual()
    late = tree_of([climber(8.8), LOSER, LOSER, LATE], steps=6, branches=4, width=4)  # 8.8 of 9: 2.2 percent
    decision = world(shadow=[late, since[1]]).gate()
    assert failures(decision) == ["shadow"] and "more than 2 percent below 9" in reason(decision, "shadow")
    close = tree_of([climber(8.83), LOSER, LOSER, LATE], steps=6, branches=4, width=4)
    assert world(shadow=[close, since[1]]).gate().promoted


def test_only_shadow_fails_without_two_new_trees(world):
    made = world()
    first, second = made.shadow
    for given_, why in (
        ([], "0 of the 2"),
        ([first], "1 of the 2"),
        ([first, first], "was given twice"),
        ([made.trees[0], first], "is tree-0 of the suite"),
        ([first, made.folder / "nothing.jsonl"], "cannot be read"),
    ):
        decision = made.gate(shadow=given_)
        assert failures(decision) == ["shadow"] and why in reason(decision, "shadow")


def test_a_tree_of_the_suite_is_not_new_under_another_name_or_header(world):
    made = world()
    tree = d.Tree.load(made.trees[2])
    again = d.Tree(msgspec.structs.replace(tree.header, seed=7, policy="another"), tree.attempts)
    (path,) = made.save("again", [again])
    assert "is tree-2 of the suite" in reason(made.gate(shadow=[made.shadow[0], path]), "shadow")


def test_a_tree_that_is_not_closed_is_no_shadow(world):
    made = world()
    torn = made.write("torn.jsonl", made.shadow[1].read_bytes()[:-5])
    decision = made.gate(shadow=[made.shadow[0], torn])
    assert failures(decision) == ["shadow"] and "not closed" in reason(decision, "shadow")


def test_a_tree_of_another_task_or_without_a_score_is_no_shadow(world):
    made = world()
    tree = d.Tree.load(made.shadow[1])
    other = d.Tree(msgspec.structs.replace(tree.header, task="another"), tree.attempts)
    nothing = tree_of([[None] * 6] * 4, steps=6, branches=4, width=4)
    for path, why in zip(
        made.save("bad", [other, nothing]), ("of the task another", "no attempt has a score"), strict=True
    ):
        assert why in reason(made.gate(shadow=[made.shadow[0], path]), "shadow")


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        ((4, 5), None),
        ((4, 6), "do not follow one another"),
        ((5, 4), "do not follow"),
        ((3, 4), "is not later than round 3"),
    ],
)
def test_shadow_trees_of_a_run_are_consecutive_rounds_after_those_of_the_suite(tmp_path, rounds, why):
    some, since = usual()
    world = World(tmp_path / "world")
    frozen = [tmp_path / "run" / f"round-{number:02d}" / "tree.jsonl" for number in (1, 2, 3)]
    shadow = [tmp_path / "later" / f"round-{number:02d}" / "tree.jsonl" for number in rounds]
    for path, tree in zip([*frozen, *shadow], [*some, *since], strict=True):
        tree.save(path)
    freeze(frozen, world.current, tmp_path / "s", beta1=0.02, beta2=0.01)
    decision = world.gate(suite=tmp_path / "s", shadow=shadow)
    assert failures(decision) == ([] if why is None else ["shadow"])
    assert why is None or why in reason(decision, "shadow")


def test_a_share_of_a_negative_quality_is_a_share_of_its_size():
    assert keeps_quality(-10.2, -10, 0.02) and not keeps_quality(-10.3, -10, 0.02)
    assert keeps_quality(0, 0, 0.02) and not keeps_quality(-1e-9, 0, 0.02)
    assert not keeps_quality(-math.inf, -math.inf, 0.02) and not keeps_quality(math.nan, 1, 0.02)


# review


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"width": 5}, "width: 4 -> 5"),
        ({"steps": 7}, "steps: 6 -> 7"),
        ({"branches": 5}, "branches: 4 -> 5"),
        ({"beta1": 0.021}, "beta1: 0.02 -> 0.021"),
        ({"beta2": 0.011}, "beta2: 0.01 -> 0.011"),
    ],
)
def test_only_review_fails_where_a_setting_changed_and_nobody_read_it(world, changed, said):
    made = world()
    decision = made.gate(**changed)
    assert failures(decision) == ["review"] and said in reason(decision, "review")
    assert decision.diff_sha256 in reason(decision, "review") and said in decision.diff
    read = {"reviewer": "R. Reader", "diff_sha256": decision.diff_sha256}
    assert made.gate(**changed, **read).promoted


def test_a_review_needs_a_name_and_the_hash_of_what_would_be_deployed(world):
    made = world()
    read = {"reviewer": "R. Reader", "diff_sha256": made.gate(width=5).diff_sha256}
    assert made.gate(width=5, **read).promoted
    for lacking in ({"reviewer": None}, {"diff_sha256": None}, {"reviewer": "  "}):
        assert failures(made.gate(width=5, **{**read, **lacking})) == ["review"]
    wrong = made.gate(width=6, **read)
    assert failures(wrong) == ["review"] and "is not this one" in reason(wrong, "review")


def test_a_wrong_hash_is_refused_also_where_no_review_is_needed(world):
    assert failures(world().gate(reviewer="R. Reader", diff_sha256="0" * 64)) == ["review"]


SHY = (  # opens all four at once, but three where the root has a score
    STOP
    + b"""
    def choose(self, prefix):
        batch = super().choose(prefix)
        if prefix.root is None:
            return batch
        return [-1] * 3 if prefix.round == 0 else [pick for pick in batch if pick >= 0]
"""
)


def test_only_review_fails_where_fewer_workspaces_may_be_opened_than_the_last_winner_needed(world):
    some, _ = usual()
    made = world(policy=SHY, trees=[world_tree(0, 9.0, root=1.0), *some[1:]])
    decision = made.gate()
    assert failures(decision) == ["review"]
    assert "opens as few as 3 workspaces, and the last winner needed 4" in reason(decision, "review")
    assert made.gate(reviewer="R. Reader", diff_sha256=decision.diff_sha256).promoted


def test_a_policy_that_narrows_itself_changes_the_width_too(world):
    source = STOP + b"    def __init__(self):\n        super().__init__(width=3)\n"
    assert "widest batch: 4 -> 3" in reason(world(policy=source).gate(), "review")


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
