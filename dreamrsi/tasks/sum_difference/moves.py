"""The moves of the sum-difference task: each takes a set, changes it, and returns one, which may be worse.

All are functions of (files, seed) bounded by iterations. ``toggle`` works on any set; the others read the set as a
skeleton (``skeleton.py``), so that the first of them on an unstructured set is a leap. Most do something to the whole
and then anneal a little, as a change of structure alone nearly always makes a good set worse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp

from dreamrsi.tasks import Move
from dreamrsi.tasks.sum_difference import ruler as rulers
from dreamrsi.tasks.sum_difference import skeleton as skeletons
from dreamrsi.tasks.sum_difference import solver
from dreamrsi.tasks.sum_difference.evaluate import ARTIFACT, LARGEST_SET, LIMIT, read_set, value
from dreamrsi.tasks.sum_difference.ruler import Ruler
from dreamrsi.tasks.sum_difference.skeleton import Skeleton, build, rate
from dreamrsi.workspace import Files

Draw = random.Random
Change = Callable[[Skeleton, Draw], Skeleton]

TOGGLES = 6000
"""Steps of ``toggle``, some 0.1 milliseconds each."""
SLIDES = 40_000
"""Steps of ``slide``, some 20 microseconds each."""
SETTLE = 8000
"""Steps of annealing after a change of structure."""
RULER_STEPS = 60_000
WIDEST = 4096
"""Sets that reach farther are not toggled."""


def toggle(files: Files, seed: int) -> dict[str, bytes]:
    """Anneal the set element by element, in or out, with no structure assumed; up to two beyond either end."""
    draw = Draw(seed)
    start = read_set(files[ARTIFACT])
    low, width = min(start) - 2, max(start) - min(start) + 5
    if width > WIDEST or low < -LIMIT or low + width > LIMIT:
        return dict(files)
    state = {a - low for a in start}
    score, temperature = _rate_bits(state), 1e-3
    best, top = set(state), score
    for _ in range(TOGGLES):
        temperature *= 0.999
        flipped = {draw.randrange(width) for _ in range(draw.choice((1, 2)))}
        trial = state ^ flipped
        new = _rate_bits(trial)
        if new >= score or draw.random() < exp((new - score) / temperature):
            state, score = trial, new
            if score > top:
                best, top = set(state), score
    return _write(files, [a + low for a in best])


def restart(files: Files, seed: int) -> dict[str, bytes]:
    """Forget the set: a random one of 12 to 40 elements, annealed as ``toggle`` does."""
    draw = Draw(seed)
    size = draw.randint(12, 40)
    made = _write(files, draw.sample(range(size * 2), size))
    return toggle(made, draw.getrandbits(63))


def slide(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Anneal the marks one by one: in, out, or a few places on."""
    return _anneal(skeleton, draw, SLIDES, 2e-4)


def scatter(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Begin a skeleton anew: random marks, two singles near the ends."""
    n = draw.randint(300, 455)
    marks = {0, n - 1, *draw.sample(range(n), draw.randint(40, 56))}
    edge = draw.randint(2, 20)
    return _anneal(build(n, marks, (edge, n - 1 - edge)), draw, SETTLE, 2e-4)


def stretch(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Cut somewhere and move everything to the right of the cut by one, apart or together; the best of many cuts."""
    n, marks, singles = skeleton
    trials = []
    for cut in draw.sample(range(n), min(n, 60)):
        for step in (-1, 1):

            def moved(places: tuple[int, ...], cut: int = cut, step: int = step) -> list[int]:
                return [place + step if place > cut else place for place in places]

            trials.append(build(n + step, moved(marks), moved(singles)))
    return _best(trials, skeleton)


def regrid(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Lay the marks anew: dense ends, and a mark in every step between."""
    step = draw.randint(8, 24)
    count = (LARGEST_SET - 2 * step - 4) // (step + 1)
    n = max(step * count - draw.choice((0, 0, 1)), 2 * step)
    marks = {*range(step), *range(step - 1, n, step), *range(n - step, n)}
    trials = [build(n, marks, (edge, n - 1 - edge)) for edge in range(step)]
    return _best(trials, skeleton)


def fringe(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Make the dense ends wider or narrower, then anneal."""
    n, marks, singles = skeleton
    width = draw.randint(1, 5)
    if draw.random() < 0.5:
        new = {*marks, *range(width * 4), *range(n - width * 4, n)}
    else:
        inner = [b for b in marks if draw.random() < 0.5 or min(b, n - 1 - b) > 20]
        new = {0, n - 1, *inner}
    return _anneal(build(n, new, singles), draw, SETTLE, 5e-5)


def recentre(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Two singles, placed anew: the best of all places near either end."""
    n, marks, _ = skeleton
    reach = min(24, n)
    places = [(a, n - 1 - b) for a in range(reach) for b in range(reach)]
    return _best([build(n, marks, pair) for pair in places], skeleton)


def resize(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """More or fewer elements in the full class, the marks at the right end moving with it, then anneal."""
    n, marks, singles = skeleton
    change = draw.choice((-8, -4, -2, -1, 1, 2, 4, 8, n // 8))

    def moved(places: tuple[int, ...]) -> list[int]:
        return [place + change if place > n // 2 else place for place in places]

    return _anneal(build(max(n + change, 4), moved(marks), moved(singles)), draw, SETTLE, 5e-5)


def mirror(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Replace one half of marks and singles by the mirror image of the other."""
    n, marks, singles = skeleton
    last = max(marks)
    halves = []
    for length in range(max(last - 3, 1), min(last + 4, n)):
        for sign in (False, True):
            kept = [length - b if sign else b for b in marks]
            half = {b for b in kept if 0 <= 2 * b <= length}
            edges = [length - 1 - c if sign else c for c in singles]
            edge = min((c for c in edges if 0 <= 2 * c < length), default=0)
            halves.append(build(length + 1, {*half, *(length - b for b in half)}, (edge, length - 1 - edge)))
    return _best(halves, skeleton)


def pairs(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Take one mark out and put one in: the best of some thousand such pairs."""
    n, marks, singles = skeleton
    trials = []
    for _ in range(SETTLE):
        out, into = draw.choice(marks), draw.randrange(n)
        trials.append(Skeleton(n, tuple(sorted({*marks, into} - ({out} - {into}))), singles))
    return _best(trials, skeleton)


def ruler(skeleton: Skeleton, draw: Draw) -> Skeleton:
    """Read the left half of the marks as a symmetric ruler and anneal its gaps, as the solver does, but briefly."""
    gaps = [b - a for a, b in zip(skeleton.marks, skeleton.marks[1:], strict=False)] or [1]
    step = gaps[len(gaps) // 2]
    half = gaps[: max(1, len(gaps) // 2)]
    while len(half) > 1 and half[-1] == step:
        half.pop()
    start = Ruler(tuple(half[: solver.LONGEST_FRINGE]), step)
    while start.middle < 0:
        start = Ruler(start.fringe[:-1], step) if len(start.fringe) > 1 else Ruler((1,), 1)
    hot = draw.choice((1e-4, solver.HOT))  # to refine this ruler, or to find another one
    run = solver.anneal(start, draw, RULER_STEPS, hot, hot / 2)
    best, _ = max(run, key=lambda state: state[1])
    return skeletons.read(rulers.elements(best, rulers.rate(best)[1]))


def modulus(files: Files, seed: int) -> dict[str, bytes]:
    """Put the classes of the skeleton into the residues of another modulus, from 3 to 7."""
    skeleton = skeletons.read(read_set(files[ARTIFACT]))
    return _write(files, skeletons.elements(skeleton, Draw(seed).choice((3, 5, 6, 7))))


def on_skeleton(change: Change) -> Move:
    """Make a move of a change."""

    def move(files: Files, seed: int) -> dict[str, bytes]:
        skeleton = change(skeletons.read(read_set(files[ARTIFACT])), Draw(seed))
        return _write(files, skeletons.elements(skeleton))

    move.__doc__ = change.__doc__
    return move


MOVES: dict[str, Move] = {"toggle": toggle, "restart": restart, "modulus": modulus}
MOVES |= {
    change.__name__: on_skeleton(change)
    for change in (slide, scatter, stretch, regrid, fringe, recentre, resize, mirror, pairs, ruler)
}


def _anneal(skeleton: Skeleton, draw: Draw, steps: int, hot: float) -> Skeleton:
    """The best skeleton on the way; the full class and the singles stay, but for singles that move by one."""
    state, score = skeleton, rate(skeleton)
    best, top = state, score
    temperature, factor = hot, 0.05 ** (1 / steps)
    for _ in range(steps):
        temperature *= factor
        n, marks, singles = state
        kind = draw.random()
        if kind < 0.1:
            place = draw.randrange(len(singles))
            shifted = {*singles[:place], *singles[place + 1 :], singles[place] + draw.choice((-1, 1))}
            trial = Skeleton(n, marks, tuple(sorted(shifted)))
        elif kind < 0.4:
            trial = Skeleton(n, tuple(sorted({*marks} ^ {draw.randrange(n)})), singles)
        else:
            old = draw.choice(marks)
            new = old + draw.choice((-3, -2, -1, 1, 2, 3))
            trial = Skeleton(n, tuple(sorted({*marks} - {old} | {new})), singles)
        new_score = rate(trial)
        if new_score >= score or draw.random() < exp((new_score - score) / temperature):
            state, score = trial, new_score
            if score > top:
                best, top = state, score
    return best


def _best(trials: list[Skeleton], start: Skeleton) -> Skeleton:
    """The best of the trials that differ from the start, though it be worse."""
    return max((trial for trial in trials if trial != start), key=rate, default=start)


def _rate_bits(numbers: set[int]) -> float:
    """The score of any set of small numbers that are not negative; minus infinity if it breaks the rules on size."""
    if not 2 <= len(numbers) <= LARGEST_SET:
        return skeletons.NOTHING
    bits = sums = differences = 0
    for a in numbers:
        bits |= 1 << a
    for a in numbers:
        sums |= bits << a
        differences |= bits >> a
    return value(len(numbers), sums.bit_count(), 2 * differences.bit_count() - 1)


def _write(files: Files, numbers: list[int]) -> dict[str, bytes]:
    from dreamrsi.tasks.sum_difference import write_set

    return {**files, ARTIFACT: write_set(numbers)}
