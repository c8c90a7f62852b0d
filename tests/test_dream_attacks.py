"""Versions that gain by remembering: selected where confirmation is off, disqualified where it is on."""

from __future__ import annotations

import math

import pytest

import dreamrsi as d
from dream_fixtures import BROKEN, NOWHERE, Scripted, files_of, run
from dreamrsi import judge
from dreamrsi.dream import load_dream
from dreamrsi.sweep_score import BETAS, sweep_score
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401
from strategies import tree_of

# A discovery run and the same task's next one: equal roots, and the best branch is the fourth of seven.
CHAINS = [[1.0], [2.0], [3.0], [9.0], [4.0], [5.0], [6.0]]
HISTORY = [tree_of(CHAINS, root=0.5), tree_of(CHAINS, root=0.5), tree_of([[2.0], [8.0]], root=0.0)]
COSTS = {"beta1": 0.5, "beta2": 0.0, "width": 1, "max_rounds": 20}

EVERYTHING = policy_source("return [-1] if prefix.can_open else []")
HONEST = policy_source("return [-1] if prefix.can_open and prefix.attempts < 6 else []")
BETTER = policy_source("return [-1] if prefix.can_open and prefix.attempts < 5 else []")

MEMO = """
# Where the best was found, by the score of the root: what one episode revealed is there for the next one.
{head}

class Policy:
    def start(self, width):
        self.scout = None

    def choose(self, prefix):
        memo = {memo}
        if self.scout is None:
            self.scout = prefix.root not in memo
            memo.setdefault(prefix.root, None)
        if self.scout:
            if prefix.can_open and prefix.attempts < 6:
                return [-1]
            scores = [branch.best for branch in prefix.branches]
            memo[prefix.root] = scores.index(max(scores)) + 1
            return []
        if memo[prefix.root] is None:
            return [0] if prefix.branches else [-1]  # waits: where nothing is recorded, nothing is paid
        return [-1] if prefix.attempts < memo[prefix.root] else []
"""
PLACES = {
    "the module": ("MEMO = {}", "MEMO"),
    "builtins": ("import builtins\nbuiltins.memo = {}", "builtins.memo"),
    "another module": ("from dreamrsi import policies\npolicies.memo = {}", "policies.memo"),
    "a default value": ("def keep(known={}):\n    return known", "keep()"),
}
CHEAT = MEMO.format(head=PLACES["the module"][0], memo=PLACES["the module"][1]).encode()


@pytest.mark.parametrize("place", PLACES)
def test_a_memo_by_the_score_of_the_root_is_disqualified(tmp_path, place):
    """As a peer had it: the memo is worth more on the screen than the honest search that it stands for."""
    cheat = MEMO.format(head=PLACES[place][0], memo=PLACES[place][1]).encode()
    given = {"current": EVERYTHING, "history": HISTORY, **COSTS}
    off = run(tmp_path / "off", cheat, HONEST, confirm=False, **given)
    current, memo, honest = (version.value for version in off.versions)
    assert memo > honest > current and off.selected.source == cheat, "without its guard the cheat is deployed"
    on = run(tmp_path / "on", cheat, HONEST, **given)
    assert on.selected.source == HONEST and on.confirmed == (0, 2)
    assert "tree 1, round 1: it picked 0 among other episodes and -1 in a fresh process" in on.disqualified[1]
    assert [version.value for version in on.versions] == [current, memo, honest]
    alone = [judge.replay_sandboxed(cheat, [tree], 1, 20)[0] for tree in HISTORY]
    assert d.value(alone, beta1=0.5, beta2=0.0) == honest, "that is what it is worth without its memory"


def test_where_nothing_holds_the_current_policy_stays(tmp_path):
    given = {"current": HONEST, "history": HISTORY, **COSTS}
    found = run(tmp_path, CHEAT, CHEAT + b"#", BROKEN, **given)
    assert found.selected.number == 0 and set(found.disqualified) == {1, 2} and found.confirmed == (0,)


def test_a_duplicate_gets_no_second_chance(tmp_path, monkeypatch):
    asked = []
    fresh = judge.Judge.fresh
    monkeypatch.setattr(
        judge.Judge, "fresh", lambda self, source, seed: asked.append(source) or fresh(self, source, seed)
    )
    found = run(tmp_path, CHEAT, CHEAT, HONEST, current=EVERYTHING, history=HISTORY, **COSTS)
    assert found.disqualified[1] == found.disqualified[2] and found.selected.number == 3
    assert asked == [EVERYTHING, CHEAT, HONEST]


def test_random_numbers_without_a_seed_are_disqualified(tmp_path):
    body = "return [-1] * (time.perf_counter_ns() // 64 % 3 + 1) if prefix.can_open else []"
    found = run(tmp_path, policy_source(body, head="import time"), current=NOWHERE, history=HISTORY * 3)
    assert found.selected.number == 0 and "draws random numbers" in found.disqualified[1]


def test_a_version_that_fails_alone(tmp_path):
    body = "return [-1] if not prefix.round else [-1] * (1 // (len(SEEN) - 1)) if len(SEEN) < 2 else []"
    source = policy_source(body, head="SEEN = []", start="SEEN.append(0)")
    found = run(tmp_path / "a", source, current=NOWHERE, history=HISTORY)
    assert found.selected.number == 0
    assert "it failed only in a fresh process (policy policy, round 1: raised Zero" in found.disqualified[1]
    alone = policy_source("return [-1] if len(SEEN) < 2 else [99]", head="SEEN = []", start="SEEN.append(0)")
    with pytest.warns(UserWarning, match="tree 0: it failed only among other episodes"):
        found = run(tmp_path / "b", HONEST, current=alone, history=HISTORY)
    assert math.isfinite(found.current.value) and found.selected.number == 1


def test_a_version_that_can_be_loaded_only_once(tmp_path, monkeypatch):
    replay = judge.replay_sandboxed

    def refuse(source, *rest, **given):
        if source == HONEST:
            raise d.PolicyError("policy.py, line 1: raised OSError: the day is over")
        return replay(source, *rest, **given)

    monkeypatch.setattr(judge, "replay_sandboxed", refuse)
    found = run(tmp_path / "a", HONEST, EVERYTHING, current=NOWHERE, history=HISTORY, **COSTS)
    assert "in a fresh process it could not be loaded: policy.py, line 1" in found.disqualified[1]
    assert found.selected.number == 2
    with pytest.warns(UserWarning, match="not reproducible: in a fresh process it could not be loaded"):
        found = run(tmp_path / "b", NOWHERE, current=HONEST, history=HISTORY, **COSTS)
    assert found.current.value == -math.inf and found.current.episodes == () and found.selected.number == 1
    assert load_dream(tmp_path / "b") == found


@pytest.mark.parametrize(("other", "selected"), [(BETTER, 1), (HONEST, 0)])
def test_a_current_policy_that_remembers_is_judged_by_its_fresh_episodes(tmp_path, other, selected):
    told = []
    with pytest.warns(UserWarning, match="the current policy is not reproducible: tree 1, round 1") as warned:
        found = run(tmp_path, other, CHEAT, current=CHEAT, history=HISTORY, progress=told.append, **COSTS)
    assert str(tmp_path.parent) not in str(warned[0].message) and warned[0].filename.endswith("dream_fixtures.py")
    assert found.selected.number == selected, "its copy is no candidate, whatever it got on the screen"
    assert found.current.value == d.value([*found.current.episodes], beta1=0.5, beta2=0.0)
    assert [e.attempts for e in found.current.episodes] == [6, 6, 2]
    assert found.current_differs is not None and 0 not in found.confirmed and 0 not in found.disqualified
    assert [version.value for version in told[::2]] == [found.versions[2].value] * 2 > [found.current.value] * 2
    assert load_dream(tmp_path) == found
    developer = Scripted(other, CHEAT)
    before = files_of(tmp_path)
    assert run(tmp_path, other, CHEAT, developer=developer, current=CHEAT, history=HISTORY, **COSTS) == found
    assert files_of(tmp_path) == before and not developer.requests


def test_confirmation_runs_every_episode_in_a_process_of_its_own_and_in_another_order(tmp_path, monkeypatch):
    calls = []
    replay = judge.replay_sandboxed

    def note(source, trees, *rest, **given):
        calls.append((source, [HISTORY.index(tree) for tree in trees], given["fresh"]))
        return replay(source, trees, *rest, **given)

    monkeypatch.setattr(judge, "replay_sandboxed", note)
    given = {"current": NOWHERE, "history": HISTORY, **COSTS}
    orders = set()
    for seed in range(6):
        calls.clear()
        run(tmp_path / str(seed), HONEST, seed=seed, **{**given})
        assert [source for source, _, _ in calls] == [NOWHERE] * 3 + [HONEST] * 3
        assert all(fresh and len(places) == 1 for _, places, fresh in calls)
        orders.add(tuple(places[0] for _, places, _ in calls))
    assert len(orders) > 3 and all(sorted(order[:3]) == [0, 1, 2] for order in orders)


def test_a_memo_between_the_betas_of_a_sweep_is_disqualified(tmp_path):
    """The same on a single tree: the first beta finds the best branch, and the others walk straight to it."""
    given = {"current": EVERYTHING, "history": HISTORY[:1], "objective": "sweep", **COSTS}
    off = run(tmp_path / "off", CHEAT, HONEST, confirm=False, **given)
    current, memo, honest = (version.value for version in off.versions)
    assert memo > honest > current and off.selected.source == CHEAT
    on = run(tmp_path / "on", CHEAT, HONEST, **given)
    assert on.selected.source == HONEST and on.confirmed == (0, 2)
    assert "tree 0, beta 0, round 4: it picked nothing among other episodes and -1 in a fresh" in on.disqualified[1]
    alone = {beta: judge.replay_sandboxed(CHEAT, HISTORY[:1], 1, 20, beta=beta) for beta in BETAS}
    assert sweep_score(alone, HISTORY[:1], 1).reward == honest
