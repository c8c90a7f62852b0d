"""Sets as the moves see them: a full residue class of 4, a sparse one below it, a few single elements above it.

    A  =  {4x : 0 <= x < n}  and  {4b - 1 : b in marks}  and  {4c + 1 : c in singles}

Any set can be read as one (``read``), at a loss if it is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dreamrsi.tasks.sum_difference.evaluate import LARGEST_SET, value

MODULUS = 4
NOTHING = float("-inf")


class Skeleton(NamedTuple):
    """``n`` elements of the full class; marks and singles in ascending order, from 0 to n - 1."""

    n: int
    marks: tuple[int, ...]
    singles: tuple[int, ...]


def build(n: int, marks: Iterable[int], singles: Iterable[int]) -> Skeleton:
    """A skeleton of at most 512 elements: marks and singles outside 0..n-1 go, then ``n`` shrinks as far as needed."""
    chosen, few = sorted(set(marks)), sorted(set(singles))
    while True:
        chosen = [b for b in chosen if 0 <= b < n] or [0]
        few = [c for c in few if 0 <= c < n] or [0]
        room = LARGEST_SET - len(chosen) - len(few)
        if n <= room:
            return Skeleton(n, tuple(chosen), tuple(few))
        n = max(room, 2)


def elements(skeleton: Skeleton, modulus: int = MODULUS) -> list[int]:
    """The set, in ascending order; another modulus puts the same classes elsewhere."""
    full = (modulus * x for x in range(skeleton.n))
    marks = (modulus * b - 1 for b in skeleton.marks)
    return sorted({*full, *marks, *(modulus * c + 1 for c in skeleton.singles)})


def read(numbers: Iterable[int]) -> Skeleton:
    """The skeleton that a set looks most like; the inverse of ``elements``, but for reflected and shifted sets.

    The fullest class of 4 is taken for the full one, from its least element to its largest; if the class above has more
    elements than the one below, the set is reflected first; what lies in the class opposite is dropped.
    """
    ordered = sorted(numbers)
    classes = Counter(a % MODULUS for a in ordered)
    full = min(classes, key=lambda residue: (-classes[residue], residue))
    if classes[(full + 1) % MODULUS] > classes[(full - 1) % MODULUS]:
        ordered, full = [-a for a in reversed(ordered)], -full % MODULUS
    origin = next(a for a in ordered if a % MODULUS == full)
    last = next(a for a in reversed(ordered) if a % MODULUS == full)
    moved = [a - origin for a in ordered]
    marks = [(a + 1) // MODULUS for a in moved if a % MODULUS == MODULUS - 1]
    singles = [a // MODULUS for a in moved if a % MODULUS == 1]
    return build(max(2, (last - origin) // MODULUS + 1), marks, singles)


def rate(skeleton: Skeleton) -> float:
    """The score of the set, as the judge counts it, some ten times as fast: numbers are bits of integers, by class."""
    n, marks, singles = skeleton
    if n < 2 or not marks or not singles or marks[-1] >= n or singles[-1] >= n or marks[0] < 0 or singles[0] < 0:
        return NOTHING
    size = n + len(marks) + len(singles)
    if size > LARGEST_SET:
        return NOTHING
    full = (1 << n) - 1
    sparse = backward = 0
    for b in marks:
        sparse |= 1 << b
        backward |= 1 << (n - 1 - b)
    long_ones = _sum(sparse, n)  # every mark and the n - 1 numbers after it
    x_x, c_x, b_b = (1 << (2 * n - 1)) - 1, 0, 0
    for b in marks:
        b_b |= sparse << b
    b_b <<= 1  # in units of 4k - 2, with c + c' + 1 beside b + b'; one bit of room for none
    x_minus, b_minus = long_ones, 0  # offsets n - 1 and n
    for c in singles:
        x_x |= sparse << c
        c_x |= full << c
        x_minus |= full << (n - 1 - c)
        b_minus |= sparse << (n - c) | backward << (c + 2)
        for other in singles:
            b_b |= 1 << (c + other + 2)
    sums = x_x.bit_count() + c_x.bit_count() + long_ones.bit_count() + b_b.bit_count()
    differences = 2 * n - 1 + 2 * x_minus.bit_count() + b_minus.bit_count()
    return value(size, sums, differences)


def _sum(bits: int, n: int) -> int:
    """The bits of {a + x : a in bits, 0 <= x < n}, by doubling."""
    reached, done = bits, 1
    while done < n:
        step = min(done, n - done)
        reached |= reached << step
        done += step
    return reached
