"""The gate over many seeds: its rounds are the guards' and the rules', and the tables say what the rows say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dreamrsi as d
from dreamrsi import experiments, gate_experiments, gate_reach, plots_gate, synthetic, worlds
from dreamrsi import policies as builtin
from dreamrsi.coverage import winners
from dreamrsi.decision import RULES, Check, Decision
from dreamrsi.guards import Frozen, kill
from dreamrsi.objective import value

FEW = 6


def rng():
    return np.random.default_rng(0)


@pytest.fixture(name="rounds", scope="module")
def some_rounds():
    return gate_experiments.gated_study(["late_peak_last", "mixture"], range(FEW), rounds=3, n_jobs=1)


def frozen(calls):
    return Frozen(calls, 9.0, 4, (), 0.02)


@pytest.mark.parametrize("ceiling", [0, 5, 10, 37, 60, 109, 110, 1000])
@pytest.mark.parametrize("name", ["parallel_refine", "early_stop", "greedy_best"])
def test_a_ceiling_leaves_whole_batches_and_a_record_that_replays(name, ceiling):
    tree = worlds.live(builtin.make(name), worlds.world("late_peak_last", 3))
    cut, reason = gate_experiments.guarded(tree, frozen(ceiling))
    assert len(cut) <= ceiling and (reason is None) == (len(cut) == len(tree))
    if reason is not None:
        assert reason == kill(len(cut), frozen(ceiling), tree.batches[len(cut.batches)].attempts)
    assert cut.batches == tree.batches[: len(cut.batches)] and cut.attempts == tree.attempts[: len(cut)]
    again = d.replay(builtin.make(name), cut, cut.header.width)
    assert again.picks[: len(cut.batches)] == cut.picks and again.attempts == len(cut)


def test_raising_the_scores_changes_nothing_else():
    tree = worlds.world("plateau", 1)
    higher = gate_experiments.raised(tree, 6.0)
    assert higher.root == 6.0 and higher.best == pytest.approx(tree.best + 6)
    one, other = (d.replay(builtin.make("early_stop"), each, 10) for each in (tree, higher))
    assert one.picks == other.picks


def test_the_change_that_cannot_reach_late_winners_is_refused_for_coverage_and_taken_back_for_quality(rounds):
    late = rounds[rounds.world == "late_peak_last"].set_index("change")
    narrower = late.loc["narrower"]
    assert narrower.coverage.all() and narrower.refused.all() and narrower.quality.all()
    assert not narrower.branch.any() and not narrower.new_branch.any()  # the last tree has all ten branches
    assert (narrower["ungated calls"] == 44).all() and (narrower["gate and guards calls"] == 110).all()
    assert (narrower["guards calls"] == (44 + 2 * 110) / 3).all()  # one bad round of three
    assert (narrower["gate and guards best"] > narrower["ungated best"] + 1).all()


def test_from_a_narrow_record_the_ceiling_ends_what_looks_further(rounds):
    late = rounds[rounds.world == "late_peak_last"].set_index("change").loc["from narrow, stops early"]
    assert late.new_branch.all() and late.killed.all()
    assert (late["gate and guards best"] < late["ungated best"]).mean() > 0.5


def test_no_change_is_refused_for_its_gain_alone_and_costs_nothing(rounds):
    same = rounds[rounds.change == "no change"]
    assert same.gain.all() and not (same.coverage | same.betas | same.killed | same.branch).any()
    assert (same["ungated best"] == same["unchanged best"]).all()
    assert (same["ungated calls"] == same["gate and guards calls"]).all()


def test_what_the_gate_refuses_is_never_deployed_and_what_it_promotes_is(rounds):
    assert set(rounds.refused) == {False, True}
    for what in ("calls", "best"):
        for arm, promoted in (("gate", "ungated"), ("gate and guards", "guards")):
            expected = rounds[f"unchanged {what}"].where(rounds.refused, rounds[f"{promoted} {what}"])
            assert (rounds[f"{arm} {what}"] == expected).all()


def test_a_round_of_the_study_is_that_of_the_policies(rounds):
    full = gate_experiments.raised(worlds.world("mixture", 2, 5), worlds.LEVEL)
    row = rounds[(rounds.world == "mixture") & (rounds.seed == 2) & (rounds.change == "from narrow, stops early")]
    assert bool(row.new_branch.iloc[0]) == (winners(full)[0][0] >= 4)
    lives = [
        worlds.live(builtin.make("early_stop"), gate_experiments.raised(worlds.world("mixture", 2, number), 6.0))
        for number in (5, 6, 7)
    ]
    assert row["ungated best"].iloc[0] == pytest.approx(np.mean([tree.best for tree in lives]))
    assert row["ungated calls"].iloc[0] == np.mean([len(tree) for tree in lives])


def test_the_tables_are_the_means_of_the_rows(rounds):
    fired = gate_experiments.fires(rounds)
    row = fired[(fired.change == "stops early") & (fired.world == "mixture") & (fired.event == "coverage")].iloc[0]
    mine = rounds[(rounds.change == "stops early") & (rounds.world == "mixture")]
    assert row.share == mine.coverage.mean() and row.seeds == FEW
    assert row.share_low <= row.share <= row.share_high and row.share_high - row.share_low < 1
    worth = gate_experiments.price(rounds, rng())
    row = worth[(worth.change == "stops early") & (worth.world == "mixture") & (worth.arm == "unchanged")].iloc[0]
    assert row.calls_change == pytest.approx((mine["unchanged calls"] - mine["ungated calls"]).mean())
    assert row.best_change == pytest.approx((mine["unchanged best"] - mine["ungated best"]).mean())
    assert (worth[worth.arm == "ungated"][["calls_change", "best_change"]] == 0).all(axis=None)


def test_the_sweep_is_the_rule_of_the_gate_at_every_setting():
    rows = gate_reach.beta_survival(range(2), (1.0, 2.0), schedules=2, noises=(0.05,), n_jobs=1)
    trees = synthetic.corpus(1, noise=0.05)
    for name in ("early_stop", "early_stop:strikes=4", gate_experiments.NARROW):
        new, old = (
            [d.replay(builtin.make(policy), tree, 8, synthetic.MAX_ROUNDS) for tree in trees]
            for policy in (name, "parallel_refine")
        )
        row = rows[(rows.policy == name) & (rows.seed == 1)].iloc[0]
        for factor in (1.0, 2.0):
            settings = [
                (0.02 * a, 0.05 * b)
                for a in np.geomspace(1 / factor, factor, 5)
                for b in np.geomspace(1 / factor, factor, 5)
            ]
            wins = [value(new, beta1=a, beta2=b) - value(old, beta1=a, beta2=b) >= -0.02 for a, b in settings]
            assert row[f"survives {factor:g}"] == all(wins)
    assert set(rows[rows.policy.str.startswith("schedule")].family) == {"schedule"}
    assert gate_reach.family("early_stop:width=4,bootstrap=4") == "early_stop, narrow"
    assert gate_reach.family("early_stop:strikes=3") == "early_stop"


def test_a_wider_sweep_never_has_more_survivors():
    rows = gate_reach.beta_survival(range(4), schedules=4, n_jobs=1)
    for by in ("policy", "family"):
        table = gate_reach.survivors(rows, by)
        shares = table[[f"survives {factor:g}" for factor in gate_reach.FACTORS]].to_numpy()
        assert (np.diff(shares, axis=1) <= 0).all()
        assert (
            (table["survives 2_low"] <= table["survives 2"]) & (table["survives 2"] <= table["survives 2_high"])
        ).all()
    clean = gate_reach.survivors(rows)
    clean = clean[clean.noise == 0].set_index("policy")
    assert clean["survives 2"]["early_stop"] == 1 and clean["covered"][gate_experiments.NARROW] == 0


def test_at_narrow_width_a_miss_is_a_branch_never_opened_or_one_left_too_early():
    trees = [worlds.world("late_peak_last", seed, branches=8) for seed in range(4)]
    rows = gate_reach.at_width(trees, "late")
    refine = rows[rows.policy == "parallel_refine"]
    assert not refine[refine.width <= 6].hit.any() and refine[refine.width == 8].hit.all()
    assert (refine.hit != refine.unopened).all()  # it leaves no branch
    assert ((rows.attainment == 1) >= rows.hit).all()
    shares = gate_reach.width_shares(rows, rng())
    assert shares[(shares.policy == "parallel_refine") & (shares.width == 4)].hit_high.iloc[0] < 0.5
    one = gate_reach.width_shares(gate_reach.at_width(trees[:1], "one"), rng())
    assert (one.hit_low == one.hit_high).all()


def test_ratios_come_from_the_exported_tables(tmp_path):
    table = pd.DataFrame(
        {
            "arm": "dream",
            "against": ["fixed", "fixed", "fixed", "fixed early stop"],
            "setting": ["plateau", "mixture", "all", "plateau"],
            "runs": 4,
            "control": [2.0, 4.0, 3.0, 2.0],
            "equal_rounds": "0.000 [0.000, 0.000]",
            "equal_calls": ["1.000 [0.500, 1.500]", "-1.000 [-2.000, 0.000]", "9 [9, 9]", "9 [9, 9]"],
            "cost": "0.500 [0.400, 0.625]",
        }
    )
    table.to_csv(tmp_path / "worlds.csv", index=False)
    packing = table.iloc[:1].drop(columns="setting").assign(equal_calls="0.000 [0.000, 0.000]")
    packing.to_csv(tmp_path / "packing.csv", index=False)
    found = gate_experiments.ratios({"w": tmp_path / "worlds.csv", "packing": tmp_path / "packing.csv"})
    assert list(found.task) == ["plateau", "mixture", "packing", gate_experiments.GEOMETRIC]
    assert list(found.equal_calls) == pytest.approx([1.5, 0.75, 1.0, (1.5 * 0.75) ** (1 / 3)])
    assert found.equal_calls_low[0] == pytest.approx(1.25) and found.equal_calls_high[1] == pytest.approx(1.0)
    last = found.iloc[-1]
    spans = [math.log(1.75 / 1.25), math.log(1.0 / 0.5), 0.0]
    assert math.log(last.equal_calls_high / last.equal_calls_low) == pytest.approx(math.hypot(*spans) / 3)
    assert last.cost == pytest.approx(0.5) and last.runs == 12
    with pytest.raises(d.UserError, match="run notebook 06 first"):
        gate_experiments.ratios({"w": tmp_path / "none.csv"})


def test_what_the_gate_says_is_one_line_without_paths():
    checks = tuple(Check(name, name == "log", {}, "/a/b/late-6a.jsonl: x\nmore") for name in RULES)
    decision = Decision(kind="gate", outcome="refused", time="", checks=checks)
    table = gate_experiments.checks({"it": decision}).set_index("rule")
    assert table["it"]["coverage"] == "FAILED: late-6a: x; more" and table["it"]["log"].startswith("passed: ")


def test_every_figure_is_drawn_from_its_table(rounds):
    trees = synthetic.committed("history")[:3]
    narrow = builtin.make(gate_experiments.NARROW)
    figure = plots_gate.miss(trees, [d.replay(narrow, tree, 8) for tree in trees])
    assert [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes] == [
        "late-0: passed",
        "late-6a: FAILED",
        "late-6b: FAILED",
    ]
    assert len(plots_gate.fires(gate_experiments.fires(rounds)).axes) == 4
    assert len(plots_gate.price(gate_experiments.price(rounds, rng())).axes) == 8
    swept = gate_reach.beta_survival(range(1), schedules=1, n_jobs=1)
    assert len(plots_gate.survivors(gate_reach.survivors(swept)).axes) == 2
    widths = gate_reach.width_shares(gate_reach.at_width(trees, "late"), rng())
    assert len(plots_gate.at_width(widths).axes) == 4
    assert "[" in experiments.readable(widths).hit.iloc[0]
