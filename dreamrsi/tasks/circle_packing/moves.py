"""The moves of circle packing: each takes a packing, changes it, and lets it settle into a local optimum.

All are functions of (files, seed) bounded by iterations. The ones that explore try a few changes and return the best
outcome, which may be worse than what they started from. They stop climbing early, because most trials are thrown
away; ``lp_radii`` and ``slsqp`` refine what is worth it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import cvxpy
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.sparse import coo_array

from dreamrsi.tasks import Move
from dreamrsi.workspace import Files

Array = NDArray[np.float64]
Change = Callable[[Array, Array, np.random.Generator], Array]
"""(centres (n, 2), radii (n,), random numbers) -> new centres (n, 2)."""

TRIALS = 8
"""Changes that an exploring move tries."""
SAME = 1e-6
"""Sums closer than this are taken for the same local optimum."""
MARGIN = 1e-3
"""How far inside the square a changed centre is put at least."""


def settle(centres: Array, steps: int = 4, reach: float = 0.1, tolerance: float = 1e-6) -> tuple[Array, Array]:
    """Climb to a local optimum of the sum of radii by a sequence of linear programmes.

    The distance of two centres is a convex function of them, so its linearisation never overstates it: every
    solution of a programme is feasible for the packing itself, and the sum never falls. No line search, no penalty.

    Parameters
    ----------
    centres : (n, 2), inside the square.
    steps : programmes at most; 5 to 10 usually reach the optimum to 1e-9.
    reach : how far a coordinate may move in one step.
    tolerance : stop when a step gains less.

    Returns
    -------
    centres (n, 2), radii (n,)
    """
    n = len(centres)
    first, second = np.triu_indices(n, 1)
    m = len(first)
    x, y, r = np.arange(n), np.arange(n) + n, np.arange(n) + 2 * n
    circles, pairs = np.arange(n), np.arange(m)
    # Columns: moves in x, moves in y, radii. Rows: one a pair, then four walls a circle.
    rows = np.concatenate([np.tile(pairs, 6)] + [m + k * n + np.tile(circles, 2) for k in range(4)])
    wall_columns = [np.concatenate([axis, r]) for axis in (x, x, y, y)]
    columns = np.concatenate([x[first], x[second], y[first], y[second], r[first], r[second], *wall_columns])
    ones, walls = np.ones(m), np.concatenate([np.full(n, -1.0), np.ones(n), np.ones(2 * n)] * 2)
    cost = np.concatenate([np.zeros(2 * n), -np.ones(n)])
    bounds = [(-reach, reach)] * (2 * n) + [(0.0, 0.5)] * n
    radii = np.zeros(n)
    for _ in range(steps):
        apart = centres[first] - centres[second]
        distance = np.maximum(np.hypot(apart[:, 0], apart[:, 1]), 1e-12)
        ux, uy = (apart / distance[:, None]).T
        values = np.concatenate([-ux, ux, -uy, uy, ones, ones, walls])
        matrix = coo_array((values, (rows, columns)), shape=(m + 4 * n, 3 * n)).tocsr()
        limits = np.concatenate([distance, centres[:, 0], 1 - centres[:, 0], centres[:, 1], 1 - centres[:, 1]])
        found = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs-ds")
        if found.status != 0:
            break
        gain = found.x[2 * n :].sum() - radii.sum()
        centres = centres + found.x[: 2 * n].reshape(2, n).T
        radii = found.x[2 * n :]
        if gain < tolerance:
            break
    return centres, radii


def relax(centres: Array, radii: Array, iterations: int = 60) -> Array:
    """Push overlapping circles of fixed radii apart: L-BFGS on the sum of squared overlaps.

    Returns
    -------
    centres (n, 2), inside the square
    """
    n = len(centres)
    first, second = np.triu_indices(n, 1)
    reach = radii[first] + radii[second]

    def overlap(flat: Array) -> tuple[float, Array]:
        c = flat.reshape(n, 2)
        apart = c[first] - c[second]
        distance = np.maximum(np.hypot(apart[:, 0], apart[:, 1]), 1e-12)
        lap = np.maximum(reach - distance, 0.0)
        low, high = np.maximum(radii[:, None] - c, 0.0), np.maximum(c + radii[:, None] - 1, 0.0)
        gradient = 2 * (high - low)
        push = (-2 * lap / distance)[:, None] * apart
        np.add.at(gradient, first, push)
        np.add.at(gradient, second, -push)
        return float((lap**2).sum() + (low**2).sum() + (high**2).sum()), gradient.ravel()

    found = minimize(overlap, centres.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return _inside(found.x.reshape(n, 2))


def perturb(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Jitter every centre."""
    return _inside(centres + random.normal(0, random.choice([0.01, 0.03, 0.06]), centres.shape))


def relocate(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Take one of the six smallest circles to one of the largest holes."""
    moved = random.choice(np.argsort(radii)[:6])
    others = np.arange(len(radii)) != moved
    spots = random.uniform(0, 1, (1000, 2))
    gaps = np.linalg.norm(spots[:, None] - centres[others], axis=2) - radii[others]
    room = np.minimum(gaps.min(axis=1), np.minimum(spots, 1 - spots).min(axis=1))
    centres = centres.copy()
    centres[moved] = spots[random.choice(np.argsort(-room)[:100])]
    return _inside(centres)


def swap(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Let a large and a small circle change places, and push their neighbours apart."""
    order = np.argsort(radii)
    half = len(order) // 2
    i, j = random.choice(order[:half]), random.choice(order[half:])
    centres = centres.copy()
    centres[[i, j]] = centres[[j, i]]
    return relax(centres, radii)


def window(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Shake the circles of one round window."""
    middle, reach = random.uniform(0, 1, 2), random.uniform(0.2, 0.5)
    inside = np.linalg.norm(centres - middle, axis=1) < reach
    return _inside(centres + inside[:, None] * random.normal(0, 0.06, centres.shape))


def squeeze(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Inflate one circle by a fifth to a half, and push its neighbours away."""
    radii = radii.copy()
    radii[random.integers(len(radii))] *= random.uniform(1.2, 1.5)
    return relax(centres, radii)


def mirror(centres: Array, radii: Array, random: np.random.Generator) -> Array:
    """Replace the circles beyond a cut by the mirror image of those before it, after a turn of the square.

    Where the image has too many circles the smallest go; where it has too few, circles come in at random.
    """
    turned = centres[:, ::-1] if random.random() < 0.5 else centres
    if random.random() < 0.5:
        turned = 1 - turned
    cut = random.uniform(0.4, 0.6)
    kept = turned[:, 0] < cut
    image = np.flatnonzero(kept & (turned[:, 0] > 2 * cut - 1) & (turned[:, 0] < cut - radii / 2))
    image = image[np.argsort(-radii[image])][: len(radii) - kept.sum()]
    missing = len(radii) - kept.sum() - len(image)
    copies = np.column_stack([2 * cut - turned[image, 0], turned[image, 1]])
    new = np.column_stack([random.uniform(cut, 1, missing), random.uniform(0, 1, missing)])
    return _inside(np.concatenate([turned[kept], copies, new]))


def lp_radii(files: Files, seed: int) -> dict[str, bytes]:
    """The best radii for the centres as they are: one linear programme, solved by HiGHS through cvxpy."""
    centres, _ = _read(files)
    first, second = np.triu_indices(len(centres), 1)
    r = cvxpy.Variable(len(centres))
    distances = np.linalg.norm(centres[first] - centres[second], axis=1)
    walls = np.minimum(centres, 1 - centres).min(axis=1)
    problem = cvxpy.Problem(
        cvxpy.Maximize(np.ones(len(centres)) @ r), [r >= 0, r <= walls, r[first] + r[second] <= distances]
    )
    problem.solve(solver=cvxpy.HIGHS, verbose=False, output_flag=False)  # type: ignore[no-untyped-call]
    return _write(files, centres, np.asarray(r.value))


def slsqp(files: Files, seed: int, iterations: int = 60) -> dict[str, bytes]:
    """SLSQP on centres and radii together, with the pairs that are close; a pair left out may come to overlap."""
    centres, radii = _read(files)
    n = len(radii)
    first, second = np.triu_indices(n, 1)
    gaps = np.linalg.norm(centres[first] - centres[second], axis=1) - radii[first] - radii[second]
    near = np.argsort(gaps)[: 3 * n]
    first, second = first[near], second[near]
    pairs, circles = np.arange(len(near)), np.arange(n)

    def pair_slack(z: Array) -> Array:
        c, r = z[: 2 * n].reshape(n, 2), z[2 * n :]
        return np.asarray(((c[first] - c[second]) ** 2).sum(axis=1) - (r[first] + r[second]) ** 2)

    def pair_jacobian(z: Array) -> Array:
        c, r = z[: 2 * n].reshape(n, 2), z[2 * n :]
        jacobian = np.zeros((len(near), 3 * n))
        for axis in (0, 1):
            apart = 2 * (c[first, axis] - c[second, axis])
            jacobian[pairs, 2 * first + axis], jacobian[pairs, 2 * second + axis] = apart, -apart
        jacobian[pairs, 2 * n + first] = jacobian[pairs, 2 * n + second] = -2 * (r[first] + r[second])
        return jacobian

    walls = np.zeros((4 * n, 3 * n))
    for row, (axis, sign) in enumerate([(0, 1), (0, -1), (1, 1), (1, -1)]):
        walls[row * n + circles, 2 * circles + axis] = sign
        walls[row * n + circles, 2 * n + circles] = -1
    offset = np.repeat([0.0, 1.0, 0.0, 1.0], n)
    cost = np.concatenate([np.zeros(2 * n), -np.ones(n)])
    constraints: Any = [
        {"type": "ineq", "fun": pair_slack, "jac": pair_jacobian},
        {"type": "ineq", "fun": lambda z: walls @ z + offset, "jac": lambda z: walls},
    ]
    found = minimize(
        lambda z: (cost @ z, cost),
        np.concatenate([centres.ravel(), radii]),
        jac=True,
        bounds=[(0, 1)] * (2 * n) + [(1e-6, 0.5)] * n,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": iterations, "ftol": 1e-15},
    )
    return _write(files, found.x[: 2 * n].reshape(n, 2), found.x[2 * n :])


def explore(change: Change) -> Move:
    """Make a move of a change: try it ``TRIALS`` times, each from the best so far, and return the best outcome.

    A trial that falls back into the optimum it started from counts only if all do.
    """

    def move(files: Files, seed: int) -> dict[str, bytes]:
        random = np.random.default_rng(seed)
        start = _read(files)
        base, best, rank = start, start, (False, -np.inf)
        for _ in range(TRIALS):
            trial = settle(change(*base, random))
            total = trial[1].sum()
            new = (abs(total - start[1].sum()) > SAME, total)
            if new > rank:
                best, rank = trial, new
            if total > base[1].sum():
                base = trial
        return _write(files, *best)

    move.__doc__ = change.__doc__
    return move


MOVES: dict[str, Move] = {
    change.__name__: explore(change) for change in (perturb, relocate, swap, window, squeeze, mirror)
}
MOVES |= {"lp_radii": lp_radii, "slsqp": slsqp}


def _read(files: Files) -> tuple[Array, Array]:
    circles = np.array(json.loads(files["packing.json"]), dtype=np.float64)
    return circles[:, :2], circles[:, 2]


def _write(files: Files, centres: Array, radii: Array) -> dict[str, bytes]:
    from dreamrsi.tasks.circle_packing import write_circles

    circles: Iterable[tuple[float, float, float]] = np.column_stack([centres, radii]).tolist()
    return {**files, "packing.json": write_circles(circles)}


def _inside(centres: Array) -> Array:
    return np.clip(centres, MARGIN, 1 - MARGIN)
