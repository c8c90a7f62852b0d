"""What does the sandbox cost? Microseconds an episode of a policy file on the 8 x 11 history and held-out trees.

    python benchmarks/sandbox.py

In process, in lockstep (screening), tree by tree in one process, and in a fresh process an episode (confirmation).
Then milliseconds a call of a candidate program: in a running process, in a fresh one, and as an attempt runs it.
Beside them stands a Python loop of 10^6 float additions, which the budgets take to be 0.1 s or less.
"""

from __future__ import annotations

import tempfile
import timeit
from pathlib import Path

import numpy as np

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.programs import Candidate, call, make_artifact
from dreamrsi.sandbox import SandboxedPolicy, replay_sandboxed
from dreamrsi.tasks.circle_packing import CirclePacking

SOURCE = b"from dreamrsi.policies import ParallelRefine\n\nclass Policy(ParallelRefine):\n    pass\n"


def loop() -> float:
    """A Python loop of 10^6 float additions, the yardstick."""
    total = 0.0
    for _ in range(1_000_000):
        total += 1.5
    return total


def main() -> None:
    """Print one line a way to replay."""
    folder = Path(__file__).parent.parent / "synthetic"
    trees = [d.Tree.load(path) for path in sorted(folder.glob("*/*.jsonl"))]
    width, rounds = synthetic.WIDTH, synthetic.MAX_ROUNDS

    def report(what: str, run: object, episodes: int) -> None:
        seconds = min(timeit.repeat(run, number=1, repeat=30))  # type: ignore[arg-type]
        print(f"{what:58s} {seconds / episodes * 1e6:9.0f} µs an episode")

    print(f"10^6 float additions in a Python loop: {min(timeit.repeat(loop, number=1, repeat=5)):.3f} s")
    plain = d.policies.ParallelRefine()
    report("in process", lambda: [d.replay(plain, tree, width, rounds) for tree in trees], len(trees))
    with SandboxedPolicy(SOURCE) as policy:
        for worlds in (trees, trees * 10):
            what = f"screening: lockstep, {len(worlds)} trees, process running"
            report(what, lambda worlds=worlds: policy.replay_all(worlds, width, rounds), len(worlds))
        report("one tree after another", lambda: [d.replay(policy, t, width, rounds) for t in trees], len(trees))
    for worlds in (trees, trees * 10):
        what = f"screening: lockstep, {len(worlds)} trees, process started for it"
        report(what, lambda worlds=worlds: replay_sandboxed(SOURCE, worlds, width, rounds), len(worlds))
    what = "confirmation: a fresh process an episode"
    report(what, lambda: replay_sandboxed(SOURCE, trees, width, rounds, fresh=True), len(trees))
    programs()


def programs() -> None:
    """Print one line a way to call a candidate program."""

    def report(what: str, run: object, repeat: int) -> None:
        seconds = min(timeit.repeat(run, number=1, repeat=repeat))  # type: ignore[arg-type]
        print(f"{what:58s} {seconds * 1e3:9.2f} ms a call")

    program = CirclePacking().program
    source = b"def solve(x): return x"
    table = np.zeros((1000, 1000))
    with Candidate(source) as candidate:
        report("program: one number in and out, process running", lambda: candidate.call("solve", 1), 100)
        report("program: 8 MB in and out, process running", lambda: candidate.call("solve", table), 20)
        took = min(candidate.call("solve", table).seconds for _ in range(20))
        print(f"{'    of which is timed as its work':58s} {took * 1e3:9.2f} ms a call")
    report("program: one number in and out, fresh process", lambda: call(source, "solve", [1]), 30)
    slow = b"import scipy.optimize\n" + source
    report("program: the same, and it imports scipy.optimize", lambda: call(slow, "solve", [1]), 5)
    with tempfile.TemporaryDirectory() as scratch:
        what = "program: a whole sandbox for it, as in an attempt"
        report(what, lambda: make_artifact(program, program.seed, 1, scratch=scratch), 10)


if __name__ == "__main__":
    main()
