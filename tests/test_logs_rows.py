"""Rows to tree: any parents, orders, duplicates and failures give a valid tree or one clear error."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.logs.report import account, settle
from dreamrsi.logs.rows import Log, Row, grow
from log_fixtures import check_replay

IDS = st.sampled_from("abcdefgh")
RAW = st.one_of(st.none(), st.sampled_from([0.0, 1.0, -2.5, math.nan, math.inf, -math.inf]), st.floats(-9, 9))
STATUS = st.sampled_from(["ok", "ok", "ok", "invalid", "error", "timeout", "rejected", "unknown"])
ROWS = st.lists(
    st.builds(
        Row,
        id=IDS,
        parent=st.one_of(st.none(), IDS, st.just("gone")),
        score=RAW,
        status=STATUS,
        start=st.sampled_from([False, False, False, True]),
    ),
    max_size=12,
)


def make(rows, direction="max"):
    log = Log(rows, "score")
    grown = grow(rows, direction)
    tree = d.Tree(d.Header(task="toy", root=d.Root(grown.root)), grown.attempts)
    return tree, grown, account("toy", log, grown, direction, "said")


@given(ROWS, st.sampled_from(["max", "min"]))
def test_any_rows_give_a_valid_tree_or_one_clear_error(rows, direction):
    try:
        tree, grown, report = make(rows, direction)
    except d.UserError as error:
        text = str(error)
        assert ("circle" in text) is not ("twice" in text) and "\n" not in text
        return
    ids = {row.id for row in rows}
    starts = {row.id for row in rows if row.start} if grown.starts else set()
    assert {a.metrics["id"] for a in tree} == ids - starts
    assert report.kept == len(tree) == report.scored + report.failed + report.rejected + report.unknown
    assert len(rows) == report.kept + report.copies + bool(grown.starts)
    place = {a.metrics["id"]: (a.branch, a.attempt) for a in tree}
    by_id = {row.id: row for row in rows}
    sign = 1 if direction == "max" else -1
    for a in tree:
        row = by_id[a.metrics["id"]]
        before = (a.branch, a.attempt - 1) if a.attempt else a.origin
        assert before == place.get(row.parent)  # the parent, or the root
        lost = row.parent is not None and row.parent not in ids
        assert ("parent_missing" in a.metrics) is lost
        good = row.status == "ok" and row.score is not None and math.isfinite(row.score)
        assert a.score == (sign * row.score if good else None)
        if row.status != "ok":
            assert a.status == row.status
    assert report.parents_missing == sum("parent_missing" in a.metrics for a in tree)
    check_replay(tree)


@given(ROWS)
def test_the_first_child_goes_on_and_later_ones_fork(rows):
    try:
        tree, _, _ = make(rows)
    except d.UserError:
        return
    seq = {(a.branch, a.attempt): a.seq for a in tree}
    for a in tree:
        if a.attempt == 0 and a.origin is not None:
            assert seq[a.origin[0], a.origin[1] + 1] < a.seq  # somebody went on there before this one forked


@given(ROWS, st.randoms(use_true_random=False))
def test_a_valid_order_is_kept_and_any_other_changes_no_parent(rows, random):
    rows = list({row.id: row for row in rows}.values())
    try:
        tree, _, report = make(rows)
    except d.UserError:
        return
    shuffled = rows[:]
    random.shuffle(shuffled)
    again, _, other = make(shuffled)
    assert (other.scored, other.failed, other.parents_missing) == (
        report.scored,
        report.failed,
        report.parents_missing,
    )
    ordered = [next(row for row in rows if row.id == a.metrics["id"]) for a in tree]
    kept, _, _ = make(ordered)  # parents first already
    assert [a.metrics["id"] for a in kept] == [row.id for row in ordered if not row.start or len(ordered) == len(kept)]
    assert len(again) == len(tree)


def test_a_circle_is_named():
    rows = [Row("a", parent="c"), Row("b", parent="a"), Row("c", parent="b"), Row("d", parent="c")]
    with pytest.raises(d.UserError, match="circle: . has the parent . has the parent . has the parent"):
        grow(rows, "max")


def test_a_row_twice_is_a_copy_and_a_contradiction_an_error():
    assert make([Row("a", score=math.nan), Row("a", score=math.nan)])[2].copies == 1
    with pytest.raises(d.UserError, match="'a' is there twice"):
        grow([Row("a", score=1.0), Row("a", score=2.0)], "max")


def test_equal_starts_are_one_root_and_different_ones_are_attempts():
    start = {"status": "ok", "start": True}
    tree, _, report = make(
        [Row("a", score=2.0, **start), Row("b", score=2.0, **start), Row("c", parent="b", score=3.0)]
    )
    assert tree.root == 2.0 and len(tree) == 1 and report.copies == 1 and tree.attempts[0].origin is None
    tree, _, report = make(
        [Row("a", score=2.0, **start), Row("b", score=1.0, **start), Row("c", parent="b", score=3.0)]
    )
    assert tree.root is None and len(tree) == 3 and "differ in score" in " ".join(report.notes)


def test_lower_is_better_is_turned_round_once_and_a_failure_has_no_score():
    tree, _, report = make([Row("a", score=0.0), Row("b", score=0.0, status="error"), Row("c", score=-math.inf)], "min")
    assert [a.score for a in tree] == [0.0, None, None]
    assert math.copysign(1, tree.attempts[0].score) == 1
    assert tree.attempts[1].metrics["logged_score"] == 0.0 and tree.attempts[2].metrics["logged_score"] == "-inf"
    assert tree.attempts[2].status == "invalid"
    assert any("1 attempt without success had a number" in note for note in report.notes)


def test_directions():
    assert settle(Log([], "x", "max", "always"), None) == ("max", "always")
    assert settle(Log([], "x"), "min") == ("min", "given with --direction")
    with pytest.raises(d.UserError, match="contradicts the log, where the direction is max: always"):
        settle(Log([], "x", "max", "always"), "min")
    with pytest.raises(d.UserError, match="does not say"):
        settle(Log([], "x"), None)


@pytest.mark.parametrize("shape", ["star", "chain", "random", "backwards"])
def test_a_hundred_thousand_rows_take_seconds(shape):
    n = 100_000
    parent = {
        "star": lambda i: "0",
        "chain": lambda i: str(i - 1),
        "random": lambda i: str(i * 7919 // 3 % i),
        "backwards": lambda i: str(i - 1),
    }[shape]
    rows = [Row(str(i), parent=parent(i) if i else None, score=float(i)) for i in range(n)]
    if shape == "backwards":
        rows.reverse()
    began = time.process_time()
    tree, grown, _ = make(rows)
    assert time.process_time() - began < 10
    assert len(tree) == n and grown.moved == (n - 1 if shape == "backwards" else 0)
