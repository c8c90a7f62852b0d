"""Campaigns: all arms meet the same draws, what was selected is what ran, and the budget is spent."""

from __future__ import annotations

import numpy as np
import pytest

import dreamrsi as d
from dreamrsi import campaigns, experiments, worlds
from dreamrsi.loop import starting_policy

SMALL = {"rounds": 3, "versions": 3, "branches": 4, "steps": 5}


@pytest.fixture(scope="module")
def arms():
    return {c.arm: c for c in campaigns.synthetic_arms("mixture", 5, SMALL)}


def content(tree):
    return tree.header, tree.attempts, tree.batches


@pytest.mark.parametrize("name", ["parallel_refine", "early_stop", "portfolio"])
def test_a_source_in_this_process_does_what_the_built_in_policy_does(name):
    tree = worlds.world("mixture", 1)
    policy = worlds.in_process(starting_policy(name).source)
    assert d.replay(policy, tree, 10).picks == d.replay(d.policies.make(name), tree, 10).picks


def test_both_arms_begin_with_the_same_round(arms):
    assert list(arms) == ["fixed", "fixed early stop", "dream", "dream early stop"]
    assert content(arms["fixed"].trees[0]) == content(arms["dream"].trees[0])
    assert content(arms["fixed early stop"].trees[0]) == content(arms["dream early stop"].trees[0])
    assert [len(tree) for tree in arms["fixed"].trees] == [20, 20, 20]
    assert arms["fixed"].dreams == (None,) * 3


def test_every_round_starts_at_the_best_so_far_of_the_same_draw(arms):
    for campaign in arms.values():
        best = 0.0
        for number, tree in enumerate(campaign.trees):
            assert tree.root == best
            full = worlds.world("mixture", 5, number, root=best, branches=4, steps=5)
            assert all(a.score == full.branches[a.branch][a.attempt].score for a in tree)
            best = max(best, tree.best)


def test_what_was_selected_is_what_ran(arms):
    dream = arms["dream"]
    assert dream.dreams[0] is None and all(dream.dreams[1:])
    before = starting_policy("parallel_refine").source
    for number, (tree, dreamt) in enumerate(zip(dream.trees[1:], dream.dreams[1:], strict=True), 1):
        assert dreamt.current.source == before
        assert len(dreamt.versions) == 3
        assert all(len(v.episodes) == number for v in dreamt.versions)  # one a round so far
        before = dreamt.selected.source
        assert d.replay(worlds.in_process(before), tree, 4).picks == tree.picks


def test_an_arm_that_saves_calls_goes_on_until_they_are_spent(arms):
    budget = arms["fixed"].calls
    for name in ("fixed early stop", "dream", "dream early stop"):
        campaign = arms[name]
        assert campaign.calls >= budget or len(campaign.trees) == campaigns.MOST * 3
        assert sum(map(len, campaign.trees[:-1])) < budget
    assert len(campaigns.synthetic("plateau", "fixed", 1, policy="early_stop", calls=10**6, most=2, **SMALL).trees) == 6


def test_equal_seeds_give_equal_campaigns(arms):
    again = campaigns.synthetic("mixture", "dream", 5, calls=arms["fixed"].calls, **SMALL)
    assert [content(t) for t in again.trees] == [content(t) for t in arms["dream"].trees]


def test_the_study_is_every_world_and_seed():
    found = campaigns.synthetic_study([0, 1], ["plateau", "mixture"], n_jobs=1, rounds=1, versions=2)
    assert len(found) == 2 * 2 * 4
    assert {(c.setting, c.seed) for c in found} == {(w, s) for w in ("plateau", "mixture") for s in (0, 1)}
    assert len(experiments.contrasts(found, np.random.default_rng(0), experiments.START_CONTRASTS)) == 4 * 3


@pytest.mark.slow
def test_arms_on_a_real_task_are_read_back_when_asked_again(tmp_path):
    task = "circle_packing:n=4"
    settings = {"rounds": 2, "workspaces": 2, "steps": 2, "versions": 2, "workers": 2}
    arms = (("fixed", campaigns.REFINE, True), ("dream", campaigns.REFINE, False))
    found = campaigns.real_study(task, [3], tmp_path, arms=arms, **settings)
    assert [c.arm for c in found] == ["fixed", "fixed+guidance", "dream"]
    first = [[(a.branch, a.attempt, a.score) for a in c.trees[0]] for c in found]
    assert first[0] == first[1] == first[2]
    assert found[0].calls == 8 and (found[2].calls >= 8 or len(found[2].trees) == 8)
    records = {path: path.read_bytes() for path in tmp_path.rglob("tree.jsonl")}
    again = campaigns.real_study(task, [3], tmp_path, arms=arms, **settings)
    assert [[content(t) for t in c.trees] for c in again] == [[content(t) for t in c.trees] for c in found]
    assert records == {path: path.read_bytes() for path in tmp_path.rglob("tree.jsonl")}
