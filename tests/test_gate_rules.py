"""The gate's rules ``gain``, ``coverage`` and ``betas``: where each fails alone, and where its evidence is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.coverage import as_deployed, coverage, winners, workspaces_needed
from dreamrsi.decision import Settings
from dreamrsi.freeze import freeze
from dreamrsi.gate import gate
from gate_fixtures import (
    CREEPER,
    LATE,
    LOSER,
    NARROW,
    REFINE,
    STOP,
    climber,
    failures,
    make_world,  # noqa: F401 - the fixture ``world``
    reason,
    usual,
    world_tree,
)
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures
from strategies import policies, tree_of, trees

SYNTHETIC = Path(__file__).parent.parent / "synthetic"


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
