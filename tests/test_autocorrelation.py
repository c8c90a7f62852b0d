"""The judge of the autocorrelation inequality: golden values, symmetries, planted cheats, malformed artifacts."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamrsi import tasks
from dreamrsi.tasks.autocorrelation import Autocorrelation, write_heights
from dreamrsi.tasks.autocorrelation.evaluate import (
    MAX_CELLS,
    REFERENCE,
    autoconvolution,
    decimals_up,
    evaluate,
    quotient,
    read_heights,
)


def judge(heights):
    return evaluate(json.dumps(heights).encode())


def plain(heights, absolute=abs):
    """The quotient by its definition, term by term in rational arithmetic; shares no code with the judge."""
    f = [Fraction(h) for h in heights]
    n = len(f)
    c = [sum((f[i] * f[k - i] for i in range(max(0, k - n + 1), min(n, k + 1))), Fraction(0)) for k in range(2 * n - 1)]
    return 2 * n * max(map(absolute, c)) / sum(f) ** 2


HEIGHTS = st.lists(st.integers(-1000, 1000).map(lambda v: v / 64), min_size=1, max_size=12).filter(
    lambda h: abs(sum(h)) > 0.5
)
"""Multiples of 1/64, so that scaling by powers of two and by small whole numbers is exact."""


def test_golden_values():
    constant = judge([1.0] * 60)
    assert constant.metrics == {
        "c3": 2.0,
        "c3_at_most": "2.000000000000",
        "c3_without_absolute_value": 2.0,
        "cells": 60,
        "exact": True,
    }
    assert constant.score <= Fraction(REFERENCE) / 2 and constant.score == pytest.approx(REFERENCE / 2, abs=1e-15)
    # By hand: c of [3, -1, 2] is 9, -6, 13, -4, 4 and the sum is 4, so 6 * 13 / 16.
    assert judge([3, -1, 2]).metrics["c3"] == 78 / 16
    # c of [1, -5, 1, 5, 1] is 1, -10, 27, 0, -47, 0, 27, 10, 1: the largest is negative.
    assert judge([1, -5, 1, 5, 1]).metrics["c3"] == pytest.approx(10 * 47 / 9)
    assert judge([5]).metrics["c3"] == 2.0


def test_the_start_of_the_first_publication():
    """A Gaussian bump with two cosines on 400 cells; 3.158550461 is what its judge says."""
    x = np.linspace(-0.25, 0.25, 400)
    f = np.exp(-((x / 0.1) ** 2) / 2) + 0.3 * np.cos(16 * np.pi * x) + 0.15 * np.sin(32 * np.pi * x)
    result = judge(f.tolist())
    assert result.metrics["c3"] == pytest.approx(3.158550461, abs=5e-10)
    assert result.score == pytest.approx(0.460858, abs=5e-7)


@settings(max_examples=150, deadline=None)
@given(HEIGHTS)
def test_the_quotient_is_that_of_the_definition(heights):
    lower, upper, one_sided = quotient(heights)
    assert lower == upper == plain(heights)
    assert one_sided == plain(heights, absolute=lambda v: v) <= upper


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e10, 1e10), min_size=1, max_size=10))
def test_bounds_hold_for_any_floats(heights):
    """Denormal heights beside large ones are cut, and the bounds lie around the exact quotient even so."""
    result = judge(heights)
    if sum(map(Fraction, heights)) == 0:
        assert result.status == "invalid"
    elif result.status == "ok":
        exact, (lower, upper, _) = plain(heights), quotient(heights)
        assert lower <= exact <= upper <= exact * (1 + Fraction(1, 10**9))
        assert Fraction(result.metrics["c3"]) >= exact and Fraction(result.metrics["c3_at_most"]) >= exact
        assert result.score <= Fraction(REFERENCE) / exact
        assert result.metrics["exact"] == (lower == upper)
    else:
        assert plain(heights) > 999_999 and "above 10^6" in result.error


def test_heights_far_below_the_largest_are_cut_and_said_to_be():
    tiny, whole = judge([1e10, 1e-300, 1.0]), judge([1e10, 0.0, 1.0])
    assert not tiny.metrics["exact"] and whole.metrics["exact"]
    assert tiny.metrics["c3"] >= whole.metrics["c3"] and tiny.score == pytest.approx(whole.score, rel=1e-15)


@settings(max_examples=100, deadline=None)
@given(HEIGHTS, st.sampled_from([-1.0, 2.0**-30, 2.0**20, -3.0, 7.0]))
def test_scaling_and_reflection_keep_the_score(heights, factor):
    score = judge(heights).score
    assert judge([factor * h for h in heights]).score == score
    assert judge(heights[::-1]).score == score


@settings(max_examples=100, deadline=None)
@given(HEIGHTS, st.integers(0, 5), st.integers(0, 5))
def test_shifts_within_the_interval_keep_the_score_and_a_wider_interval_does_not(heights, left, right):
    """Zeros move from one end to the other; adding zeros squeezes f into a part of the interval, which costs."""
    shifted = judge([0.0] * left + heights + [0.0] * right)
    assert shifted.score == judge([0.0] * (left + right) + heights).score
    n = len(heights)
    assert quotient([0.0] * left + heights + [0.0] * right)[0] == Fraction(n + left + right, n) * plain(heights)
    if left + right:
        assert shifted.score < judge(heights).score


@settings(max_examples=100, deadline=None)
@given(HEIGHTS, st.integers(2, 4))
def test_finer_cells_of_the_same_function_keep_the_score(heights, times):
    fine = [h for h in heights for _ in range(times)]
    assert judge(fine).score == judge(heights).score


@settings(max_examples=100, deadline=None)
@given(HEIGHTS)
def test_no_function_beats_the_bound_that_everybody_can_prove(heights):
    """The sum of c is (sum f)^2, in 2n - 1 parts, so a quotient of 1 or less would be an error of the judge."""
    assert quotient(heights)[0] > 1


def test_a_sign_trick_gains_nothing():
    """Twin test: a judge without the absolute value would take a deep negative lobe for free, ours does not."""
    heights = [1.0, -5.0, 1.0, 5.0, 1.0]
    assert plain(heights, absolute=lambda v: v) == Fraction(10 * 27, 9)
    assert plain(heights) == quotient(heights)[1] == Fraction(10 * 47, 9)
    assert judge(heights).score < REFERENCE * 9 / 270
    metrics = judge(heights).metrics
    assert (metrics["c3"], metrics["c3_without_absolute_value"]) == pytest.approx((470 / 9, 30))
    # The whole function negated has the same autoconvolution, and so has each of these: the sum enters squared.
    assert judge([-h for h in heights]).score == judge(heights).score
    assert judge(np.abs(heights).tolist()).score != judge(heights).score


def test_a_sum_that_nearly_cancels_is_no_way_out():
    assert judge([1.0, -1.0]).status == judge([0.0] * 5).status == judge([0]).status == "invalid"
    result = judge([1e5, -1e5, 1e-3])
    assert result.status == "invalid" and "sum of the heights is zero" in result.error
    assert judge([1.0, -1.0, 0.01]).status == "ok"  # just as legal as it is bad
    # Cut digits count against the construction: the sum of what is left over vanishes among them.
    assert judge([1e10, 1e-300, -1e10]).status == "invalid"


MALFORMED = {
    "missing": None,
    "empty": b"",
    "not json": b"[1, 2",
    "not utf-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "no heights": b"[]",
    "object": b'{"heights": [1, 2], "c3": 1.0}',
    "number": b"1.0",
    "tuple of heights and claim": b"[[1.0, 2.0], 1.45]",
    "column": b"[[1.0], [2.0]]",
    "nan": b"[1.0, NaN]",
    "inf": b"[1.0, Infinity]",
    "-inf": b"[1.0, -Infinity]",
    "1e999": b"[1.0, 1e999]",
    "above the limit": b"[1.0, 1.0000001e10]",
    "huge": b"[1.0, -1e300]",
    "huge integer": b"[1, 1" + b"0" * 400 + b"]",
    "endless integer": b"[1, 1" + b"0" * 10_000 + b"]",
    "bool": b"[1.0, true]",
    "null": b"[1.0, null]",
    "text": b'[1.0, "1.0"]',
    "zero sum": b"[1.0, -1.0]",
    "zeros": b"[0.0, -0.0, 0]",
    "denormals that cancel": b"[5e-324, -5e-324]",
    "too many": b"[" + b"1," * MAX_CELLS + b"1]",
    "a huge file": b"[" + b"1," * 600_000 + b"1]",
}


@pytest.mark.parametrize("artifact", MALFORMED.values(), ids=MALFORMED)
def test_malformed_artifacts_are_invalid_with_a_reason(artifact):
    result = evaluate(artifact)
    assert result.status == "invalid" and result.score is None and result.error
    assert len(result.error) < 300


def test_the_largest_and_the_smallest_that_are_allowed():
    assert judge([1] * MAX_CELLS).metrics["c3"] == 2.0
    assert judge([1e10, -1e10, 1e10]).status == judge([5e-324]).status == "ok"
    assert judge([5e-324, 5e-324]).score == judge([1.0, 1.0]).score


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='[],.0123456789eE-+{}": nulNaInfty', max_size=60).map(str.encode))
def test_no_bytes_raise(artifact):
    assert evaluate(artifact).status in ("ok", "invalid")


def test_claims_beside_the_artifact_change_nothing():
    task = Autocorrelation()
    files = task.seed_workspace()
    claims = {"c3.json": b"1.0", "score.json": b'{"c3": 1.2, "n_points": 3}', "solve.py": b"C3 = 1.0"}
    assert task.evaluate({**files, **claims}) == task.evaluate(files)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(10**30), 10**30) | st.integers(-3, 3), min_size=1, max_size=15))
def test_autoconvolution_by_one_square(numbers):
    n = len(numbers)
    direct = [
        sum(numbers[i] * numbers[k - i] for i in range(max(0, k - n + 1), min(n, k + 1))) for k in range(2 * n - 1)
    ]
    assert autoconvolution(numbers) == direct


@settings(max_examples=100, deadline=None)
@given(st.fractions(0, 1000), st.integers(1, 15))
def test_decimals_are_rounded_up(value, digits):
    printed = Fraction(decimals_up(value, digits))
    assert value <= printed < value + Fraction(1, 10**digits)


def test_floats_survive_the_artifact():
    heights = [0.1, 1 / 3, -math.nextafter(0.7, 1), 5e-324, 0.0]
    assert read_heights(write_heights(heights)) == heights


def test_the_registry():
    assert tasks.make("autocorrelation").name == "autocorrelation"
