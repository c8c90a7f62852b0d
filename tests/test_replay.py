"""The invariants of replay, as property tests, and what a policy may not do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from strategies import Wild, builtin_policies, policies, recording, tree_of, trees, universes

WIDTHS = st.integers(1, 5)


class Rude:
    """Has an index, and raises when asked for it."""

    def __index__(self):
        raise RuntimeError("no")

    def __repr__(self):
        return "rude"


class Curious(Wild):
    """Its picks depend on everything that it can see: whatever leaks, changes them."""

    def start(self, width):
        super().start(width)
        self.name = f"curious:{self.seed}"

    def choose(self, prefix):
        seen = [
            (b.number, b.attempts, b.best, b.last, b.scores, b.status, b.stalled, b.failures, b.ended, b.tag, b.origin)
            for b in prefix.branches
        ]
        state = (seen, prefix.round, prefix.best, prefix.root, prefix.attempts, prefix.can_open, prefix.advice)
        self._random.seed(f"{self.seed} {state!r} {prefix!r} {list(prefix.branches)!r}")
        return super().choose(prefix)


class Script:
    """Returns fixed batches, then stops."""

    name = "script"

    def __init__(self, *batches):
        self.batches = batches

    def start(self, width):
        self.left = list(self.batches)

    def choose(self, prefix):
        return self.left.pop(0) if self.left else []


@given(builtin_policies(), universes(), WIDTHS, st.one_of(st.none(), st.integers(1, 9)))
def test_replaying_the_recording_policy_reproduces_its_episode_pick_for_pick(policy, universe, width, max_rounds):
    live = d.replay(policy, universe, width, max_rounds)
    tree = recording(universe, live)
    again = d.replay(policy, tree, width, max_rounds)
    assert again.picks == live.picks == tree.picks
    assert again.order == live.order
    assert again.best == live.best


@given(st.integers(0, 999), universes(), WIDTHS)
def test_a_policy_without_sense_is_reproduced_up_to_the_batches_that_found_nothing(seed, universe, width):
    live = d.replay(Wild(seed), universe, width)
    tree = recording(universe, live)
    again = d.replay(Wild(seed), tree, width)
    assert again.order == live.order
    assert again.picks == live.picks[: again.rounds]
    assert all(batch.attempts == 0 for batch in tree.batches[again.rounds :])


@given(policies, trees(), WIDTHS)
def test_replay_reveals_what_is_recorded_and_creates_nothing(policy, tree, width):
    before = list(tree.attempts)
    episode = d.replay(policy, tree, width)
    assert tree.attempts == before
    recorded = {(a.branch, a.attempt): a for a in before}
    assert len(set(episode.order)) == len(episode.order) == episode.attempts <= len(tree)
    assert set(episode.order) <= set(recorded)
    for place, (branch, attempt) in enumerate(episode.order):  # a parent before its child, an origin before its fork
        if attempt:
            assert (branch, attempt - 1) in episode.order[:place]
        elif recorded[branch, 0].origin is not None:
            assert recorded[branch, 0].origin in episode.order[:place]
    scores = [recorded[key].score for key in episode.order] + [tree.root]
    assert episode.best == max((s for s in scores if s is not None), default=-math.inf)
    assert all(1 <= len(batch) <= width for batch in episode.picks)


@given(policies, trees(), WIDTHS)
def test_the_same_policy_and_tree_give_the_same_episode(policy, tree, width):
    assert d.replay(policy, tree, width) == d.replay(policy, tree, width)


class Asked:
    """Wraps a policy and keeps the unrevealed scores at every question."""

    def __init__(self, policy):
        self.policy = policy
        self.name = policy.name

    def start(self, width):
        self.policy.start(width)
        self.seen = []

    def choose(self, prefix):
        self.seen.append({b._recorded: b.attempts for b in prefix.branches})
        return self.policy.choose(prefix)


@given(
    st.one_of(policies, st.integers(0, 99).map(Curious)),
    trees(),
    WIDTHS,
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
def test_unrevealed_scores_do_not_change_a_choice(policy, tree, width, round_, random):
    asked = Asked(policy)
    first = d.replay(asked, tree, width)
    seen = asked.seen[min(round_, len(asked.seen) - 1)] if asked.seen else {}
    changed = [
        a
        if a.attempt < seen.get(a.branch, 0)
        else type(a)(
            **{f: getattr(a, f) for f in a.__struct_fields__}
            | (
                {"score": random.uniform(-99, 99), "status": "ok"}
                if random.random() < 0.7
                else {"score": None, "status": "error"}
            )
        )
        for a in tree
    ]
    second = d.replay(policy, d.Tree(tree.header, changed), width)
    chosen = min(round_, len(asked.seen) - 1) + 1
    assert second.picks[:chosen] == first.picks[:chosen]


@given(trees(forks=False), WIDTHS)
def test_successive_opens_open_branches_in_creation_order_and_then_nothing(tree, width):
    rounds = len(tree.branches) // width + 2
    episode = d.replay(Script(*[[d.OPEN] * width] * rounds), tree, width, max_rounds=rounds)
    assert episode.order == tuple((b, 0) for b in range(len(tree.branches)))


class OpenFirst:
    """Opens whatever can be opened, else extends the first live branch; one pick a round."""

    name = "open_first"

    def start(self, width):
        pass

    def choose(self, prefix):
        return [d.OPEN] if prefix.can_open else [b.number for b in prefix.branches if not b.ended][:1]


@given(trees(forks=True))
def test_open_takes_the_earliest_branch_whose_origin_is_revealed(tree):
    episode = d.replay(OpenFirst(), tree, 1, max_rounds=10 * len(tree) + 10)
    assert episode.reason == "complete"  # can_open comes back after a reveal, so every fork is reached
    revealed = set()
    for branch, attempt in episode.order:
        if attempt == 0:
            origins = {
                number: chain[0].origin for number, chain in enumerate(tree.branches) if (number, 0) not in revealed
            }
            ready = [number for number, origin in origins.items() if origin is None or origin in revealed]
            assert branch == min(ready)
        revealed.add((branch, attempt))


def test_a_fork_cannot_be_opened_in_the_round_that_reveals_its_origin():
    tree = tree_of([[1.0, 2.0], [3.0]], steps=2, branches=2, origins={1: (0, 1)})
    for batch in ([0, d.OPEN], [d.OPEN, 0]):
        episode = d.replay(Script([d.OPEN], batch, [d.OPEN]), tree, 2, max_rounds=9)
        assert episode.order == ((0, 0), (0, 1), (1, 0)), "the order of parallel picks does not matter"
        assert episode.picks == ((d.OPEN,), tuple(batch), (d.OPEN,))
    together = tree_of([[1.0], [3.0]], steps=2, branches=2, origins={1: (0, 0)})
    assert d.replay(Script([d.OPEN, d.OPEN]), together, 2, max_rounds=9).order == ((0, 0),)


def test_a_branch_picked_after_its_last_attempt_reveals_nothing_and_the_round_counts():
    tree = tree_of([[1.0], [2.0, 3.0]], steps=5, branches=2)
    seen = []

    class Watch(Script):
        def choose(self, prefix):
            seen.append([(b.attempts, b.ended) for b in prefix.branches])
            return super().choose(prefix)

    episode = d.replay(Watch([d.OPEN], [0], [0], [d.OPEN]), tree, 2, max_rounds=9)
    assert episode.rounds == 4 and episode.attempts == 2 and episode.reason == "stopped"
    assert seen == [[], [(1, False)], [(1, True)], [(1, True)], [(1, True), (1, False)]]


def test_the_caps_are_known_at_no_cost():
    tree = tree_of([[1.0, 2.0], [3.0]], steps=2, branches=2)
    seen = []

    class Watch(Script):
        def choose(self, prefix):
            seen.append((prefix.can_open, [b.ended for b in prefix.branches]))
            return super().choose(prefix)

    d.replay(Watch([d.OPEN], [0], [d.OPEN]), tree, 2, max_rounds=9)
    assert seen == [(True, []), (True, [False]), (True, [True])]
    episode = d.replay(Watch([d.OPEN, d.OPEN], [d.OPEN], [1]), tree, 2, max_rounds=9)
    assert seen[4][0] is False  # two of two branches are open
    assert episode.rounds == 3 and episode.attempts == 2


def test_an_open_that_reveals_nothing_closes_the_door():
    tree = tree_of([[1.0, 2.0]], steps=2, branches=None)
    doors = []

    class Watch(Script):
        def choose(self, prefix):
            doors.append(prefix.can_open)
            return super().choose(prefix)

    d.replay(Watch([d.OPEN], [d.OPEN], [0]), tree, 2, max_rounds=9)
    assert doors == [True, True, False]


def test_excess_opens_collapse_into_one_in_the_literal_reading():
    tree = tree_of([[1.0, 2.0]] * 4, steps=2, branches=4)
    episode = d.replay(d.policies.ParallelRefine(), tree, 4, max_opens_per_round=1)
    assert episode.picks[0] == (d.OPEN,) * 4
    assert episode.order[:4] == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert episode.attempts == 8


def test_a_tree_of_failures_scores_minus_infinity():
    tree = tree_of([[None, None], [None]])
    assert d.replay(d.policies.ParallelRefine(), tree, 2).best == -math.inf


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([7], "round 1, pick 0: branch 7 is not open"),
        ([-2], "round 1, pick 0: branch -2 is not open"),
        ([0, 1, 0], "round 1, pick 2: branch 0 is picked twice"),
        ([d.OPEN] * 4, "round 1: 4 picks; the width allows 3"),
        ([True], "round 1, pick 0: True is not a branch number"),
        ([0.0], "round 1, pick 0: 0.0 is not a branch number"),
        (["0"], "round 1, pick 0: '0' is not a branch number"),
        ([2], "round 1, pick 0: branch 2 has ended, it has all 1 attempts"),
        ([np.array(0.5)], "round 1, pick 0: array(0.5) is not a branch number"),
        ([0, np.array([0])], "round 1, pick 1: array([0]) is not a branch number"),
        ([Rude()], "round 1, pick 0: rude is not a branch number"),
        ("00", "round 1: returned str"),
        (iter([0]), "round 1: returned list_iterator"),
        (None, "round 1: returned NoneType"),
        (np.array([0, 1]), "round 1: returned ndarray"),
    ],
)
def test_illegal_batches_name_policy_round_and_pick(batch, message):
    steps = 1 if "ended" in message else 5
    tree = tree_of([[1.0] * steps] * 4, steps=steps, branches=4)
    with pytest.raises(d.IllegalBatch, match="policy script, ") as caught:
        d.replay(Script([d.OPEN] * 3, batch), tree, 3)
    assert message in str(caught.value)


def test_any_sequence_of_integers_is_a_batch():
    tree = tree_of([[1.0, 2.0]] * 2)
    assert d.replay(Script([d.OPEN] * 2, range(2)), tree, 2).picks[1] == (0, 1)


def test_numpy_integers_are_branch_numbers():
    tree = tree_of([[1.0, 2.0]] * 2)
    episode = d.replay(Script((np.int64(-1), np.int32(-1)), [np.int64(1), 0]), tree, 2)
    assert episode.picks == ((-1, -1), (1, 0))
    assert {type(pick) for batch in episode.picks for pick in batch} == {int}


def test_a_policy_that_fails_scores_minus_infinity_and_the_others_go_on():
    class Broken:
        name = "broken"

        def start(self, width):
            pass

        def choose(self, prefix):
            return [1 // prefix.round]

    trees_ = [tree_of([[1.0, 2.0]] * 2)] * 2
    episodes = d.replay_all([Broken(), d.policies.ParallelRefine()], trees_, 2)
    assert [e.reason for e in episodes["broken"]] == ["failed"] * 2
    assert "policy broken, round 0: raised ZeroDivisionError" in episodes["broken"][0].error
    assert d.score(episodes["broken"][0], beta1=0.1, beta2=0.1) == -math.inf
    assert [e.best for e in episodes["parallel_refine"]] == [2.0, 2.0]


def test_a_policy_that_never_stops_is_stopped_by_the_limit():
    class Endless:
        name = "endless"

        def start(self, width):
            pass

        def choose(self, prefix):
            return [d.OPEN]

    episode = d.replay(Endless(), tree_of([[1.0, 2.0]]), 2)
    assert (episode.reason, episode.rounds, episode.attempts) == ("rounds", 2, 1)


def test_impossible_settings_are_refused():
    tree = tree_of([[1.0]])
    with pytest.raises(d.UserError, match="width is 0"):
        d.replay(d.policies.ParallelRefine(), tree, 0)
    with pytest.raises(d.UserError, match="max_rounds is -1"):
        d.replay(d.policies.ParallelRefine(), tree, 1, -1)
    for wrong in ("early_stop", d.policies.EarlyStop):
        with pytest.raises(d.UserError, match="give an object, such as policies.EarlyStop"):
            d.replay(wrong, tree, 1)


def test_every_tree_is_replayed_at_its_recorded_width():
    wide, narrow = tree_of([[1.0, 2.0]] * 4, width=4), tree_of([[1.0, 2.0]] * 4, width=2)
    episodes = d.replay_all([d.policies.ParallelRefine()], [wide, narrow], width=None)["parallel_refine"]
    assert [len(e.picks[0]) for e in episodes] == [4, 2]


def test_a_prefix_cannot_be_written_by_accident():
    tree = tree_of([[1.0, 2.0]] * 2)

    class Greedy(Script):
        def choose(self, prefix):
            if prefix.branches:
                with pytest.raises(AttributeError):
                    prefix.branches[0].best = 99.0
                with pytest.raises(AttributeError):
                    prefix.branches[0].attempts = 99
                for name in ("best", "round", "width", "attempts", "root", "advice", "can_open"):
                    with pytest.raises(AttributeError):
                        setattr(prefix, name, 99)
                with pytest.raises(AttributeError):
                    prefix.branches.sort()
                with pytest.raises(TypeError):
                    prefix.branches[0] = None
            return super().choose(prefix)

    d.replay(Greedy([d.OPEN], [0]), tree, 2)


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 5), WIDTHS)
def test_parallel_refine_reveals_everything_it_may(branches, steps, width):
    tree = tree_of([[float(a) for a in range(steps)]] * branches, steps=steps, branches=branches)
    episode = d.replay(d.policies.ParallelRefine(), tree, width)
    assert episode.attempts == min(width, branches) * steps
    assert episode.rounds == steps


def test_a_chain_of_forks_is_walked_one_a_round():
    origins = {branch: (branch - 1, 0) for branch in range(1, 6)}
    tree = tree_of([[float(branch)] for branch in range(6)], origins=origins)
    episode = d.replay(d.policies.EarlyStop(), tree, 2, max_rounds=99)
    assert episode.order == tuple((branch, 0) for branch in range(6)) and episode.rounds == 6
