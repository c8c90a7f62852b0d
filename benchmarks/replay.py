"""How fast is replay? Microseconds an episode, seconds for a beta map and for a big tree, beside a plain Python loop.

    python benchmarks/replay.py [--attempts 1000000] [--sdk]

A machine on which the loop of 10^6 float additions takes 0.1 s or less is what the budgets are meant for
(docs/decisions.md); the ratio to that loop makes two machines comparable.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

import numpy as np

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.files import in_checkout

SDK = "dreamrsi==0.3.0b3"  # another project's package of the same import name


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


def forks() -> None:
    """A chain in which every branch forks from the one before: four times the forks take about four times as long."""
    policy = d.policies.EarlyStop()
    for count in (20_000, 80_000):
        origins: list[tuple[int, int] | None] = [None, *((branch, 0) for branch in range(count - 1))]
        rows = [
            d.Attempt(branch=b, attempt=0, seq=b, score=0.0, status="ok", origin=origin)
            for b, origin in enumerate(origins)
        ]
        tree = d.Tree(d.Header(task="benchmark"), rows)
        start = time.perf_counter()
        episode = d.replay(policy, tree, 8)
        print(f"a chain of {count} forks: {time.perf_counter() - start:.2f} s, {episode.attempts} attempts")


def where_the_time_goes(trees: list[d.Tree]) -> None:
    """Split an episode into the policy's choices and the engine: the same picks are replayed by a script."""

    class Script:
        name = "script"

        def __init__(self, picks: tuple[tuple[int, ...], ...]) -> None:
            self.picks = picks

        def start(self, width: int) -> None:
            self.left = iter(self.picks)

        def choose(self, prefix: d.Prefix) -> tuple[int, ...]:
            return next(self.left, ())

    print(f"{'ns a round':20s} {'choose':>14s} {'engine':>9s}")
    for name in ("parallel_refine", "early_stop", "greedy_best", "adaptive", "portfolio"):
        policy, tree = d.policies.make(name), trees[0]
        episode = d.replay(policy, tree, synthetic.WIDTH, synthetic.MAX_ROUNDS)
        script = Script(episode.picks)

        def nanoseconds(policy: d.policies.Policy, tree: d.Tree = tree) -> float:
            run = timeit.repeat(
                lambda: d.replay(policy, tree, synthetic.WIDTH, synthetic.MAX_ROUNDS), number=200, repeat=7
            )
            return min(run) / 200 * 1e9

        engine = nanoseconds(script)
        choose = nanoseconds(policy) - engine
        print(f"{name:20s} {choose / episode.rounds:14.0f} {engine / episode.rounds:9.0f}")


def beside_the_sdk(trees: list[d.Tree], repeats: int = 5) -> None:
    """The same trees and the same rule in the public SDK, which runs in a virtual environment of its own."""
    root = Path(__file__).parent
    paths = [str(in_checkout(f"synthetic/history/{tree.name}.jsonl")) for tree in trees]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        print(f"installing {SDK} into a virtual environment of its own")
        try:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", SDK]
            subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        except subprocess.CalledProcessError as error:
            print(f"{SDK} could not be installed ({error}); it is left out")
            return
        command = [str(python), str(root / "sdk_driver.py"), str(repeats), *paths]
        theirs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    policy = d.policies.ParallelRefine()

    def run() -> list[d.Episode]:
        # the SDK opens one branch a round, which is the literal reading of the paper
        return [d.replay(policy, tree, synthetic.WIDTH, synthetic.MAX_ROUNDS, max_opens_per_round=1) for tree in trees]

    for ours, other in zip(run(), theirs["episodes"], strict=True):
        found = (ours.attempts, ours.rounds, ours.best, d.score(ours, beta1=synthetic.BETA1, beta2=synthetic.BETA2))
        if found != (other["attempts"], other["rounds"], other["best"], other["V"]):
            raise SystemExit(f"the two disagree on {ours.tree}: {found} and {other}")
    micro = min(timeit.repeat(run, number=20, repeat=7)) / 20 / len(trees) * 1e6
    ratio = theirs["microseconds"] / micro
    print(f"parallel refine, one opening a round, equal attempts, rounds, best and V on {len(trees)} trees:")
    print(f"  here {micro:.1f} µs an episode, {SDK} {theirs['microseconds']:.0f} µs: {ratio:.0f} times as long")


def main() -> None:
    """Print every figure of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000, help="size of the big tree; 0 leaves it out")
    parser.add_argument("--sdk", action="store_true", help="also time the public SDK (needs the package index)")
    arguments = parser.parse_args()
    print(f"loop of 10^6 float additions: {min(timeit.repeat(loop, number=1, repeat=5)):.4f} s (budgets: 0.1 s)")
    trees = synthetic.committed("history")
    episodes(trees)
    where_the_time_goes(trees)
    beta_map(trees + synthetic.committed("heldout"))
    forks()
    if arguments.sdk:
        beside_the_sdk(trees)
    if arguments.attempts:
        big(arguments.attempts)


if __name__ == "__main__":
    main()
