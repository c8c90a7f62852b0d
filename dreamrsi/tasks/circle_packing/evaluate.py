"""The judge of circle packing: reads the artifact, repairs it by shrinking, proves it feasible, adds up the radii.

Rules
-----
* n circles, finite numbers, centres inside the square, every radius at least 1e-9 and at most 0.5; else invalid.
* Solvers leave circles that overlap in the last digits. Such radii are shrunk, each no more than 1e-6 of itself, until
  the packing is feasible without any tolerance; pairs are checked in rational arithmetic. Larger overlaps are
  invalid: moving the circles apart is the search's work, not the judge's.
* The score is the sum of the shrunk radii, rounded down.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

from dreamrsi.tasks import Evaluation, invalid, read_json

Circle = tuple[float, float, float]
"""x, y, r."""

MAX_BYTES = 1_000_000
SMALLEST = 1e-9
REPAIR = 1e-6
"""The largest part of a radius that the repair may take away."""
TOLERANCE = 1e-12
"""What the task's first publication allowed, in absolute terms; reported beside the strict score."""


def evaluate(artifact: bytes | None, n: int) -> Evaluation:
    """Score the bytes of ``packing.json``; a flaw gives status ``invalid`` and its reason, never an exception.

    ``metrics``: ``score_at_tolerance_1e-12`` is the sum of the radii as given if no constraint is violated by more
    than 1e-12, else 0.0, the rule under which most published numbers were made; ``largest_shrink`` the largest part
    of a radius that the repair took away.
    """
    try:
        circles = read_circles(artifact, n)
        strict = repair(circles)
    except ValueError as error:
        return invalid(str(error))
    shrink = max(1 - new[2] / old[2] for new, old in zip(strict, circles, strict=True))
    return Evaluation(
        score=sum_down(strict),
        metrics={"score_at_tolerance_1e-12": tolerant_score(circles), "largest_shrink": shrink},
    )


def read_circles(artifact: bytes | None, n: int) -> list[Circle]:
    """Read and check the artifact.

    Raises
    ------
    ValueError
        Says what is wrong, and with which circle.
    """
    data = read_json(artifact, "packing.json", MAX_BYTES)
    if not isinstance(data, list) or len(data) != n:
        found = f"{len(data)} elements" if isinstance(data, list) else type(data).__name__
        raise ValueError(f"packing.json holds {found}; it must be a list of {n} circles [x, y, r]")
    return [_circle(number, item) for number, item in enumerate(data)]


def _circle(number: int, item: object) -> Circle:
    if not isinstance(item, list) or len(item) != 3 or not all(type(value) in (int, float) for value in item):
        raise ValueError(f"circle {number} is not a list of three numbers [x, y, r]")
    try:
        x, y, r = map(float, item)
    except OverflowError:
        raise ValueError(f"circle {number} holds a number too large for a float") from None
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(r)):
        raise ValueError(f"circle {number} is [{x}, {y}, {r}]; all three must be finite")
    if not (0 < x < 1 and 0 < y < 1):
        raise ValueError(f"circle {number} has its centre at ({x}, {y}), outside the unit square")
    if not SMALLEST <= r <= 0.5:
        raise ValueError(f"circle {number} has radius {r}; it must lie between {SMALLEST} and 0.5")
    return x, y, r


def repair(circles: list[Circle]) -> list[Circle]:
    """Shrink overlapping circles until the packing is feasible without tolerance.

    A circle that crosses a wall is cut to it; two that overlap give up half of the overlap each.

    Raises
    ------
    ValueError
        A radius would lose more than ``REPAIR`` of itself.
    """
    # No rounding at the walls: 1 - x is exact from x = 1/2 on, and below that more than any radius may be.
    radii = [min(r, 0.5, x, y, 1 - x, 1 - y) for x, y, r in circles]
    for i, j in combinations(range(len(circles)), 2):
        step = 0.0
        while radii[i] > 0 and radii[j] > 0 and not _apart(circles[i], circles[j], radii[i], radii[j]):
            distance = math.hypot(circles[i][0] - circles[j][0], circles[i][1] - circles[j][1])
            overlap = max(radii[i] + radii[j] - distance, 0.0)
            step = max(2 * step, math.ulp(1.0))  # rounding can hide the overlap: take ulps, twice as many each time
            radii[i] -= overlap / 2 + step
            radii[j] -= overlap / 2 + step
    for number, (circle, r) in enumerate(zip(circles, radii, strict=True)):
        if r < circle[2] * (1 - REPAIR):
            raise ValueError(
                f"circle {number} reaches over a wall or another circle by {circle[2] - r:.3g}; "
                f"only {REPAIR:g} of its radius {circle[2]:.6g} may be repaired"
            )
    return [(x, y, r) for (x, y, _), r in zip(circles, radii, strict=True)]


def _apart(a: Circle, b: Circle, ra: float, rb: float) -> bool:
    """Circles of radii ``ra`` and ``rb`` around the centres of ``a`` and ``b`` do not overlap, without tolerance."""
    dx, dy = a[0] - b[0], a[1] - b[1]
    if dx * dx + dy * dy > (ra + rb) ** 2 + 1e-14:  # far beyond what rounding can do to numbers below 2
        return True
    return (Fraction(a[0]) - Fraction(b[0])) ** 2 + (Fraction(a[1]) - Fraction(b[1])) ** 2 >= (
        Fraction(ra) + Fraction(rb)
    ) ** 2


def tolerant_score(circles: list[Circle]) -> float:
    """The sum of the radii as given, 0.0 if a wall or a pair is violated by more than ``TOLERANCE``."""
    walls = min(min(x, y, 1 - x, 1 - y) - r for x, y, r in circles)
    gaps = (math.hypot(a[0] - b[0], a[1] - b[1]) - a[2] - b[2] for a, b in combinations(circles, 2))
    return math.fsum(r for _, _, r in circles) if min(walls, min(gaps, default=0.0)) >= -TOLERANCE else 0.0


def sum_down(circles: list[Circle]) -> float:
    """The sum of the radii, rounded down to a float, so that it never overstates."""
    exact = sum((Fraction(r) for _, _, r in circles), Fraction(0))
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0)
