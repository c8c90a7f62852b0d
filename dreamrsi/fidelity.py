"""Does replay rank policies as fresh live runs do? Values on recorded trees against values on fresh worlds.

A fresh live run of a policy is a replay on the full tree of a fresh draw (:mod:`dreamrsi.worlds`). That holds for
real tasks too where an attempt depends on its place, the seed and its parent alone, as under the offline agent: one
full tree a seed then answers for every policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from dreamrsi import policies as builtin
from dreamrsi import worlds
from dreamrsi.compare import build
from dreamrsi.errors import UserError
from dreamrsi.intervals import Interval, interval, spread_of
from dreamrsi.live import live_run
from dreamrsi.objective import score
from dreamrsi.policies import Policy
from dreamrsi.replay import replay_all
from dreamrsi.schedule import Order, Schedule, source
from dreamrsi.tree import Tree

Floats = NDArray[np.float64]
Pool = tuple[Sequence[Tree], Sequence[Tree]]
"""The full trees of one repeat: those whose records make the history, and the fresh ones."""

IN_SUPPORT = "full width"
RECORDERS: dict[str, str] = {
    IN_SUPPORT: "parallel_refine",
    "narrow": "parallel_refine:width=4,bootstrap=4",
    "early stop": "early_stop",
}
"""What recorded the history: everything, four branches only, and what two strikes left."""

POLICIES = (
    *(f"parallel_refine:width={w},bootstrap={w}" for w in (2, 4, 6, 8)),
    "parallel_refine",
    *(f"early_stop:strikes={s}" for s in (1, 3, 4, 6)),
    "early_stop",
    *(f"early_stop:strikes={s},width={w}" for s in (1, 2, 4) for w in (3, 5)),
    "greedy_best",
    "greedy_best:bootstrap=3",
    "adaptive",
    "portfolio",
    "semantic_guidance",
    *(f"random:seed={s}" for s in range(4)),
)
"""The built-in policies that are ranked, at several parameters."""


ORDERS: tuple[Order, ...] = get_args(Order)


def random_schedules(count: int, rng: np.random.Generator) -> list[Policy]:
    """Policies of the template (:mod:`dreamrsi.schedule`) with random parameters, each rule on or off."""

    def some(value: tuple[Any, Any], chance: float = 0.5) -> Any:
        return value if rng.random() < chance else None

    found = []
    for number in range(count):
        share, strikes, quiet = (float(rng.uniform(0.2, 1.0)), int(rng.integers(1, 7)), int(rng.integers(1, 7)))
        schedule = Schedule(
            bootstrap=(share, share),
            width=some((share, share)) or (1.0, 1.0),
            order=ORDERS[rng.integers(len(ORDERS))],
            strikes=some((strikes, strikes)),
            reopen=some((share, share)),
            quiet=some((quiet, quiet)),
        )
        found.append(worlds.in_process(source(schedule, f"schedule:number={number}")))
    return found


def values(policies: Sequence[Policy], trees: Sequence[Tree], beta1: float, beta2: float) -> Floats:
    """V of every policy on every tree at the tree's width, shape (policies, trees); -inf where a policy failed."""
    episodes = replay_all(policies, trees, width=None)
    return np.array([[score(e, beta1=beta1, beta2=beta2) for e in row] for row in episodes.values()])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's, with mean ranks for ties; 0 where one side ranks nothing, since it then says nothing."""
    x, y = (rankdata(side) - (len(side) + 1) / 2 for side in (a, b))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale else 0.0


def drawn_pools(name: str, repeats: int, history: int = 8, fresh: int = 100, first_seed: int = 0) -> Iterator[Pool]:
    """Pools from a synthetic world, every tree of its own draw and from the same root."""
    for repeat in range(first_seed, first_seed + repeats):
        yield (
            [worlds.world(name, 1_000_000 + repeat, number) for number in range(history)],
            [worlds.world(name, 2_000_000 + repeat, number) for number in range(fresh)],
        )


def split_pools(trees: Sequence[Tree], repeats: int, history: int, rng: np.random.Generator) -> Iterator[Pool]:
    """Pools from a fixed set of full trees: the history is drawn from them, the rest is fresh.

    The repeats share trees, so an interval over them says how far the answer depends on the split, and no more.
    """
    if not 0 < history < len(trees):
        raise UserError(f"a history of {history} out of {len(trees)} trees leaves nothing on one side")
    for _ in range(repeats):
        order = rng.permutation(len(trees))
        yield [trees[i] for i in order[:history]], [trees[i] for i in order[history:]]


def full_trees(
    task: str, seeds: Sequence[int], out: Path, *, branches: int, steps: int, workers: int | None = None
) -> list[Tree]:
    """Record a full tree of a real task for every seed, by parallel refine at full width in ``out/seed-N``.

    A call with the same settings goes on where an earlier one ended.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in seeds:
        tree = live_run(
            task,
            builtin.ParallelRefine(),
            out / f"seed-{seed}",
            width=branches,
            branches=branches,
            steps=steps,
            seed=seed,
            workers=workers,
        )
        tree.name = f"{task}, seed {seed}"
        found.append(tree)
    return found


def fidelity(
    pools: Iterator[Pool] | Sequence[Pool],
    policies: Sequence[Policy | str] = POLICIES,
    *,
    beta1: float,
    beta2: float,
    sizes: Sequence[int] = (1, 2, 4, 8),
    recorders: Mapping[str, str] = RECORDERS,
) -> pd.DataFrame:
    """Rank the policies by replay on recorded trees and by live runs on fresh ones.

    Parameters
    ----------
    pools : one a repeat.
    policies : what is ranked; 20 to 30 make a rank correlation mean something.
    beta1, beta2 : of Eq. 1.
    sizes : numbers of history trees, at most as many as a pool has.
    recorders : label -> policy that records the history; every one records the same draws.

    Returns
    -------
    DataFrame
        One row a recorder, size and repeat: ``correlation`` (Spearman's, over the policies), ``bias`` (mean of replayed
        minus fresh value), ``regret`` (what the best policy on fresh trees has over the one that replay ranks first).
    """
    chosen = build(policies)
    rows = []
    for repeat, (history, fresh) in enumerate(pools):
        truth = values(chosen, fresh, beta1, beta2).mean(axis=1)
        for recorder, recording in recorders.items():
            seen = values(chosen, [worlds.live(builtin.make(recording), full) for full in history], beta1, beta2)
            for size in sizes:
                if size > len(history):
                    raise UserError(f"a history of {size} trees was asked for; the pool has {len(history)}")
                found = seen[:, :size].mean(axis=1)
                rows.append(
                    {
                        "recorder": recorder,
                        "trees": size,
                        "repeat": repeat,
                        "correlation": rank_correlation(found, truth),
                        "bias": float((found - truth).mean()),
                        "regret": float(truth.max() - truth[int(found.argmax())]),
                    }
                )
    if not rows:
        raise UserError("there are no pools; give at least one")
    return pd.DataFrame(rows)


def summary(rows: pd.DataFrame, rng: np.random.Generator, by: Sequence[str] = ("recorder", "trees")) -> pd.DataFrame:
    """Means of :func:`fidelity` over the repeats with 95 % bootstrap intervals: one row a group.

    Where the rows have a ``world``, it is a stratum, unless it is one of the groups. The ends are NaN where there is
    one repeat: it says nothing of how far another would be.
    """
    found = []
    for key, group in rows.groupby(list(by), sort=False):
        row: dict[str, object] = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        for column in ("correlation", "bias", "regret"):
            strata = group.pivot_table(column, "repeat", "world") if "world" in group else group[[column]]
            spread = interval(strata.to_numpy(), rng)
            row |= spread_of(column, spread if len(strata) > 1 else Interval(spread.estimate, math.nan, math.nan))
        found.append(row)
    return pd.DataFrame(found)
