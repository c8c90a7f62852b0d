"""Two arms side by side: at equal rounds, at equal calls, to the other's best; on campaigns whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dreamrsi as d
from dreamrsi import experiments
from dreamrsi.experiments import Campaign
from strategies import tree_of


def rng():
    return np.random.default_rng(0)


def campaign(arm, rounds, seed=0, setting="toy", root=0.0):
    """Every round is one branch with these scores."""
    best, trees = root, []
    for scores in rounds:
        trees.append(tree_of([scores], root=best))
        best = trees[-1].best
    return Campaign(setting, arm, seed, tuple(trees))


FIXED = campaign("fixed", [[1.0, None, 3.0], [2.0, 4.0, 1.0]])
DREAM = campaign("dream", [[1.0, None, 3.0], [3.5], [None], [5.0], [6.0]])


def test_progress_is_the_best_so_far_over_all_rounds():
    assert experiments.progress(FIXED).tolist() == [0, 1, 1, 3, 3, 4, 4]
    none = campaign("fixed", [[None, 2.0]], root=None)
    assert np.isnan(experiments.progress(none)[:2]).all() and experiments.progress(none)[2] == 2


def test_by_round_tells_the_round_s_own_best_from_the_best_so_far():
    rows = experiments.by_round([DREAM])
    assert rows["round"].tolist() == [1, 2, 3, 4, 5]
    assert rows.attempts.tolist() == [3, 1, 1, 1, 1] and rows.calls.tolist() == [3, 4, 5, 6, 7]
    assert rows.best.tolist() == [3, 3.5, 3.5, 5, 6]
    assert rows.round_best[2] != rows.round_best[2] and rows.round_best[3] == 5


def test_pairs_at_equal_rounds_at_equal_calls_and_to_the_same_best():
    (row,) = experiments.pairs([FIXED, DREAM]).itertuples()
    assert (row.budget, row.control) == (6, 4)
    assert (row.equal_rounds, row.calls) == (3.5, 4)
    assert (row.equal_calls, row.spent) == (5, 6)  # the 6.0 was the seventh call
    assert (row.control_reach, row.reach) == (5, 6)


def test_what_comes_after_the_budget_does_not_count():
    late = campaign("dream", [[1.0], [1.0], [1.0], [1.0], [1.0], [1.0], [9.0]])
    found = experiments.pairs([FIXED, late])
    assert found.equal_calls[0] == 1 and math.isnan(found.reach[0])
    (row,) = experiments.versus(found, rng()).itertuples()
    assert (row.reach, row.reached) == (1, 0)  # the whole budget, and not there


def test_an_arm_that_ended_early_says_what_it_spent():
    (row,) = experiments.pairs([FIXED, campaign("dream", [[2.0]])]).itertuples()
    assert (row.equal_calls, row.spent, row.calls) == (2, 1, 1) and math.isnan(row.reach)


def test_rounding_is_no_progress():
    almost = campaign("dream", [[4.0 - 1e-12, 0, 0, 0, 0, 0]])
    found = experiments.pairs([FIXED, almost])
    assert found.reach[0] == 1
    (row,) = experiments.versus(found, rng()).itertuples()
    assert (row.better, row.same, row.worse) == (0, 1, 0)


def many():
    drawn = np.random.default_rng(7)
    found = []
    for setting, shift in (("a", 0.0), ("b", 50.0)):
        for seed in range(8):
            scores = (shift + drawn.normal(size=(2, 4))).round(3).tolist()
            found.append(campaign("fixed", scores, seed, setting, shift - 9))
            found.append(campaign("dream", [[x + 2 for x in row[:2]] for row in scores], seed, setting, shift - 9))
    return found


def test_versus_has_a_row_a_setting_and_one_over_all():
    found = experiments.pairs(many())
    table = experiments.versus(found, rng())
    assert table.setting.tolist() == ["a", "b", "all"] and table.runs.tolist() == [8, 8, 16]
    total = table.iloc[2]
    assert total.equal_calls == pytest.approx((found.equal_calls - found.control).mean())
    assert total.equal_calls_low < total.equal_calls < total.equal_calls_high < total.equal_calls_low + 3
    assert (table.cost == 0.5).all() and (table.cost_low == 0.5).all()
    assert total.better + total["same"] + total.worse == 16
    assert total.reached == found.reach.notna().sum()
    censored = (found.reach / found.budget).fillna(1)
    assert total.reach == pytest.approx(censored.mean())
    pd.testing.assert_frame_equal(table, experiments.versus(found, rng()))


def test_readable_puts_a_value_and_its_interval_into_one_cell():
    table = experiments.readable(experiments.versus(experiments.pairs([FIXED, DREAM]), rng()), 2)
    assert table.equal_calls.tolist() == ["1.00 [1.00, 1.00]"] and not any(c.endswith("_low") for c in table)


def test_a_cell_shows_no_negative_zero():
    row = {"gain": -0.0001, "gain_low": -1.0, "gain_high": -1e-9}
    assert experiments.cell(row, "gain", 2) == "0.00 [-1.00, 0.00]"


def test_one_repeat_has_no_interval():
    table = pd.DataFrame({"gain": [0.192, 0.5], "gain_low": [np.nan, 0.25], "gain_high": [np.nan, 1.0]})
    assert experiments.readable(table).gain.tolist() == ["0.192 (one repeat)", "0.500 [0.250, 1.000]"]


def test_contrasts_stand_below_each_other():
    early = [Campaign(c.setting, "fixed early stop", c.seed, c.trees) for c in many() if c.arm == "fixed"]
    table = experiments.contrasts([*many(), *early], rng())
    assert len(table) == 9 and list(table.arm.unique()) == ["dream", "fixed early stop"]
    same = table[(table.arm == "fixed early stop") & (table.against == "fixed")]
    assert (same.equal_calls == 0).all() and (same["same"] == same.runs).all()


def test_campaigns_without_partner_or_twice_are_refused():
    with pytest.raises(d.UserError, match="seed 0: has fixed; fixed and dream are compared"):
        experiments.pairs([FIXED])
    with pytest.raises(d.UserError, match="two campaigns of the arm fixed"):
        experiments.pairs([FIXED, FIXED])
    uneven = experiments.pairs([FIXED, DREAM, *many()])
    with pytest.raises(d.UserError, match="same seeds"):
        experiments.versus(uneven, rng())


def test_curves_hold_the_last_best_up_to_the_budget():
    table = experiments.curves([FIXED, campaign("dream", [[2.0, 3.0]])], rng())
    dream = table[table.arm == "dream"]
    assert dream.calls.tolist() == [0, 1, 2, 3, 4, 5, 6] and dream.best.tolist() == [0, 2, 3, 3, 3, 3, 3]
    assert (dream.low == dream.best).all()  # one seed
    short = campaign("fixed", [[1.0, 2.0]], seed=1)
    assert experiments.curves([short, FIXED], rng()).calls.max() == FIXED.calls


def test_pace_shows_the_rounds_that_every_seed_has():
    short = campaign("dream", [[2.0], [3.0]], seed=1)
    table = experiments.pace([DREAM, short], rng())
    assert table["round"].tolist() == [1, 2]
    assert table.attempts.tolist() == [2, 1] and table.best.tolist() == [2.5, 3.25]
