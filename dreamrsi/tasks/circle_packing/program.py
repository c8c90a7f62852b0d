"""What an agent is told that searches circle packings by writing a program, and the program it starts from."""

from __future__ import annotations

from dreamrsi.tasks import Program
from dreamrsi.tasks.circle_packing.evaluate import REPAIR, SMALLEST

PATH = "solve.py"

_STATEMENT = """\
Pack {n} circles into the unit square so that the sum of their radii is as large as possible.

Write {path}. It defines solve(seed), where seed is a whole number, and returns {n} circles: a list of lists [x, y, r],
or a NumPy array of shape ({n}, 3), with x, y the centre and r the radius of a circle.

Rules:
- Every centre lies inside the square 0 < x < 1, 0 < y < 1; every radius is between {smallest:g} and 0.5.
- No circle may reach over a wall or overlap another one. What a solver leaves in the last digits is repaired by making
  circles smaller, each by no more than {repair:g} of its radius; a larger overlap makes the packing invalid.
- The score is the sum of the radii after that repair, computed from the circles alone. More is better.
- All randomness comes from seed: the same seed gives the same circles. Bound the work by iterations, not by the clock.
- NumPy and SciPy can be imported, with import statements. No file can be read or written, no process or thread be
  started, nothing be sent over a network. What the program prints is not kept.
- It may take {seconds:g} seconds and {memory} MiB of memory.
"""

_SEED = """\
\"\"\"Equal circles in the cells of a square grid, row by row: a packing to improve on.\"\"\"

N = {n}


def solve(seed):
    side = 1
    while side * side < N:
        side += 1
    radius = 0.5 / side
    circles = []
    for number in range(N):
        row, column = divmod(number, side)
        circles.append([(column + 0.5) / side, (row + 0.5) / side, radius])
    return circles
"""


def packing_program(n: int, artifact: str) -> Program:
    """The program of the task for ``n`` circles; its ``solve`` returns what becomes ``artifact``."""
    seconds, memory = 60.0, 2**30
    statement = _STATEMENT.format(
        n=n, path=PATH, smallest=SMALLEST, repair=REPAIR, seconds=seconds, memory=memory // 2**20
    )
    return Program(PATH, artifact, statement, _SEED.format(n=n).encode(), seconds, memory)
