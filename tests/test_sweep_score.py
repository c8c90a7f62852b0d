"""The sweep score by hand and by property, the rule for the knob, and what other implementations had wrong there."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import sweep_score as s
from dreamrsi import synthetic
from dreamrsi.grid_plan import GridPlan
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.schedule import EARLY_STOP, PARALLEL_REFINE, Schedule, source
from dreamrsi.sweep_score import BETAS, SweepScore, area, next_beta, parallel_penalty, replay_betas, sweep_score
from strategies import tree_of, trees
from test_schedule import load, schedules

SHARES = st.floats(0, 1, allow_nan=False)
POINTS = st.lists(st.tuples(st.floats(0, 1.5), SHARES), max_size=12)
TREE = tree_of([[2.0, 6.0, 4.0], [4.0, 10.0, 3.0]], steps=3, branches=2, root=0.0)


class Knob:
    """Opens one branch and extends it; at beta 0.5 and above it opens both."""

    name = "knob"
    beta = 0.2

    def start(self, width):
        pass

    def choose(self, prefix):
        if prefix.round == 0:
            return [d.OPEN] * (1 if self.beta < 0.5 else 2)
        return [b.number for b in prefix.branches] if prefix.round == 1 else []


def test_the_score_by_hand():
    # below 0.5: 2 of 6 attempts in 2 rounds, best 6 of 10; from 0.5 on: 4 of 6 in 2 rounds, best 10
    episodes = replay_betas(Knob(), [TREE], 2)
    found = sweep_score(episodes, [TREE], 2)
    assert found.betas == BETAS == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert found.work == (2 / 6,) * 5 + (4 / 6,) * 6
    assert found.attainment == (0.6,) * 5 + (1.0,) * 6
    assert found.auc == pytest.approx(0.6 * 2 / 6 + 1.0 * 2 / 6)
    assert found.penalty == pytest.approx((5 * 2 / 2 + 6 * 2 / 4) / 11)
    assert found.reward == pytest.approx(found.auc - 0.1 * found.penalty)
    # one worker makes a batch of two in two effective rounds: 1 + 1 and 2 + 2
    assert sweep_score(episodes, [TREE], 1).penalty == pytest.approx(1.0)


def test_work_and_attainment_are_means_over_the_trees():
    other = tree_of([[1.0, 2.0], [5.0, 5.0]], steps=2, branches=2, root=1.0)
    found = sweep_score(replay_betas(Knob(), [TREE, other], 2, betas=[0.0]), [TREE, other], 2)
    assert found.work == (pytest.approx((2 / 6 + 2 / 4) / 2),)
    assert found.attainment == (pytest.approx((0.6 + 0.25) / 2),)


def test_the_area_by_hand():
    assert area([]) == 0.0
    assert area([(0.5, 0.8)]) == pytest.approx(0.4)  # from (0, 0): nothing up to 0.5, then a step, not a slope
    assert area([(0.5, 0.8), (0.25, 0.4), (0.75, 0.2)]) == pytest.approx(0.25 * 0.4 + 0.5 * 0.8)
    assert area([(0.5, 0.3), (0.5, 0.8)]) == pytest.approx(0.4)
    assert area([(0.0, 1.0)]) == 1.0
    assert area([(1.0, 1.0), (1.2, 1.0)]) == 0.0  # all of the record, or more, is no saving


@given(POINTS)
def test_the_area_is_a_share(points):
    assert 0 <= area(points) <= 1


@given(POINTS, st.tuples(SHARES, SHARES), st.tuples(SHARES, SHARES))
def test_a_dominated_point_changes_nothing_and_a_better_one_loses_nothing(points, point, shift):
    dominated = (point[0] + shift[0], point[1] * shift[1])
    before = area([*points, point])
    assert area([*points, point, dominated]) == pytest.approx(before, abs=1e-12)
    assert before >= area(points) - 1e-12


@given(schedules(), st.lists(trees(), min_size=1, max_size=3), st.integers(1, 6))
def test_the_score_of_any_policy_is_within_bounds(schedule, history, width):
    found = sweep_score(replay_betas(load(schedule), history, width), history, width)
    assert 0 <= found.auc <= 1
    assert all(0 <= value <= 1 for value in (*found.work, *found.attainment))
    assert found.penalty > 0
    assert found.reward == found.auc - 0.1 * found.penalty
    assert all(
        found.attainment[n] == pytest.approx(sum(d.outcome(e, t).attainment for e, t in pairs) / len(history))
        for n, row in enumerate(replay_betas(load(schedule), history, width).values())
        for pairs in [list(zip(row, history, strict=True))]
    )


def test_the_knob_is_put_back_and_a_policy_without_one_is_replayed_once():
    policy = Knob()
    replay_betas(policy, [TREE], 2)
    assert policy.beta == 0.2

    class Counting(d.policies.ParallelRefine):
        starts = 0

        def start(self, width):
            self.starts += 1
            super().start(width)

    plain = Counting()
    found = replay_betas(plain, [TREE], 2)
    assert list(found) == list(BETAS) and plain.starts == 1 and not hasattr(plain, "beta")
    assert all(row == found[0.0] for row in found.values())


def test_source_object_and_sandboxed_object_give_the_same():
    schedule = Schedule(order="best", strikes=(1, 3), reopen=(0.5, 1.0))
    history = synthetic.committed("history")[:2]
    inside = replay_betas(load(schedule, name="same"), history, 8, 80)
    content = source(schedule, "same")
    assert replay_betas(content, history, 8, 80) == inside
    with SandboxedPolicy(content) as policy:
        assert replay_betas(policy, history, 8, 80) == inside
        assert policy.beta is None


def test_a_policy_that_fails_somewhere_scores_minus_infinity():
    class Breaks(Knob):
        def choose(self, prefix):
            return [7] if self.beta == 1.0 else super().choose(prefix)

    episodes = replay_betas(Breaks(), [TREE], 2)
    assert episodes[1.0][0].reason == "failed"
    found = sweep_score(episodes, [TREE], 2)
    assert found.reward == -math.inf and found.auc > 0


def test_bad_input_is_named():
    with pytest.raises(d.UserError, match="at least one beta and one tree"):
        sweep_score({}, [TREE], 2)
    with pytest.raises(d.UserError, match="beta 0.5 has 0 episodes; there are 1 trees"):
        sweep_score({0.5: []}, [TREE], 2)


# What other implementations had wrong.


def test_nothing_revealed_costs_a_penalty_of_one():
    class Idle(Knob):
        def choose(self, prefix):
            return []

    found = sweep_score(replay_betas(Idle(), [TREE], 2), [TREE], 2)
    assert (found.auc, found.penalty, found.reward) == (0.0, 1.0, -0.1)
    assert parallel_penalty(d.replay(Idle(), TREE, 2), 2) == 1.0


def test_a_sweep_that_offers_more_earns_more_than_the_default_alone():
    episodes = replay_betas(Knob(), [TREE], 2)
    alone = sweep_score({beta: episodes[0.2] for beta in BETAS}, [TREE], 2)
    assert sweep_score(episodes, [TREE], 2).auc > alone.auc == pytest.approx(0.6 * 4 / 6)


@pytest.mark.parametrize("rounds", range(1, 41))
def test_no_number_of_rounds_makes_attempts_free(rounds):
    """An objective in which cost and parallelism cancel at rounds == K1 cannot tell policies apart there."""

    def episode(attempts):
        batches = tuple((0,) * (attempts // rounds) for _ in range(rounds))
        return d.Episode("p", "t", batches, [0] * attempts, 5.0, "stopped")

    few, many = episode(rounds), episode(3 * rounds)
    assert few.rounds == many.rounds == rounds
    for beta1, beta2 in ((synthetic.BETA1, synthetic.BETA2), d.scaled_betas([TREE])):
        assert d.score(few, beta1=beta1, beta2=beta2) != d.score(many, beta1=beta1, beta2=beta2)
    chain = tree_of([[5.0] * (4 * rounds)], root=0.0)
    one, other = (sweep_score({0.5: [e]}, [chain], 8) for e in (few, many))
    assert one.auc != other.auc and one.reward != other.reward


def test_dreaming_has_something_to_choose_under_both_objectives():
    """Policies that make the same rounds with other attempts are told apart on the committed history."""
    history = synthetic.committed("history")
    policies = [load(PARALLEL_REFINE), load(EARLY_STOP), load(Schedule(width=(0.5, 0.5)))]
    rewards = [sweep_score(replay_betas(p, history, 8, 80), history, 8).reward for p in policies]
    assert len(set(rewards)) == 3 and rewards[1] > rewards[0]


def test_memory_between_betas_is_worth_nothing_where_every_beta_has_its_own_process():
    """A module that remembers the record at one beta replays it for less at the next one."""
    cheat = b"""
SEEN = {}

class Policy:
    beta = 0.5
    name = "remembers"

    def start(self, width):
        self.told = dict(SEEN)

    def choose(self, prefix):
        live = [b.number for b in prefix.branches if not b.ended]
        for b in prefix.branches:
            SEEN[b.number] = max(SEEN.get(b.number, 0.0), b.best)
        if prefix.round == 0:
            return [-1] * 2
        if self.told:  # the winner is known: extend nothing else
            best = max(self.told, key=self.told.get)
            return [best] if best in live else []
        return live
"""
    with SandboxedPolicy(cheat) as policy:  # one process for all betas: the twin without the guard
        open_ = sweep_score(replay_betas(policy, [TREE], 2), [TREE], 2)
    guarded = sweep_score(replay_betas(cheat, [TREE], 2), [TREE], 2)
    assert open_.auc > guarded.auc == 0.0


# Plans.


def test_a_plan_equal_to_the_recorded_grid_changes_nothing():
    plan = GridPlan(2, 3)
    free, planned = replay_betas(Knob(), [TREE], 2), replay_betas(Knob(), [TREE], 2, plan=plan)
    assert free == planned
    assert sweep_score(free, [TREE], 2) == sweep_score(planned, [TREE], 2, plan=plan)


def test_what_a_plan_asks_beyond_the_record_is_work():
    wide = GridPlan(4, 3)
    refine = load(PARALLEL_REFINE)
    found = sweep_score(replay_betas(refine, [TREE], 4, plan=wide, betas=[0.5]), [TREE], 4, plan=wide)
    assert found.work == ((6 + 2) / 6,) and found.attainment == (1.0,)  # two OPENs found nothing
    ended = tree_of([[1.0], [1.0, 2.0]], steps=2, branches=2, root=0.0)  # one branch stopped before its cap
    deep = GridPlan(2, 4)

    def cost(policy, plan):
        rows = replay_betas(policy, [ended], 2, 9, plan=plan, betas=[0.5])
        return sweep_score(rows, [ended], 2, plan=plan).work[0] * 3

    assert cost(load(PARALLEL_REFINE), None) == 3  # the missing cell is inside the grid
    assert cost(load(PARALLEL_REFINE), deep) == pytest.approx(3)
    assert cost(Insists(), deep) == pytest.approx(2 + 2)  # branch 0: one cell of the grid is missing, two beyond it


class Insists(Knob):
    """Goes on picking branch 0, which has ended, up to the cap of the plan."""

    def choose(self, prefix):
        return [d.OPEN] * 2 if prefix.round == 0 else [0] if prefix.round < 4 else []


def test_a_smaller_plan_caps_branches_and_steps():
    refine = load(PARALLEL_REFINE)
    small = GridPlan(1, 2)
    rows = replay_betas(refine, [TREE], 2, plan=small, betas=[0.5])
    assert rows[0.5][0].order == ((0, 0), (0, 1))
    found = sweep_score(rows, [TREE], 2, plan=small)
    assert (found.work, found.attainment) == ((2 / 6,), (0.6,))


@given(schedules(), trees(), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_replays_under_any_plan_stay_within_it_and_score_in_bounds(schedule, tree, width, branches, steps):
    plan = GridPlan(branches, steps)
    rows = replay_betas(load(schedule), [tree], width, plan=plan, betas=[0.0, 1.0])
    for (episode,) in rows.values():
        assert episode.opened <= branches
        assert all(episode.reveals.count(branch) <= steps for branch in set(episode.reveals))
    found = sweep_score(rows, [tree], width, plan=plan)
    assert 0 <= found.auc <= 1
    for work, (episode,) in zip(found.work, rows.values(), strict=True):
        cost = round(work * len(tree))
        assert episode.attempts <= cost <= sum(map(len, episode.picks))


# The knob between rounds.


def sweep(work, attainment):
    return SweepScore(BETAS, tuple(work), tuple(attainment), 0.0, 0.0, 0.0)


RISING = sweep([n / 12 for n in range(11)], [n / 10 for n in range(11)])
FLAT = sweep([n / 10 for n in range(11)], [0.9] * 11)
PLATEAU = [1.0, 2.0, 2.0, 2.0]


def test_the_knob_follows_its_rule():
    assert next_beta(0.3, [1.0, 2.0], RISING) == (0.6, "2 rounds are too few to go by")
    assert next_beta(0.3, [1.0, 2.0, 3.0], RISING)[0] == 0.3
    assert "improves" in next_beta(0.3, [1.0, 2.0, 3.0], RISING)[1]
    assert next_beta(0.3, PLATEAU, RISING)[0] == 0.5
    assert next_beta(0.3, PLATEAU, None)[0] == 0.3
    assert next_beta(0.8, PLATEAU, FLAT)[0] == 0.6  # high, and only adds work
    assert next_beta(0.5, PLATEAU, FLAT)[0] == 0.5  # not high
    assert next_beta(0.9, PLATEAU, RISING)[0] == 0.9  # 1 attains more, at more work than is reasonable
    assert next_beta(0.6, PLATEAU, FLAT)[0] == 0.4
    step = sweep([0.1] * 4 + [0.5] * 7, [0.5] * 4 + [0.9] * 7)
    assert next_beta(0.3, PLATEAU, step)[0] == 0.4  # 0.5 attains no more than 0.4
    drop = sweep([0.1] * 7 + [0.5] * 4, [0.5] * 7 + [0.9] * 4)
    assert next_beta(0.7, PLATEAU, drop)[0] == 0.7  # lower loses attainment
    assert next_beta(0.8, PLATEAU, drop)[0] == 0.8  # less beta, equal work


def test_a_tiny_rise_is_a_plateau_and_failed_rounds_are_none():
    assert next_beta(0.3, [0.0, 10.0, 10.05, 10.05], RISING)[0] == 0.5
    assert next_beta(0.3, [0.0, 10.0, 10.05, 10.2], RISING)[0] == 0.3
    assert next_beta(0.3, [-math.inf, -math.inf, 1.0], RISING)[0] == 0.3


@given(
    SHARES,
    st.lists(st.floats(-5, 5), max_size=8),
    st.one_of(st.none(), st.builds(sweep, *[st.lists(SHARES, min_size=11, max_size=11)] * 2)),
)
def test_the_knob_stays_in_bounds_and_moves_by_a_step(beta, bests, found):
    moved, reason = next_beta(beta, bests, found)
    assert 0 <= moved <= 1 and reason
    if len(bests) >= s.SHORT:
        assert abs(moved - beta) <= max(s.MOVES) + 1e-6
    if found is None and len(bests) >= s.SHORT:
        assert moved == beta


def test_an_episode_is_what_it_was_whatever_is_scored():
    rows = replay_betas(Knob(), [TREE], 2)
    before = {beta: [dataclasses.asdict(e) for e in row] for beta, row in rows.items()}
    sweep_score(rows, [TREE], 2)
    assert before == {beta: [dataclasses.asdict(e) for e in row] for beta, row in rows.items()}
