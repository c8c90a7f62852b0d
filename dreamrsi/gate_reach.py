"""Which policies survive a sweep of (beta1, beta2); and are real trees kinder to narrow policies than drawn ones?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dreamrsi import policies as builtin
from dreamrsi import synthetic
from dreamrsi.coverage import coverage
from dreamrsi.fidelity import random_schedules
from dreamrsi.gate_experiments import NARROW, parts
from dreamrsi.intervals import Interval, interval, spread_of
from dreamrsi.objective import outcome, score_map
from dreamrsi.policies import Policy
from dreamrsi.replay import Episode, replay, replay_all
from dreamrsi.robustness import wilson
from dreamrsi.suite import LAST
from dreamrsi.sweep import spread
from dreamrsi.synthetic import BETA1, BETA2
from dreamrsi.tree import Tree

FACTORS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
"""How far the neighbourhood goes: from beta/f to f times beta. The gate declares 2."""

CURRENT = "parallel_refine"
SWEPT = (
    *builtin.ARTICLE[1:],
    NARROW,
    "early_stop:width=4,bootstrap=4",
    *(f"early_stop:strikes={strikes}" for strikes in (1, 3, 4, 6)),
    "portfolio",
    "random:seed=0",
)
SCHEDULES = 12


def swept_policies(schedules: int = SCHEDULES) -> list[Policy]:
    """The built-in policies of :data:`SWEPT`, and random schedules of the developer's template."""
    return [*map(builtin.make, SWEPT), *random_schedules(schedules, np.random.default_rng(9))]


def family(policy: str) -> str:
    """The family of a policy: what is before its parameters; one frozen at a width is a family of its own."""
    name, _, parameters = policy.partition(":")
    return f"{name}, narrow" if "width=" in parameters else name


def beta_survival(
    seeds: Sequence[int],
    factors: Sequence[float] = FACTORS,
    *,
    schedules: int = SCHEDULES,
    noises: Sequence[float] = (0.0, 0.05),
    n_jobs: int = -1,
) -> pd.DataFrame:
    """Sweep the policies against parallel refine over fresh corpora of the article's kind, as the gate's rule does.

    Returns
    -------
    DataFrame
        One row a noise, policy and corpus: ``noise, policy, family, seed``; ``survives 1``, ``survives 1.5``, ...:
        whether it wins, or ties within the margin beta1, at every setting from beta/f to f times beta; ``covered``:
        whether it reaches the winner of each of the last three trees.
    """
    chunks = [(part.tolist(), tuple(factors), schedules, noise) for noise in noises for part in parts(seeds)]
    return pd.DataFrame([row for rows in spread(_swept_chunk, chunks, n_jobs=n_jobs) for row in rows])


def _swept_chunk(seeds: list[int], factors: tuple[float, ...], schedules: int, noise: float) -> list[dict[str, Any]]:
    pool = [builtin.make(CURRENT), *swept_policies(schedules)]
    rows = []
    for seed in seeds:
        trees = synthetic.corpus(seed, noise=noise)
        episodes = replay_all(pool, trees, synthetic.WIDTH, synthetic.MAX_ROUNDS)
        worst = {factor: _worst(episodes, factor) for factor in factors}
        for name in list(episodes)[1:]:
            row: dict[str, Any] = {"noise": noise, "policy": name, "family": family(name), "seed": seed}
            row |= {f"survives {factor:g}": worst[factor][name] >= -BETA1 for factor in factors}
            rows.append(row | {"covered": _covered(trees, episodes[name])})
    return rows


def _worst(episodes: Mapping[str, Sequence[Episode]], factor: float) -> dict[str, float]:
    """How far each policy is ahead of the first one where that is least. V is linear, so the corners are enough."""
    ends = [1 / factor, factor] if factor > 1 else [1.0]
    found = score_map(episodes, [BETA1 * end for end in ends], [BETA2 * end for end in ends])
    ahead = (found.values - found.values[0]).min(axis=(1, 2))
    return dict(zip(found.names, ahead.tolist(), strict=True))


def _covered(trees: Sequence[Tree], episodes: Sequence[Episode]) -> bool:
    last = zip(trees[-LAST:], episodes[-LAST:], strict=True)
    return not any(row.missed for tree, episode in last for row in coverage(tree, episode))


def survivors(rows: pd.DataFrame, by: str = "policy") -> pd.DataFrame:
    """Shares of :func:`beta_survival` over corpora, a row a noise and policy (or family, pooled), with 95 % intervals.

    They are Wilson's with a trial a corpus. Members of a family share the corpora, so theirs is on the safe side.
    """
    found = []
    events = [column for column in rows if str(column).startswith("survives ") or column == "covered"]
    for (noise, key), group in rows.groupby(["noise", by], sort=False):
        row: dict[str, Any] = {
            "noise": noise,
            by: key,
            "policies": group.policy.nunique(),
            "corpora": group.seed.nunique(),
        }
        for event in events:
            share = float(group[event].mean())
            row |= spread_of(event, Interval(share, *wilson(round(share * row["corpora"]), row["corpora"])))
        found.append(row)
    table = (
        pd.DataFrame(found)
        .assign(rank=lambda t: t[events[:-1]].sum(axis=1))
        .sort_values("rank", ascending=False, kind="stable")
    )
    return table.drop(columns="rank").sort_values("noise", kind="stable", ignore_index=True)


# at narrow width, real trees and synthetic ones

NARROWED = ("parallel_refine", "early_stop")


def at_width(
    trees: Sequence[Tree], source: str, widths: Sequence[int] = range(1, 9), policies: Sequence[str] = NARROWED
) -> pd.DataFrame:
    """Replay policies frozen at every width on full trees: a row a policy, width and tree.

    ``hit``: the best recorded score was revealed; ``unopened``: it was not, and no branch that holds it was opened;
    ``attainment``: the share of the way from the root to it.
    """
    rows = []
    for name in policies:
        for width in widths:
            for tree in trees:
                seen = outcome(replay(builtin.make(name), tree, width), tree)
                row = {"source": source, "policy": name, "width": width, "tree": tree.name, "hit": seen.hit}
                rows.append(row | {"unopened": not seen.hit and not seen.opened, "attainment": seen.attainment})
    return pd.DataFrame(rows)


def width_shares(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Means of :func:`at_width` over the trees: a row a source, policy and width.

    ``hit`` and ``unopened`` with Wilson intervals, ``attainment`` with a bootstrap interval over the trees, all 95 %.
    From a single tree none is known: its intervals are its value.
    """
    found = []
    for (source, policy, width), group in rows.groupby(["source", "policy", "width"], sort=False):
        row: dict[str, Any] = {"source": source, "policy": policy, "width": width, "trees": len(group)}
        for event in ("hit", "unopened"):
            times = int(group[event].sum())
            ends = wilson(times, len(group)) if len(group) > 1 else (float(times), float(times))
            row |= spread_of(event, Interval(times / len(group), *ends))
        found.append(row | spread_of("attainment", interval(group.attainment, rng)))
    return pd.DataFrame(found)
