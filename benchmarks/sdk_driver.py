"""Replay trees with the public SDK ``dreamrsi`` of the package index, through its public API.

    PYTHON_OF_THE_SDK benchmarks/sdk_driver.py REPEATS TREE...

The import name of the SDK is that of this project, so the two cannot share a virtual environment;
``benchmarks/replay.py --sdk`` makes one, runs this there and reads the JSON that it prints.
"""

import asyncio
import json
import sys
import time

from dreamrsi.discovery import DiscoveryTree
from dreamrsi.models.policy import PolicyDecision

from dreamrsi.replay import ReplayWorld, StrictReplay

WIDTH = 8
MAX_ROUNDS = 80


class ParallelRefine:
    """Extend every leaf; pick the root until W branches are open. The SDK refuses a batch that names the root twice."""

    async def decide(self, view):
        """Return the batch for one round."""
        leaves = [node for node in view.frontier if node.depth > 0]
        root = next(node for node in view.frontier if node.depth == 0)
        batch = [node.id for node in leaves if node.id not in self.ended][:WIDTH]
        if root.children_count < WIDTH and len(batch) < WIDTH:
            batch.append(root.id)
        last = view.last_round
        if last is not None and not last["revealed_nodes"]:
            self.ended |= set(last["batch"])
        return PolicyDecision(expand=batch, stop=not batch)

    def __init__(self):
        self.ended = set()


def load(path):
    """One of this project's tree files as a committed tree of the SDK."""
    with open(path, encoding="utf-8") as file:
        next(file)
        attempts = sorted(map(json.loads, file), key=lambda attempt: attempt["seq"])
    tree = DiscoveryTree()
    tree.create_root(node_id="root")
    for attempt in attempts:
        branch, place = attempt["branch"], attempt["attempt"]
        parent = f"{branch}.{place - 1}" if place else "root"
        tree.add_node(parent, node_id=f"{branch}.{place}", score=attempt["score"])
    tree.commit()
    return ReplayWorld(tree)


def main():
    """Print microseconds an episode, and what the episodes did."""
    repeats, paths = int(sys.argv[1]), sys.argv[2:]
    worlds = [load(path) for path in paths]
    judge = StrictReplay(max_rounds=MAX_ROUNDS, max_parallelism=WIDTH, beta1=0.02, beta2=0.05)

    async def all_worlds():
        return [await judge.replay(world, ParallelRefine()) for world in worlds]

    done = asyncio.run(all_worlds())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        asyncio.run(all_worlds())
        seconds.append(time.perf_counter() - start)
    episodes = [
        {"attempts": e.total_probes, "rounds": e.total_rounds, "best": e.best_score, "V": e.replay_score} for e in done
    ]
    print(json.dumps({"microseconds": min(seconds) / len(worlds) * 1e6, "episodes": episodes}))


if __name__ == "__main__":
    main()
