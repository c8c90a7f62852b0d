"""Circle packing: n circles in the unit square with the largest sum of radii.

The artifact is ``packing.json``, a list of n circles ``[x, y, r]``. The best sums in print for n = 26 are about
2.63598 (a plateau at 2.635977 lies just below it).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

from dreamrsi.errors import UserError
from dreamrsi.tasks import Evaluation, Move, Program
from dreamrsi.tasks.circle_packing.evaluate import Circle, evaluate
from dreamrsi.tasks.circle_packing.program import packing_program
from dreamrsi.workspace import Files

ARTIFACT = "packing.json"


class CirclePacking:
    """The task for ``n`` circles; the score is the sum of radii of the strictly feasible packing."""

    requires = ("numpy", "scipy.optimize", "cvxpy")

    def __init__(self, n: int = 26) -> None:
        if type(n) is not int or not 2 <= n <= 1000:
            raise UserError(f"circle_packing: n is {n!r}; it must be a whole number from 2 to 1000")
        self.n = n
        self.name = "circle_packing" if n == 26 else f"circle_packing:n={n}"

    @property
    def moves(self) -> Mapping[str, Move]:
        """Name -> move; see :mod:`dreamrsi.tasks.circle_packing.moves`."""
        from dreamrsi.tasks.circle_packing.moves import MOVES  # here, because it imports scipy and cvxpy

        return MOVES

    @property
    def program(self) -> Program:
        """What an agent that writes programs works on; see :mod:`dreamrsi.tasks.circle_packing.program`."""
        return packing_program(self.n, ARTIFACT)

    def seed_workspace(self) -> dict[str, bytes]:
        """Equal circles in the first n cells of a square grid of ceil(sqrt(n)) rows, row by row: 2.1667 for n = 26."""
        side = math.isqrt(self.n - 1) + 1
        places = (divmod(number, side) for number in range(self.n))
        radius = 0.5 / side
        return {ARTIFACT: write_circles(((x + 0.5) / side, (y + 0.5) / side, radius) for y, x in places)}

    def evaluate(self, files: Files) -> Evaluation:
        """Recompute the score from ``packing.json`` alone."""
        return evaluate(files.get(ARTIFACT), self.n)


def write_circles(circles: Iterable[Circle]) -> bytes:
    """The artifact's bytes, one circle a line; every float is written so that it reads back the same."""
    return ("[" + ",\n ".join(json.dumps([float(v) for v in circle]) for circle in circles) + "]\n").encode()
