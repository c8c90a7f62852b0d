"""The synthetic corpus: its shape, its fixed bytes, and what the article's table says it must show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import compare, synthetic

FOLDER = Path(__file__).parent.parent / "synthetic"
POLICIES = [*d.policies.ARTICLE, "portfolio", "parallel_refine:width=4,bootstrap=4", "early_stop:width=4,bootstrap=4"]


def outcomes(trees):
    """Policy name -> one outcome a tree, at the settings of the study."""
    episodes = d.replay_all([d.policies.make(n) for n in POLICIES], trees, synthetic.WIDTH, synthetic.MAX_ROUNDS)
    return {name: [d.outcome(e, t) for e, t in zip(row, trees, strict=True)] for name, row in episodes.items()}


@pytest.fixture(scope="module", params=["history", "heldout"])
def committed(request):
    trees = synthetic.load(FOLDER / request.param)
    return trees, outcomes(trees)


def column(rows, field):
    return [getattr(row, field) for row in rows]


def test_the_committed_files_are_the_generator_s_output(tmp_path):
    synthetic.write(tmp_path)
    written = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.jsonl"))
    assert written == sorted(p.relative_to(FOLDER) for p in FOLDER.rglob("*.jsonl"))
    for path in written:
        assert (tmp_path / path).read_bytes() == (FOLDER / path).read_bytes()


def test_every_header_says_synthetic(committed):
    trees, _ = committed
    assert len(trees) == 6 and all(tree.header.synthetic for tree in trees)


def test_parallel_refine_hits_all_six(committed):
    rows = committed[1]["parallel_refine"]
    assert column(rows, "hit") == [True] * 6
    assert column(rows, "attempts") == [88] * 6
    assert column(rows, "rounds") == [11] * 6


def test_early_stop_hits_all_six_with_half_the_attempts(committed):
    rows = committed[1]["early_stop"]
    assert column(rows, "hit") == [True] * 6
    assert np.mean(column(rows, "attempts")) == 44


def test_greedy_hits_all_six_and_pays_for_it(committed):
    rows = committed[1]["greedy_best"]
    assert column(rows, "hit") == [True] * 6
    assert column(rows, "attempts") == [87] * 6
    assert column(rows, "rounds") == [80] * 6


def test_semantic_guidance_hits_the_math_tree_only(committed):
    assert column(committed[1]["semantic_guidance"], "hit") == [False, False, False, True, False, False]


def test_frozen_at_width_4_parallel_refine_misses_on_branches_it_never_opened(committed):
    rows = committed[1]["parallel_refine:width=4,bootstrap=4"]
    assert sum(column(rows, "hit")) == 2
    assert [row.opened for row in rows if not row.hit] == [False] * 4
    assert column(rows, "attempts") == [44] * 6
    assert column(rows, "rounds") == [11] * 6


def test_early_stop_at_width_4_visits_what_it_visits_at_width_8(committed):
    trees, rows = committed
    assert column(rows["early_stop:width=4,bootstrap=4"], "hit") == [True] * 6
    for tree in trees:
        wide = d.replay(d.policies.EarlyStop(), tree, 8)
        narrow = d.replay(d.policies.EarlyStop(width=4, bootstrap=4), tree, 8)
        assert set(wide.order) == set(narrow.order)


def test_early_stop_is_selected_on_history_and_holds_on_the_held_out_trees():
    for folder in ("history", "heldout"):
        comparison = compare.compare(synthetic.load(FOLDER / folder), d.policies.ARTICLE)
        early = comparison.set_index("policy").loc["early_stop"]
        assert early.quality_ratio == pytest.approx(1.0, abs=5e-4)
        assert early.attempt_ratio == pytest.approx(0.5, abs=5e-4)
        assert compare.selected(comparison) == "early_stop"


def test_greedy_cannot_win_at_any_betas(committed):
    for early, greedy in zip(committed[1]["early_stop"], committed[1]["greedy_best"], strict=True):
        assert early.quality >= greedy.quality
        assert early.attempts <= greedy.attempts
        assert early.attempts / early.rounds >= greedy.attempts / greedy.rounds


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(4, 60))
def test_the_rules_of_the_readme_hold_at_any_size(seed, branches, steps):
    for tree in synthetic.corpus(seed, branches=branches, steps=steps):
        scores = np.array([[a.score for a in branch] for branch in tree.branches])
        assert scores.shape == (branches, steps)
        winner = tree.header.provenance["winner"]
        family = tree.header.task.split("/")[1]
        losers = np.delete(scores, winner, axis=0)
        assert scores[winner].max() > 8.8 and losers.max() <= 7.8
        assert scores[winner].argmax() == {"late_peak": steps - 1, "early_peak": 0}.get(family, scores[winner].argmax())
        for row in losers:  # strictly up to the ceiling, strictly below it afterwards
            top = row.argmax()
            assert (np.diff(row[: top + 1]) > 0).all() and (row[top + 1 :] < row[top]).all()
            assert top <= steps - 2
        if branches > 2:
            assert (losers.max(axis=1) < scores[winner, 0]).any()
        tags = [branch[0].tag for branch in tree.branches]
        assert (tags[winner] == tree.header.recommended) is (family == "early_peak")
        if branches == 8:
            assert tags.count(tree.header.recommended) in (3, 4)
            if family == "late_peak":
                assert max(scores[b, 0] for b in range(4) if b != winner) > scores[winner, 0]


def test_free_corpora_draw_winner_family_and_tag():
    trees = [tree for seed in range(60) for tree in synthetic.corpus(seed, mix="free")]
    assert {tree.header.task for tree in trees} == {f"synthetic/{family}" for family in synthetic.FAMILIES}
    assert {tree.header.provenance["winner"] for tree in trees} == set(range(8))
    advised = [tree.branches[tree.header.provenance["winner"]][0].tag == tree.header.recommended for tree in trees]
    assert 0.3 < np.mean(advised) < 0.7


def test_a_flat_plateau_kills_early_stop():
    kernel = [spec for spec in synthetic.ARTICLE if spec.family == "plateau"]
    for tree in synthetic.corpus(5, mix=kernel, creep=0.0):
        found = d.outcome(d.replay(d.policies.EarlyStop(), tree, 8), tree)
        assert not found.hit and found.opened


@pytest.mark.parametrize("wrong", [{"branches": 1}, {"steps": 3}, {"winner": 8}, {"family": "cliff"}])
def test_impossible_trees_are_refused(wrong):
    with pytest.raises(d.UserError):
        synthetic.draw(**({"family": "plateau", "rng": np.random.default_rng(0)} | wrong))
