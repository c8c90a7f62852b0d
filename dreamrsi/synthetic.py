"""Synthetic trees after the article "Branch six was never on the map": known winners, hidden in four ways.

The rules are in ``synthetic/README.md``. ``python -m dreamrsi.synthetic FOLDER`` writes the committed corpora again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dreamrsi.errors import UserError
from dreamrsi.files import in_checkout
from dreamrsi.record import Attempt, Header
from dreamrsi.tree import Tree

Family = Literal["late_peak", "early_peak", "plateau"]
FAMILIES: tuple[Family, ...] = ("late_peak", "early_peak", "plateau")

WIDTH = 8
BETA1 = 0.02
BETA2 = 0.05
MAX_ROUNDS = 80
"""The settings of the study: W, beta1 and beta2 on scores from 0 to 10, K2."""

MIN_QUALITY_RATIO = 0.98
MAX_ATTEMPT_RATIO = 0.80
"""The rule for going on, against parallel refine."""

SEEDS = {"history": 1, "heldout": 2}
"""The seeds of the committed corpora."""

_TAGS = ("tiling", "caching", "fusion", "pruning", "reordering", "vectorising", "hashing", "relaxation")


@dataclass(frozen=True)
class Spec:
    """One tree of a corpus: its family, and from where to where its winner may be, as shares of the branches."""

    name: str
    family: Family
    winners: tuple[float, float]


ARTICLE: tuple[Spec, ...] = (
    Spec("late-0", "late_peak", (0.0, 0.125)),
    Spec("late-6a", "late_peak", (0.75, 0.875)),
    Spec("late-6b", "late_peak", (0.75, 0.875)),
    Spec("math", "early_peak", (0.0, 0.5)),
    Spec("kernel-a", "plateau", (0.5, 1.0)),
    Spec("kernel-b", "plateau", (0.5, 1.0)),
)
"""The six trees of a set."""


def corpus(
    seed: int,
    *,
    mix: Sequence[Spec] | Literal["free"] = ARTICLE,
    branches: int = 8,
    steps: int = 11,
    noise: float = 0.0,
    creep: float = 0.05,
) -> list[Tree]:
    """Draw a set of trees.

    Parameters
    ----------
    seed : the same seed gives the same trees.
    mix : the families and the places of their winners. ``"free"`` draws six times the family, the winner's branch and
        whether the winner carries the recommended tag.
    branches, steps : the size of a tree; at least 2 branches and 4 attempts a branch.
    noise : standard deviation of normal noise on every score, in units of the score.
    creep : how much a plateau rises a step; 0 makes it flat. Beyond 11 steps this, and the 0.08 of a late peak,
        shrink so that a branch climbs no higher before its jump.
    """
    streams = np.random.SeedSequence(seed).spawn(len(ARTICLE) if mix == "free" else len(mix))
    trees = []
    for place, stream in enumerate(streams):
        rng = np.random.default_rng(stream)
        spec = Spec(f"free-{place}", FAMILIES[rng.integers(3)], (0.0, 1.0)) if mix == "free" else mix[place]
        advised = bool(rng.random() < 0.5) if mix == "free" else spec.family == "early_peak"
        first = int(spec.winners[0] * branches)
        winner = int(rng.integers(first, max(first + 1, int(spec.winners[1] * branches))))
        trees.append(draw(spec.family, rng, spec.name, winner, advised, branches, steps, noise, creep, seed))
    return trees


def draw(
    family: Family,
    rng: np.random.Generator,
    name: str = "synthetic",
    winner: int = 0,
    advised: bool = False,
    branches: int = 8,
    steps: int = 11,
    noise: float = 0.0,
    creep: float = 0.05,
    seed: int | None = None,
) -> Tree:
    """Draw one tree.

    Parameters
    ----------
    family : ``late_peak``, ``early_peak`` or ``plateau``.
    winner : the branch that holds the best score.
    advised : whether the winner carries the recommended tag.
    seed : what ``rng`` was made from, for the header.

    Raises
    ------
    UserError
        A family that does not exist, a winner that is no branch, a tree too small to hold the shape.
    """
    if family not in FAMILIES:
        raise UserError(f"there is no family {family!r}; choose one of {', '.join(FAMILIES)}")
    if branches < 2 or steps < 4 or not 0 <= winner < branches:
        given = f"got {branches} branches, {steps} steps, winner {winner}"
        raise UserError(f"a synthetic tree needs 2 branches, 4 steps and a winner among its branches; {given}")
    scores = np.empty((branches, steps))
    scores[winner] = _winner(family, steps, creep, rng)
    losers = [branch for branch in range(branches) if branch != winner]
    scores[losers] = _losers(family, np.asarray(losers), steps, branches, rng)
    if noise:
        scores += rng.normal(0.0, noise, scores.shape)
    scores = scores.clip(0.0, 10.0).round(4)
    tags, recommended = _tags(winner, advised, branches, rng)
    header = Header(
        task=f"synthetic/{family}",
        width=branches,
        branches=branches,
        steps=steps,
        seed=seed,
        synthetic=True,
        recommended=recommended,
        provenance={"generator": "dreamrsi.synthetic", "winner": winner, "noise": noise, "creep": creep},
    )
    attempts = [
        Attempt(branch=b, attempt=a, seq=a * branches + b, round=a, score=float(scores[b, a]), status="ok", tag=tags[b])
        for a in range(steps)
        for b in range(branches)
    ]
    return Tree(header, attempts, name=name)


def _winner(family: Family, steps: int, creep: float, rng: np.random.Generator) -> np.ndarray:
    """The scores of the branch that holds the best one."""
    jitter = rng.uniform(-0.05, 0.05)
    gentle = min(1.0, 10 / (steps - 1))  # deep trees climb as high as one of 11 steps, or they would pass the peak
    if family == "early_peak":
        return np.concatenate([[9.0 + jitter], 9.0 + jitter - rng.uniform(0.4, 1.4, steps - 1)])
    if family == "late_peak":
        path = 7.0 + jitter + 0.08 * gentle * np.arange(steps)
        path[-1] = 9.14 + rng.uniform(-0.03, 0.03)
        return path
    path = 6.5 + jitter + creep * gentle * np.arange(steps)
    jump = int(rng.integers(steps - 3, steps))
    path[jump] = 9.0 + rng.uniform(-0.1, 0.1)
    path[jump + 1 :] = path[jump] - rng.uniform(0.1, 0.4, steps - 1 - jump)
    return path


def _losers(family: Family, losers: np.ndarray, steps: int, branches: int, rng: np.random.Generator) -> np.ndarray:
    """The scores of the other branches: each rises to its ceiling and then stalls strictly below it."""
    n = len(losers)
    ceilings = rng.uniform(6.2, 7.6, n)
    rises = rng.permutation(_rises(n, steps, 27 if family == "early_peak" else 19))
    lowest = int(rng.integers(n))
    if family == "late_peak":  # the high early leaf: on one of the first four branches, its best at once
        early = int(rng.choice(np.flatnonzero(losers < max(2, branches // 2))))
        ceilings[early] = rng.uniform(7.5, 7.8)
        shortest = int(np.argmin(rises))
        rises[[early, shortest]] = rises[[shortest, early]]
        while rises[early] > 1 and n > 1:  # on deep trees; the others rise longer by as much
            others = np.where(np.arange(n) == early, steps, rises)
            rises[early] -= 1
            rises[np.argmin(others)] += 1
        if n > 1:
            lowest = int(rng.choice([i for i in range(n) if i != early]))
    if n > 1:
        ceilings[lowest] = rng.uniform(5.4, 6.1)  # below every winner's first score
    rows = np.empty((n, steps))
    for row, ceiling, rise in zip(rows, ceilings, rises, strict=True):
        start = ceiling - rng.uniform(0.5, 2.0)
        row[:rise] = np.linspace(start, ceiling, rise) if rise > 1 else ceiling
        row[rise:] = ceiling - rng.uniform(0.1, 0.5, steps - rise)
    return rows


def _rises(n: int, steps: int, total: int) -> np.ndarray:
    """How many attempts each of ``n`` losers improves: evenly spread lengths with a fixed sum.

    ``total`` is that sum for 7 losers of 11 attempts. Under two strikes a loser costs its rise and two more
    attempts, so 19 makes the seven cost 33 and 27 makes them cost 41.
    """
    mean = max(1.0, total / 77 * steps)
    ideal = 1 + (2 * mean - 2) * (np.arange(n) + 0.5) / n
    lengths = np.floor(ideal).astype(int)
    short = round(mean * n) - lengths.sum()
    lengths[np.argsort(lengths - ideal, kind="stable")[:short]] += 1
    return lengths.clip(1, steps - 2)


def _tags(winner: int, advised: bool, branches: int, rng: np.random.Generator) -> tuple[list[str], str]:
    """A tag for every branch, and the recommended one: the most frequent, on 3 or 4 of 8 branches."""
    names = [str(name) for name in rng.permutation(_TAGS)]
    recommended, others = names[0], names[1:]
    many = min(branches - 1, max(1, round(branches * int(rng.integers(3, 5)) / 8)))
    pool = [branch for branch in range(branches) if branch != winner]
    marked = set(rng.choice(pool, many - advised, replace=False).tolist()) | ({winner} if advised else set())
    rest = iter(range(branches))
    return [recommended if b in marked else others[next(rest) % len(others)] for b in range(branches)], recommended


def write(folder: Path) -> None:
    """Write the two committed corpora below a folder."""
    for name, seed in SEEDS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for tree in corpus(seed):
            tree.save(folder / name / f"{tree.name}.jsonl")


def load(folder: str | Path) -> list[Tree]:
    """Load a set in the order of the article's table; tree names are the file names."""
    trees = []
    for spec in ARTICLE:
        tree = Tree.load(Path(folder) / f"{spec.name}.jsonl")
        tree.name = spec.name
        trees.append(tree)
    return trees


def committed(name: Literal["history", "heldout"]) -> list[Tree]:
    """One of the two corpora that come with the repository, wherever the program was started."""
    return load(in_checkout(f"synthetic/{name}"))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "synthetic"))
