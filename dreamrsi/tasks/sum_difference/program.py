"""What an agent is told that searches sets with many sums by writing a program, and the program it starts from."""

from __future__ import annotations

from dreamrsi.tasks import Program
from dreamrsi.tasks.sum_difference.evaluate import ARTIFACT, LARGEST_SET, LIMIT, SMALLEST_SET

PATH = "solve.py"

_STATEMENT = """\
Find a finite set A of whole numbers with many sums and few differences.

Write {path}. It defines solve(seed), where seed is a whole number, and returns A: a list of whole numbers, or a NumPy
array of one dimension.

Rules:
- A has {smallest} to {largest} elements, all different, each between -{limit} and {limit}. Floats count only if they
  are whole.
- A+A is the set of all a + b, A-A the set of all a - b, with a and b in A, a = b allowed.
- The score is ln(|A+A| / |A|) / ln(|A-A| / |A|), computed from the list alone. More is better. Most sets have
  far more differences than sums and score below 1; what is sought scores well above.
- All randomness comes from seed: the same seed gives the same set. Bound the work by iterations, not by the clock.
- NumPy and SciPy can be imported, with import statements. No file can be read or written, no process or thread be
  started, nothing be sent over a network. What the program prints is not kept.
- It may take {seconds:g} seconds and {memory} MiB of memory.
"""

_SEED = '''\
"""A small set with more sums than differences, to improve on."""


def solve(seed):
    return [0, 1, 2, 4, 5, 9, 12, 13, 14, 16, 17, 21, 24, 25, 26, 28, 29]
'''


def set_program() -> Program:
    """The program of the task; its ``solve`` returns what becomes ``set.json``."""
    seconds, memory = 60.0, 2**30
    statement = _STATEMENT.format(
        path=PATH,
        smallest=SMALLEST_SET,
        largest=LARGEST_SET,
        limit=LIMIT,
        seconds=seconds,
        memory=memory // 2**20,
    )
    return Program(PATH, ARTIFACT, statement, _SEED.encode(), seconds, memory)
