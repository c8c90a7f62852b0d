"""Small worlds for the gate: trees on which early stop passes every rule against parallel refine, and variations."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dreamrsi.freeze import freeze
from dreamrsi.gate import gate
from dreamrsi.sandbox import Limits
from dreamrsi.suite import MANIFEST, Manifest, seal
from sandbox_fixtures import policy_source
from strategies import tree_of

REFINE = b"from dreamrsi.policies import ParallelRefine\n\n\nclass Policy(ParallelRefine):\n    name = 'refine'\n"
STOP = b"from dreamrsi.policies import EarlyStop\n\n\nclass Policy(EarlyStop):\n    name = 'stop'\n"
NARROW = REFINE.replace(b"    name = 'refine'\n", b"    def __init__(self):\n        super().__init__(width=4)\n")
SLEEPS = policy_source("while True: pass")
QUICK = Limits(seconds=0.5)

LOSER = [5.0, 4.0, 4.0, 4.0, 4.0, 4.0]  # two strikes after three attempts
CREEPER = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]  # never a strike
LATE = [1.0, 0.0, 0.0, 0.0, 0.0, 9.0]  # wins after five strikes


def climber(top):
    """A branch that improves at every step."""
    return [top - 5 + step for step in range(6)]


def world_tree(winner=0, top=9.0, losers=LOSER, **kwargs):
    """Four branches of six attempts; one climbs to ``top``."""
    chains = [climber(top) if number == winner else list(losers) for number in range(4)]
    return tree_of(chains, steps=6, branches=4, width=4, **kwargs)


def usual():
    """Three trees for a suite, and two that closed since."""
    return [world_tree(0, 9.0), world_tree(2, 9.1), world_tree(3, 9.2)], [world_tree(1, 9.3), world_tree(3, 9.4)]


class World:
    """Files on disk for one gate: a suite, the policies, and the trees for the shadow."""

    def __init__(self, folder: Path, trees=None, shadow=None, policy=STOP, current=REFINE, others=(), **settings):
        some, since = usual()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.policy = self.write("candidate.py", policy)
        self.current = self.write("refine.py", current)
        self.trees = self.save("tree", some if trees is None else trees)
        self.shadow = self.save("shadow", since if shadow is None else shadow)
        betas = {"beta1": 0.02, "beta2": 0.01}
        others = [self.trees[number] for number in others]
        self.suite = folder / "suite"
        freeze(self.trees, self.current, self.suite, others=others, **{**betas, **settings})

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def save(self, name, trees):
        paths = [self.folder / f"{name}-{number}.jsonl" for number in range(len(trees))]
        for path, tree in zip(paths, trees, strict=True):
            tree.save(path)
        return paths

    def gate(self, **given):
        files = {"suite": self.suite, "policy": self.policy, "current": self.current, "shadow": self.shadow}
        return gate(**{**files, "limits": QUICK, **given})

    def reseal(self, **changed):
        """Change what the suite says and hash it again, as whoever may write to it could."""
        path = self.suite / MANIFEST
        manifest = msgspec.structs.replace(msgspec.json.decode(path.read_bytes(), type=Manifest), **changed)
        path.write_bytes(msgspec.json.encode(manifest))
        seal(self.suite)


@pytest.fixture(name="world")
def make_world(tmp_path):
    """Make a world; several in one test get folders of their own."""
    made = []

    def make(**kwargs):
        made.append(World(tmp_path / f"world-{len(made)}", **kwargs))
        return made[-1]

    return make


def failures(decision):
    """The names of the rules that failed."""
    return [check.name for check in decision.checks if not check.passed]


def reason(decision, name):
    """What the check of a rule says."""
    return decision.check(name).reason
