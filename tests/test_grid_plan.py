"""Plans for the next grid: the rule by hand, the hard caps, and what a replay under a plan sees."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.grid_plan import Caps, GridPlan, Summary, beyond, check_plan, grid, plan_grid, summarise, under_plan
from strategies import Wild, policies, tree_of, trees, universes

CAPS = Caps(branches=32, steps=30, budget=80, present=GridPlan(8, 10))
QUIET = Summary(8, 10, 8, 80, (0.5, 1.0), (0.4, 0.8, 0.9, 1.0), 0.25, 0.5, 0.1, 0.05, 0.1, 0.2)


def planned(*changes):
    return plan_grid([Summary(**{**QUIET.to_json(), **change}) for change in changes], CAPS)


def test_a_summary_by_hand():
    tree = tree_of([[2.0, 5.0, 4.0, 4.0], [None, 6.0, 10.0, None], [5.0, None, None, None]], steps=5, root=0.0)
    found = summarise(tree)
    assert (found.branches, found.steps, found.opened, found.attempts) == (3, 5, 3, 12)
    assert found.by_branch == (0.5, 1.0, 1.0)
    assert found.by_depth == (0.5, 0.6, 1.0, 1.0)
    assert found.early_branches == 1.0 and found.late_branches == pytest.approx(1 / 3)
    assert found.late == pytest.approx(0.4)
    assert found.failures == pytest.approx(5 / 12) and found.hard == pytest.approx(4 / 12)
    assert found.redundant == pytest.approx(1 / 3)  # 5 and 5
    assert found.plateau == pytest.approx(4 / 12)  # recorded depth by depth: 10 is the eighth attempt
    assert Summary(**json.loads(json.dumps(found.to_json()))).to_json() == json.loads(json.dumps(found.to_json())) | {
        "by_branch": [0.5, 1.0, 1.0]
    }


def test_a_run_that_gained_nothing_is_all_plateau():
    found = summarise(tree_of([[1.0, 2.0], [None, 0.5]], root=3.0))
    assert found.plateau == 1.0 and found.by_depth == (0.0, 0.0) and found.early_branches == 0.0
    assert found.redundant == 0.0  # 2 and 0.5 are two results, though none is better than the root
    empty = summarise(d.Tree(d.Header(task="toy"), []))
    assert (empty.opened, empty.plateau, empty.late) == (0, 0.0, 0.0)


@given(trees(), st.sampled_from([0.25, 4.0]))
def test_a_summary_is_made_of_shares_and_knows_no_scale(tree, factor):
    found = summarise(tree)
    values = found.to_json()
    shares = [
        v for k, v in values.items() if k not in ("branches", "steps", "opened", "attempts", "by_branch", "by_depth")
    ]
    for share in (*shares, *found.by_branch, *found.by_depth, found.late):
        assert 0 <= share <= 1
    assert list(found.by_depth) == sorted(found.by_depth) and list(found.by_branch) == sorted(found.by_branch)
    scaled = tree_of(
        [[None if a.score is None else a.score * factor for a in branch] for branch in tree.branches],
        root=None if tree.root is None else tree.root * factor,
    )
    plain = tree_of([[a.score for a in branch] for branch in tree.branches], root=tree.root)
    one, other = summarise(plain).to_json(), summarise(scaled).to_json()
    for key in one:
        assert other[key] == pytest.approx(one[key], abs=1e-9)


def test_the_rule_by_hand():
    assert plan_grid([], CAPS) == GridPlan(8, 10, "keep: no finished run")
    assert planned({}) == GridPlan(8, 10, "keep: no sign is strong enough")
    hard = planned({"hard": 0.6})
    assert (hard.branches, hard.steps) == (6, 10) and hard.reason.startswith("shrink: 60%")
    assert planned({"redundant": 0.5}).branches == 6
    wide = planned({"early_branches": 0.75, "by_depth": (0.9, 1.0, 1.0, 1.0)})
    assert (wide.branches, wide.steps) == (10, 8) and wide.reason.startswith("widen: 75%")
    assert planned({"plateau": 0.7}, {"plateau": 0.5}).branches == 10
    assert planned({"plateau": 0.7}, {"plateau": 0.2}).reason.startswith("keep")  # not everything has plateaued
    deep = planned({"by_depth": (0.2, 0.3, 0.5, 1.0), "late_branches": 0.125})
    assert (deep.branches, deep.steps) == (6, 13) and deep.reason.startswith("deepen: 70%")
    assert planned({"by_depth": (0.2, 0.3, 0.5, 1.0), "late_branches": 0.5}).reason.startswith(
        "keep"
    )  # on many branches
    assert planned({"hard": 0.9, "plateau": 0.9}).reason.startswith("shrink")  # nothing else can be read off then


def test_only_the_last_three_runs_speak():
    assert planned(*[{"hard": 1.0}] * 3, {}, {}, {}).reason.startswith("keep")
    assert planned({}, {}, {}, *[{"hard": 1.0}] * 3).reason.startswith("shrink: 100%")
    assert planned({}, {}, *[{"hard": 1.0}] * 2).reason.startswith("shrink: 68%")  # and all three of them


LATE = {"by_depth": (0.2, 0.3, 0.5, 1.0), "late_branches": 0.125}


@pytest.mark.parametrize(
    ("change", "caps", "reason"),
    [
        (LATE, Caps(8, 10, 80, GridPlan(8, 10)), "keep: there is no room to deepen: 70%"),
        (LATE, Caps(8, 30, 9, GridPlan(1, 9)), "keep: there is no room to deepen: 70%"),
        ({"plateau": 0.7}, Caps(8, 30, 80, GridPlan(8, 10)), "keep: there is no room to widen: in all"),
        ({"plateau": 0.7}, Caps(32, 30, 8, GridPlan(8, 1)), "keep: there is no room to widen: in all"),
        ({"hard": 0.6}, Caps(8, 10, 80, GridPlan(1, 10)), "keep: there is no room to shrink: 60%"),
    ],
)
def test_a_plan_that_changes_nothing_says_keep(change, caps, reason):
    plan = plan_grid([Summary(**{**QUIET.to_json(), **change})], caps)
    assert (plan.branches, plan.steps) == (caps.present.branches, caps.present.steps)
    assert plan.reason.startswith(reason)


def test_the_budget_stops_one_branch_from_going_deeper_and_one_step_from_going_wider():
    late, flat = (Summary(**{**QUIET.to_json(), **change}) for change in (LATE, {"plateau": 0.7}))
    deep = plan_grid([late], Caps(8, 100, 10, GridPlan(1, 9)))  # a quarter more would be 12
    assert (deep.branches, deep.steps) == (1, 10) and deep.reason.startswith("deepen")
    wide = plan_grid([flat], Caps(100, 8, 10, GridPlan(9, 1)))
    assert (wide.branches, wide.steps) == (10, 1) and wide.reason.startswith("widen")


def test_real_trees_ask_for_what_their_shape_says():
    late = tree_of([[1.0] * 8 + [9.0, 9.5]] + [[n / 10, 2.0 + n / 10] + [0.0] * 8 for n in range(7)], root=0.0)
    assert plan_grid([summarise(late)], CAPS).reason.startswith("deepen")
    early = tree_of([[5.0 + n] + [1.0] * 9 for n in range(8)], root=0.0)
    assert plan_grid([summarise(early)], CAPS).reason.startswith("widen")
    broken = tree_of([[1.0 + n] + [None] * 9 for n in range(8)], root=0.0)
    assert plan_grid([summarise(broken)], CAPS).reason.startswith("shrink")
    same = tree_of([[5.0, 6.0]] * 8, root=0.0)
    assert plan_grid([summarise(same)], CAPS).reason.startswith("shrink")


@given(st.lists(trees(), max_size=4), st.data())
def test_a_plan_never_exceeds_the_caps_nor_their_product(history, data):
    most = [data.draw(st.integers(1, 40)) for _ in range(2)]
    now = [data.draw(st.integers(1, cap)) for cap in most]
    budget = data.draw(st.integers(now[0] * now[1], 2 * most[0] * most[1]))
    caps = Caps(most[0], most[1], budget, GridPlan(*now))
    plan = plan_grid([summarise(tree) for tree in history], caps)
    assert check_plan(plan, caps) == plan
    kept = (plan.branches, plan.steps) == tuple(now)
    assert plan.reason.split(":")[0] in (("keep",) if kept else ("widen", "deepen", "shrink"))


def test_a_plan_that_may_not_be_followed_falls_back_to_the_present_grid():
    assert check_plan({"branches": 4, "steps": 20, "reason": "deep\x1b[1m"}, CAPS) == GridPlan(4, 20, "deep [1m")
    assert check_plan(None, CAPS) == GridPlan(8, 10, "no plan; the present grid stays")
    huge = 10**5000  # more digits than Python prints
    for plan, problem in (
        (GridPlan(33, 1), "more than 32 branches"),
        (GridPlan(1, 31), "more than 30 steps"),
        (GridPlan(9, 9), "81 attempts, the budget is 80"),  # each side is within its cap
        ({"branches": huge, "steps": 1}, "more than 32 branches"),
        ({"branches": True, "steps": 1}, "branches is not a whole number"),
        ({"branches": 2.0, "steps": 1}, "branches is not a whole number"),
        ({"branches": 2, "steps": 0}, "steps is not a whole number"),
        ({"branches": 2}, "steps is not a whole number"),
        ([8, 10], "it is of type list"),
        ("8x10", "it is of type str"),
        (math.nan, "it is of type float"),
    ):
        found = check_plan(plan, CAPS)
        assert (found.branches, found.steps) == (8, 10)
        assert found.reason.startswith(f"plan rejected: {problem}")
        assert found.reason.endswith("; the present grid stays")


def test_caps_that_exclude_the_present_grid_are_refused():
    with pytest.raises(d.UserError, match="88 attempts, the budget is 80"):
        Caps(32, 30, 80, GridPlan(8, 11))


@given(policies, universes(), st.integers(1, 5))
def test_a_rejected_plan_is_replayed_as_no_plan(policy, tree, width):
    """The full recorded tree must not come back where the plan that was to cap it was rejected."""
    branches, steps = grid(tree)
    caps = Caps(branches, steps, branches * steps, GridPlan(branches, steps))
    used = check_plan(GridPlan(branches + 1, steps), caps)
    assert under_plan(tree, used) is tree
    assert d.replay(policy, under_plan(tree, used), width) == d.replay(policy, tree, width)


@given(trees(), st.integers(1, 9), st.integers(1, 9))
def test_under_a_plan_there_is_nothing_new(tree, branches, steps):
    tree = d.Tree(tree.header, list(tree), name="its own name")
    seen = under_plan(tree, GridPlan(branches, steps))
    assert len(seen.branches) <= branches and all(len(branch) <= steps for branch in seen.branches)
    assert (seen.header.branches, seen.header.steps) == (branches, steps) and seen.name == tree.name
    assert {a.seq for a in seen} <= {a.seq for a in tree}
    if branches >= len(tree.branches) and steps >= max(map(len, tree.branches)):
        assert [(a.seq, a.branch, a.origin) for a in seen] == [(a.seq, a.branch, a.origin) for a in tree]
    scores = {a.seq: a.score for a in tree}
    assert all(a.score == scores[a.seq] for a in seen)


@given(trees(forks=False), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99), st.integers(1, 4))
def test_cells_beyond_the_grid_are_counted_as_an_independent_walk_finds_them(tree, branches, steps, seed, width):
    seen = under_plan(tree, GridPlan(branches, steps))
    episode = d.replay(Wild(seed), seen, width, 40)
    cap, depth = grid(tree)
    opened, cells, last = 0, 0, {}
    for batch in episode.picks:
        for pick in batch:
            if pick == d.OPEN:
                revealed = opened < len(seen.branches)
                if not revealed and (cell := last.get("open", len(seen.branches))) < branches:
                    last["open"] = cell + 1
                    cells += cell >= cap
                if revealed:
                    last[opened] = 1
                    opened += 1
            else:
                cell = last[pick]
                last[pick] = cell + 1
                cells += max(len(seen.branches[pick]), depth) <= cell < steps
    assert beyond(episode, tree, seen) == cells
