"""Eq. 1 and what is built on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from strategies import builtin_policies, tree_of, trees

BETAS = st.floats(0, 10, allow_nan=False)


@given(
    st.lists(builtin_policies(), min_size=1, max_size=4, unique_by=lambda p: p.name),
    st.lists(trees(), min_size=1, max_size=3),
    BETAS,
    BETAS,
)
def test_the_map_is_eq_1_at_every_setting(policies, trees_, beta1, beta2):
    episodes = d.replay_all(policies, trees_, 3)
    found = d.score_map(episodes, [0.0, beta1], [beta2])
    assert found.values.shape == (len(policies), 2, 1)
    for place, row in enumerate(episodes.values()):
        expected = d.value(row, beta1=beta1, beta2=beta2)
        if expected == -math.inf:
            assert found.values[place, 1, 0] == -math.inf
        else:
            assert found.values[place, 1, 0] == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert sum(found.share().values()) == pytest.approx(1)
    assert (found.margin >= 0).all()


@given(
    st.dictionaries(st.text(max_size=3), st.one_of(st.just(-math.inf), st.integers(0, 3).map(float)), min_size=1),
    st.data(),
)
def test_the_selected_policy_is_no_worse_than_the_current_one(values, data):
    current = data.draw(st.sampled_from(list(values)))
    chosen = d.select(values, current)
    assert values[chosen] >= values[current]
    assert values[chosen] == max(values.values())
    if values[current] == values[chosen]:
        assert chosen == current


@given(
    st.lists(builtin_policies(), min_size=2, max_size=5, unique_by=lambda p: p.name),
    st.lists(trees(), min_size=1, max_size=3),
    BETAS,
    BETAS,
)
def test_selection_on_the_history_never_loses_value(policies, trees_, beta1, beta2):
    values = {n: d.value(row, beta1=beta1, beta2=beta2) for n, row in d.replay_all(policies, trees_, 3).items()}
    current = policies[0].name
    assert values[d.select(values, current)] >= values[current]


def test_ties_go_to_the_current_policy_and_then_to_the_earlier_one():
    assert d.select({"a": 1.0, "b": 2.0, "c": 2.0}, "c") == "c"
    assert d.select({"a": 1.0, "b": 2.0, "c": 2.0}, "a") == "b"
    assert d.select({"a": -math.inf, "b": -math.inf}, "b") == "b"


def test_a_selection_without_the_current_policy_is_refused():
    with pytest.raises(d.UserError, match="the current policy, z, is not among the candidates a"):
        d.select({"a": 1.0}, "z")


def test_an_outcome_says_what_was_reached_and_whether_the_branch_was_opened():
    tree = tree_of([[1.0, 2.0], [1.0, 5.0]], steps=2, branches=2)
    miss = d.outcome(d.replay(d.policies.ParallelRefine(width=1), tree, 2), tree)
    assert (miss.quality, miss.attempts, miss.rounds, miss.hit, miss.regret, miss.opened) == (
        2.0,
        2,
        2,
        False,
        3.0,
        False,
    )
    hit = d.outcome(d.replay(d.policies.ParallelRefine(), tree, 2), tree)
    assert (hit.hit, hit.regret, hit.opened) == (True, 0.0, True)


def test_a_tie_for_the_best_is_hit_on_either_branch():
    tree = tree_of([[1.0, 5.0], [5.0, 2.0]], steps=2, branches=2)
    for branch, policy in enumerate((d.policies.ParallelRefine(width=1), Second())):
        found = d.outcome(d.replay(policy, tree, 2), tree)
        assert (found.hit, found.opened, found.regret) == (True, True, 0.0), branch


class Second:
    """Opens both branches and extends neither."""

    name = "second"

    def start(self, width):
        pass

    def choose(self, prefix):
        return [d.OPEN] * 2 if prefix.round == 0 else []


@given(builtin_policies(), trees(), st.integers(1, 4))
def test_what_is_hit_was_opened_and_attained(policy, tree, width):
    found = d.outcome(d.replay(policy, tree, width), tree)
    if found.hit:
        assert found.opened and found.regret == 0.0 and found.attainment == 1.0
    else:
        assert found.regret > 0.0 or tree.best == -math.inf
    assert 0.0 <= found.attainment <= 1.0


def test_attainment_is_the_share_of_the_way_from_the_root():
    tree = tree_of([[2.0, 3.0, 9.0]], root=1.0)
    episode = d.Episode("p", "t", ((-1,), (0,)), (0, 0), 3.0, "stopped")
    assert d.outcome(episode, tree).attainment == pytest.approx(2 / 8)
    assert d.outcome(episode, tree_of([[2.0, 3.0, 9.0]])).attainment == pytest.approx(1 / 7)  # 2 stands in for the root
    assert d.outcome(d.replay(d.policies.ParallelRefine(), tree_of([[1.0]], root=5.0), 1), tree).attainment > 0.0


def test_the_root_counts_as_revealed():
    tree = tree_of([[1.0, 2.0]], root=9.0)
    found = d.outcome(d.replay(d.policies.ParallelRefine(), tree, 1), tree)
    assert (found.quality, found.hit, found.opened) == (9.0, True, True)


def test_a_failed_policy_has_infinite_regret_and_no_hit():
    tree = tree_of([[1.0]])
    found = d.outcome(d.Episode("p", "t", (), (), -math.inf, "failed", "why"), tree)
    assert (found.hit, found.regret) == (False, math.inf)


def test_normalising_by_the_range_divides_by_best_minus_root():
    trees_ = [tree_of([[10.0, 30.0]], root=10.0), tree_of([[1.0, 2.0]])]
    episodes = d.replay_all([d.policies.ParallelRefine()], trees_, 1)["parallel_refine"]
    found = d.value(episodes, beta1=0.1, beta2=0.0, trees=trees_, normalise="range")
    assert found == pytest.approx((30 / 20 - 0.2 + 2 / 1 - 0.2) / 2)  # the lowest score stands in for the missing root
    flat = tree_of([[3.0]], root=3.0)
    with pytest.raises(d.UserError, match="no better than the root"):
        d.value(episodes[:1], beta1=0, beta2=0, trees=[flat], normalise="range")


def test_a_tree_whose_attempts_all_failed_is_left_out_with_a_warning():
    good, bad = tree_of([[1.0]]), tree_of([[None, None]])
    bad.name = "bad.jsonl"
    with pytest.warns(UserWarning, match=r"bad.jsonl: no attempt has a score"):
        assert d.history([bad, good]) == [good]


def test_empty_histories_and_odd_betas_are_refused():
    with pytest.raises(d.UserError, match="history is empty"):
        d.value([], beta1=0, beta2=0)
    episodes = {"a": [d.replay(d.policies.ParallelRefine(), tree_of([[1.0]]), 1)]}
    for betas in ([np.nan], [[1.0]], [np.inf]):
        with pytest.raises(d.UserError, match="beta1s must be"):
            d.score_map(episodes, betas, [0.0])
    with pytest.raises(d.UserError, match="one episode a tree"):
        d.score_map({}, [0.0], [0.0])
    with pytest.raises(d.UserError, match="one episode a tree"):
        d.score_map(episodes | {"b": []}, [0.0], [0.0])


def test_the_margin_is_the_distance_to_the_second():
    tree = tree_of([[1.0, 2.0]] * 2, steps=2, branches=2)
    episodes = d.replay_all([d.policies.ParallelRefine(), d.policies.ParallelRefine(width=1)], [tree], 2)
    found = d.score_map(episodes, [0.0, 0.1, 0.5], [0.3])  # V is 2 - 4 b1 + 2 b2 and 2 - 2 b1 + b2
    assert found.margin.ravel() == pytest.approx([0.3, 0.1, 0.7])
    assert found.winner.ravel().tolist() == [0, 0, 1]
    assert d.score_map({"one": episodes["parallel_refine"]}, [0.0], [0.0]).margin.item() == math.inf


def test_the_map_says_how_far_a_winner_holds():
    chains = [[1.0, 2.0]] * 2
    tree = tree_of(chains, steps=2, branches=2)
    episodes = d.replay_all([d.policies.ParallelRefine(), d.policies.ParallelRefine(width=1)], [tree], 2)
    # both reach 2.0 in two rounds; the wide one pays two attempts more and is paid for one attempt more a round
    found = d.score_map(episodes, np.linspace(0, 1, 11), np.linspace(0, 1, 11))
    winner, over_beta1, over_beta2 = found.holds(0.1, 0.5)
    assert winner == "parallel_refine"
    assert over_beta1 == pytest.approx((0.0, 0.2)) and over_beta2 == pytest.approx((0.2, 1.0))  # 2 beta1 <= beta2
    assert found.holds(0.9, 0.0)[0] == "parallel_refine:width=1"
