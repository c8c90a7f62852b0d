"""The judge of the autocorrelation inequality: reads the artifact and bounds its quotient in exact arithmetic.

With n cells of width w = 1/(2n) and heights f_1 ... f_n, the autoconvolution is linear between multiples of w, where
it takes the values w c_k, c being the full discrete convolution of the heights with themselves. So its maximum is
attained at a node, and the quotient of the inequality is

    w max|c| / (w sum f)^2 = 2 n max|c| / (sum f)^2,

for the function itself and not for a sample of it.

Rules
-----
* 1 to 20,000 heights, finite numbers of magnitude at most 1e10; n is free, and heights may be negative.
* The sum must not vanish: a quotient above 10^6 is invalid. (What was published first asks that the integral be at
  least 3e-5, which depends on the scale of f, as the quotient does not.)
* Floats are whole multiples of powers of two, so the quotient is computed in whole numbers, without any rounding.
  Parts of heights below 2^-160 of the largest are cut off, to bound the work; what that can change is in the bound.
* The score is 1.4556427953745406 divided by the upper bound of the quotient, rounded down. The constant is that of the
  task's first publication, so that scores compare; 1.0 is the quotient 1.4556428.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dreamrsi.tasks import Evaluation, invalid, read_json

REFERENCE = 1.4556427953745406
"""The quotient that scores 1."""
MAX_BYTES = 1_000_000
MAX_CELLS = 20_000
LARGEST = 1e10
WORST = 10**6
"""A quotient above it says that the sum of the heights cancels."""
BITS = 160
"""Heights are read to 2^-160 of the power of two above the largest of them."""
DIGITS = 12
"""Decimals of the bound that is printed."""


def evaluate(artifact: bytes | None) -> Evaluation:
    """Score the bytes of ``heights.json``; a flaw gives status ``invalid`` and its reason, never an exception.

    ``metrics``: ``c3`` is the quotient as a float, rounded up; ``c3_at_most`` the same as decimals, rounded up, so
    that every printed digit is proven; ``c3_without_absolute_value`` the quotient of max c instead of max|c|, rounded
    up, because some published numbers are of that kind; ``cells`` is n; ``exact`` says that nothing was cut off.
    """
    try:
        heights = read_heights(artifact)
        lower, upper, one_sided = quotient(heights)
    except ValueError as error:
        return invalid(str(error))
    return Evaluation(
        score=-_up(-Fraction(REFERENCE) / upper),
        metrics={
            "c3": _up(upper),
            "c3_at_most": decimals_up(upper),
            "c3_without_absolute_value": _up(one_sided),
            "cells": len(heights),
            "exact": lower == upper,
        },
    )


def read_heights(artifact: bytes | None) -> list[float]:
    """Read and check the artifact.

    Raises
    ------
    ValueError
        Says what is wrong, and with which height.
    """
    data = read_json(artifact, "heights.json", MAX_BYTES)
    if not isinstance(data, list) or not 1 <= len(data) <= MAX_CELLS:
        found = f"{len(data)} elements" if isinstance(data, list) else type(data).__name__
        raise ValueError(f"heights.json holds {found}; it must be a list of 1 to {MAX_CELLS} heights")
    return [_height(number, item) for number, item in enumerate(data)]


def _height(number: int, item: object) -> float:
    if type(item) is not int and type(item) is not float:
        raise ValueError(f"height {number} is a {type(item).__name__}; it must be a number")
    if not -LARGEST <= item <= LARGEST:
        shown = f"{item}" if type(item) is float else "a whole number"
        raise ValueError(f"height {number} is {shown}; it must be finite and at most {LARGEST:g} in magnitude")
    return float(item)


def quotient(heights: list[float]) -> tuple[Fraction, Fraction, Fraction]:
    """The quotient 2 n max|c| / (sum f)^2, bounded from below and above, and that of max c, bounded from above.

    The first two are equal if nothing was cut off.

    Raises
    ------
    ValueError
        The sum of the heights vanishes, or nearly so.
    """
    numbers, cut = _whole_numbers(heights)
    n, total = len(numbers), abs(sum(numbers))
    c = autoconvolution(numbers)
    highest = max(c)
    largest = max(highest, -min(c))
    # Each number is less than 1 off. A product of two is then less than 2 M + 1 off, M bounding all magnitudes.
    off = n * (2 * 2**BITS + 1) if cut else 0
    off_total = n if cut else 0
    if total <= off_total or 2 * n * (largest + off) > WORST * (total - off_total) ** 2:
        raise ValueError("the sum of the heights is zero, or so small beside them that the quotient is above 10^6")
    least = (total - off_total) ** 2
    lower = Fraction(2 * n * max(largest - off, 0), (total + off_total) ** 2)
    return lower, Fraction(2 * n * (largest + off), least), Fraction(2 * n * (highest + off), least)


def _whole_numbers(heights: list[float]) -> tuple[list[int], bool]:
    """Heights as multiples of 2^-BITS of the power of two above the largest, rounded down, and whether any was cut."""
    shift = BITS - math.frexp(max(map(abs, heights)))[1]
    numbers, cut = [], False
    for height in heights:
        numerator, denominator = height.as_integer_ratio()
        places = shift - (denominator.bit_length() - 1)
        if places >= 0:
            numbers.append(numerator << places)
        else:
            numbers.append(numerator >> -places)
            cut = cut or numbers[-1] << -places != numerator
    return numbers, cut


def autoconvolution(numbers: list[int]) -> list[int]:
    """The full convolution of n whole numbers with themselves, 2n - 1 whole numbers, by squaring a single large one.

    The numbers become the digits of one number, in a base so large that no digit of its square carries into the next;
    half of the base is added to every digit of the square, so that none is negative.
    """
    n = len(numbers)
    width = (2 * max(map(int.bit_length, numbers)) + n.bit_length() + 2 + 7) // 8  # bytes
    zero = bytes(width)
    plus = b"".join(v.to_bytes(width, "little") if v > 0 else zero for v in numbers)
    minus = b"".join((-v).to_bytes(width, "little") if v < 0 else zero for v in numbers)
    packed = int.from_bytes(plus, "little") - int.from_bytes(minus, "little")
    half = 1 << (8 * width - 1)
    shifted = packed * packed + int.from_bytes(half.to_bytes(width, "little") * (2 * n - 1), "little")
    digits = shifted.to_bytes(width * (2 * n - 1), "little")
    return [int.from_bytes(digits[k : k + width], "little") - half for k in range(0, len(digits), width)]


def decimals_up(value: Fraction, digits: int = DIGITS) -> str:
    """A positive number with that many decimals, rounded up: what is printed is at least the number."""
    scaled = math.ceil(value * 10**digits)
    whole, rest = divmod(scaled, 10**digits)
    return f"{whole}.{rest:0{digits}d}"


def _up(value: Fraction) -> float:
    """The smallest float that is no smaller than the number."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
