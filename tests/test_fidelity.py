"""Whether replay ranks policies as live runs do: exact where it must be, wrong where a cheat is planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import dreamrsi as d
from dreamrsi import fidelity, worlds
from dreamrsi.experiments import readable
from dreamrsi.live import live_run

BETAS = {"beta1": 0.02, "beta2": 0.05}
FULL = {fidelity.IN_SUPPORT: "parallel_refine"}
SOME = ("parallel_refine", "early_stop", "greedy_best", "adaptive", "random:seed=0")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_spearman_s(pairs):
    a, b = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    found = fidelity.rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found == 0
    else:
        assert found == pytest.approx(spearmanr(a, b).statistic)


def test_a_policy_that_failed_ranks_last():
    assert fidelity.rank_correlation(np.array([-np.inf, 1.0, 2.0]), np.array([0.0, 1.0, 2.0])) == pytest.approx(1)


def test_the_fresh_trees_themselves_as_history_rank_perfectly():
    trees = [worlds.world("mixture", 3, number) for number in range(4)]
    rows = fidelity.fidelity([(trees, trees)], SOME, **BETAS, sizes=(4,), recorders=FULL)
    (row,) = rows.itertuples()
    assert row.correlation == pytest.approx(1)
    assert row.bias == pytest.approx(0) and row.regret == 0


def test_a_history_of_other_worlds_ranks_worse():
    fresh = [worlds.world("late_peak_last", 3, number) for number in range(20)]
    alike = [worlds.world("late_peak_last", 4, number) for number in range(4)]
    narrow = "narrow"
    rows = fidelity.fidelity(
        [(alike, fresh)], **BETAS, sizes=(1, 4), recorders={**FULL, narrow: fidelity.RECORDERS[narrow]}
    )
    found = rows.set_index(["recorder", "trees"]).correlation
    assert found[fidelity.IN_SUPPORT, 4] > 0.9 > found[narrow, 4]
    regret = rows.set_index(["recorder", "trees"]).regret
    assert regret[narrow, 4] > 0.3  # the winners were never opened, so a policy that opens few is ranked first


def test_values_are_mean_replay_scores():
    trees = [worlds.world("plateau", 1, number) for number in range(2)]
    policies = [d.policies.make(name) for name in SOME]
    found = fidelity.values(policies, trees, **BETAS)
    assert found.shape == (5, 2)
    assert found[1, 1] == d.score(d.replay(d.policies.EarlyStop(), trees[1], 10), **BETAS)


def test_random_schedules_are_different_policies_that_keep_the_rules():
    policies = fidelity.random_schedules(12, np.random.default_rng(0))
    trees = [worlds.world("mixture", 1, number) for number in range(2)]
    found = fidelity.values(policies, trees, **BETAS)
    assert np.isfinite(found).all() and len(set(found[:, 0])) > 6
    assert len({p.name for p in policies}) == 12
    again = fidelity.values(fidelity.random_schedules(12, np.random.default_rng(0)), trees, **BETAS)
    assert (found == again).all()


def test_pools_are_drawn_apart():
    (history, fresh), (other, _) = fidelity.drawn_pools("plateau", 2, history=3, fresh=5)
    seen = [tuple(a.score for a in tree) for tree in [*history, *fresh, *other]]
    assert len(set(seen)) == len(seen) == 11
    trees = list(range(7))
    splits = list(fidelity.split_pools(trees, 3, 2, np.random.default_rng(0)))
    assert all(sorted([*h, *f]) == trees and len(h) == 2 for h, f in splits)
    assert len({tuple(h) for h, _ in splits}) > 1


def test_the_summary_gives_every_group_its_interval():
    rows = fidelity.fidelity(fidelity.drawn_pools("mixture", 3, 2, 5), SOME, **BETAS, sizes=(1, 2))
    found = fidelity.summary(rows, np.random.default_rng(0))
    assert len(found) == 3 * 2
    for row in found.itertuples():
        mine = rows[(rows.recorder == row.recorder) & (rows.trees == row.trees)]
        assert row.correlation == pytest.approx(mine.correlation.mean())
        assert row.correlation_low <= row.correlation <= row.correlation_high
    stacked = rows.assign(world="a")
    by_world = fidelity.summary(stacked, np.random.default_rng(0), ("world", "recorder", "trees"))
    assert by_world.correlation.tolist() == pytest.approx(found.correlation.tolist())


@pytest.mark.parametrize("worlds_", [("mixture",), ("mixture", "plateau")])
def test_one_repeat_has_a_value_and_no_interval(worlds_):
    """Resampling one value gives that value again, which is no certainty."""

    def rows(repeats):
        drawn = [fidelity.fidelity(fidelity.drawn_pools(w, repeats, 1, 3), SOME, **BETAS, sizes=(1,)) for w in worlds_]
        return pd.concat(table.assign(world=world) for table, world in zip(drawn, worlds_, strict=True))

    one, two = (fidelity.summary(rows(repeats), np.random.default_rng(0)) for repeats in (1, 2))
    ends = [f"{column}_{end}" for column in ("correlation", "bias", "regret") for end in ("low", "high")]
    assert one[ends].isna().all(axis=None) and two[ends].notna().all(axis=None)
    assert one[["correlation", "bias", "regret"]].notna().all(axis=None)
    cells = readable(one).correlation
    assert all(cell.endswith(" (one repeat)") for cell in cells) and not cells.str.contains("nan").any()


def test_what_cannot_be_done_is_refused():
    with pytest.raises(d.UserError, match="there are no pools"):
        fidelity.fidelity([], SOME, **BETAS)
    pool = next(fidelity.drawn_pools("mixture", 1, 2, 1))
    with pytest.raises(d.UserError, match="8 trees was asked for; the pool has 2"):
        fidelity.fidelity([pool], SOME, **BETAS, sizes=(8,))
    with pytest.raises(d.UserError, match="leaves nothing"):
        next(fidelity.split_pools([1, 2], 1, 2, np.random.default_rng(0)))


@pytest.mark.parametrize("policy", [d.policies.EarlyStop(1), d.policies.Random(3)], ids=lambda p: p.name)
def test_a_live_run_of_a_real_task_is_a_replay_on_the_full_tree_of_its_seed(tmp_path, policy):
    (full,) = fidelity.full_trees("circle_packing:n=5", [7], tmp_path, branches=3, steps=3)
    size = {"width": 3, "branches": 3, "steps": 3, "seed": 7}
    tree = live_run("circle_packing:n=5", policy, tmp_path / "live", **size)
    expected = worlds.live(policy, full)
    assert tree.picks == expected.picks
    found, known = (
        [(a.branch, a.attempt, a.seq, a.round, a.score, a.status, a.tag) for a in t] for t in (tree, expected)
    )
    assert found == known
    assert len(tree) < len(full) or policy.name.startswith("random")
