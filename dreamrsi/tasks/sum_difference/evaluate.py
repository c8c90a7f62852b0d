"""The judge of the sum-difference task: reads the artifact, counts sums and differences exactly, computes the score.

Rules
-----
* A JSON list of 2 to 512 different whole numbers from -1,000,000 to 1,000,000; else invalid. A number written as 3.0
  is the whole number 3, since programs return floats; 3.000000001 is not one. The task's first publication rounds
  what lies within 1e-9 of a whole number and drops duplicates; here both are the candidate's work.
* Sums and differences are those of all ordered pairs, an element with itself included, counted with Python's integers.
* The score is ln(|A+A| / |A|) / ln(|A-A| / |A|), more is better. Both ratios exceed 1 for every set of two or more. The
  three counts are exact; the logarithms and their quotient are rounded to a float, within about 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import combinations

from dreamrsi.tasks import Evaluation, invalid, read_json

ARTIFACT = "set.json"
SMALLEST_SET, LARGEST_SET = 2, 512
LIMIT = 1_000_000
"""The largest absolute value of an element."""
MAX_BYTES = 100_000


def evaluate(artifact: bytes | None) -> Evaluation:
    """Score the bytes of ``set.json``; a flaw gives status ``invalid`` and its reason, never an exception.

    ``metrics``: ``set_size``, ``sumset_size`` and ``diffset_size`` are |A|, |A+A| and |A-A|.
    """
    try:
        elements = read_set(artifact)
    except ValueError as error:
        return invalid(str(error))
    sums, differences = count(elements)
    return Evaluation(
        score=value(len(elements), sums, differences),
        metrics={"set_size": len(elements), "sumset_size": sums, "diffset_size": differences},
    )


def read_set(artifact: bytes | None) -> list[int]:
    """Read and check the artifact.

    Raises
    ------
    ValueError
        Says what is wrong, and with which element.
    """
    data = read_json(artifact, ARTIFACT, MAX_BYTES)
    if not isinstance(data, list):
        raise ValueError(f"{ARTIFACT} holds {type(data).__name__}; it must be a list of whole numbers")
    if not SMALLEST_SET <= len(data) <= LARGEST_SET:
        raise ValueError(f"{ARTIFACT} holds {len(data)} elements; {SMALLEST_SET} to {LARGEST_SET} are allowed")
    elements = [_element(number, item) for number, item in enumerate(data)]
    first: dict[int, int] = {}
    for number, element in enumerate(elements):
        if element in first:
            raise ValueError(f"elements {first[element]} and {number} are both {element}; no number may come twice")
        first[element] = number
    return elements


def _element(number: int, item: object) -> int:
    if type(item) is float and item.is_integer():  # false for NaN and infinities
        item = int(item)
    if type(item) is not int:
        shown = item if type(item) is float else type(item).__name__
        raise ValueError(f"element {number} is {shown}, not a whole number")
    if not -LIMIT <= item <= LIMIT:
        size = f"{item}" if abs(item) < 10**20 else f"a number of {item.bit_length()} bits"
        raise ValueError(f"element {number} is {size}; it must lie between {-LIMIT} and {LIMIT}")
    return item


def count(elements: Collection[int]) -> tuple[int, int]:
    """|A+A| and |A-A| of different whole numbers, by writing all of them down."""
    ordered = sorted(elements)
    sums = {a + b for a, b in combinations(ordered, 2)} | {2 * a for a in ordered}
    positive = {b - a for a, b in combinations(ordered, 2)}
    return len(sums), 2 * len(positive) + 1


def value(size: int, sums: int, differences: int) -> float:
    """ln(sums / size) / ln(differences / size)."""
    return math.log(sums / size) / math.log(differences / size)
