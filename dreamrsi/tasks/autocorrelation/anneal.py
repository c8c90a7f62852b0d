"""Local search for the autocorrelation inequality: a smoothed maximum that hardens, minimised by L-BFGS in batches.

The quotient of heights h is max_k |z_k| with z = 2n (h * h) / (sum h)^2. Its maximum has a kink wherever two entries
tie, and at an optimum hundreds tie. So the maximum is smoothed,

    F_b(h) = (1/b) log sum_k exp(b |z_k|),      max|z| <= F_b <= max|z| + log(2n - 1) / b,

which is smooth but for the sign of z_k near 0, where its weight is negligible. With the weights
w_k = sign(z_k) exp(b |z_k|) / sum_j exp(b |z_j|), S = sum h, and z unchanged when h is scaled, the gradient is

    dF_b/dh_a = (4n / S^2) sum_j w_(a+j) h_j - (2/S) sum_k w_k z_k,

one convolution and one correlation, four real Fourier transforms. The sharpness b then rises geometrically, each
minimum being the start of the next. A soft b lets the search leave the basin it starts in; a hard one only polishes.

Many functions of the same n are annealed at once, as rows of a matrix: NumPy's price for a call is then shared by all
of them. Every row has its own line search and its own sharpness. Rows interact in nothing but the moment at which the
batch stops, so there is no randomness here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Array = NDArray[np.float64]

MEMORY = 12
"""Pairs that L-BFGS remembers."""
TRIES = 12
"""Steps that a line search tries."""
ARMIJO, CURVATURE = 1e-4, 0.9
"""The two conditions of a weak Wolfe step."""
DONE = 1e-12
"""A row rests once a step along its gradient promises less."""


def quotients(heights: Array) -> Array:
    """The quotient of every row in floating point; good to about 1e-13, while the judge's is proven.

    Parameters
    ----------
    heights : (rows, n)

    Returns
    -------
    (rows,) ; infinite or NaN where the heights sum to zero
    """
    n = heights.shape[1]
    size = fft.next_fast_len(2 * n - 1, real=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        c = fft.irfft(fft.rfft(heights, size) ** 2, size)[:, : 2 * n - 1]
        return np.asarray(2 * n * np.abs(c).max(axis=1) / heights.sum(axis=1) ** 2)


def smoothed(heights: Array, sharpness: Array) -> tuple[Array, Array, Array]:
    """The smoothed quotients, their gradients, and the quotients themselves.

    Parameters
    ----------
    heights : (rows, n)
    sharpness : (rows,) ; b

    Returns
    -------
    F_b (rows,), gradient (rows, n), quotient (rows,)
    """
    n = heights.shape[1]
    size = fft.next_fast_len(2 * n - 1, real=True)
    spectrum = fft.rfft(heights, size)
    total = heights.sum(axis=1, keepdims=True)
    z = fft.irfft(spectrum * spectrum, size)[:, : 2 * n - 1]
    z *= 2 * n / total**2
    magnitude = np.abs(z)
    hard = magnitude.max(axis=1)
    weights = np.exp(sharpness[:, None] * (magnitude - hard[:, None]))
    mass = weights.sum(axis=1)
    weights /= mass[:, None]
    mean = np.einsum("rk,rk->r", weights, magnitude)
    weights = np.copysign(weights, z)
    # Padding by zeros to 2n - 1 or more keeps the first n entries of the correlation free of wrap-around.
    gradient = fft.irfft(fft.rfft(weights, size) * spectrum.conj(), size)[:, :n]
    gradient *= 4 * n / total**2
    gradient -= 2 * mean[:, None] / total
    return hard + np.log(mass) / sharpness, gradient, hard


def minimise(heights: Array, sharpness: Array, iterations: int) -> tuple[Array, Array, Array]:
    """L-BFGS on the smoothed quotient of every row, with a weak Wolfe line search by bisection and doubling.

    Returns
    -------
    the last heights (rows, n), the heights of the smallest quotient seen (rows, n), and that quotient (rows,)
    """
    x = heights.copy()
    value, gradient, best = smoothed(x, sharpness)
    kept = x.copy()
    pairs: list[tuple[Array, Array, Array]] = []
    moving = np.arange(len(x))
    for _ in range(iterations):
        direction = _direction(gradient, pairs)
        slope = _dot(direction, gradient)
        uphill = ~(slope < 0)
        direction[uphill] = -gradient[uphill]
        slope[uphill] = -_dot(gradient, gradient)[uphill]
        moving = np.flatnonzero(slope < -DONE)
        if not len(moving):
            break
        # Without memory the first step has the length of a hundredth of the heights.
        length = np.linalg.norm(x, axis=1) / np.linalg.norm(direction, axis=1).clip(1e-300)
        step = np.ones(len(x)) if pairs else 0.01 * length
        low, high = np.zeros(len(x)), np.full(len(x), np.inf)
        before, before_gradient = x.copy(), gradient.copy()
        start = value.copy()
        for _ in range(TRIES):
            trial = before[moving] + step[moving, None] * direction[moving]
            f, g, hard = smoothed(trial, sharpness[moving])
            better = hard < best[moving]
            best[moving[better]], kept[moving[better]] = hard[better], trial[better]
            enough = f <= start[moving] + ARMIJO * step[moving] * slope[moving]
            flat = _dot(g, direction[moving]) >= CURVATURE * slope[moving]
            took = moving[enough]  # the last point that went down counts, even if the curvature asks for more
            x[took], value[took], gradient[took] = trial[enough], f[enough], g[enough]
            high[moving[~enough]] = step[moving[~enough]]
            low[took] = step[took]
            moving = moving[~(enough & flat)]
            if not len(moving):
                break
            bounded = np.isfinite(high[moving])
            step[moving] = np.where(bounded, 0.5 * (low[moving] + np.where(bounded, high[moving], 0)), 2 * step[moving])
        s, y = x - before, gradient - before_gradient
        curvature = _dot(s, y)
        usable = curvature > 1e-14 * np.sqrt(_dot(s, s) * _dot(y, y))
        rho = np.zeros(len(x))
        rho[usable] = 1 / curvature[usable]
        pairs = [*pairs, (s, y, rho)][-MEMORY:]
    return x, kept, best


def _direction(gradient: Array, pairs: list[tuple[Array, Array, Array]]) -> Array:
    """The two loops of L-BFGS for all rows; a pair with rho = 0 says nothing about its row."""
    q = -gradient
    shares = []
    for s, y, rho in reversed(pairs):
        share = rho * _dot(s, q)
        q -= share[:, None] * y
        shares.append(share)
    scale = np.ones(len(q))
    for s, y, rho in pairs:  # the newest pair that says something
        scale = np.where(rho > 0, _dot(s, y) / _dot(y, y).clip(1e-300), scale)
    q *= scale[:, None]
    for (s, y, rho), share in zip(pairs, reversed(shares), strict=True):
        q += (share - rho * _dot(y, q))[:, None] * s
    return q


def _dot(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("rn,rn->r", a, b))


def anneal(heights: Array, soft: Array | float, hard: float, stages: int, iterations: int) -> tuple[Array, Array]:
    """Minimise at ``stages`` sharpnesses from ``soft`` to ``hard``, in geometric progression.

    Parameters
    ----------
    heights : (rows, n), each row with a sum that is not zero
    soft : the first sharpness, one for all or (rows,) ; below 30 most of the start is forgotten, above 1000 nothing is.
    hard : the last one; the maximum is then known to log(2n)/hard.

    Returns
    -------
    heights of the smallest quotient that was met (rows, n), scaled to mean 1, and these quotients (rows,)
    """
    x = heights / heights.mean(axis=1, keepdims=True)
    first = np.broadcast_to(np.asarray(soft, dtype=np.float64), len(x))
    best, kept = quotients(x), x.copy()
    for stage in range(stages):
        share = stage / max(stages - 1, 1)
        x, found, value = minimise(x, first ** (1 - share) * hard**share, iterations)
        better = value < best
        best[better], kept[better] = value[better], found[better]
        x = x / x.mean(axis=1, keepdims=True)
    return kept / kept.mean(axis=1, keepdims=True), best
