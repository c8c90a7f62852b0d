"""Policies side by side, on trees small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dreamrsi as d
from dreamrsi import compare
from strategies import tree_of

NARROW = "parallel_refine:width=2"
STRICT = "early_stop:strikes=1"
BETAS = {"beta1": 0.1, "beta2": 0.5}


@pytest.fixture
def pair():
    """Two trees. Only the third branch of the first holds its best; the second has no root score and its best last."""
    one = tree_of([[5.0, 6.0, 7.0], [4.0, 4.0, 4.0], [6.0, 8.0, 10.0]], steps=3, branches=3, root=2.0)
    two = tree_of([[3.0, 1.0, 5.0], [2.0, 2.0, 2.0]], steps=3, branches=2, width=1)
    one.name, two.name = "one", "two"
    return [one, two]


class Broken:
    """A policy that raises, on trees with that many branches or on all."""

    name = "broken"

    def __init__(self, raises=True):
        self.raises = raises

    def start(self, width):
        pass

    def choose(self, prefix):
        if self.raises is True or prefix.root == self.raises:
            raise ValueError("no idea")
        return []


def by_policy(table):
    return table.set_index("policy")


def test_means_over_the_trees_and_ratios_to_parallel_refine(pair):
    found = compare.compare(pair, ["parallel_refine", NARROW, STRICT], width=3, **BETAS)
    assert list(found.policy) == ["parallel_refine", NARROW, STRICT]
    expected = {
        "hits": [2, 1, 1],
        "trees": [2, 2, 2],
        "quality": [(10 + 5) / 2, (7 + 5) / 2, (10 + 3) / 2],
        "regret": [0, 3 / 2, 2 / 2],
        # the way from 2 to 10, and from 1, the lowest score, to 5
        "attainment": [1, (5 / 8 + 1) / 2, (1 + 2 / 4) / 2],
        "attempts": [(9 + 6) / 2, 6, (8 + 4) / 2],
        "rounds": [3, 3, 2.5],
        "V": [
            (10 - 0.9 + 0.5 * 9 / 3 + 5 - 0.6 + 0.5 * 6 / 3) / 2,
            (7 - 0.6 + 0.5 * 6 / 3 + 5 - 0.6 + 0.5 * 6 / 3) / 2,
            (10 - 0.8 + 0.5 * 8 / 3 + 3 - 0.4 + 0.5 * 4 / 2) / 2,
        ],
        "never_opened": [0, 1, 0],  # the strict policy's miss was on an open branch
        "quality_ratio": [1, 6 / 7.5, 6.5 / 7.5],
        "attempt_ratio": [1, 6 / 7.5, 6 / 7.5],
        "goes_on": [False, False, False],
    }
    assert list(found.columns) == ["policy", *expected]
    for column, values in expected.items():
        assert found[column].tolist() == pytest.approx(values), column


def test_v_can_be_normalised_by_the_range_of_a_tree(pair):
    found = compare.compare(pair, ["parallel_refine"], width=3, normalise="range", **BETAS)
    assert found.V[0] == pytest.approx((10 / 8 - 0.9 + 1.5 + 5 / 4 - 0.6 + 1.0) / 2)
    assert found.quality[0] == 7.5


def test_the_width_of_none_is_the_recorded_one_and_rounds_can_be_capped(pair):
    found = compare.compare(pair, ["parallel_refine"], width=None, max_rounds=2)
    assert (found.attempts[0], found.rounds[0]) == ((6 + 2) / 2, 2)  # widths 3 and 1


@pytest.mark.parametrize(
    ("reached", "opened", "goes_on"),
    [(98.0, 8, True), (97.99, 8, False), (98.0, 9, False), (98.01, 7, True), (97.99, 9, False), (100.0, 8, True)],
)
def test_the_rule_for_going_on_at_and_around_its_bounds(reached, opened, goes_on):
    tree = tree_of([[1.0], [reached], *[[2.0]] * 7, [100.0]], steps=1, branches=10)
    policy = f"parallel_refine:width={opened},bootstrap={opened}"
    found = compare.compare([tree], [policy], width=10)
    assert found.quality_ratio[0] == reached / 100 and found.attempt_ratio[0] == opened / 10
    assert found.goes_on.tolist() == [goes_on]
    assert compare.selected(found) == (policy if goes_on else None)


def test_a_baseline_that_was_not_asked_for_is_replayed_but_not_shown(pair):
    found = compare.compare(pair, [STRICT], width=3)
    assert list(found.policy) == [STRICT]
    assert found.quality_ratio[0] == pytest.approx(6.5 / 7.5) and found.attempt_ratio[0] == pytest.approx(6 / 7.5)
    other = by_policy(compare.compare(pair, ["parallel_refine", NARROW], width=3, baseline=NARROW))
    assert other.attempt_ratio.tolist() == [7.5 / 6, 1] and other.quality_ratio.tolist() == [7.5 / 6, 1]


@pytest.mark.parametrize("best", [-1.0, 0.0])
def test_qualities_that_are_not_positive_have_no_ratio(best):
    tree = tree_of([[-5.0, -4.0], [-3.0, best]], steps=2, branches=2)
    found = compare.compare([tree], ["parallel_refine", "parallel_refine:width=1"], width=2)
    assert found.quality_ratio.isna().all() and not found.goes_on.any()
    assert found.attempt_ratio.tolist() == [1.0, 0.5]


def test_one_quality_that_is_not_positive_leaves_no_policy_a_ratio():
    tree = tree_of([[-5.0, -4.0], [3.0, 4.0]], steps=2, branches=2)
    found = compare.compare([tree], ["parallel_refine", "parallel_refine:width=1"], width=2)
    assert found.quality.tolist() == [4.0, -4.0] and found.quality_ratio.isna().all()


def test_a_policy_that_fails_scores_minus_infinity_with_a_warning_and_the_others_keep_their_ratios(pair):
    with pytest.warns(UserWarning, match=r"policy broken, round 0: raised ValueError: no idea; it scores -inf"):
        found = by_policy(compare.compare(pair, [Broken(), STRICT], width=3))
    broken = found.loc["broken"]
    assert (broken.quality, broken.V, broken.regret) == (-math.inf, -math.inf, math.inf)
    assert (broken.hits, broken.attempts, broken.attainment, broken.never_opened) == (0, 0, 0, 2)
    assert not broken.goes_on
    assert found.quality_ratio[STRICT] == pytest.approx(6.5 / 7.5)


def test_a_policy_that_fails_on_one_tree_has_no_value(pair):
    with pytest.warns(UserWarning, match="broken"):
        found = compare.compare(pair, [Broken(raises=2.0)], width=3)
    assert found.V[0] == -math.inf and not found.goes_on[0]


# --- selection and pooling ----------------------------------------------------------------------------------------


def judged(**rows):
    return pd.DataFrame([(name, *row) for name, row in rows.items()], columns=["policy", "V", "goes_on"])


def test_the_highest_v_among_those_that_go_on_is_selected_not_the_highest_of_all():
    assert compare.selected(judged(a=(9.0, False), b=(7.0, True), c=(8.0, True), e=(1.0, True))) == "c"
    assert compare.selected(judged(a=(9.0, False), b=(7.0, True))) == "b"
    assert compare.selected(judged(a=(8.0, True), b=(8.0, True))) == "a"


def test_nothing_is_selected_where_nothing_goes_on():
    assert compare.selected(judged(a=(9.0, False), b=(7.0, False))) is None


def test_policies_of_one_name_are_pooled_into_their_mean():
    names = ["random:seed=0", "early_stop", "random:seed=1", "random_walk:seed=2"]
    table = pd.DataFrame(
        {
            "policy": names,
            "hits": [1, 6, 4, 3],
            "trees": 6,
            "V": [1.0, 8.0, 4.0, 5.0],
            "quality_ratio": [0.5, 1.0, 0.75, np.nan],
            "goes_on": [True, True, False, False],
        }
    )
    before = table.copy()
    found = compare.pool(table, "random")
    assert found.policy.tolist() == ["early_stop", "random_walk:seed=2", "random:mean of 2"]
    assert list(found.columns) == list(table.columns)
    pooled = found.iloc[-1]
    assert (pooled.hits, pooled.trees, pooled.V, pooled.quality_ratio) == (2.5, 6, 2.5, 0.625)
    assert found.trees.dtype == int
    assert found.goes_on.tolist() == [True, False, False]  # only if all of them do
    assert compare.pool(table, "early_stop").goes_on.tolist() == [True, False, False, True]
    pd.testing.assert_frame_equal(table, before)


# --- by tree, by width, by branch ---------------------------------------------------------------------------------


def test_by_tree_has_one_row_a_policy_and_tree(pair):
    found = compare.by_tree(pair, [STRICT, NARROW], width=3, max_rounds=None, **BETAS)
    assert list(zip(found.policy, found.tree, strict=True)) == [
        (STRICT, "one"),
        (STRICT, "two"),
        (NARROW, "one"),
        (NARROW, "two"),
    ]
    assert found.quality.tolist() == [10, 3, 7, 5]
    assert found.attempts.tolist() == [8, 4, 6, 6]
    assert found.rounds.tolist() == [3, 2, 3, 3]
    assert found.hit.tolist() == [True, False, False, True]
    assert found.regret.tolist() == [0, 2, 3, 0]
    assert found.attainment.tolist() == [1, 0.5, 0.625, 1]
    assert found.never_opened.tolist() == [False, False, True, False]
    assert found.V.tolist() == pytest.approx([10 - 0.8 + 0.5 * 8 / 3, 3 - 0.4 + 1, 7 - 0.6 + 1, 5 - 0.6 + 1])
    assert "opened" not in found


def test_by_tree_warns_of_a_policy_that_fails(pair):
    with pytest.warns(UserWarning, match="broken"):
        found = compare.by_tree(pair, [Broken()], width=None, max_rounds=None, **BETAS)
    assert found.V.tolist() == [-math.inf] * 2 and not found.hit.any()


def test_hits_by_width_count_what_was_reached_not_what_was_opened(pair):
    found = compare.width_hits(pair, ["parallel_refine", "early_stop", STRICT], widths=(1, 2, 3))
    assert found.index.tolist() == ["parallel_refine", "early_stop", STRICT] and found.columns.tolist() == [1, 2, 3]
    # the strict policy opens every branch of the second tree at every width, and leaves the best one too early
    assert found.to_numpy().tolist() == [[1, 1, 2], [2, 2, 2], [1, 1, 1]]
    capped = compare.width_hits(pair, ["early_stop"], widths=(1, 3), max_rounds=3)
    assert capped.to_numpy().tolist() == [[1, 2]]


def test_openings_say_which_branches_were_opened_at_which_width(pair):
    found = compare.openings(pair, "parallel_refine", widths=(3, 1))
    assert list(found) == ["one", "two"]
    assert found["one"].tolist() == [[True, True, True], [True, False, False]]
    assert found["two"].tolist() == [[True, True], [True, False]]
    assert compare.openings(pair, "parallel_refine")["one"].shape == (8, 3)


def test_openings_of_two_trees_of_one_name_are_refused(pair):
    pair[1].name = "one"
    with pytest.raises(d.UserError, match="same name"):
        compare.openings(pair, "parallel_refine")


@pytest.mark.parametrize(
    ("root", "expected"),
    [(0.5, [0.5, 0.5, 1, 3, 3]), (None, [np.nan, np.nan, 1, 3, 3]), (9.0, [9, 9, 9, 9, 9]), (2.0, [2, 2, 2, 3, 3])],
)
def test_progress_is_the_best_so_far_the_root_s_included_whatever_failed(root, expected):
    tree = tree_of([[None, 3.0], [1.0, None]], root=root)
    found = compare.progress(d.replay(d.policies.ParallelRefine(), tree, 2), tree)
    np.testing.assert_array_equal(found, expected)


def test_progress_follows_the_order_of_the_reveals():
    tree = tree_of([[1.0, 9.0], [2.0, 3.0]], steps=2, branches=2)
    found = compare.progress(d.replay(d.policies.GreedyBest(), tree, 2), tree)
    np.testing.assert_array_equal(found, [np.nan, 1, 2, 3, 9])


def test_progress_where_nothing_was_scored_or_revealed():
    tree = tree_of([[None, None]])
    np.testing.assert_array_equal(compare.progress(d.replay(d.policies.ParallelRefine(), tree, 1), tree), [np.nan] * 3)
    assert compare.progress(d.Episode("p", "t", (), (), 1.0, "stopped"), tree_of([[3.0]], root=1.0)).tolist() == [1.0]


def test_nothing_to_compare_and_nothing_to_pool_are_said():
    tree = tree_of([[1.0, 2.0]])
    for compared in (compare.compare, compare.by_tree):
        with pytest.raises(d.UserError, match="nothing to compare"):
            compared([], ["early_stop"], width=2, max_rounds=None, beta1=0.0, beta2=0.0)
    with pytest.raises(d.UserError, match="no policy of the table is called random"):
        compare.pool(compare.compare([tree], ["early_stop"], width=2), "random")
