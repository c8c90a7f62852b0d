"""Symmetric rulers, the sets that are made of them, and their score in closed form.

Take a ruler: marks B = {0, ..., L}, with b in B exactly if L - b in B. Put sets into the residue classes of 4, where x
runs over 0, ..., L and c1 + c2 = L - 1:

    A  =  {4x}  and  {4b - 1 : b in B}  and  {4 c1 + 1, 4 c2 + 1}

Sums fill all four classes: x + x, x + b and x + c are intervals, and b + b' reaches 2L + 1 values if the ruler measures
every distance, since B + B = L + (B - B). Differences fill three classes only: x - x, and b - x into which x - c falls.
Into the fourth goes b - c alone, which is sparse; by the symmetry, (L - b) - c2 = c1 - b + 1, so that the differences
of both signs coincide. With n = |A|, m distances of 0..L that are not measured, t = L - (c2 - c1), and o pairs of marks
that are c2 - c1 apart:

    n = L + |B| + 3     |A+A| = 8L + 4 - 2m - t  (+ 2 if o = 0)     |A-A| = 6L + 3 + 2|B| - o

so a good set is a ruler of few marks that measures nearly everything and has dense ends, which make o large.

The skeleton (one full class, one sparse, two single elements) was designed after the structure of a published set was
known; which ruler is put into it was not.
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import NamedTuple

from dreamrsi.tasks.sum_difference.evaluate import LARGEST_SET

FARTHEST = 41
"""The largest t that is looked at; it is odd, since c1 = (t - 1) / 2."""
EXCHANGE = 1.47
"""Sums that are worth a difference, near the best scores: (|A+A| / |A-A|) times the score."""


class Ruler(NamedTuple):
    """Gaps ``fringe`` from either end, and equal gaps ``step`` between, as many as 512 elements allow.

    Every symmetric ruler has this form: its middle may be a single gap, or a single mark.
    """

    fringe: tuple[int, ...]
    step: int

    @property
    def middle(self) -> int:
        """Number of gaps ``step``; negative if the fringes alone are too large."""
        return (LARGEST_SET - 4 - 2 * sum(self.fringe) - 2 * len(self.fringe)) // (self.step + 1)

    @property
    def length(self) -> int:
        """L, the largest mark."""
        return 2 * sum(self.fringe) + self.middle * self.step

    def marks(self) -> list[int]:
        """The marks in ascending order."""
        gaps = (*self.fringe, *[self.step] * self.middle, *self.fringe[::-1])
        marks = [0]
        for gap in gaps:
            marks.append(marks[-1] + gap)
        return marks


@lru_cache(maxsize=30_000)  # a search comes back to the same rulers all the time
def rate(ruler: Ruler) -> tuple[float, int]:
    """The score of the set made of the ruler with the best t, and that t; minus infinity if the set is too large.

    About 10 microseconds: distances are bits of an integer. A distance between two marks, one of which is in a fringe,
    is by symmetry one from a mark of the left fringe to a mark on its right; those between two marks of the middle
    are the multiples of the step.
    """
    fringe, step = ruler.fringe, ruler.step
    reach, ends = sum(fringe), len(fringe)
    middle = (LARGEST_SET - 4 - 2 * reach - 2 * ends) // (step + 1)
    if middle < 0:
        return float("-inf"), 1
    span = middle * step
    length = 2 * reach + span
    left, mark, positions = 0, 0, []
    right = 0
    for gap in fringe:
        positions.append(mark)
        left |= 1 << mark
        right |= 1 << (length - mark)
        mark += gap
    grid = ((1 << (span + step)) - 1) // ((1 << step) - 1)  # bits 0, step, 2 step, ..., span
    marks = left | right | grid << reach
    measured = grid
    for mark in positions:
        measured |= marks >> mark
    unmeasured = length + 1 - measured.bit_count()
    worth, best, overlap = float("-inf"), 1, 0
    for t in range(1, min(FARTHEST, length) + 1, 2):
        pairs = (marks & (marks >> (length - t))).bit_count()
        gain = EXCHANGE * pairs - t if pairs else 2.0 - t
        if gain > worth:
            worth, best, overlap = gain, t, pairs
    count = 2 * ends + middle + 1
    size = log(length + count + 3)
    sums = 8 * length + 4 - 2 * unmeasured - best + (0 if overlap else 2)
    return (log(sums) - size) / (log(6 * length + 3 + 2 * count - overlap) - size), best


def elements(ruler: Ruler, t: int) -> list[int]:
    """The set A of a ruler, in ascending order; ``t`` is odd and places the two single elements."""
    length, marks = ruler.length, ruler.marks()
    first = (t - 1) // 2
    singles = [4 * first + 1, 4 * (length - 1 - first) + 1]
    return sorted([*range(0, 4 * length + 1, 4), *(4 * mark - 1 for mark in marks), *singles])
