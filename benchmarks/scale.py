"""What more workers bring: episodes a second by workers and tree size, and what handing out work costs.

    python benchmarks/scale.py [--seconds 10]

Local processes through joblib and a Dask cluster of this machine, both warm; the time to start them stands apart.
docs/scale.md reports a run.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dreamrsi as d
from dreamrsi import sweep, synthetic

POLICIES = [name for name in d.policies.BUILTIN if name != "random"]
SIZES = {88: (8, 11), 10_000: (100, 100), 1_000_000: (1000, 1000)}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came back."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def peak(pause: float) -> tuple[int, float]:
    """A worker's process and its peak memory in MB; the pause lets every worker have one."""
    time.sleep(pause)
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return os.getpid(), int(line.split()[1]) / 1024  # what getrusage says, a process has from its parent


def settle(patience: float) -> None:
    """Wait for a second in which nothing else keeps the cores busy, but not for ever."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = Path("/proc/stat").read_text().split()[4]  # hundredths of a second idle, of all cores
        time.sleep(1)
        if int(Path("/proc/stat").read_text().split()[4]) - int(before) > 90 * (os.cpu_count() or 1):
            return


def trees_of(attempts: int, count: int) -> list[d.Tree]:
    """So many different trees of one size."""
    branches, steps = SIZES[attempts]
    rng = np.random.default_rng(attempts)
    families = synthetic.FAMILIES
    return [
        synthetic.draw(families[n % 3], rng, f"{attempts}-{n}", n % branches, branches=branches, steps=steps)
        for n in range(count)
    ]


def transport() -> None:
    """What a tree weighs and costs on its way to a worker, whole and as the sweep sends it."""
    print(f"{'attempts':>9s} {'what':>6s} {'MB':>8s} {'ms to pack':>11s} {'ms to unpack':>13s}")
    for attempts in SIZES:
        (tree,) = trees_of(attempts, 1)
        for what, value in (("tree", tree), ("sweep", (0, tree.name, tree.world, tree.batches))):
            packing, data = timed(lambda value=value: pickle.dumps(value, protocol=5))
            unpacking, _ = timed(lambda data=data: pickle.loads(data))
            print(f"{attempts:9d} {what:>6s} {len(data) / 1e6:8.3f} {packing * 1e3:11.1f} {unpacking * 1e3:13.1f}")


@contextmanager
def dask(workers: int):
    """The address of a scheduler with so many worker processes of one thread."""
    from distributed import LocalCluster

    settings: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(n_workers=workers, **settings) as cluster:
        yield cluster.scheduler_address


def measure(label: str, workers: int, sizes: dict[int, list[d.Tree]], seconds: float, where: dict[str, Any]) -> None:
    """One line a tree size: the sweep repeated for some seconds, on warm workers."""
    empty, _ = timed(lambda: sweep.spread(abs, [(n,) for n in range(200)], **where))
    for attempts, trees in sizes.items():
        call = lambda trees=trees: sweep.sweep(trees, POLICIES, widths=(8, 16), **where)  # noqa: E731
        call()
        settle(20)
        spent, episodes, runs = 0.0, 0, []
        while spent < seconds:
            took, table = timed(call)
            spent += took
            episodes = len(table)
            runs.append(episodes / took)
        load = os.getloadavg()[0]
        memory = dict(sweep.spread(peak, [(0.2,)] * 4 * workers, **where))
        print(
            f"{label:8s} {workers:7d} {attempts:9d} {len(trees):6d} {episodes:9d} {np.median(runs):11.1f} "
            f"{max(runs):9.1f} {len(runs):5d} {empty / 200 * 1e3:10.2f} {max(memory.values()):8.0f} {load:5.1f}",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    from joblib.externals.loky import get_reusable_executor

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="for every line of the second table")
    seconds = parser.parse_args().seconds
    print(f"cores {os.cpu_count()}, load before {os.getloadavg()[0]:.2f}")
    transport()
    sizes = {88: trees_of(88, 1800), 10_000: trees_of(10_000, 20), 1_000_000: trees_of(1_000_000, 1)}
    print(
        f"\n{'where':8s} {'workers':>7s} {'attempts':>9s} {'trees':>6s} {'episodes':>9s} {'episodes/s':>11s} "
        f"{'fastest':>9s} {'runs':>5s} {'ms a chunk':>10s} {'peak MB':>8s} {'load':>5s}"
    )
    measure("here", 1, sizes, seconds, {"n_jobs": 1})
    starts = []
    for workers in (1, 2):
        if workers > 1:  # one process is no better than this one, so joblib starts none
            start, _ = timed(lambda: sweep.spread(peak, [(0.0,)] * 2, n_jobs=2))
            starts.append(f"joblib, 2 processes: {start:.1f} s")
            measure("joblib", workers, sizes, seconds, {"n_jobs": workers})
            get_reusable_executor().shutdown()
        start = time.perf_counter()
        with dask(workers) as address:
            sweep.spread(peak, [(0.0,)] * workers, scheduler=address)
            starts.append(f"Dask, {workers} processes: {time.perf_counter() - start:.1f} s")
            measure("dask", workers, sizes, seconds, {"scheduler": address})
    print("\nfrom nothing to the first result: " + "; ".join(starts))
    print(f"load after {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
