"""The policies' rules on trees small enough to follow by hand; golden values of the paper's public toys."""

from __future__ import annotations

import itertools

import pytest

import dreamrsi as d
from strategies import tree_of

A = [0.40, 0.52, 0.61, 0.63, 0.64]
B = [0.35, 0.37, 0.36, 0.38, 0.37]
C = [0.30, 0.45, 0.58, 0.70, 0.71]


class DropB:
    """Refine A and C, leave B after its first attempt."""

    name = "drop_b"

    def start(self, width):
        pass

    def choose(self, prefix):
        return (
            [d.OPEN] * 3
            if not prefix.branches
            else [b.number for b in prefix.branches if b.number != 1 and not b.ended]
        )


class TwoRounds:
    name = "two_rounds"

    def start(self, width):
        pass

    def choose(self, prefix):
        return ([d.OPEN] * 3, [0, 1, 2], [])[prefix.round]


@pytest.mark.parametrize(
    ("policy", "attempts", "rounds", "value"),
    [(d.policies.ParallelRefine(), 15, 5, 0.575), (DropB(), 11, 5, 0.611), (TwoRounds(), 6, 2, 0.475)],
)
def test_golden_values_of_eq_1(policy, attempts, rounds, value):
    episode = d.replay(policy, tree_of([A, B, C], steps=5, branches=3), 3)
    assert (episode.attempts, episode.rounds) == (attempts, rounds)
    assert d.score(episode, beta1=0.01, beta2=0.005) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("policy", "place"),
    [
        (d.policies.ParallelRefine(), 13),
        (d.policies.GreedyBest(bootstrap=1), 11),
        (d.policies.GreedyBest(bootstrap=3), 14),
    ],
)
def test_golden_attempt_at_which_the_best_is_reached(policy, place):
    chains = [[0.31, 0.42, 0.44, 0.45, 0.46, 0.47], [0.18, 0.29, 0.58, 0.79, 0.86], [0.24, 0.26, 0.30]]
    tree = tree_of(chains, steps=6, branches=3)
    order = d.replay(policy, tree, 3, max_rounds=99).order
    assert [tree.branches[b][a].score for b, a in order].index(0.86) + 1 == place


def picks(policy, tree, width=2, **options):
    return d.replay(policy, tree, width, max_rounds=99, **options).picks


def test_parallel_refine_never_opens_more_than_its_bootstrap():
    tree = tree_of([[1.0, 2.0]] * 4, steps=2, branches=4)
    assert picks(d.policies.ParallelRefine(), tree) == ((-1, -1), (0, 1))
    assert picks(d.policies.ParallelRefine(width=1), tree) == ((-1,), (0,))
    assert picks(d.policies.ParallelRefine(bootstrap=3), tree) == ((-1, -1), (0, 1), (-1,), (2,))


def test_early_stop_drops_after_two_strikes_and_the_worker_opens_the_next_branch():
    chains = [[5.0, 4.0, 5.0, 9.0], [1.0, 2.0, 1.0, 3.0], [0.0, 1.0, 2.0, 3.0]]
    tree = tree_of(chains, steps=4, branches=3)
    # 0 strikes at its second and third attempt (a tie is no improvement); 1 strikes once, recovers, and ends
    assert picks(d.policies.EarlyStop(), tree) == ((-1, -1), (0, 1), (0, 1), (1, -1), (2,), (2,), (2,))
    assert d.replay(d.policies.EarlyStop(), tree, 2).best == 5.0
    assert d.replay(d.policies.EarlyStop(strikes=3), tree, 2).best == 9.0


def test_early_stop_counts_failures_as_strikes():
    tree = tree_of([[None, None, 9.0], [1.0, None, 2.0]], steps=3, branches=2)
    assert picks(d.policies.EarlyStop(), tree) == ((-1, -1), (0, 1), (1,))


def test_greedy_extends_the_best_leaf_one_a_round_and_opens_only_when_none_is_live():
    tree = tree_of([[3.0, 1.0], [2.0, 2.5], [9.0, 9.5]], steps=2, branches=3)
    assert picks(d.policies.GreedyBest(), tree) == ((-1, -1), (0,), (1,), (-1,), (2,))


def test_greedy_ranks_a_failed_leaf_last():
    tree = tree_of([[None, 9.0], [-5.0, -6.0]], steps=2, branches=2)
    assert picks(d.policies.GreedyBest(), tree) == ((-1, -1), (1,), (0,))


def test_greedy_goes_by_the_leaf_and_not_by_the_best():
    tree = tree_of([[9.0, 1.0, 1.0], [5.0, 5.0, 5.0]], steps=3, branches=2)
    assert picks(d.policies.GreedyBest(), tree) == ((-1, -1), (0,), (1,), (1,), (0,))


def test_early_stop_opens_its_bootstrap_first_and_fills_its_width_later():
    tree = tree_of([[1.0, 2.0, 3.0]] * 4, steps=3, branches=4)
    assert picks(d.policies.EarlyStop(bootstrap=1), tree, 3)[:2] == ((-1,), (0, -1, -1))
    assert picks(d.policies.EarlyStop(width=2), tree, 3)[:2] == ((-1, -1), (0, 1))


def test_adaptive_takes_the_best_leaves():
    # after the first round the best has risen: width 4 becomes 2, and the leaves 7 and 6 are the best two
    tree = tree_of([[5.0, 0.0], [7.0, 1.0], [6.0, 0.0], [4.0, 0.0]], steps=2, branches=4)
    assert picks(d.policies.Adaptive(), tree, 4)[1] == (1, 2)
    # leaf and best differ: branch 0 fell from 9 to 1, so branch 1 is ahead
    fallen = tree_of([[9.0, 1.0, 1.0], [5.0, 5.0, 5.0]], steps=3, branches=2)
    assert picks(d.policies.Adaptive(), fallen, 2)[:3] == ((-1, -1), (0,), (1, 0))


def test_adaptive_narrows_while_the_best_improves_and_widens_when_it_stalls():
    tree = tree_of([[1.0, 2.0, 2.0, 2.0], [1.5, 1.6, 1.0, 1.0]] + [[0.0] * 4] * 2, steps=4, branches=4)
    # 4 wide; the best rose: 2; it rose to 2.0: 1; it stalled: 2; stalled: 4, but only 3 are live
    assert [len(batch) for batch in picks(d.policies.Adaptive(), tree, 4)] == [4, 2, 1, 2, 3, 2, 2]
    assert picks(d.policies.Adaptive(), tree, 4)[1] == (1, 0)


def test_semantic_guidance_extends_only_the_recommended_tag():
    tree = tree_of([[1.0, 2.0]] * 3, steps=2, branches=3, recommended="a", tags=["a", "b", "a"])
    assert picks(d.policies.SemanticGuidance(), tree, 3) == ((-1, -1, -1), (0, 2))


def test_semantic_guidance_without_advice_stops_after_its_bootstrap():
    tree = tree_of([[1.0, 2.0]] * 3, steps=2, branches=3)
    assert picks(d.policies.SemanticGuidance(), tree, 3) == ((-1, -1, -1),)


def test_portfolio_fills_recovery_then_exploitation_then_exploration():
    chains = [[None, 1.0, 2.0], [3.0, 4.0, 5.0], [None, 1.0, 1.0], [2.0, 2.5, 2.6], [1.0, 1.1, 1.2]]
    tree = tree_of(chains, steps=3, branches=5)
    rounds = picks(d.policies.Portfolio(), tree, 4)
    assert rounds[0] == (-1, -1, -1, -1)
    assert rounds[1] == (0, 1, 3)  # one recovery, half of the width, no sound branch left to explore, and 4 are live
    assert rounds[2] == (2, 1, 3, 0)  # the other recovery, the two best, and the least extended
    opened = [number for number, batch in enumerate(rounds) if -1 in batch]
    assert opened == [0, 3]  # the fifth branch waits until fewer than four are live


def test_portfolio_recovers_a_first_failure_in_a_row_and_no_other():
    # a failure after a stall is still a first failure; the second in a row is not
    chains = [[5.0, 4.0, None, 9.0], [1.0, 2.0, 3.0, 4.0]]
    assert picks(d.policies.Portfolio(), tree_of(chains, steps=4, branches=2), 2)[3] == (0, 1)
    chains = [[5.0, None, None, 9.0], [1.0, 2.0, 3.0, 4.0]]
    rounds = picks(d.policies.Portfolio(), tree_of(chains, steps=4, branches=2), 2)
    assert rounds[1:] == ((0, 1), (0, 1), (1,))


def test_portfolio_retires_after_three_attempts_without_improvement():
    chains = [[5.0, 4.0, 4.0, 4.0, 9.0], [1.0, 2.0, 3.0, 4.0, 4.5]]
    rounds = picks(d.policies.Portfolio(), tree_of(chains, steps=5, branches=2), 2)
    assert [0 in batch for batch in rounds] == [False, True, True, True, False]


def test_portfolio_lists_half_of_the_width_rounded_up_by_best_and_the_rest_by_attempts():
    chains = [[4.0, 4.1, 4.2], [3.0, 3.1, 3.2], [2.0, 2.0, 2.0], [1.0, 1.1, 1.2], [0.5, 0.6, 0.7]]
    rounds = picks(d.policies.Portfolio(), tree_of(chains, steps=3, branches=5), 5)
    assert rounds[1] == (0, 1, 2, 3, 4)
    chains = [[0.5, 0.6, 0.7], [1.0, 1.1, 1.2], [2.0, 2.1, 2.2], [3.0, 3.1, 3.2], [4.0, 4.1, 4.2]]
    rounds = picks(d.policies.Portfolio(), tree_of(chains, steps=3, branches=5), 5)
    assert rounds[1] == (4, 3, 2, 1, 0)


def test_random_is_the_same_for_the_same_seed_and_stops():
    tree = tree_of([[1.0] * 9] * 9, steps=9, branches=9)
    runs = {picks(d.policies.Random(seed), tree, 4) for seed in range(20)}
    assert len(runs) > 10
    sizes = [len(batch) for run in runs for batch in run[1:]]
    assert max(sizes) == 4 and min(sizes) == 1
    lengths = [len(run) for run in runs]
    assert min(lengths) < 5 and max(lengths) < 81  # it stops by itself, mostly early


def test_random_draws_a_number_up_to_the_width_even_when_less_is_open():
    # of two live branches a draw from 1 to 8 takes both in 7 of 8 rounds; a draw from 1 to 2 would in half of them
    tree = tree_of([[1.0] * 99] * 2, steps=99, branches=2)
    sizes = [
        len(batch)
        for seed in range(60)
        for before, batch in itertools.pairwise(picks(d.policies.Random(seed), tree, 8))
        if {0, 1} <= {*before, *batch}
    ]
    assert len(sizes) > 100 and sizes.count(2) / len(sizes) > 0.75


@pytest.mark.parametrize("name", list(d.policies.BUILTIN))
def test_names_build_the_policy_again(name):
    policy = d.policies.make(name)
    assert d.policies.make(policy.name).name == policy.name


def test_parameters_are_in_the_name():
    assert d.policies.ParallelRefine(width=4, bootstrap=4).name == "parallel_refine:width=4,bootstrap=4"
    assert d.policies.EarlyStop().name == "early_stop"
    assert d.policies.make("early_stop:strikes=3").name == "early_stop:strikes=3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("greedy", "there is no policy 'greedy'; choose one of parallel_refine, early_stop, greedy_best"),
        ("early_stop:strike=3", "policy early_stop has no parameter 'strike'; it has strikes, width, bootstrap"),
        ("adaptive:width=3", "policy adaptive has no parameter 'width'; it has none"),
        ("early_stop:strikes=two", "policy early_stop: strikes=two is not a whole number"),
        ("parallel_refine:width=0", "width is 0; it must be a whole number of at least 1"),
    ],
)
def test_a_wrong_name_says_what_there_is(text, message):
    with pytest.raises(d.UserError, match=message):
        d.policies.make(text)
