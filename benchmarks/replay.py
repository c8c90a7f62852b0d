"""How fast is replay? Microseconds an episode, seconds for a beta map and for a big tree, beside a plain Python loop.

    python benchmarks/replay.py [--attempts 1000000]

A machine on which the loop of 10^6 float additions takes 0.1 s or less is what the budgets are meant for
(docs/decisions.md); the ratio to that loop makes two machines comparable.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import timeit
from pathlib import Path

import numpy as np

import dreamrsi as d
from dreamrsi import synthetic


def loop() -> float:
    """A Python loop of 10^6 float additions, the yardstick."""
    total = 0.0
    for _ in range(1_000_000):
        total += 1.5
    return total


def episodes(trees: list[d.Tree]) -> None:
    """Microseconds an episode of every built-in policy on the 8 x 11 history trees."""
    print(f"{'policy':20s} {'µs an episode':>14s} {'attempts':>9s} {'rounds':>7s} {'ns an attempt':>14s}")
    for name in d.policies.BUILTIN:
        policy = d.policies.make(name)

        def run(policy: d.policies.Policy = policy) -> list[d.Episode]:
            return [d.replay(policy, tree, synthetic.WIDTH, synthetic.MAX_ROUNDS) for tree in trees]

        done = run()
        times = timeit.repeat(run, number=50, repeat=7)
        micro = min(times) / 50 / len(trees) * 1e6
        attempts = np.mean([e.attempts for e in done])
        rounds = np.mean([e.rounds for e in done])
        print(f"{name:20s} {micro:14.1f} {attempts:9.1f} {rounds:7.1f} {1000 * micro / attempts:14.0f}")


def beta_map(trees: list[d.Tree]) -> None:
    """200 x 200 settings, 6 policies, 12 trees: one replay each, then arithmetic."""
    policies = [d.policies.make(name) for name in [*d.policies.ARTICLE, "portfolio"]]
    grid = np.linspace(0, 0.1, 200)

    def run() -> None:
        _ = d.score_map(d.replay_all(policies, trees, synthetic.WIDTH, synthetic.MAX_ROUNDS), grid, grid).winner

    print(f"beta map, 200 x 200 settings, 6 policies x 12 trees: {min(timeit.repeat(run, number=1, repeat=5)):.3f} s")


def big(attempts: int) -> None:
    """A tree of many attempts: load it and replay every policy that visits all or much of it."""
    branches = attempts // 10
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(branches, 10)).round(4).tolist()
    rows = [
        d.Attempt(branch=b, attempt=a, seq=b * 10 + a, score=score, status="ok")
        for b, row in enumerate(scores)
        for a, score in enumerate(row)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.jsonl"
        d.Tree(d.Header(task="benchmark", width=8, branches=branches, steps=10), rows).save(path)
        del rows
        start = time.perf_counter()
        tree = d.Tree.load(path)
        print(f"{attempts} attempts, {path.stat().st_size / 1e6:.0f} MB: loaded in {time.perf_counter() - start:.2f} s")
    for name in ("early_stop", "greedy_best", "adaptive", "portfolio"):
        start = time.perf_counter()
        episode = d.replay(d.policies.make(name), tree, 8)
        seconds = time.perf_counter() - start
        nanoseconds = 1e9 * seconds / episode.attempts
        print(f"  {name:16s} {seconds:6.2f} s, {episode.attempts} attempts, {nanoseconds:.0f} ns each")
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB (kB / 1e6 on Linux)")


def main() -> None:
    """Print every figure of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000, help="size of the big tree; 0 leaves it out")
    arguments = parser.parse_args()
    print(f"loop of 10^6 float additions: {min(timeit.repeat(loop, number=1, repeat=5)):.4f} s (budgets: 0.1 s)")
    trees = synthetic.committed("history")
    episodes(trees)
    beta_map(trees + synthetic.committed("heldout"))
    if arguments.attempts:
        big(arguments.attempts)


if __name__ == "__main__":
    main()
