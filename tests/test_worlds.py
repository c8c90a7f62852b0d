"""Worlds: what is recorded there is what a live run would have recorded, and their rules are those written down."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import worlds
from strategies import policies, tree_of, universes

names = st.sampled_from(worlds.NAMES)


def places(tree):
    return [(a.branch, a.attempt) for a in tree]


@given(universes(), policies, st.integers(1, 6))
def test_replaying_the_recording_policy_repeats_its_episode(full, policy, width):
    first = d.replay(policy, full, width)
    tree = worlds.record(full, first)
    assert places(tree) == list(first.order)
    assert tree.header.policy == policy.name
    again = d.replay(policy, tree, width)
    assert (again.picks, again.order, again.best) == (tree.picks, first.order, first.best)
    rest = first.picks[len(again.picks) :]  # a live run does not record empty rounds at its end either
    assert again.picks == first.picks[: len(again.picks)]
    assert all(pick == d.OPEN for picks in rest for pick in picks)
    for attempt in tree:
        source = full.branches[attempt.branch][attempt.attempt]
        assert (attempt.score, attempt.status, attempt.tag) == (source.score, source.status, source.tag)


@given(names, st.integers(0, 2**32), st.integers(0, 9), policies)
def test_a_live_run_on_a_world_is_repeated_pick_for_pick(name, seed, round_, policy):
    full = worlds.world(name, seed, round_, root=3.0)
    tree = worlds.live(policy, full)
    again = d.replay(policy, tree, 10)
    assert again.picks == tree.picks and list(again.order) == places(tree)
    assert len(tree) <= len(full) == 110


def test_the_record_survives_the_disk(tmp_path):
    tree = worlds.live(d.policies.EarlyStop(), worlds.world("mixture", 5, 2))
    tree.save(tmp_path / "tree.jsonl")
    back = d.Tree.load(tmp_path / "tree.jsonl")
    assert (back.header, back.attempts, back.batches) == (tree.header, tree.attempts, tree.batches)
    assert back.header.synthetic


def test_an_incomplete_tree_is_no_world():
    tree = tree_of([[1.0, 2.0], [1.0]], steps=2, branches=2)
    with pytest.raises(d.UserError, match="is not full"):
        worlds.record(tree, d.replay(d.policies.ParallelRefine(), tree))


@given(names, st.integers(0, 999), st.integers(0, 9), st.floats(0, 9.9), st.floats(0, 9.9))
def test_a_draw_depends_on_seed_and_round_and_its_gains_on_the_room(name, seed, round_, low, high):
    one, two = (worlds.world(name, seed, round_, root=root) for root in (low, high))
    for a, b in zip(one, two, strict=True):
        gains = ((x.score - root) / (10 - root) for x, root in ((a, low), (b, high)))
        assert next(gains) == pytest.approx(next(gains), abs=1e-4)
        assert a.tag == b.tag
    assert one.root == low and one.header.recommended == two.header.recommended


@pytest.mark.parametrize("name", worlds.NAMES)
def test_winners_are_where_the_rules_say_and_take_about_three_tenths_of_the_room(name):
    allowed = {
        "late_peak_first": {0},
        "late_peak_last": {7, 8, 9},
        "early_peak": set(range(5)),
        "plateau": set(range(5, 10)),
        "mixture": set(range(10)),
    }[name]
    drawn = [worlds.world(name, seed, seed % 7, noise=0.0) for seed in range(60)]
    found = {tree.best_attempt.branch for tree in drawn}
    assert found <= allowed and len(found) > len(allowed) / 2
    assert all(2.8 < tree.best < 3.3 for tree in drawn)
    kinds = {tree.header.provenance["family"] for tree in drawn}
    assert kinds == (set(worlds.FAMILIES) if name == "mixture" else {name})


def test_rounds_and_seeds_differ():
    scores = {tuple(a.score for a in worlds.world("plateau", s, r)) for s in range(3) for r in range(3)}
    assert len(scores) == 9


def test_names_and_roots_that_do_not_exist_are_refused():
    with pytest.raises(d.UserError, match="no world 'kernel'; choose one of late_peak_first"):
        worlds.world("kernel", 0)
    with pytest.raises(d.UserError, match="no room below 10"):
        worlds.world("mixture", 0, root=10.0)


def test_a_thousand_rounds_take_less_than_a_minute():
    started = time.perf_counter()
    for seed in range(100):
        worlds.live(d.policies.Portfolio(), worlds.world("mixture", seed))
    assert time.perf_counter() - started < 6
