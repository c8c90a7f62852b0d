"""What a dream's selection is worth on fresh worlds: regressions without the current policy, and the winner's curse.

A version's replayed value is its mean V on the history that it was selected on. Its fresh value is its mean V on
fresh draws, which is what live runs of it would give (:mod:`dreamrsi.worlds`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dreamrsi import worlds
from dreamrsi.developers import Version
from dreamrsi.dream import dream
from dreamrsi.experiments import SAME, Campaign
from dreamrsi.intervals import Interval, interval, spread_of
from dreamrsi.objective import score, select
from dreamrsi.policy_file import starting_policy
from dreamrsi.replay import replay
from dreamrsi.robustness import wilson
from dreamrsi.schedule_search import ScheduleSearch
from dreamrsi.sweep import spread
from dreamrsi.synthetic import BETA1, BETA2
from dreamrsi.tree import Tree

SIZES = (1, 2, 4, 8, 16, 32)
FRESH_SEED = 3_000_000


def fresh_value(version: Version, trees: Sequence[Tree], beta1: float = BETA1, beta2: float = BETA2) -> float:
    """Mean V of a version's live runs on full trees; -inf for one that failed on its history."""
    if version.value == -math.inf:
        return -math.inf
    policy = worlds.in_process(version.source)
    found = [score(replay(policy, t, t.header.width or 1), beta1=beta1, beta2=beta2) for t in trees]
    return math.fsum(found) / len(found)


def without_current(versions: Sequence[Version]) -> Version:
    """What would have been selected were the current policy, version 0, no candidate."""
    return max(versions[1:], key=lambda version: (version.value, -version.number))


def regressions(campaigns: Sequence[Campaign], fresh: int = 50, *, n_jobs: int = -1) -> pd.DataFrame:
    """Judge every dream of synthetic campaigns on fresh draws of the round that it was made for.

    The fresh trees have that round's root and are drawn from other seeds, so what is compared is what the choice is
    worth, not the luck of the round.

    Returns
    -------
    DataFrame
        One row a dream and way to select, ``with current`` or ``without``: ``setting, seed, round, way``;
        ``replayed`` and ``fresh``, by how much what was selected has a higher value than the current policy, on the
        history and on fresh draws.
    """
    chunks = [(campaign, fresh) for campaign in campaigns if any(dreamt is not None for dreamt in campaign.dreams)]
    return pd.DataFrame([row for part in spread(_judged, chunks, n_jobs=n_jobs) for row in part])


def _judged(campaign: Campaign, fresh: int) -> list[dict[str, Any]]:
    rows = []
    for number, (tree, dreamt) in enumerate(zip(campaign.trees, campaign.dreams, strict=True)):
        if dreamt is None:
            continue
        drawn = _fresh(campaign.setting, campaign.seed * 1000 + number, fresh, tree.root or 0.0)
        known: dict[str, float] = {}
        for way, chosen in (("with current", dreamt.selected), ("without", without_current(dreamt.versions))):
            for version in (dreamt.current, chosen):
                if version.sha256 not in known:
                    known[version.sha256] = fresh_value(version, drawn)
            gains = chosen.value - dreamt.current.value, known[chosen.sha256] - known[dreamt.current.sha256]
            about = {"setting": campaign.setting, "seed": campaign.seed, "round": number + 1, "way": way}
            rows.append(about | {"replayed": gains[0], "fresh": gains[1]})
    return rows


def regression_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """How often a selection fell behind the current policy: one row a way, with 95 % Wilson intervals.

    ``way, dreams``; ``replayed`` and ``fresh``, the share of dreams in which the selected one has the lower value
    there, with ``_low`` and ``_high``; ``worst``, the largest fall on fresh draws; ``mean``, the mean change there.
    """
    found = []
    for way, group in rows.groupby("way", sort=False):
        row: dict[str, Any] = {"way": way, "dreams": len(group)}
        for column in ("replayed", "fresh"):
            fell = int((group[column] < -SAME).sum())
            row |= spread_of(column, Interval(fell / len(group), *wilson(fell, len(group))))
        row |= {"worst": min(0.0, group.fresh.min()), "mean": group.fresh.mean()}
        found.append(row)
    return pd.DataFrame(found)


def curse(
    repeats: int,
    names: Sequence[str] = worlds.NAMES,
    *,
    history: int = 3,
    sizes: Sequence[int] = SIZES,
    fresh: int = 50,
    first_seed: int = 0,
    n_jobs: int = -1,
) -> pd.DataFrame:
    """Select among the first M versions of one dream, for several M, and look at the selected one on fresh draws.

    A dream of fewer versions is the beginning of a longer one, so one dream answers for every M. The history is
    recorded by parallel refine from the same root as the fresh draws, so that nothing but the selection separates the
    two values.

    Returns
    -------
    DataFrame
        One row a world, repeat and M: ``world, repeat, versions``, ``replayed`` and ``fresh`` value of the selected
        version, and ``gap``, the first minus the second.
    """
    chunks = [(name, first_seed + n, history, tuple(sizes), fresh) for name in names for n in range(repeats)]
    return pd.DataFrame([row for part in spread(_cursed, chunks, n_jobs=n_jobs) for row in part])


def _cursed(name: str, seed: int, history: int, sizes: Sequence[int], fresh: int) -> list[dict[str, Any]]:
    current = starting_policy("parallel_refine")
    policy = worlds.in_process(current.source)
    trees = [worlds.live(policy, worlds.world(name, 4_000_000 + seed, number)) for number in range(history)]
    with tempfile.TemporaryDirectory() as folder:
        dreamt = dream(
            trees,
            current.source,
            ScheduleSearch(),
            versions=max(sizes),
            beta1=BETA1,
            beta2=BETA2,
            width=worlds.BRANCHES,
            seed=seed,
            folder=Path(folder),
            current_notes=current.notes,
            confirm=False,  # the versions are this package's own template, which remembers nothing
        )
    drawn = _fresh(name, seed, fresh, 0.0)
    rows = []
    for size in sizes:
        values = {str(version.number): version.value for version in dreamt.versions[:size]}
        chosen = dreamt.versions[int(select(values, "0"))]
        found = fresh_value(chosen, drawn)
        about = {"world": name, "repeat": seed, "versions": size}
        rows.append(about | {"replayed": chosen.value, "fresh": found, "gap": chosen.value - found})
    return rows


def curse_means(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Means of :func:`curse` over worlds and repeats, one row an M, with 95 % intervals stratified by world."""
    found = []
    for size, group in rows.groupby("versions"):
        row: dict[str, Any] = {"versions": size}
        for column in ("replayed", "fresh", "gap"):
            values = group.pivot(index="repeat", columns="world", values=column)
            row |= spread_of(column, interval(values, rng))
        found.append(row)
    return pd.DataFrame(found)


def _fresh(name: str, seed: int, count: int, root: float) -> list[Tree]:
    return [worlds.world(name, FRESH_SEED + seed, number, root=root) for number in range(count)]
