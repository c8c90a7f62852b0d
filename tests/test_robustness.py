"""How often a row of the study's table holds: the intervals, the rows, and the survey over fresh corpora."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import dreamrsi as d
from dreamrsi import compare, robustness, synthetic
from dreamrsi.robustness import NARROW_REFINE, NARROW_STOP, ROWS, Reached

SEED = robustness.FIRST_SEED


def walked(seed, noise=0.0, mix=synthetic.ARTICLE):
    trees = synthetic.corpus(seed, mix=mix, noise=noise)
    return trees, d.replay_all([d.policies.make(n) for n in robustness.POLICIES], trees, 8, 80)


@pytest.fixture(scope="module")
def surveyed():
    return robustness.survey(5, (0.0, 0.1), n_jobs=1)


@pytest.mark.parametrize("trials", [1, 7, 200])
def test_wilson_is_scipy_s_interval(trials):
    for successes in sorted({0, 1, trials // 3, trials - 1, trials}):
        known = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
        assert robustness.wilson(successes, trials) == pytest.approx((known.low, known.high), abs=1e-12)


def test_wilson_of_the_study_s_shares():
    assert robustness.wilson(0, 200) == pytest.approx((0, 0.0188), abs=5e-5)
    assert robustness.wilson(83, 200) == pytest.approx((0.3489, 0.4843), abs=5e-5)


def test_without_noise_every_row_holds_in_the_article_s_mix(surveyed):
    rows = surveyed[0].query("mix == 'article' and noise == 0")
    assert list(rows.row) == list(ROWS)
    assert (rows.holds == 1).all() and (rows.corpora == 5).all()
    assert rows.low.to_numpy() == pytest.approx(robustness.wilson(5, 5)[0]) and (rows.high == 1).all()


def test_one_cell_is_what_its_corpora_give_one_by_one(surveyed):
    rows, misses = (t[(t.mix == "free") & (t.noise == 0.1)] for t in surveyed)
    corpora = [walked(seed, 0.1, "free") for seed in range(SEED, SEED + 5)]
    for row in rows.itertuples():
        holds = sum(ROWS[row.row](Reached.of(episodes, trees)) for trees, episodes in corpora)
        assert (row.corpora, row.holds) == (5, holds / 5)
        assert (row.low, row.high) == robustness.wilson(holds, 5)
    assert list(misses.policy) == list(robustness.POLICIES)
    assert not np.isin(misses.hits, [0, 6]).all()  # there is something to count
    for row in misses.itertuples():
        found = [[d.outcome(*pair) for pair in zip(e[row.policy], t, strict=True)] for t, e in corpora]
        hits, attempts = ([[getattr(x, f) for x in corpus] for corpus in found] for f in ("hit", "attempts"))
        assert row.hits == np.mean([sum(corpus) for corpus in hits])
        assert row.attempts == pytest.approx(np.mean(attempts))
        sem = np.std([sum(corpus) for corpus in hits], ddof=1) / np.sqrt(5)
        assert row.hits_ci == pytest.approx(1.95996398 * sem)
        assert row.attempts_ci == pytest.approx(1.95996398 * np.std(np.mean(attempts, 1), ddof=1) / np.sqrt(5))
        missed = [x.opened for corpus in found for x in corpus if not x.hit]
        assert row.missed_open == pytest.approx(sum(missed) / 30)
        assert row.missed_unopened == pytest.approx((len(missed) - sum(missed)) / 30)


def test_every_tree_is_hit_or_missed_open_or_missed_unopened(surveyed):
    misses = surveyed[1]
    assert (misses.hits / 6 + misses.missed_open + misses.missed_unopened).to_numpy() == pytest.approx(1)
    assert (misses.missed_open > 0).any() and (misses.missed_unopened > 0).any()


def test_the_number_of_processes_changes_nothing(surveyed):
    for one, two in zip(surveyed, robustness.survey(5, (0.0, 0.1), n_jobs=2), strict=True):
        pd.testing.assert_frame_equal(one, two)


def test_a_survey_of_nothing_is_refused():
    with pytest.raises(d.UserError, match="corpora is 0; a share needs at least one"):
        robustness.survey(0)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_is_selected_in_a_survey_is_what_compare_selects(noise):
    columns = ["policy", "quality", "attempts", "V", "quality_ratio", "attempt_ratio", "goes_on"]
    for seed in range(SEED, SEED + 6):
        trees, episodes = walked(seed, noise, "free")
        found, full = Reached.of(episodes, trees).comparison, compare.compare(trees, d.policies.ARTICLE)
        pd.testing.assert_frame_equal(found[columns], full[columns])
        assert compare.selected(found) == compare.selected(full)


def test_the_lean_rule_has_no_ratio_of_qualities_that_are_not_positive():
    rows = pd.DataFrame({"quality": [-1.0, -2.0], "attempts": [4.0, 2.0]}, ["a", "b"])
    found = compare.go_on(rows, "a")
    assert found.quality_ratio.isna().all() and list(found.attempt_ratio) == [1.0, 0.5] and not found.goes_on.any()


def test_wide_shows_every_share_in_the_column_of_its_noise():
    rows = pd.DataFrame(
        [
            {"mix": mix, "noise": noise, "row": row, "corpora": 9, "holds": holds, "low": holds / 2, "high": 1.0}
            for mix, noise, row, holds in [
                ("article", 0.0, "z first", 0.125),
                ("article", 0.0, "a second", 0.25),
                ("article", 0.05, "z first", 0.5),
                ("article", 0.05, "a second", 1.0),
                ("free", 0.0, "z first", 0.0),
                ("free", 0.05, "z first", 0.75),
            ]
        ]
    )
    found = robustness.wide(rows)
    assert list(found.columns) == ["mix", "row", "noise 0", "noise 0.05"]
    assert found.to_numpy().tolist() == [
        ["article", "z first", "0.125 [0.062, 1.000]", "0.500 [0.250, 1.000]"],
        ["article", "a second", "0.250 [0.125, 1.000]", "1.000 [0.500, 1.000]"],
        ["free", "z first", "0.000 [0.000, 1.000]", "0.750 [0.375, 1.000]"],
    ]


# --- every row can fail -------------------------------------------------------------------------------------------


def lacks(policy, place, unopened=False):
    """Plant a near miss of a policy on one tree; ``unopened`` leaves the winner's branch closed."""

    def plant(trees, episodes):
        old, best = episodes[policy][place], trees[place].best_attempt
        reveals = [best.branch + 1 if unopened and branch == best.branch else branch for branch in old.reveals]
        episodes[policy][place] = replace(old, best=trees[place].best - 0.01, reveals=reveals)

    return plant


def finds(policy, place, at_once=False):
    """Plant a hit of a policy on one tree, by its last attempt or by its first and only one."""

    def plant(trees, episodes):
        old, best = episodes[policy][place], trees[place].best_attempt
        reveals = [] if at_once else old.reveals[:-1]
        episodes[policy][place] = replace(old, best=trees[place].best, reveals=[*reveals, best.branch])

    return plant


def costs(policy, rounds=0, attempts=0, places=(-1,)):
    """Plant rounds that revealed nothing, or attempts that found nothing better, on some trees."""

    def plant(trees, episodes):
        for place in places:
            old = episodes[policy][place]
            picks, reveals = old.picks + ((0,),) * rounds, [*old.reveals, *[0] * attempts]
            episodes[policy][place] = replace(old, picks=picks, reveals=reveals)

    return plant


def drops(policy, rounds=0):
    """Plant a first episode without its second attempt, or without its last rounds."""

    def plant(trees, episodes):
        old = episodes[policy][0]
        picks = old.picks[: len(old.picks) - rounds]
        reveals = old.reveals if rounds else [*old.reveals[:1], *old.reveals[2:]]
        episodes[policy][0] = replace(old, picks=picks, reveals=reveals)

    return plant


def both(*plants):
    """Plant one after the other."""

    def plant(trees, episodes):
        for one in plants:
            one(trees, episodes)

    return plant


# What is planted -> the rows that it must break, and no other. The trees: a winner on branch 0 is first, one on
# branch 6 second, the early peak fourth.
PLANTED = {
    "parallel refine misses": (lacks("parallel_refine", 0), {"parallel refine hits all"}),
    "parallel refine needs a round more": (
        costs("parallel_refine", rounds=1),
        {"parallel refine: 88 attempts, 11 rounds"},
    ),
    "parallel refine makes an attempt more": (
        costs("parallel_refine", attempts=1),
        {"parallel refine: 88 attempts, 11 rounds"},
    ),
    "early stop misses": (
        lacks("early_stop", 3),
        {
            "early stop hits all",
            "early stop at width 4 hits what it hits at 8",
            "early stop dominates greedy at any betas",
        },
    ),
    "early stop misses at both widths": (
        both(lacks("early_stop", 3), lacks(NARROW_STOP, 3)),
        {"early stop hits all", "early stop at width 4 hits all", "early stop dominates greedy at any betas"},
    ),
    "early stop makes an attempt more on one tree": (
        costs("early_stop", attempts=1),
        {"early stop: 44 attempts a tree on average"},
    ),
    "early stop makes an attempt less on one tree": (
        drops("early_stop"),
        {"early stop: 44 attempts a tree on average"},
    ),
    "greedy best misses": (lacks("greedy_best", 5), {"greedy best hits all"}),
    "greedy best stops early": (drops("greedy_best", rounds=1), {"greedy best: 87 attempts, 80 rounds"}),
    "guidance misses the early peak": (lacks("semantic_guidance", 3), {"guidance hits early peaks only"}),
    "guidance finds a late peak": (finds("semantic_guidance", 1), {"guidance hits early peaks only"}),
    "width 4 finds branch 6": (finds(NARROW_REFINE, 1), {"refine at width 4 hits branches 0-3 only"}),
    "width 4 misses branch 0, open": (
        lacks(NARROW_REFINE, 0),
        {"refine at width 4 hits branches 0-3 only", "its misses are on branches never opened"},
    ),
    "width 4 misses branch 0, never opened": (
        lacks(NARROW_REFINE, 0, unopened=True),
        {"refine at width 4 hits branches 0-3 only"},
    ),
    "width 4 needs a round more": (
        costs(NARROW_REFINE, rounds=1),
        {"refine at width 4: 44 attempts, 11 rounds"},
    ),
    "early stop at width 4 misses": (
        lacks(NARROW_STOP, 3),
        {"early stop at width 4 hits all", "early stop at width 4 hits what it hits at 8"},
    ),
    "early stop pays more rounds than greedy": (
        costs("early_stop", rounds=80, places=range(6)),
        {"early stop dominates greedy at any betas"},
    ),
    "early stop saves too little": (
        costs("early_stop", attempts=6 * 30),
        {"early stop: 44 attempts a tree on average", "early stop is selected"},
    ),
    "guidance finds as much at once": (
        both(*(finds("semantic_guidance", place, at_once=True) for place in (0, 1, 2, 4, 5))),
        {"guidance hits early peaks only", "early stop is selected"},
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_counterexample_breaks_its_rows_and_no_other(name):
    plant, expected = PLANTED[name]
    trees, episodes = walked(SEED)
    assert all(test(Reached.of(episodes, trees)) for test in ROWS.values())
    plant(trees, episodes)
    reached = Reached.of(episodes, trees)
    assert {row for row, test in ROWS.items() if not test(reached)} == expected


def test_no_row_is_left_without_a_counterexample():
    assert set().union(*(rows for _, rows in PLANTED.values())) == set(ROWS)
