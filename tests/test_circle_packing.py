import json
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize  # noqa: F401  # so that its threads are limited too
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dreamrsi import tasks
from dreamrsi.errors import UserError
from dreamrsi.tasks.circle_packing import CirclePacking, write_circles
from dreamrsi.tasks.circle_packing.evaluate import (
    evaluate,
    read_circles,
    repair,
    sum_down,
    tolerant_score,
)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As in a live run; more threads only get in each other's way here."""
    with threadpool_limits(1):
        yield


TWO = [[0.25, 0.25, 0.25], [0.75, 0.75, 0.25]]


def judge(circles, n=None):
    return evaluate(json.dumps(circles).encode(), len(circles) if n is None else n)


def is_feasible(circles):
    """The rules of the task, each inequality written out in rational arithmetic; shares no code with the judge."""
    exact = [tuple(map(Fraction, circle)) for circle in circles]
    walls = [room for x, y, r in exact for room in (x - r, y - r, 1 - x - r, 1 - y - r)]
    pairs = [(x - u) ** 2 + (y - v) ** 2 - (r + s) ** 2 for k, (x, y, r) in enumerate(exact) for (u, v, s) in exact[:k]]
    return min([*walls, *pairs]) >= 0


def test_golden_scores():
    assert judge(TWO).score == 0.5
    assert judge([[0.5, 0.5, 0.5]]).score == 0.5
    # The best two circles sit in opposite corners and touch: the sum of their radii is 2 - sqrt(2).
    r = (2 - math.sqrt(2)) / 2
    best = judge([[r, r, r], [1 - r, 1 - r, r]])
    assert best.score == pytest.approx(2 - math.sqrt(2), abs=1e-14)
    assert best.score <= 2 - math.sqrt(2)


def test_the_seed_workspace():
    result = CirclePacking().evaluate(CirclePacking().seed_workspace())
    assert result.score == pytest.approx(26 / 12, abs=1e-12)
    assert result.metrics["score_at_tolerance_1e-12"] == pytest.approx(26 / 12, abs=1e-12)


# Centres, radii and gaps are sums of powers of two, so that the honest packing touches exactly and its sum is exact.
TOUCHING = {
    "left wall": ([[0.25, 0.5, 0.25], [0.75, 0.5, 0.125]], 0.375),
    "right wall": ([[0.75, 0.5, 0.25], [0.25, 0.5, 0.125]], 0.375),
    "lower wall": ([[0.5, 0.25, 0.25], [0.5, 0.75, 0.125]], 0.375),
    "upper wall": ([[0.5, 0.75, 0.25], [0.5, 0.25, 0.125]], 0.375),
    "a pair": ([[0.25, 0.5, 0.1875], [0.625, 0.5, 0.1875]], 0.375),
}


@pytest.mark.parametrize("overlap", [1e-15, 1e-14, 1e-13])
@pytest.mark.parametrize(("honest", "total"), TOUCHING.values(), ids=TOUCHING)
def test_a_tiny_overlap_is_repaired_and_not_scored_as_is(honest, total, overlap):
    """Twin test: the tolerant rule takes the overlap for free, the strict one does not."""
    (x, y, r), other = honest
    cheat = [[x, y, r + overlap], other]
    assert is_feasible(honest) and not is_feasible(cheat)
    result = judge(cheat)
    assert result.metrics["score_at_tolerance_1e-12"] > total
    assert result.score <= total == judge(honest).score
    assert result.score == pytest.approx(total, abs=1e-12)
    assert is_feasible(repair([tuple(circle) for circle in cheat]))


def test_large_overlaps_are_invalid_and_say_where():
    result = judge([[0.25, 0.5, 0.25], [0.7, 0.5, 0.25]])
    assert result.status == "invalid" and result.score is None
    assert "circle 0 reaches over" in result.error
    assert judge([[0.1, 0.5, 0.2], [0.7, 0.5, 0.25]]).status == "invalid"
    # At the limit of the repair: 1e-7 of the radius is mended, 1e-5 is not.
    assert judge([[0.25, 0.5, 0.25 * (1 + 1e-7)], [0.75, 0.5, 0.25]]).status == "ok"
    assert judge([[0.25, 0.5, 0.25 * (1 + 1e-5)], [0.75, 0.5, 0.25]]).status == "invalid"


MALFORMED = {
    "missing": None,
    "empty": b"",
    "not json": b"[[0.5, 0.5, 0.5]",
    "not utf-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "object": b'{"0": [0.5, 0.5, 0.1]}',
    "number": b"1.0",
    "too few": json.dumps([[0.5, 0.5, 0.5]]).encode(),
    "too many": json.dumps(TWO + TWO).encode(),
    "huge file": b"[" + b"[0.5, 0.5, 0.1]," * 100_000 + b"[0.5, 0.5, 0.1]]",
    "pairs": json.dumps([[0.5, 0.5], [0.1, 0.1]]).encode(),
    "nested": json.dumps([[0.25, 0.25, [0.25]], TWO[1]]).encode(),
    "nan": b"[[NaN, 0.25, 0.25], [0.75, 0.75, 0.25]]",
    "inf": b"[[0.25, 0.25, Infinity], [0.75, 0.75, 0.25]]",
    "1e999": b"[[0.25, 0.25, 1e999], [0.75, 0.75, 0.25]]",
    "huge integer": b"[[0.25, 0.25, 1" + b"0" * 400 + b"], [0.75, 0.75, 0.25]]",
    "endless integer": b"[[0.25, 0.25, 1" + b"0" * 10_000 + b"], [0.75, 0.75, 0.25]]",
    "bool": b"[[0.25, 0.25, true], [0.75, 0.75, 0.25]]",
    "null": b"[[0.25, 0.25, null], [0.75, 0.75, 0.25]]",
    "text": b'[[0.25, 0.25, "0.25"], [0.75, 0.75, 0.25]]',
    "negative": b"[[0.25, 0.25, -0.25], [0.75, 0.75, 0.25]]",
    "zero": b"[[0.25, 0.25, 0], [0.75, 0.75, 0.25]]",
    "subnormal": b"[[0.25, 0.25, 1e-320], [0.75, 0.75, 0.25]]",
    "outside": b"[[1.25, 0.25, 0.25], [0.75, 0.75, 0.25]]",
    "on the wall": b"[[0, 0.25, 0.25], [0.75, 0.75, 0.25]]",
    "too large": b"[[0.5, 0.5, 0.6], [0.75, 0.75, 0.25]]",
    "same centre": b"[[0.5, 0.5, 0.25], [0.5, 0.5, 0.25]]",
}


@pytest.mark.parametrize("artifact", MALFORMED.values(), ids=MALFORMED)
def test_malformed_artifacts_are_invalid_with_a_reason(artifact):
    result = evaluate(artifact, 2)
    assert result.status == "invalid" and result.score is None and result.error


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='[],.0123456789eE-+{}": nulNaInfty', max_size=60).map(str.encode))
def test_no_bytes_raise(artifact):
    assert evaluate(artifact, 1).status in ("ok", "invalid")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.sampled_from([0, 1e-15, 1e-14, 1e-13]) | st.floats(0, 3e-7))
def test_what_is_scored_is_feasible_and_never_overstated(seed, n, excess):
    """Touching circles, inflated a little: after the repair every inequality holds in rational arithmetic."""
    random = np.random.default_rng(seed)
    centres = random.uniform(0.05, 0.95, (n, 2))
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2) + np.diag(np.full(n, 9.0))
    radii = np.minimum(gaps.min(axis=1) / 2, np.minimum(centres, 1 - centres).min(axis=1)) * (1 + excess)
    if radii.min() < 1e-3:
        return
    circles = [(float(x), float(y), float(r)) for (x, y), r in zip(centres, radii, strict=True)]
    strict = repair(circles)
    assert is_feasible(strict)
    assert all(new <= old for (*_, new), (*_, old) in zip(strict, circles, strict=True))
    total = sum_down(strict)
    assert Fraction(total) <= sum(Fraction(r) for *_, r in strict)
    assert total == pytest.approx(sum(radii), rel=2e-6)
    assert evaluate(write_circles(circles), n).score == total
    assert tolerant_score(strict) >= total


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-3, 1 - 1e-3), st.floats(1e-3, 1 - 1e-3), st.integers(0, 9))
def test_a_circle_at_a_wall_is_inside_to_the_last_digit(x, y, ulps):
    r = min(x, y, 1 - x, 1 - y)
    cut = repair([(x, y, r + ulps * math.ulp(r))])
    assert is_feasible(cut)
    assert cut == [(x, y, r)] and not is_feasible([(x, y, math.nextafter(r, 1))])  # and no digit is lost


def test_rounding_hides_no_overlap_of_a_pair():
    """Pairs that touch as far as floats can tell; about half of them overlap in the last digit."""
    random = np.random.default_rng(0)
    overlapping = 0
    for (x, y), (u, v) in random.uniform(0.3, 0.7, (2000, 2, 2)).tolist():
        r = math.hypot(x - u, y - v) / 2
        pair = [(x, y, r), (u, v, r)]
        overlapping += not is_feasible(pair)
        assert is_feasible(repair(pair))
    assert overlapping > 500


def test_floats_survive_the_artifact():
    circles = [(0.1, 1 / 3, 0.05), (math.nextafter(0.7, 1), 0.7, 0.1)]
    assert read_circles(write_circles(circles), 2) == circles


def test_every_move_gives_a_whole_artifact_and_is_repeatable():
    task = CirclePacking(7)
    assert len(task.moves) >= 6
    start = task.moves["perturb"](task.seed_workspace(), 1)
    for name, move in task.moves.items():
        made = move({**start, "note": b"kept"}, 5)
        assert made == move({**start, "note": b"kept"}, 5), name
        assert made["note"] == b"kept"
        assert len(read_circles(made["packing.json"], 7)) == 7
        assert task.evaluate(made).status in ("ok", "invalid")


def test_moves_climb():
    task = CirclePacking()
    files = task.seed_workspace()
    for seed, move in enumerate(("perturb", "relocate", "squeeze", "slsqp")):
        files = task.moves[move](files, seed)
    assert task.evaluate(files).score > 2.58


def test_the_registry():
    assert tasks.make("circle_packing").name == "circle_packing"
    assert tasks.make("circle_packing:n=32").name == "circle_packing:n=32"
    for text, problem in {
        "circles": "there is no task 'circles'; choose one of circle_packing",
        "circle_packing:m=3": "has no parameter 'm'; it has n",
        "circle_packing:n=x": "whole number",
        "circle_packing:n=1": "from 2 to 1000",
    }.items():
        with pytest.raises(UserError, match=problem):
            tasks.make(text)


def test_evaluations_hold_their_contract():
    with pytest.raises(ValueError, match="finite number"):
        tasks.Evaluation(score=math.nan)
    with pytest.raises(ValueError, match="finite number"):
        tasks.Evaluation()
    with pytest.raises(ValueError, match="has no score"):
        tasks.Evaluation(score=1.0, status="invalid")
