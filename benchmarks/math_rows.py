"""The rows of ``math.py``: a solver, its target, and how often and how fast it is reached.

    python benchmarks/math.py [ROW ...] [--seeds N] [--seconds S] [--again] [--keep]

Each finished seed is a line of benchmarks/results/math_<row>.jsonl, and the same command goes on after the last one;
--again begins anew. --keep writes the best construction to benchmarks/constructions/ if it beats the one there.
Seconds are wall time; CPU seconds of the one process stand beside them, since on a machine that others use as well
the wall time depends on them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dreamrsi.files import atomic_write

HERE = Path(__file__).parent
Improvements = Iterator[tuple[float, Any]]
"""(score, construction) of each best so far, as it is found; it ends when the seconds are over."""


@dataclass(frozen=True)
class Row:
    """A solver and what is asked of it; higher scores are better.

    Attributes
    ----------
    search : (seed, seconds) -> the improvements.
    describe : construction -> further fields of its file, the score among them, recomputed by the judge.
    target : where a seed stops; ``seconds`` its limit of wall time, ``seeds`` how many there are.
    file : of the construction, without its ending.
    """

    search: Callable[[int, float], Improvements]
    describe: Callable[[Any], dict[str, Any]]
    target: float
    seconds: float
    seeds: int
    file: str


def sum_difference(seed: int, seconds: float) -> Improvements:
    """Annealing of symmetric rulers, restarted."""
    from dreamrsi.tasks.sum_difference.solver import search

    for found in search(seed, seconds):
        yield found.score, found.elements


def describe_set(elements: list[int]) -> dict[str, Any]:
    """What the judge says of a set."""
    from dreamrsi.tasks.sum_difference import SumDifference, write_set

    result = SumDifference().evaluate({"set.json": write_set(elements)})
    return {"task": "sum_difference", "score": result.score, **result.metrics}


ROWS = {
    "sum_difference": Row(sum_difference, describe_set, 1.1454768, 60, 10, "sum_difference"),
    "sum_difference_beyond": Row(sum_difference, describe_set, 1.1454973, 300, 10, "sum_difference"),
}
"""The paper's best set scores 1.145427. The first target is the best that was known of this kind of set before the
solver was written, the second the best that the solver has found."""


def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(prog="python benchmarks/math.py", description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all if none is given")
    parser.add_argument("--seeds", type=int, help="how many, from 0")
    parser.add_argument("--seconds", type=float, help="for one seed")
    parser.add_argument("--again", action="store_true", help="forget the seeds that are finished")
    parser.add_argument("--keep", action="store_true", help="write the construction if it is the best so far")
    given = parser.parse_args()
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; choose of {', '.join(ROWS)}")
    for name in given.rows or ROWS:
        row = ROWS[name]
        run_row(name, row, given.seeds or row.seeds, given.seconds or row.seconds, given.again, given.keep)


def run_row(name: str, row: Row, seeds: int, seconds: float, again: bool, keep: bool) -> None:
    """Run the seeds that are missing, one after the other, and print what came out."""
    results = HERE / "results" / f"math_{name}.jsonl"
    if again:
        results.unlink(missing_ok=True)
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {line["seed"]: line for line in lines if (line["target"], line["limit"]) == (row.target, seconds)}
    print(f"{name}: target {row.target}, {seconds:g} s a seed; a loop of 10^6 additions takes {loop_seconds():.3f} s")
    for seed in range(seeds):
        if seed not in done:
            done[seed] = run_seed(name, row, seed, seconds, keep)
            results.parent.mkdir(exist_ok=True)
            with results.open("a") as file:
                file.write(json.dumps(done[seed]) + "\n")
        line = done[seed]
        end = "reached" if line["reached"] else f"missed by {row.target - line['score']:.3g}"
        print(f"  seed {seed}: {line['score']:.10f} in {line['seconds']:.1f} s ({line['cpu']:.1f} s of CPU), {end}")
    asked = [done[seed] for seed in range(seeds)]
    hits = [line for line in asked if line["reached"]]
    text = f"  {len(hits)} of {seeds} reached it; the best is {max(line['score'] for line in asked):.10f}"
    if hits:
        middle = {key: statistics.median(line[key] for line in hits) for key in ("seconds", "cpu")}
        text += f"; median of those {middle['seconds']:.1f} s ({middle['cpu']:.1f} s of CPU)"
    print(text)


def run_seed(name: str, row: Row, seed: int, seconds: float, keep: bool) -> dict[str, Any]:
    """The best of one seed: when it was found, and whether it is the target."""
    start, cpu = time.perf_counter(), time.process_time()
    best: tuple[float, Any, float, float] | None = None
    for score, construction in row.search(seed, seconds):
        best = score, construction, time.perf_counter() - start, time.process_time() - cpu
        if score >= row.target:
            break
    if best is None:
        raise SystemExit(f"{name}: seed {seed} found nothing in {seconds:g} s; give it more --seconds")
    score = row.describe(best[1])["score"]  # the judge's, not the solver's
    line = {
        "row": name,
        "seed": seed,
        "score": score,
        "seconds": round(best[2], 2),
        "cpu": round(best[3], 2),
        "target": row.target,
        "reached": score >= row.target,
        "limit": seconds,
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    if keep:
        write_construction(name, row, line, best[1])
    return line


def write_construction(name: str, row: Row, line: dict[str, Any], construction: Any) -> None:
    """Keep it if it beats what is there; the score in the file is the judge's."""
    path = HERE / "constructions" / f"{row.file}.json"
    facts = row.describe(construction)
    if path.exists() and json.loads(path.read_bytes())["score"] >= facts["score"]:
        return
    path.parent.mkdir(exist_ok=True)
    command = f"python benchmarks/math.py {name} --seeds {line['seed'] + 1} --seconds {line['limit']:g} --again --keep"
    facts |= {"command": command, "seed": line["seed"], "seconds": line["seconds"], "cpu_seconds": line["cpu"]}
    atomic_write(path, json.dumps({**facts, "construction": construction}) + "\n")


def loop_seconds() -> float:
    """Of a Python loop of 10^6 float additions, the yardstick of all benchmarks here."""
    start, total = time.perf_counter(), 0.0
    for _ in range(1_000_000):
        total += 1.5
    return time.perf_counter() - start
