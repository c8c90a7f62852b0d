"""The moves of the autocorrelation inequality: each changes a step function and lets it settle again.

All are functions of (files, seed) bounded by iterations; the finer the function, the fewer children a move makes of
it, so that none takes more than a few seconds. A move returns its best child, which may be worse than the parent.
Without ``double`` and ``triple`` nothing comes below 1.463: finer cells gain up to 0.01 at first, less every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dreamrsi.tasks import Move
from dreamrsi.tasks.autocorrelation.anneal import Array, anneal
from dreamrsi.tasks.autocorrelation.polish import polish as interior_point
from dreamrsi.workspace import Files

Change = Callable[[Array, np.random.Generator], Array]
"""(heights (n,) of mean 1, random numbers) -> heights (m,)."""

FINEST = 1920
"""Cells above which no move refines."""
COARSEST = 10
"""Cells below which no move coarsens."""
HARD = 1e5
"""The sharpness at which every anneal ends."""


def random_starts(count: int, cells: int, random: np.random.Generator) -> Array:
    """(count, cells): two of three are 1 + s N(0, 1) with s between 0.3 and 1.3, one of three squares of Exp(1).

    What is scattered most has a sum near 0 now and then; the sums are kept away from it, or nothing would settle.
    """
    normal = 1 + random.uniform(0.3, 1.3, (count, 1)) * random.normal(size=(count, cells))
    heights = np.where(random.random((count, 1)) < 2 / 3, normal, random.exponential(size=(count, cells)) ** 2)
    return np.asarray(heights + np.maximum(0.1 - heights.mean(axis=1, keepdims=True), 0))


def scattered(heights: Array, random: np.random.Generator) -> Array:
    """White noise of 0.3 % to 100 % of the spread of the heights."""
    return heights + _noise(heights, random, -2.5, 0.0) * random.normal(size=len(heights))


def nudge(heights: Array, random: np.random.Generator) -> Array:
    """Next to nothing: from soft maxima another optimum nearby comes out, from hard ones a better digit."""
    return heights + _noise(heights, random, -3.0, -2.5) * random.normal(size=len(heights))


def double(heights: Array, random: np.random.Generator) -> Array:
    """Cut every cell into two; the noise lets the halves differ."""
    return scattered(np.repeat(heights, 2) if 2 * len(heights) <= FINEST else heights, random)


def triple(heights: Array, random: np.random.Generator) -> Array:
    """Cut every cell into three."""
    return scattered(np.repeat(heights, 3) if 3 * len(heights) <= FINEST else heights, random)


def coarsen(heights: Array, random: np.random.Generator) -> Array:
    """Join pairs of cells: loses up to 0.01, and another function may come out when they are cut again."""
    n = len(heights)
    if n < 2 * COARSEST:
        return scattered(heights, random)
    return scattered(heights[: n - n % 2].reshape(-1, 2).mean(axis=1), random)


def window(heights: Array, random: np.random.Generator) -> Array:
    """Noise in one window of the interval."""
    n = len(heights)
    width = max(2, int(n * random.uniform(0.03, 0.3)))
    inside = (np.arange(n) - random.integers(n)) % n < width
    return np.asarray(heights + inside * _noise(heights, random, -1.5, 0.3) * random.normal(size=n))


def spikes(heights: Array, random: np.random.Generator) -> Array:
    """Change one to eight cells by about the spread of the heights, or a few times that."""
    heights = heights.copy()
    cells = random.choice(len(heights), min(len(heights), int(random.integers(1, 9))), replace=False)
    heights[cells] += _noise(heights, random, -0.5, 0.7) * random.normal(size=len(cells))
    return heights


def smooth(heights: Array, random: np.random.Generator) -> Array:
    """Add a smooth field: some random waves of low frequency."""
    places = np.linspace(0, np.pi, len(heights))
    waves = np.cos(np.arange(1, 13)[:, None] * places) * random.normal(size=(12, 1))
    return np.asarray(heights + _noise(heights, random, -2.0, 0.0) * waves.sum(axis=0) / np.sqrt(12))


def warp(heights: Array, random: np.random.Generator) -> Array:
    """Shift the function against its cells, by an amount that varies along the interval."""
    n = len(heights)
    places = np.arange(n) + random.normal(0, 1.5) * np.sin(np.pi * np.arange(n) / n * random.integers(1, 4))
    return np.asarray(np.interp(places, np.arange(n), heights))


def mirror(heights: Array, random: np.random.Generator) -> Array:
    """Mix the function with its mirror image, or replace one end by the mirror image of the other."""
    n = len(heights)
    if random.random() < 0.5:
        return scattered(heights + random.uniform(0.05, 0.5) * (heights[::-1] - heights), random)
    cut = int(n * random.uniform(0.3, 0.7))
    return scattered(np.where(np.arange(n) < cut, heights, heights[::-1]), random)


def explore(change: Change, low: float, high: float) -> Move:
    """Make a move of a change: anneal some children together, each from its own sharpness, and return the best.

    Parameters
    ----------
    low, high : decimal logarithms of the smallest and largest first sharpness.
    """

    def move(files: Files, seed: int) -> dict[str, bytes]:
        random = np.random.default_rng(seed)
        parent = _read(files)
        children = [change(parent, random) for _ in range(_count(len(parent)))]
        return _write(files, _settle(np.array(children), 10 ** random.uniform(low, high, len(children))))

    move.__doc__ = change.__doc__
    return move


def restart(files: Files, seed: int) -> dict[str, bytes]:
    """Forget the function: the best of 96 random starts on 60 cells."""
    from dreamrsi.tasks.autocorrelation import CELLS

    random = np.random.default_rng(seed)
    found, values = anneal(random_starts(96, CELLS, random), 2 * 12 ** random.random(96), 1e4, 9, 60)
    return _write(files, _settle(found[np.argsort(values)[:8]], np.full(8, 300.0)))


def polish(files: Files, seed: int) -> dict[str, bytes]:
    """The interior-point method from close by or from further away, for up to 720 cells; finer ones are annealed."""
    heights = _read(files)
    if len(heights) > 720:
        return dict(hard(files, seed))
    gap = 10 ** np.random.default_rng(seed).uniform(-3, -1)
    return _write(files, interior_point(heights, gap, steps=40 if len(heights) > 360 else 80))


hard = explore(nudge, 3.0, 4.0)
MOVES: dict[str, Move] = {
    "restart": restart,
    "soft": explore(nudge, 1.3, 2.0),
    "hard": hard,
    "double": explore(double, 1.3, 2.7),
    "triple": explore(triple, 1.3, 2.7),
    "coarsen": explore(coarsen, 1.3, 2.7),
    "window": explore(window, 1.3, 3.0),
    "spikes": explore(spikes, 1.3, 3.0),
    "smooth": explore(smooth, 1.3, 3.0),
    "warp": explore(warp, 1.3, 3.0),
    "mirror": explore(mirror, 1.3, 2.7),
    "polish": polish,
}


def _settle(children: Array, sharpness: Array) -> Array:
    """The best child after annealing; children whose sum nearly vanishes are passed over, unless all are such."""
    fine = usable(children)
    if not fine.any():
        children, fine = np.abs(children), np.ones(len(children), dtype=np.bool_)
    found, values = anneal(children[fine], sharpness[fine], HARD, 10, 120)
    return np.asarray(found[np.argmin(values)])


def usable(heights: Array) -> NDArray[np.bool_]:
    """Which rows have a sum that does not cancel; an anneal started elsewhere has no scale."""
    return np.asarray(heights.sum(axis=1) > 1e-3 * np.abs(heights).sum(axis=1))


def _count(cells: int) -> int:
    """How many children a move makes: fewer of finer functions."""
    return int(np.clip(1500 // cells, 2, 12))


def _noise(heights: Array, random: np.random.Generator, low: float, high: float) -> float:
    """The spread of the heights (a tenth of their size for a constant) times 10 to a power from ``low`` to ``high``."""
    return float(max(heights.std(), 0.1 * np.abs(heights).mean()) * 10 ** random.uniform(low, high))


def _read(files: Files) -> Array:
    heights = np.array(json.loads(files["heights.json"]), dtype=np.float64)
    return np.asarray(heights / heights.mean())


def _write(files: Files, heights: Array) -> dict[str, bytes]:
    from dreamrsi.tasks.autocorrelation import write_heights

    return {**files, "heights.json": write_heights(heights.tolist())}
