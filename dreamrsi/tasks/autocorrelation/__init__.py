"""The third autocorrelation inequality: a signed step function whose autoconvolution is nowhere large.

The artifact is ``heights.json``, a list of n heights, n being free. It stands for the step function f with n equal
cells on [-1/4, 1/4]. For every such f

    max over t of |(f * f)(t)|  >=  C3 (integral of f)^2,

and each f shows that the constant C3 is no larger than its own quotient of the two sides, which is to be small.
C3 >= 1 is clear, because f * f lives on an interval of length 1 and has the integral (integral of f)^2; no better bound
from below seems to be known (teorth.github.io/optimizationproblems, constant 1d). That list has 1.4688 (AlphaEvolve)
and 1.463072 as the smallest quotients, and warns that smaller ones in print drop the absolute value, which is another
problem: a deep negative part is free there. AlphaEvolve's 1.4557 seems to be of that kind. The 1.453675 of SimpleTES is
not: its released construction, evaluated anew, has the quotient 1.45367547 with and without the absolute value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from dreamrsi.tasks import Evaluation, Move, Program
from dreamrsi.tasks.autocorrelation.evaluate import evaluate
from dreamrsi.tasks.autocorrelation.program import autocorrelation_program
from dreamrsi.workspace import Files

ARTIFACT = "heights.json"
CELLS = 60
"""Cells of the seed. The coarse grid decides which optimum refinement finds; 60 did better than 12 to 50, 64 and 72."""


class Autocorrelation:
    """The task; the score is 1.4556427953745406 divided by the quotient, which is proven, so more is better."""

    name = "autocorrelation"
    requires = ("numpy", "scipy.fft", "scipy.linalg")

    @property
    def moves(self) -> Mapping[str, Move]:
        """Name -> move; see :mod:`dreamrsi.tasks.autocorrelation.moves`."""
        from dreamrsi.tasks.autocorrelation.moves import MOVES  # here, because it imports numpy and scipy

        return MOVES

    @property
    def program(self) -> Program:
        """What an agent that writes programs works on; see :mod:`dreamrsi.tasks.autocorrelation.program`."""
        return autocorrelation_program(ARTIFACT)

    def seed_workspace(self) -> dict[str, bytes]:
        """A constant function, whose quotient is 2."""
        return {ARTIFACT: write_heights([1.0] * CELLS)}

    def evaluate(self, files: Files) -> Evaluation:
        """Recompute the score from ``heights.json`` alone."""
        return evaluate(files.get(ARTIFACT))


def write_heights(heights: Iterable[float]) -> bytes:
    """The artifact's bytes, one height a line; every float is written so that it reads back the same."""
    return ("[" + ",\n ".join(json.dumps(float(height)) for height in heights) + "]\n").encode()
