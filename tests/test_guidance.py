"""What guidance makes of finished rounds."""

from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.agents import Context, MoveAgent
from dreamrsi.guidance import FEW, STRONGEST, Guidance, summarise
from strategies import trees
from toy_task import Toy, climb, spoil


def tree(*branches, root=1.0):
    """Branches of (tag, score or error text)."""
    attempts = []
    for branch, row in enumerate(branches):
        for number, (tag, found) in enumerate(row):
            failed = isinstance(found, str)
            attempts.append(
                d.Attempt(
                    branch=branch,
                    attempt=number,
                    seq=len(attempts),
                    score=None if failed else found,
                    status="error" if failed else "ok",
                    error=found if failed else None,
                    tag=tag,
                )
            )
    return d.Tree(d.Header(task="t", root=d.Root(root)), attempts)


def test_a_mechanism_is_weighed_by_how_often_it_raised_its_branch():
    good = [("good", 2.0), ("good", 3.0), ("good", 4.0)]
    bad = [("bad", 0.5), ("bad", 0.6), ("bad", "no\nmore")]
    found = summarise([tree(good, bad)])
    assert found.weights["good"] == (4 / 5) / ((4 / 5 + 1 / 5) / 2) == 1.6
    assert round(found.weights["bad"], 12) == 0.4  # .6 beats .5, but not the root
    assert found.recommended == "good"
    assert "- good: raised its branch's best in 3 of 3 attempts, largest gain 1" in found.text
    assert "- 1 times: no" in found.text and "more" not in found.text
    assert "Best score so far: 4 " in found.text


def test_nothing_is_recommended_on_little_or_without_success():
    assert summarise([tree([("rare", 2.0)] * (FEW - 1))]).recommended is None
    assert summarise([tree([("poor", 0.1)] * FEW)]).recommended is None
    assert summarise([tree([(None, 2.0)])]) == Guidance("Rounds so far: 1. Best score so far: 2 (higher is better).\n")
    assert summarise([]).weights == {}


@given(st.lists(trees(), max_size=3))
def test_weights_are_bounded_and_name_what_was_tried(history):
    found = summarise(history)
    tags = {attempt.tag for tree in history for attempt in tree if attempt.tag is not None}
    assert set(found.weights) == tags
    assert all(1 / STRONGEST <= weight <= STRONGEST for weight in found.weights.values())
    assert found.recommended is None or found.recommended in tags


def test_the_offline_agent_draws_what_is_advised_more_often():
    def share(guidance):
        task = Toy(climb, spoil)
        seeds = range(400)
        made = [MoveAgent().attempt(task, {"value": b"1.0"}, Context(s, 1.0, (), guidance)) for s in seeds]
        return sum(proposal.tag == "climb" for proposal in made) / len(made)

    assert 0.4 < share(None) < 0.6
    assert 0.7 < share(Guidance("", {"climb": 4.0})) < 0.9  # 4 in 5
    assert 0.1 < share(Guidance("", {"climb": 0.25})) < 0.3
