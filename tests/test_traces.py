"""A trace shows what an episode revealed, all of it and nothing else."""

from __future__ import annotations

import math
import re

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import traces
from strategies import policies, tree_of, trees

TERMS = {"label": "tree 0", "width": 3, "beta1": 0.02, "beta2": 0.05}


def changed(tree, episode, draw):
    """The same tree with other scores, statuses and tags wherever the episode revealed nothing."""
    revealed = set(episode.order)
    attempts = []
    for attempt in tree:
        if (attempt.branch, attempt.attempt) not in revealed:
            score = draw(st.one_of(st.none(), st.floats(-1e9, 1e9, allow_nan=False)))
            status = "ok" if score is not None else draw(st.sampled_from(["invalid", "timeout"]))
            attempt = msgspec.structs.replace(attempt, score=score, status=status, error="other", metrics={"x": 1})
            if attempt.attempt == 0:
                attempt = msgspec.structs.replace(attempt, tag=draw(st.sampled_from([None, "another"])))
        attempts.append(attempt)
    return d.Tree(tree.header, attempts, name="another name")


@settings(max_examples=150, deadline=None)
@given(st.data(), policies, trees(), st.integers(1, 4), st.integers(1, 6))
def test_a_trace_does_not_change_with_what_was_not_revealed(data, policy, tree, width, max_rounds):
    episode = d.replay(policy, tree, width, max_rounds)
    other = changed(tree, episode, data.draw)
    for scale in (None, "best recorded - root"):
        text = traces.trace(episode, tree, scale=scale, **TERMS)
        assert text == traces.trace(episode, other, scale=scale, **TERMS)
        assert text == traces.trace(d.replay(policy, other, width, max_rounds), other, scale=scale, **TERMS)


@settings(max_examples=150, deadline=None)
@given(policies, trees(), st.integers(1, 4))
def test_the_rounds_hold_every_reveal_in_order(policy, tree, width):
    episode = d.replay(policy, tree, width)
    walked = traces.rounds(episode, tree)
    assert [round_.picks for round_ in walked] == list(episode.picks)
    shown = [shown for round_ in walked for shown in round_.shown]
    assert [(s.attempt.branch, s.number) for s in shown] == list(episode.order)
    assert [tree.branches[s.attempt.branch][s.number] for s in shown] == [s.attempt for s in shown]
    for round_ in walked:
        assert len(round_.shown) + len(round_.empty) == len(round_.picks)
    assert not walked or walked[-1].best == episode.best
    numbers = [s.branch for s in shown if s.number == 0]
    assert numbers == list(range(len(numbers))), "a policy knows branches by the order in which it opened them"
    watcher = Watcher(policy)
    d.replay(watcher, tree, width)
    told = [(len(r.shown), r.best, r.live, r.can_open) for r in walked]
    assert told[: len(watcher.told)] == watcher.told, "what the policy was told is what it saw at its next choice"


class Watcher:
    """Chooses as another policy does, and notes what it saw."""

    name = "watcher"

    def __init__(self, policy):
        self.policy = policy

    def start(self, width):
        self.policy.start(width)
        self.told = []
        self.attempts = 0

    def choose(self, prefix):
        if prefix.round:
            live = sum(not branch.ended for branch in prefix.branches)
            self.told.append((prefix.attempts - self.attempts, prefix.best, live, prefix.can_open))
        self.attempts = prefix.attempts
        return self.policy.choose(prefix)


def test_a_trace_by_hand():
    tree = tree_of([[1.0, None], [4.0, 3.0], [9.0, 9.5]], steps=2, branches=3, root=0.5, tags=["a", "b", "c"])

    class Hand:
        name = "hand"

        def start(self, width):
            pass

        def choose(self, prefix):
            return [[-1, -1], [0, 1], []][prefix.round]

    text = traces.trace(d.replay(Hand(), tree, 2), tree, label="tree 0", width=2, beta1=0.1, beta2=0.5)
    assert text == (
        "tree 0\n"
        "width 2; caps: branches 3, attempts a branch 2; root 0.5; advised tag none\n"
        "\n"
        "round 0: picks open open -> 0.0=1 [a]  1.0=4 [b] | best 4, 2 live branches, can open\n"
        "round 1: picks 0 1 -> 0.1=error  1.1=3 | best 4, 0 live branches, can open\n"
        "\n"
        "stopped by the policy after k = 2 rounds and N = 4 attempts\n"
        "best revealed 4\n"
        "cost of the attempts: beta1 * N = 0.1 * 4 = 0.4\n"
        "worth of working in parallel: beta2 * N/max(1, k) = 0.5 * 2 = 1\n"
        "V = best - cost + worth = 4.6\n"
    )


def test_picks_that_revealed_nothing_and_forks_in_the_numbers_of_the_episode():
    tree = tree_of([[1.0, 2.0], [3.0], [4.0]], origins={1: (0, 1), 2: (0, 0)})

    class Hand:
        name = "hand"

        def start(self, width):
            pass

        def choose(self, prefix):
            return [[-1, -1], [-1], [1, 0], []][prefix.round]

    lines = traces.trace(d.replay(Hand(), tree, 2), tree, **TERMS).splitlines()
    assert lines[3].startswith("round 0: picks open open -> 0.0=1; revealed nothing: open |")
    assert lines[4].startswith("round 1: picks open -> 1.0=4 from 0.0 |")  # branch 2 of the record
    assert lines[5].startswith("round 2: picks 1 0 -> 0.1=2; revealed nothing: 1 |")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(2_000, 6_000), st.integers(1, 40))
def test_a_trace_is_bounded_and_keeps_both_ends(branches, steps, limit, width):
    tree = tree_of([[float(a) for a in range(steps)]] * branches, tags=["t" * 5000] * branches)
    episode = d.replay(d.policies.ParallelRefine(), tree, width)
    text = traces.trace(episode, tree, limit=limit, **TERMS)
    assert len(text) <= limit
    assert "V = best" in text
    left_out = re.search(r"\.\.\. (\d+) rounds left out", text)
    shown = text.count("\nround ")
    assert shown + (int(left_out[1]) if left_out else 0) == episode.rounds
    if shown > 1:
        assert "\nround 0:" in text and f"\nround {episode.rounds - 1}:" in text


def test_text_from_elsewhere_stays_on_its_line():
    tree = tree_of([[1.0]], tags=["a\nround 9: picks \x1b[31m"])
    text = traces.trace(d.replay(d.policies.ParallelRefine(), tree, 1), tree, **TERMS)
    assert "\x1b" not in text and text.count("\nround ") == 1
    broken = d.Episode("p", "t", (), (), -math.inf, "failed", "policy p, round 0: raised\nround 9")
    text = traces.trace(broken, tree, **TERMS)
    assert "V is -inf: policy p, round 0: raised round 9" in text


def test_with_normalised_scores_v_is_not_told():
    tree = tree_of([[1.0, 50.0]])
    text = traces.trace(d.replay(d.policies.ParallelRefine(), tree, 1), tree, scale="best recorded - root", **TERMS)
    assert "V = best/(best recorded - root) - cost + worth\n" in text
