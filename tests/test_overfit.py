"""What a selection is worth on fresh worlds: counted right, and the curse is there where it must be."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dreamrsi as d
from dreamrsi import campaigns, overfit, worlds
from dreamrsi.developers import Version
from dreamrsi.loop import starting_policy
from dreamrsi.robustness import wilson


def version(number, value, policy="parallel_refine"):
    source = starting_policy(policy).source
    return Version(number, None if number == 0 else 0, source, str(number), value)


def test_a_fresh_value_is_the_mean_v_of_live_runs():
    trees = [worlds.world("plateau", 1, number) for number in range(3)]
    found = overfit.fresh_value(version(0, 1.0, "early_stop"), trees)
    known = [d.score(d.replay(d.policies.EarlyStop(), tree, 10), beta1=0.02, beta2=0.05) for tree in trees]
    assert found == pytest.approx(np.mean(known))
    assert overfit.fresh_value(version(0, -math.inf), trees) == -math.inf


def test_without_the_current_policy_the_best_other_is_selected_however_bad():
    versions = [version(0, 5.0), version(1, 1.0), version(2, 3.0), version(3, 3.0)]
    assert overfit.without_current(versions).number == 2


@pytest.fixture(scope="module")
def judged():
    found = campaigns.synthetic_arms("mixture", 2, {"rounds": 3, "versions": 4})
    return found, overfit.regressions(found, fresh=6, n_jobs=1)


def test_every_dream_is_judged_both_ways(judged):
    found, rows = judged
    dreams = [dreamt for campaign in found for dreamt in campaign.dreams if dreamt is not None]
    assert len(rows) == 2 * len(dreams)
    with_current, without = (rows[rows.way == way].reset_index() for way in ("with current", "without"))
    assert (with_current.replayed >= 0).all()  # V(selected) >= V(current) on the history
    assert (with_current.replayed >= without.replayed).all()
    stayed = np.array([dreamt.selected.number == 0 for dreamt in dreams])
    assert (with_current.fresh[stayed] == 0).all()


def test_shares_count_falls_and_not_ties():
    rows = pd.DataFrame(
        {"way": ["with current"] * 4, "replayed": [0.0, 0.0, 1.0, 1.0], "fresh": [0.0, -1e-12, -0.5, 2.0]}
    )
    (found,) = overfit.regression_shares(rows).itertuples()
    assert (found.dreams, found.replayed, found.fresh, found.worst) == (4, 0, 0.25, -0.5)
    assert (found.fresh_low, found.fresh_high) == wilson(1, 4)
    (found,) = overfit.regression_shares(rows.assign(fresh=1.0)).itertuples()
    assert (found.fresh, found.worst) == (0, 0)  # where all rose, none fell by less than nothing


def test_the_first_versions_of_a_long_dream_are_a_short_one():
    names, settings = ["mixture"], {"history": 2, "fresh": 4, "n_jobs": 1}
    long = overfit.curse(1, names, sizes=[1, 3, 6], **settings)
    short = overfit.curse(1, names, sizes=[1, 3], **settings)
    pd.testing.assert_frame_equal(long[long.versions <= 3].reset_index(drop=True), short)
    assert long.replayed.is_monotonic_increasing  # more candidates, none worse on the history
    assert (long.gap == long.replayed - long.fresh).all()


def test_means_are_over_worlds_and_repeats():
    rows = pd.DataFrame(
        [
            {"world": w, "repeat": r, "versions": m, "replayed": m + r, "fresh": 1.0 * r, "gap": float(m)}
            for w in "ab"
            for r in range(4)
            for m in (1, 2)
        ]
    )
    found = overfit.curse_means(rows, np.random.default_rng(0))
    assert found.versions.tolist() == [1, 2] and found.replayed.tolist() == [2.5, 3.5]
    assert found.gap_low.tolist() == found.gap_high.tolist() == [1, 2]
    assert (found.fresh_low < 1.5).all() and (found.fresh_high > 1.5).all()


@pytest.mark.slow
def test_choosing_from_many_on_one_tree_overfits():
    rows = overfit.curse(6, ["mixture", "plateau"], history=1, sizes=(1, 32), fresh=30)
    found = overfit.curse_means(rows, np.random.default_rng(0))
    assert found.gap.iloc[1] > found.gap.iloc[0] and found.gap_low.iloc[1] > 0
