"""Fixed exploration against dreaming: campaigns of many seeds, and what they say at equal rounds and at equal calls.

A campaign is the recursion on one task or synthetic world with one seed. The fixed arm's calls are the budget; the
dreaming arm goes on with further rounds until it has spent as many. The rules of the synthetic worlds are in
``synthetic/README.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dreamrsi.errors import UserError
from dreamrsi.intervals import difference, interval, spread_of
from dreamrsi.tables import text
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    from dreamrsi.dream import Dream

Floats = NDArray[np.float64]
SAME = 1e-9
"""Scores closer than this are equal: rounding is no progress."""
ALL = "all"


@dataclass(frozen=True)
class Campaign:
    """One recursion: the trees of its rounds in order, and the dreams before them (None where there was none)."""

    setting: str
    arm: str
    seed: int
    trees: tuple[Tree, ...]
    dreams: tuple[Dream | None, ...] = ()

    @property
    def calls(self) -> int:
        """Attempts of all rounds."""
        return sum(map(len, self.trees))


def progress(campaign: Campaign) -> Floats:
    """The best score after 0, 1, ... calls, the starting root's included; shape (calls + 1,), NaN for none."""
    root = campaign.trees[0].root
    scores = [attempt.score for tree in campaign.trees for attempt in tree]
    values = [math.nan if score is None else score for score in (root, *scores)]
    return np.asarray(np.fmax.accumulate(np.array(values, dtype=float)))


def by_round(campaigns: Sequence[Campaign]) -> pd.DataFrame:
    """One row a campaign and round.

    ``setting, arm, seed, round`` (from 1), ``attempts`` of the round, ``calls`` up to its end, ``round_best`` (of its
    attempts alone) and ``best`` (so far, the root included).
    """
    rows = []
    for campaign in campaigns:
        so_far, calls = progress(campaign), 0
        for number, tree in enumerate(campaign.trees, 1):
            calls += len(tree)
            scores = [attempt.score for attempt in tree if attempt.score is not None]
            rows.append(
                {
                    "setting": campaign.setting,
                    "arm": campaign.arm,
                    "seed": campaign.seed,
                    "round": number,
                    "attempts": len(tree),
                    "calls": calls,
                    "round_best": max(scores, default=math.nan),
                    "best": so_far[calls],
                }
            )
    return pd.DataFrame(rows)


def pairs(campaigns: Sequence[Campaign], treated: str = "dream", control: str = "fixed") -> pd.DataFrame:
    """Two arms side by side, one row a setting and seed.

    Returns
    -------
    DataFrame
        ``setting, seed``; ``budget``, the control's calls, and ``control``, its final best; ``equal_rounds``, what
        the treated arm had after as many rounds, and ``calls``, what that cost; ``equal_calls``, what it had when the
        budget was spent, and ``spent``, less than the budget where it ended before; ``control_reach`` and ``reach``,
        the calls after which each had the control's final best, the latter NaN (censored) if not within the budget.

    Raises
    ------
    UserError
        A campaign without its partner, or two of one setting, arm and seed.
    """
    found: dict[tuple[str, int], dict[str, Campaign]] = {}
    for campaign in campaigns:
        arms = found.setdefault((campaign.setting, campaign.seed), {})
        if campaign.arm in arms:
            raise UserError(f"{campaign.setting}, seed {campaign.seed}: two campaigns of the arm {campaign.arm}")
        arms[campaign.arm] = campaign
    rows = []
    for (setting, seed), arms in found.items():
        if control not in arms or treated not in arms:
            raise UserError(f"{setting}, seed {seed}: has {', '.join(arms)}; {control} and {treated} are compared")
        base, other = progress(arms[control]), progress(arms[treated])
        budget, final = len(base) - 1, base[-1]
        calls = sum(len(tree) for tree in arms[treated].trees[: len(arms[control].trees)])
        spent = min(budget, len(other) - 1)
        reach = _reach(other, final)
        rows.append(
            {
                "setting": setting,
                "seed": seed,
                "budget": budget,
                "control": final,
                "equal_rounds": other[calls],
                "calls": calls,
                "equal_calls": other[spent],
                "spent": spent,
                "control_reach": _reach(base, final),
                "reach": reach if reach <= budget else math.nan,
            }
        )
    return pd.DataFrame(rows)


def _reach(best: Floats, target: float) -> float:
    """The first call after which the best is there; NaN if it never is."""
    there = np.flatnonzero(best >= target - SAME)
    return float(there[0]) if len(there) else math.nan


def versus(found: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """What :func:`pairs` says, one row a setting and one over all, settings being strata.

    Returns
    -------
    DataFrame
        ``setting, runs, control`` (mean final best); then, each with its 95 % bootstrap interval in ``_low`` and
        ``_high``, ``equal_rounds`` and ``equal_calls`` (treated minus control, paired), ``cost`` (the treated arm's
        calls at equal rounds, as a share of the budget), ``control_reach`` and ``reach`` (calls to the control's
        final best, as a share of the budget, a censored run counting as 1); ``reached`` (runs that got there within
        the budget); ``better``, ``same`` and ``worse`` (runs at equal calls).
    """
    rows = []
    settings = list(dict.fromkeys(found.setting))
    for name in [*settings, *([ALL] if len(settings) > 1 else [])]:
        mine = found if name == ALL else found[found.setting == name]
        gain = mine.equal_calls - mine.control
        row: dict[str, Any] = {"setting": name, "runs": len(mine), "control": mine.control.mean()}
        control = _strata(mine, "control")
        row |= spread_of("equal_rounds", difference(_strata(mine, "equal_rounds"), control, rng))
        row |= spread_of("equal_calls", difference(_strata(mine, "equal_calls"), control, rng))
        shares = pd.DataFrame(
            {
                "setting": mine.setting,
                "seed": mine.seed,
                "cost": mine.calls / mine.budget,
                "control_reach": mine.control_reach / mine.budget,
                "reach": (mine.reach / mine.budget).fillna(1.0),
            }
        )
        for column in ("cost", "control_reach", "reach"):
            row |= spread_of(column, interval(_strata(shares, column), rng))
        row |= {"reached": int(mine.reach.notna().sum()), "better": int((gain > SAME).sum())}
        row |= {"same": int((gain.abs() <= SAME).sum()), "worse": int((gain < -SAME).sum())}
        rows.append(row)
    return pd.DataFrame(rows)


CONTRASTS = (("dream", "fixed"), ("fixed early stop", "fixed"), ("dream", "fixed early stop"))
"""Which arm is held against which: the last one asks what dreaming adds to a fixed policy that saves calls too."""


START_CONTRASTS = (*CONTRASTS, ("dream early stop", "fixed early stop"))
"""The same, and what dreaming adds where it begins with that fixed policy."""


def contrasts(
    campaigns: Sequence[Campaign], rng: np.random.Generator, arms: Sequence[tuple[str, str]] = CONTRASTS
) -> pd.DataFrame:
    """Tables of :func:`versus` for several pairs of arms, below each other; ``arm`` and ``against`` say which."""
    tables = []
    for treated, control in arms:
        mine = [campaign for campaign in campaigns if campaign.arm in (treated, control)]
        table = versus(pairs(mine, treated, control), rng)
        table.insert(0, "against", control)
        table.insert(0, "arm", treated)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _strata(found: pd.DataFrame, column: str) -> Floats:
    """A column as an array of shape (seeds, settings)."""
    table = found.pivot(index="seed", columns="setting", values=column)
    if table.isna().any().any():
        raise UserError(f"{column}: every setting needs the same seeds, and a number for each")
    return np.asarray(table.to_numpy())


def cell(row: Any, column: str, digits: int = 3) -> str:
    """A value of a table's row with its interval, ``value [low, high]``; without one where its ends are NaN."""
    value, low, high = (float(row[column + end]) for end in ("", "_low", "_high"))
    if math.isnan(low) and math.isnan(high):
        return f"{text(value, digits)} (one repeat)"
    return f"{text(value, digits)} [{text(low, digits)}, {text(high, digits)}]"


def readable(table: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """The same with every value and its interval in one cell."""
    shown = table.copy()
    for name in [c.removesuffix("_low") for c in table.columns if c.endswith("_low")]:
        shown[name] = [cell(row, name, digits) for _, row in table.iterrows()]
        shown = shown.drop(columns=[f"{name}_low", f"{name}_high"])
    return shown


def curves(campaigns: Sequence[Campaign], rng: np.random.Generator, points: int = 120) -> pd.DataFrame:
    """The mean best so far against calls, over the seeds: one row a setting, arm and number of calls.

    A campaign that ended keeps its last best up to the largest budget of its setting's fixed arms (of all arms, if
    none is fixed). ``low`` and ``high`` are the ends of a 95 % bootstrap interval at that point alone.
    """
    rows = []
    groups: dict[tuple[str, str], list[Campaign]] = {}
    for campaign in campaigns:
        groups.setdefault((campaign.setting, campaign.arm), []).append(campaign)
    for (setting, arm), mine in groups.items():
        peers = [c for (s, a), group in groups.items() if s == setting for c in group]
        fixed = [c.calls for c in peers if c.arm == "fixed"] or [c.calls for c in peers]
        grid = np.unique(np.linspace(0, max(fixed), points).round().astype(int))
        values = np.array([_held(progress(c), grid) for c in mine])
        for calls, column in zip(grid.tolist(), values.T, strict=True):
            if np.isfinite(column).all():
                mean, low, high = interval(column, rng, resamples=500)
                rows.append({"setting": setting, "arm": arm, "calls": calls, "best": mean, "low": low, "high": high})
    return pd.DataFrame(rows)


def _held(best: Floats, calls: NDArray[np.int64]) -> Floats:
    return np.asarray(best[np.minimum(calls, len(best) - 1)])


def pace(campaigns: Sequence[Campaign], rng: np.random.Generator) -> pd.DataFrame:
    """Effort and best round by round: means over the seeds, for the rounds that every seed of a setting and arm has.

    ``setting, arm, round``, then ``attempts``, ``round_best`` and ``best``, each with ``_low`` and ``_high``.
    """
    rows = []
    table = by_round(campaigns)
    for (setting, arm), group in table.groupby(["setting", "arm"], sort=False):
        seeds = group.seed.nunique()
        for number, mine in group.groupby("round"):
            if len(mine) == seeds:
                row: dict[str, Any] = {"setting": setting, "arm": arm, "round": number}
                for column in ("attempts", "round_best", "best"):
                    row |= spread_of(column, interval(mine[column], rng))
                rows.append(row)
    return pd.DataFrame(rows)
