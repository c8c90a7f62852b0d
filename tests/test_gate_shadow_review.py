"""The gate's rules ``shadow`` and ``review``: where each fails alone, and where its evidence is missing."""

from __future__ import annotations

import math

import msgspec
import pytest

import dreamrsi as d
from dreamrsi.freeze import freeze
from dreamrsi.rules import keeps_quality
from gate_fixtures import (
    CREEPER,
    LATE,
    LOSER,
    STOP,
    World,
    climber,
    failures,
    make_world,  # noqa: F401 - the fixture ``world``
    reason,
    usual,
    world_tree,
)
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures
from strategies import tree_of

# shadow


def test_only_shadow_fails_where_attempts_are_not_saved_on_one_of_the_trees(world):
    _, since = usual()
    decision = world(shadow=[since[0], world_tree(2, 9.5, losers=CREEPER)]).gate()
    assert failures(decision) == ["shadow"] and "24 attempts are more than 80 percent of 24" in reason(
        decision, "shadow"
    )


def test_only_shadow_fails_where_quality_drops_on_one_of_the_trees(world):
    _, since = usual()
    late = tree_of([climber(8.8), LOSER, LOSER, LATE], steps=6, branches=4, width=4)  # 8.8 of 9: 2.2 percent
    decision = world(shadow=[late, since[1]]).gate()
    assert failures(decision) == ["shadow"] and "more than 2 percent below 9" in reason(decision, "shadow")
    close = tree_of([climber(8.83), LOSER, LOSER, LATE], steps=6, branches=4, width=4)
    assert world(shadow=[close, since[1]]).gate().promoted


def test_only_shadow_fails_without_two_new_trees(world):
    made = world()
    first, second = made.shadow
    for given_, why in (
        ([], "0 of the 2"),
        ([first], "1 of the 2"),
        ([first, first], "was given twice"),
        ([made.trees[0], first], "is tree-0 of the suite"),
        ([first, made.folder / "nothing.jsonl"], "cannot be read"),
    ):
        decision = made.gate(shadow=given_)
        assert failures(decision) == ["shadow"] and why in reason(decision, "shadow")


def test_a_tree_of_the_suite_is_not_new_under_another_name_or_header(world):
    made = world()
    tree = d.Tree.load(made.trees[2])
    again = d.Tree(msgspec.structs.replace(tree.header, seed=7, policy="another"), tree.attempts)
    (path,) = made.save("again", [again])
    assert "is tree-2 of the suite" in reason(made.gate(shadow=[made.shadow[0], path]), "shadow")


def test_a_tree_that_is_not_closed_is_no_shadow(world):
    made = world()
    torn = made.write("torn.jsonl", made.shadow[1].read_bytes()[:-5])
    decision = made.gate(shadow=[made.shadow[0], torn])
    assert failures(decision) == ["shadow"] and "not closed" in reason(decision, "shadow")


def test_a_tree_of_another_task_or_without_a_score_is_no_shadow(world):
    made = world()
    tree = d.Tree.load(made.shadow[1])
    other = d.Tree(msgspec.structs.replace(tree.header, task="another"), tree.attempts)
    nothing = tree_of([[None] * 6] * 4, steps=6, branches=4, width=4)
    for path, why in zip(
        made.save("bad", [other, nothing]), ("of the task another", "no attempt has a score"), strict=True
    ):
        assert why in reason(made.gate(shadow=[made.shadow[0], path]), "shadow")


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        ((4, 5), None),
        ((4, 6), "do not follow one another"),
        ((5, 4), "do not follow"),
        ((3, 4), "is not later than round 3"),
    ],
)
def test_shadow_trees_of_a_run_are_consecutive_rounds_after_those_of_the_suite(tmp_path, rounds, why):
    some, since = usual()
    world = World(tmp_path / "world")
    frozen = [tmp_path / "run" / f"round-{number:02d}" / "tree.jsonl" for number in (1, 2, 3)]
    shadow = [tmp_path / "later" / f"round-{number:02d}" / "tree.jsonl" for number in rounds]
    for path, tree in zip([*frozen, *shadow], [*some, *since], strict=True):
        tree.save(path)
    freeze(frozen, world.current, tmp_path / "s", beta1=0.02, beta2=0.01)
    decision = world.gate(suite=tmp_path / "s", shadow=shadow)
    assert failures(decision) == ([] if why is None else ["shadow"])
    assert why is None or why in reason(decision, "shadow")


def test_a_share_of_a_negative_quality_is_a_share_of_its_size():
    assert keeps_quality(-10.2, -10, 0.02) and not keeps_quality(-10.3, -10, 0.02)
    assert keeps_quality(0, 0, 0.02) and not keeps_quality(-1e-9, 0, 0.02)
    assert not keeps_quality(-math.inf, -math.inf, 0.02) and not keeps_quality(math.nan, 1, 0.02)


# review


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"width": 5}, "width: 4 -> 5"),
        ({"steps": 7}, "steps: 6 -> 7"),
        ({"branches": 5}, "branches: 4 -> 5"),
        ({"beta1": 0.021}, "beta1: 0.02 -> 0.021"),
        ({"beta2": 0.011}, "beta2: 0.01 -> 0.011"),
    ],
)
def test_only_review_fails_where_a_setting_changed_and_nobody_read_it(world, changed, said):
    made = world()
    decision = made.gate(**changed)
    assert failures(decision) == ["review"] and said in reason(decision, "review")
    assert decision.diff_sha256 in reason(decision, "review") and said in decision.diff
    read = {"reviewer": "R. Reader", "diff_sha256": decision.diff_sha256}
    assert made.gate(**changed, **read).promoted


def test_a_review_needs_a_name_and_the_hash_of_what_would_be_deployed(world):
    made = world()
    read = {"reviewer": "R. Reader", "diff_sha256": made.gate(width=5).diff_sha256}
    assert made.gate(width=5, **read).promoted
    for lacking in ({"reviewer": None}, {"diff_sha256": None}, {"reviewer": "  "}):
        assert failures(made.gate(width=5, **{**read, **lacking})) == ["review"]
    wrong = made.gate(width=6, **read)
    assert failures(wrong) == ["review"] and "is not this one" in reason(wrong, "review")


def test_a_wrong_hash_is_refused_also_where_no_review_is_needed(world):
    assert failures(world().gate(reviewer="R. Reader", diff_sha256="0" * 64)) == ["review"]


SHY = (  # opens all four at once, but three where the root has a score
    STOP
    + b"""
    def choose(self, prefix):
        batch = super().choose(prefix)
        if prefix.root is None:
            return batch
        return [-1] * 3 if prefix.round == 0 else [pick for pick in batch if pick >= 0]
"""
)


def test_only_review_fails_where_fewer_workspaces_may_be_opened_than_the_last_winner_needed(world):
    some, _ = usual()
    made = world(policy=SHY, trees=[world_tree(0, 9.0, root=1.0), *some[1:]])
    decision = made.gate()
    assert failures(decision) == ["review"]
    assert "opens as few as 3 workspaces, and the last winner needed 4" in reason(decision, "review")
    assert made.gate(reviewer="R. Reader", diff_sha256=decision.diff_sha256).promoted


def test_a_policy_that_narrows_itself_changes_the_width_too(world):
    source = STOP + b"    def __init__(self):\n        super().__init__(width=3)\n"
    assert "widest batch: 4 -> 3" in reason(world(policy=source).gate(), "review")
