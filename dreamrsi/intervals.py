"""Stratified bootstrap intervals: runs are resampled within each task, with random numbers that the caller passes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamrsi.errors import UserError

Floats = NDArray[np.float64]
Statistic = Literal["mean", "iqm"]


class Interval(NamedTuple):
    """A statistic of the data with the ends of its interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def spread_of(name: str, found: Interval) -> dict[str, float]:
    """The columns of a value with its interval: ``name``, ``name_low`` and ``name_high``."""
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


def interval(
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    statistic: Statistic = "mean",
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of a statistic over all runs and strata.

    Every resample draws, in each stratum on its own, as many runs as there are, with replacement (Agarwal et al., "Deep
    Reinforcement Learning at the Edge of the Statistical Precipice", 2021).

    Parameters
    ----------
    values : shape (runs, strata), a stratum being a task or a family; shape (runs,) is one stratum.
    rng : equal generators give equal intervals.
    statistic : the mean, or the interquartile mean, which leaves out the lowest and the highest quarter of all values.

    Raises
    ------
    UserError
        Nothing to resample, or a value that is not finite.
    """
    array = _runs("values", values)
    runs, strata = array.shape
    drawn = rng.integers(runs, size=(resamples, runs, strata))
    found = _statistic(array[drawn, np.arange(strata)].reshape(resamples, -1), statistic)
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Interval(float(_statistic(array.reshape(1, -1), statistic)[0]), float(low), float(high))


def difference(
    treated: ArrayLike, control: ArrayLike, rng: np.random.Generator, *, statistic: Statistic = "mean"
) -> Interval:
    """Interval of ``treated - control`` where run i of one goes with run i of the other: pairs are resampled.

    Both have shape (runs, strata) or (runs,).
    """
    a, b = _runs("treated", treated), _runs("control", control)
    if a.shape != b.shape:
        raise UserError(f"pairs need as many treated as control runs; got shapes {a.shape} and {b.shape}")
    return interval(a - b, rng, statistic=statistic)


def _statistic(rows: Floats, statistic: Statistic) -> Floats:
    """The statistic of every row."""
    if statistic == "mean":
        return np.asarray(rows.mean(axis=1))
    if statistic != "iqm":
        raise UserError(f"there is no statistic {statistic!r}; choose mean or iqm")
    cut = rows.shape[1] // 4
    return np.asarray(np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1))


def _runs(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise UserError(
            f"{name} must be finite numbers of shape (runs, strata) with at least one run; got {array.shape}"
        )
    return array
