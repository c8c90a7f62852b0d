"""Stratified bootstrap intervals: reproducible, stratified, paired, and they cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

import dreamrsi as d
from dreamrsi.intervals import difference, interval


def rng(seed=0):
    return np.random.default_rng(seed)


VALUES = rng(5).normal(size=(8, 3)) + [0, 10, 100]


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_equal_generators_give_equal_intervals_and_others_do_not(statistic):
    found = interval(VALUES, rng(1), statistic=statistic)
    assert found == interval(VALUES, rng(1), statistic=statistic)
    assert found != interval(VALUES, rng(2), statistic=statistic)
    shared = rng(1)
    assert interval(VALUES, shared) != interval(VALUES, shared)  # the generator that is passed is the one that is used


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_the_estimate_is_the_statistic_and_lies_in_its_interval_s_range(runs, strata, seed):
    values = rng(seed).normal(size=(runs, strata))
    mean, iqm = (interval(values, rng(), statistic=s, resamples=200) for s in ("mean", "iqm"))
    assert mean.estimate == pytest.approx(values.mean())
    assert iqm.estimate == pytest.approx(trim_mean(values, 0.25, axis=None))
    for found in (mean, iqm):
        assert values.min() - 1e-12 <= found.low <= found.high <= values.max() + 1e-12


def test_runs_are_resampled_within_their_stratum():
    within, between = 1.0, 1000.0
    values = rng(3).normal(0, within, (10, 4)) + between * np.arange(4)
    found = interval(values, rng())
    assert found.high - found.low < 2 * within  # pooled resampling would mix the strata: several hundred wide


def test_one_stratum_may_be_a_plain_list():
    assert interval([1.0, 2.0, 4.0], rng()) == interval([[1.0], [2.0], [4.0]], rng())
    assert interval([3.0], rng()) == (3.0, 3.0, 3.0)


def test_pairs_cancel_what_they_share():
    shared = rng(1).normal(0, 50, (10, 2))
    found = difference(shared + 1.0, shared, rng())
    assert found == pytest.approx((1.0, 1.0, 1.0))
    assert str(found) == "1 [1, 1]"


@pytest.mark.parametrize("values", [[], [[]], [1.0, np.nan], [[[1.0]]], [np.inf, 0.0]])
def test_what_cannot_be_resampled_is_refused(values):
    with pytest.raises(d.UserError, match="finite numbers of shape"):
        interval(values, rng())


def test_unequal_pairs_and_unknown_statistics_are_refused():
    with pytest.raises(d.UserError, match=r"\(2, 1\) and \(3, 1\)"):
        difference([1.0, 2.0], [1.0, 2.0, 3.0], rng())
    with pytest.raises(d.UserError, match="no statistic 'median'"):
        interval([1.0, 2.0], rng(), statistic="median")


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_intervals_cover_the_truth_about_as_often_as_they_say(statistic):
    drawn = rng(11)
    offsets, covered, trials = np.array([0.0, 1.0, 2.0]), 0, 1000
    truth = 1.0  # of both statistics: the values are symmetric around it
    for _ in range(trials):
        found = interval(drawn.normal(size=(20, 3)) + offsets, drawn, statistic=statistic, resamples=500)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / trials <= 0.98
