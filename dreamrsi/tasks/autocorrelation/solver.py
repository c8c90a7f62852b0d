"""A solver for the autocorrelation inequality: a wide beam of coarse functions, refined by doubling their cells.

What is minimised is a maximum of hundreds of quadratic forms that tie, and local optima are countless: a search that
starts with 400 cells stops near 1.464. Coarse functions have few parameters, so many starts can be afforded, and good
coarse functions have good refinements. From 60 cells on:

1. Level 0 anneals thousands of random starts quickly, from soft maxima, and anneals again, longer, what comes within
   0.002 of the worst function that the pool would keep.
2. Every further level doubles the cells. A child is its parent with every cell cut into two, plus noise between 0.3 %
   and 100 % of the spread, annealed from a soft maximum (sharpness 20 to 500): a doubled optimum is an optimum still
   in the directions that it came from, and only a soft maximum lets it leave. Every parent has one child, then
   parents are drawn, half of the time evenly, half of the time as the best of four by their best child so far. Once
   two children a parent are made, three of ten tries change a function of the new pool instead (white noise, noise in
   a window, or spikes).
3. Pools are beams: the best few hundred at 60 cells, fewer at every level, no two of the same value to 2e-5. The
   parent of the best function is often not the best of its level, which is what the width is for.
4. At the end the interior-point method takes the last 1e-4.

Every level is a function of (pool, seed, level), bounded by tries and not by time, and yields its pool after each
batch: the solver can be stopped at any time and goes on from the pool of the last finished level. Random numbers are
NumPy's; other versions of NumPy and SciPy, or other processors, may round otherwise and end elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dreamrsi.tasks.autocorrelation.anneal import Array, anneal, quotients
from dreamrsi.tasks.autocorrelation.moves import random_starts, scattered, spikes, usable, window
from dreamrsi.tasks.autocorrelation.polish import polish

SAME = 2e-5
"""Functions whose quotients are closer than this are taken for the same."""


@dataclass(frozen=True)
class Level:
    """One grid of the beam.

    Attributes
    ----------
    width : functions that the pool keeps.
    tries : anneals.
    rows : how many of them are made together.
    stages, iterations, hard : see :func:`dreamrsi.tasks.autocorrelation.anneal.anneal`.
    """

    width: int
    tries: int
    rows: int
    stages: int = 14
    iterations: int = 180
    hard: float = 2e5


LEVELS = (
    Level(width=400, tries=16_384, rows=256, stages=9, iterations=60, hard=1e4),
    Level(width=200, tries=2400, rows=64),
    Level(width=64, tries=1200, rows=48),
    Level(width=16, tries=672, rows=24),
    Level(width=8, tries=240, rows=12, stages=16, iterations=250, hard=3e5),
    Level(width=4, tries=72, rows=6, stages=16, iterations=250, hard=3e5),
)
"""60 to 1920 cells, sized for about 15 minutes of one core; a fifth of the tries took 233 s on a busy machine."""


@dataclass(frozen=True)
class Pool:
    """Functions of one grid: heights (m, n), each of mean 1, and their quotients (m,), rising."""

    heights: Array
    values: Array

    def merged(self, heights: Array, values: Array, width: int) -> Pool:
        """The best ``width`` of this pool and others, no two of the same value."""
        heights, values = np.concatenate([self.heights, heights]), np.concatenate([self.values, values])
        kept: list[int] = []
        for k in np.argsort(values, kind="stable"):
            if np.isfinite(values[k]) and (not kept or values[k] - values[kept[-1]] > SAME):
                kept.append(int(k))
        return Pool(heights[kept[:width]], values[kept[:width]])


def empty(cells: int) -> Pool:
    """A pool without functions."""
    return Pool(np.empty((0, cells)), np.empty(0))


def start(seed: int, cells: int, level: Level) -> Iterator[Pool]:
    """Level 0: random starts on ``cells`` cells; yields the pool after each batch."""
    random = np.random.default_rng([seed, 0])
    pool = empty(cells)
    for _ in range(0, level.tries, level.rows):
        heights = random_starts(level.rows, cells, random)
        soft = 2 * 12 ** random.random(level.rows)
        found, values = anneal(heights, soft, level.hard, level.stages, level.iterations)
        worst = pool.values[-1] if len(pool.values) == level.width else np.sort(values)[level.rows // 8]
        promising = values < worst + 2e-3
        if promising.any():
            found, values = anneal(found[promising], 300.0, 1e5, 8, 150)
        pool = pool.merged(found, values, level.width)
        yield pool


def refine(parents: Pool, seed: int, number: int, level: Level) -> Iterator[Pool]:
    """Level ``number``: children of ``parents`` on twice as many cells; yields the pool after each batch."""
    random = np.random.default_rng([seed, number])
    count, cells = parents.heights.shape
    pool = empty(2 * cells)
    best_child = np.full(count, np.inf)
    for done in range(0, level.tries, level.rows):
        rows = []
        for k in range(done, done + level.rows):
            if k >= 2 * count and len(pool.values) and random.random() < 0.3:
                rows.append((-1, _hop(pool, random), 10 ** random.uniform(1.3, 3.0)))
            else:
                parent = k if k < count else _parent(best_child, random)
                child = _child(parents.heights[parent], k < count, random)
                rows.append((parent, child, 10 ** random.uniform(1.3, 2.7)))
        heights = np.array([row[1] for row in rows])
        fine = usable(heights)
        origin, soft = np.array([row[0] for row in rows])[fine], np.array([row[2] for row in rows])[fine]
        found, values = anneal(heights[fine], soft, level.hard, level.stages, level.iterations)
        children = origin >= 0
        np.minimum.at(best_child, origin[children], values[children])
        pool = pool.merged(found, values, level.width)
        yield pool


def _child(parent: Array, careful: bool, random: np.random.Generator) -> Array:
    """The parent on twice as many cells, with noise; the first child of every parent stays close to it."""
    doubled = np.repeat(parent, 2)
    if careful:
        return np.asarray(doubled + 0.03 * parent.std() * random.normal(size=len(doubled)))
    return scattered(doubled, random)


def _parent(best_child: Array, random: np.random.Generator) -> int:
    """Any parent, or the best of four by their best child."""
    if random.random() < 0.5:
        return int(random.integers(len(best_child)))
    four = random.integers(len(best_child), size=4)
    return int(four[np.argmin(best_child[four])])


def _hop(pool: Pool, random: np.random.Generator) -> Array:
    """A changed function of the pool."""
    change = (scattered, window, spikes)[random.integers(3)]
    return change(pool.heights[random.integers(len(pool.heights))], random)


def finish(pool: Pool) -> Pool:
    """The pool with its best function polished by the interior point."""
    found = polish(pool.heights[0])[None]
    return pool.merged(found, quotients(found), len(pool.values) + 1)


def solve(
    seed: int, cells: int = 60, levels: Sequence[Level] = LEVELS, pools: Sequence[Pool] = ()
) -> Iterator[tuple[int, Pool]]:
    """Run the beam; the smallest quotient so far is ``pool.values[0]`` of what was yielded last, or of a level before.

    Parameters
    ----------
    seed : decides all randomness.
    cells : cells of level 0.
    levels : the grids, from coarse to fine.
    pools : the last pools of the levels that are done; the solver goes on behind them.

    Yields
    ------
    number of the level, pool ; after each batch. The last number, ``len(levels)``, is the interior point.
    """
    done = list(pools)
    for number in range(len(done), len(levels)):
        steps = start(seed, cells, levels[0]) if number == 0 else refine(done[-1], seed, number, levels[number])
        last = empty(cells)
        for last in steps:
            yield number, last
        done.append(last)
    if len(done) == len(levels):
        yield len(levels), finish(done[-1])
