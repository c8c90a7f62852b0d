"""What does the sandbox cost? Microseconds an episode of a policy file on the 8 x 11 history and held-out trees.

    python benchmarks/sandbox.py

In process, in lockstep (screening), tree by tree in one process, and in a fresh process an episode (confirmation).
Beside them stands a Python loop of 10^6 float additions, which the budgets take to be 0.1 s or less.
"""

from __future__ import annotations

import timeit
from pathlib import Path

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.sandbox import SandboxedPolicy, replay_sandboxed

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


if __name__ == "__main__":
    main()
