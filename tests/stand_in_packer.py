"""A stand-in for a coding agent that packs four circles: each attempt's program is a little better than the last.

The third attempt of a branch writes a program that fails; the one after it reads of that, and says so.
"""

from pathlib import Path

PROGRAM = """def solve(seed):
    r = {radius}
    return [[x, y, r] for x in (0.25, 0.75) for y in (0.25, 0.75)]
"""


def main():
    results = Path("RESULTS.md").read_text()
    number = len(list(Path("proposals").glob("[0-9][0-9][0-9].md")))
    radius = 0.2 + 0.01 * number
    program = PROGRAM.format(radius=radius if number != 2 else "1 / 0")
    learnt = "ZeroDivisionError" in results
    Path("proposals").mkdir(exist_ok=True)
    text = f"# {'Mend the division' if learnt and number == 3 else 'Larger circles'}\n\nRadius {radius}.\n"
    Path(f"proposals/{number:03d}.md").write_text(text)
    Path("solve.py").write_text(program)


main()
