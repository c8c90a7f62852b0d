"""Sum-difference: a set of whole numbers with many sums a + b and few differences a - b.

The artifact is ``set.json``, a list of 2 to 512 different whole numbers; the score is
ln(|A+A| / |A|) / ln(|A-A| / |A|). The best in the paper's Table 1 is 1.145427; most sets score below 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from dreamrsi.tasks import Evaluation, Move, Program
from dreamrsi.tasks.sum_difference.evaluate import ARTIFACT, evaluate
from dreamrsi.tasks.sum_difference.program import set_program
from dreamrsi.workspace import Files

START = (0, 1, 2, 4, 5, 9, 12, 13, 14, 16, 17, 21, 24, 25, 26, 28, 29)
"""The set that the task is usually started from: 59 sums, 55 differences."""


class SumDifference:
    """The task; a higher score is better."""

    name = "sum_difference"
    requires: tuple[str, ...] = ()

    @property
    def moves(self) -> Mapping[str, Move]:
        """Name -> move; see :mod:`dreamrsi.tasks.sum_difference.moves`."""
        from dreamrsi.tasks.sum_difference.moves import MOVES

        return MOVES

    @property
    def program(self) -> Program:
        """What an agent that writes programs works on; see :mod:`dreamrsi.tasks.sum_difference.program`."""
        return set_program()

    def seed_workspace(self) -> dict[str, bytes]:
        """The set ``START``, which scores 1.0598."""
        return {ARTIFACT: write_set(START)}

    def evaluate(self, files: Files) -> Evaluation:
        """Recompute the score from ``set.json`` alone."""
        return evaluate(files.get(ARTIFACT))


def write_set(elements: Iterable[int]) -> bytes:
    """The artifact's bytes, in ascending order, on one line."""
    return (json.dumps(sorted(elements)) + "\n").encode()
