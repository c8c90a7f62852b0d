"""The last digits of the autocorrelation inequality: an interior-point method on the maximum itself.

With the sum of the heights fixed and K = 2n / (sum h)^2, the quotient of h is the smallest t with

    t - K c_k(h) >= 0   and   t + K c_k(h) >= 0   for all k,      c = h * h.

Its Lagrangian t - sum_k p_k (t - K c_k) - sum_k q_k (t + K c_k) is not convex in h, but its second derivative is known
exactly: 2 K (p - q)_(i+j), a Hankel matrix. Newton's method is applied to the conditions of optimality with p s = q r
= mu instead of 0, s and r being the two slacks; the multipliers' and t's part of the step is eliminated, which leaves

    [ 2 K Hankel(p - q) + J' diag(p/s + q/r) J - v v' / d ] dh = right-hand side,      sum dh = 0,

J = K dc/dh being a Toeplitz matrix. A multiple of the identity is added until the matrix is positive definite, so the
step leads downhill; it is cut until all slacks stay positive, c being known exactly along it. Then mu falls. The method
converges to 1e-9 in 20 to 80 steps and changes no basin: it comes last. One step costs O(n^3), 0.1 s at n = 960.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft, linalg

from dreamrsi.tasks.autocorrelation.anneal import quotients

Array = NDArray[np.float64]

FALL = 0.3
"""What mu is multiplied by."""
ROUND = 9
"""Steps at most at one mu."""
INNER = 0.01
"""A step leaves every slack this part of itself."""


def polish(heights: Array, gap: float = 4e-2, end: float = 1e-7, steps: int = 80) -> Array:
    """Minimise the quotient of one function that was annealed before; from elsewhere it gets stuck as mu falls.

    Parameters
    ----------
    heights : (n,), with a sum that is not zero
    gap : about how far above the quotient the method starts; a larger one forgets more of the start.
    end : how far from the optimum it may stop.
    steps : Newton steps at most.

    Returns
    -------
    (n,) ; the best heights met, never worse than the given ones, with mean 1
    """
    x = heights / heights.mean()
    n = len(x)
    scale = 2 / n  # K for mean 1
    best, lowest = x, quotients(x[None])[0]
    mu = gap / (4 * n)
    z = scale * _convolve(x, x)
    t = float(np.abs(z).max()) + gap
    p, q = mu / (t - z), mu / (t + z)
    shift, at_this_mu = 0.0, 0
    for _ in range(steps):
        s, r = t - z, t + z
        toeplitz = 2 * scale * linalg.toeplitz(np.r_[x, np.zeros(n - 1)], np.r_[x[0], np.zeros(n - 1)])
        dx, dt, shift = _newton(toeplitz, scale, p, q, s, r, mu, shift)
        dz = toeplitz @ dx
        slope = dt - mu * ((dt - dz) / s + (dt + dz) / r).sum()
        bend = scale * _convolve(dx, dx)
        step = _step(z, dz, bend, t, dt, mu, slope)
        p, q = _multipliers(p, s, dt - dz, mu), _multipliers(q, r, dt + dz, mu)
        x, t = x + step * dx, t + step * dt
        z = scale * _convolve(x, x)
        value = float(np.abs(z).max())
        if value < lowest:
            best, lowest = x, value
        if not value < t:  # rounding has eaten the slacks
            break
        p, q = _near(p, mu / (t - z)), _near(q, mu / (t + z))
        at_this_mu += 1
        if abs(slope) < mu or at_this_mu >= ROUND or step == 0:
            if 4 * n * mu < end:
                break
            mu, at_this_mu = mu * FALL, 0
    return np.asarray(best / best.mean())


def _newton(
    toeplitz: Array, scale: float, p: Array, q: Array, s: Array, r: Array, mu: float, shift: float
) -> tuple[Array, float, float]:
    """One Newton direction (dh, dt), and the shift of the diagonal that made its matrix positive definite."""
    n = toeplitz.shape[1]
    ratio, other = p / s, q / r
    rows = np.sqrt(ratio + other)[:, None] * toeplitz
    matrix = rows.T @ rows
    matrix += 2 * scale * linalg.hankel((p - q)[:n], (p - q)[n - 1 :])
    v = toeplitz.T @ (other - ratio)
    d = float((ratio + other).sum())
    matrix -= np.outer(v, v / d)
    level = float(np.abs(np.diagonal(matrix)).mean())
    matrix += 0.1 * level / n  # the direction of a changing sum, which the constraint removes below
    missing = 1 - mu * (1 / s + 1 / r).sum()
    right = -toeplitz.T @ (mu / s - mu / r) + v * (missing / d)
    diagonal = np.diagonal(matrix).copy()
    while True:
        np.fill_diagonal(matrix, diagonal + shift)
        try:
            factor = linalg.cho_factor(matrix, lower=True, check_finite=False)
            break
        except linalg.LinAlgError:
            shift = max(4 * shift, 1e-10 * level)
    free, ones = linalg.cho_solve(factor, np.column_stack([right, np.ones(n)]), check_finite=False).T
    dx = free - ones * (free.sum() / ones.sum())
    return dx, -(missing + float(v @ dx)) / d, shift / 3


def _step(z: Array, dz: Array, bend: Array, t: float, dt: float, mu: float, slope: float) -> float:
    """The first of 1, 0.6, 0.36, ... that keeps all slacks positive and lowers the barrier; 0 if none does."""
    start = t - mu * (np.log(t - z) + np.log(t + z)).sum()
    step = 1.0
    for _ in range(60):
        new = z + step * dz + step**2 * bend
        level = t + step * dt
        s, r = level - new, level + new
        if (s > INNER * (t - z)).all() and (r > INNER * (t + z)).all():
            if level - mu * (np.log(s) + np.log(r)).sum() <= start + 1e-4 * step * slope:
                return step
        step *= 0.6
    return 0.0


def _multipliers(p: Array, s: Array, ds: Array, mu: float) -> Array:
    """The multipliers after as much of their Newton step as keeps them positive."""
    dp = mu / s - p - p / s * ds
    falling = dp < 0
    step = min(1.0, 0.995 * float((-p[falling] / dp[falling]).min(initial=np.inf)))
    return p + step * dp


def _near(p: Array, central: Array) -> Array:
    """Multipliers that have lost touch with the slacks are brought back to where mu wants them, to a factor of 10^8."""
    return np.clip(p, 1e-8 * central, 1e8 * central)


def _convolve(a: Array, b: Array) -> Array:
    size = fft.next_fast_len(2 * len(a) - 1, real=True)
    return np.asarray(fft.irfft(fft.rfft(a, size) * fft.rfft(b, size), size)[: 2 * len(a) - 1])
