"""What an agent is told that searches step functions by writing a program, and the program it starts from."""

from __future__ import annotations

from dreamrsi.tasks import Program
from dreamrsi.tasks.autocorrelation.evaluate import LARGEST, MAX_CELLS, REFERENCE

PATH = "solve.py"

_STATEMENT = """\
Find a step function f on [-1/4, 1/4] whose autoconvolution is nowhere large: make

    C = max over t of |(f * f)(t)| / (integral of f)^2

as small as possible. f has n equal cells of heights f_1 ... f_n, which may be negative. With c the full discrete
convolution of the heights with themselves, numpy.convolve(f, f), that is C = 2 n max|c| / (sum f)^2.

Write {path}. It defines solve(seed), where seed is a whole number, and returns the heights: a list of numbers, or a
NumPy array of one dimension. n is free, from 1 to {cells}.

Rules:
- Every height is a finite number of magnitude at most {largest:g}; the sum of the heights is not zero.
- The score is {reference} / C, computed from the heights alone, in exact arithmetic. More is better; a constant
  function has C = 2.
- All randomness comes from seed: the same seed gives the same heights. Bound the work by iterations, not by the clock.
- NumPy and SciPy can be imported, with import statements. No file can be read or written, no process or thread be
  started, nothing be sent over a network. What the program prints is not kept.
- It may take {seconds:g} seconds and {memory} MiB of memory.
"""

_SEED = b"""\
\"\"\"A constant function: a step function to improve on.\"\"\"

N = 60


def solve(seed):
    return [1.0] * N
"""


def autocorrelation_program(artifact: str) -> Program:
    """The program of the task; its ``solve`` returns what becomes ``artifact``."""
    seconds, memory = 60.0, 2**30
    statement = _STATEMENT.format(
        path=PATH, cells=MAX_CELLS, largest=LARGEST, reference=REFERENCE, seconds=seconds, memory=memory // 2**20
    )
    return Program(PATH, artifact, statement, _SEED, seconds, memory)
