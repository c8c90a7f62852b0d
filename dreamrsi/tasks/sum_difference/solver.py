"""A solver from scratch: simulated annealing over symmetric rulers (see ``ruler.py``), restarted until time is up.

A state is a ruler: the gaps of its fringe and the step of its middle. The number of steps follows from the 512
elements that are allowed, so every state uses them as well as it can. Rulers that fail to measure a distance are not
forbidden but priced, by the score itself. A run starts at random gaps and cools geometrically, accepting a loss d with
probability exp(-d / T). Small moves change, shift, swap, merge, split, insert or delete gaps.

The temperature hardly falls, and what counts is the best ruler on the way: cold runs end in the ruler of step 16 and
gaps 1, which scores 1.1453940, and stay there. Better ones (1.1454768 and 1.1454974, both of step 17) lie behind worse
ones. A run is a million steps, some 3 seconds on an idle core: nine of ten lead to a ruler that was rated a moment ago.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from dreamrsi.tasks.sum_difference.ruler import Ruler, elements, rate

STEPS = 1_000_000
HOT, COLD = 4e-4, 2.5e-4
"""First and last temperature, in units of the score."""
LONGEST_FRINGE = 60
WATCH = 2000
"""Steps between two looks at the clock."""


@dataclass(frozen=True)
class Found:
    """A set that was the best so far, its score in closed form (the judge's to 1e-12), when it was found, in which run.

    Runs of the annealing count from 1.
    """

    elements: list[int]
    score: float
    seconds: float
    run: int


def solve(seed: int, seconds: float = 60.0, target: float = float("inf")) -> Found:
    """The best set found in ``seconds``, or the first that scores ``target``.

    Raises
    ------
    ValueError
        No time, so nothing was found.
    """
    best = None
    for best in search(seed, seconds):
        if best.score >= target:
            break
    if best is None:
        raise ValueError(f"seconds is {seconds}; it must be positive")
    return best


def search(seed: int, seconds: float = 60.0) -> Iterator[Found]:
    """Every set that is better than all before it, as it is found; ends after ``seconds``.

    What is found, and in what order, follows from the seed; how much of it, from the time.
    """
    draw = random.Random(seed)
    began = time.perf_counter()
    top, run = float("-inf"), 0
    while time.perf_counter() - began < seconds:
        run += 1
        steps = anneal(random_ruler(draw), draw, STEPS, HOT, COLD)
        for number, (ruler, score) in enumerate(steps):
            if score > top + 1e-12:
                top = score
                yield Found(elements(ruler, rate(ruler)[1]), score, time.perf_counter() - began, run)
            if number % WATCH == 0 and time.perf_counter() - began >= seconds:
                return


def random_ruler(draw: random.Random) -> Ruler:
    """A step of 3 to 25, and 3 to 20 gaps of 1 to 6."""
    return Ruler(tuple(draw.randint(1, 6) for _ in range(draw.randint(3, 20))), draw.randint(3, 25))


def anneal(ruler: Ruler, draw: random.Random, steps: int, hot: float, cold: float) -> Iterator[tuple[Ruler, float]]:
    """One run of the annealing: the ruler after every step, and its score."""
    score, _ = rate(ruler)
    temperature, factor = hot, (cold / hot) ** (1 / steps)
    for _ in range(steps):
        temperature *= factor
        trial = change(ruler, draw)
        new, _ = rate(trial)
        if new >= score or draw.random() < exp((new - score) / temperature):
            ruler, score = trial, new
        yield ruler, score


def change(ruler: Ruler, draw: random.Random) -> Ruler:
    """A ruler that differs a little."""
    gaps = list(ruler.fringe)
    kind, place = draw.random(), draw.randrange(len(gaps))
    other = draw.randrange(len(gaps))
    if kind < 0.12:
        return Ruler(ruler.fringe, max(1, ruler.step + draw.choice((-1, 1))))
    if kind < 0.30:  # a gap longer or shorter
        gaps[place] = max(1, gaps[place] + draw.choice((-1, 1)))
    elif kind < 0.45:  # part of a gap to another one: the marks between move together
        part = draw.randint(1, 6)
        if gaps[place] > part:
            gaps[place] -= part
            gaps[other] += part
    elif kind < 0.60:
        gaps[place], gaps[other] = gaps[other], gaps[place]
    elif kind < 0.70:
        if len(gaps) < LONGEST_FRINGE:
            gaps.insert(place, draw.choice((1, gaps[place], draw.randint(1, ruler.step + 1))))
    elif kind < 0.80:
        if len(gaps) > 1:
            del gaps[place]
    elif kind < 0.87:  # a mark fewer
        if place + 1 < len(gaps):
            gaps[place] += gaps.pop(place + 1)
    elif kind < 0.94:  # a mark more
        if gaps[place] > 1 and len(gaps) < LONGEST_FRINGE:
            part = draw.randint(1, gaps[place] - 1)
            gaps[place] -= part
            gaps.insert(place, part)
    else:
        gaps.insert(other, gaps.pop(place))
    return Ruler(tuple(gaps), ruler.step)
