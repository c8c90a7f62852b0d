from pathlib import Path

import pytest

from dreamrsi import Tree, policies, replay

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_recorded_run_is_whole_and_its_policy_repeats_it():
    tree = Tree.load(EXAMPLES / "circle_packing_26.jsonl")
    assert [len(branch) for branch in tree.branches] == [11] * 10
    assert not tree.header.synthetic
    episode = replay(policies.make(tree.header.policy), tree, tree.header.width)
    assert episode.picks == tree.picks
    assert [tree.branches[branch][place].seq for branch, place in episode.order] == list(range(110))
    # What examples/README.md says of it.
    assert tree.root == pytest.approx(2.1667, abs=1e-4)
    assert tree.best == pytest.approx(2.631350, abs=1e-6)
    assert (tree.best_attempt.branch, tree.best_attempt.attempt) == (9, 10)
    missed = replay(policies.ParallelRefine(), tree, 8)
    assert missed.opened == 8 and missed.best < tree.best
