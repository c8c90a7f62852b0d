"""A corpus at one seed proves little: how often each row of the study's table holds over fresh corpora."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import joblib
import numpy as np
import pandas as pd

from dreamrsi import policies as builtin
from dreamrsi import synthetic
from dreamrsi.objective import Outcome, outcome
from dreamrsi.replay import replay_all
from dreamrsi.tree import Tree

NOISES = (0.0, 0.01, 0.02, 0.05, 0.1)
MIXES: tuple[Literal["article", "free"], ...] = ("article", "free")
FIRST_SEED = 10_000
POLICIES = (*builtin.ARTICLE, "parallel_refine:width=4,bootstrap=4", "early_stop:width=4,bootstrap=4")

Test = Callable[[dict[str, list[Outcome]], list[Tree]], bool]
ROWS: dict[str, Test] = {
    "parallel refine hits all": lambda r, _: _hits(r["parallel_refine"]),
    "early stop hits all": lambda r, _: _hits(r["early_stop"]),
    "greedy best hits all": lambda r, _: _hits(r["greedy_best"]),
    "guidance hits early peaks only": lambda r, t: _only(
        r["semantic_guidance"], [_family(x) == "early_peak" for x in t]
    ),
    "refine at width 4 hits branches 0-3 only": lambda r, t: _only(
        r["parallel_refine:width=4,bootstrap=4"], [_winner(x) < 4 for x in t]
    ),
    "its misses are on branches never opened": lambda r, _: (
        not any(x.opened and not x.hit for x in r["parallel_refine:width=4,bootstrap=4"])
    ),
    "early stop at width 4 hits all": lambda r, _: _hits(r["early_stop:width=4,bootstrap=4"]),
    "early stop at width 4 hits what it hits at 8": lambda r, _: (
        [x.hit for x in r["early_stop:width=4,bootstrap=4"]] == [x.hit for x in r["early_stop"]]
    ),
    "early stop dominates greedy at any betas": lambda r, _: _dominates(r["early_stop"], r["greedy_best"]),
    "early stop is selected": lambda r, _: _selected(r) == "early_stop",
}
"""What is asked of a corpus: name -> predicate of (policy -> outcomes, trees)."""


def survey(
    corpora: int = 200,
    noises: Sequence[float] = NOISES,
    mixes: Sequence[Literal["article", "free"]] = MIXES,
    *,
    first_seed: int = FIRST_SEED,
    n_jobs: int = -1,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score fresh corpora, the same seeds at every noise and mix.

    Returns
    -------
    rows : DataFrame
        One row a mix, noise and row of :data:`ROWS`: the share of corpora in which it ``holds``, with ``low`` and
        ``high``, the 95 % Wilson interval.
    misses : DataFrame
        One row a mix, noise and policy: mean ``hits`` a corpus and mean ``attempts`` a tree with the half-width of
        their 95 % intervals, and the share of trees missed on a branch that was opened (``missed_open``) and never
        opened (``missed_unopened``).
    """
    seeds = np.arange(first_seed, first_seed + corpora)
    chunks = [(mix, noise, part.tolist()) for mix in mixes for noise in noises for part in np.array_split(seeds, 4)]
    parts = joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(_chunk)(*chunk) for chunk in chunks)
    holds = pd.DataFrame([row for part in parts for row in part[0]])
    found = pd.DataFrame([row for part in parts for row in part[1]])
    return _shares(holds), _means(found)


def _chunk(mix: Literal["article", "free"], noise: float, seeds: list[int]) -> tuple[list[dict[str, object]], ...]:
    """Score some corpora of one mix and noise."""
    holds: list[dict[str, object]] = []
    found: list[dict[str, object]] = []
    for seed in seeds:
        trees = synthetic.corpus(seed, mix="free" if mix == "free" else synthetic.ARTICLE, noise=noise)
        episodes = replay_all([builtin.make(n) for n in POLICIES], trees, synthetic.WIDTH, synthetic.MAX_ROUNDS)
        reached = {n: [outcome(e, t) for e, t in zip(row, trees, strict=True)] for n, row in episodes.items()}
        about = {"mix": mix, "noise": noise, "seed": seed}
        holds += [about | {"row": name, "holds": bool(test(reached, trees))} for name, test in ROWS.items()]
        found += [
            about
            | {
                "policy": name,
                "hits": sum(x.hit for x in rows),
                "attempts": float(np.mean([x.attempts for x in rows])),
                "missed_open": float(np.mean([x.opened and not x.hit for x in rows])),
                "missed_unopened": float(np.mean([not x.opened and not x.hit for x in rows])),
            }
            for name, rows in reached.items()
        ]
    return holds, found


def wide(rows: pd.DataFrame) -> pd.DataFrame:
    """The shares of :func:`survey` to read: one line a mix and row, one column a noise, ``share [low, high]``."""
    cell = rows.apply(lambda r: f"{r.holds:.3f} [{r.low:.3f}, {r.high:.3f}]", axis=1)
    table = rows.assign(cell=cell).pivot_table("cell", ["mix", "row"], "noise", aggfunc="first", sort=False)
    return table.rename(columns=lambda noise: f"noise {noise:g}").rename_axis(None, axis=1).reset_index()


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share."""
    z = 1.959963984540054
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def _shares(holds: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (mix, noise, name), group in holds.groupby(["mix", "noise", "row"], sort=False):
        low, high = wilson(int(group.holds.sum()), len(group))
        rows.append(
            {
                "mix": mix,
                "noise": noise,
                "row": name,
                "corpora": len(group),
                "holds": group.holds.mean(),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def _means(found: pd.DataFrame) -> pd.DataFrame:
    groups = found.groupby(["mix", "noise", "policy"], sort=False)
    half = 1.959963984540054 * groups[["hits", "attempts"]].sem()
    means = groups[["hits", "attempts", "missed_open", "missed_unopened"]].mean()
    means.insert(1, "hits_ci", half.hits)
    means.insert(3, "attempts_ci", half.attempts)
    return means.reset_index()


def _hits(rows: list[Outcome]) -> bool:
    return all(row.hit for row in rows)


def _only(rows: list[Outcome], expected: list[bool]) -> bool:
    return [row.hit for row in rows] == expected


def _dominates(better: list[Outcome], worse: list[Outcome]) -> bool:
    """No worse in all three means that Eq. 1 is made of, so no non-negative betas can turn the order round."""

    def means(rows: list[Outcome]) -> np.ndarray:
        columns = np.array([(r.quality, -r.attempts, r.attempts / max(1, r.rounds)) for r in rows])
        return np.asarray(columns.mean(axis=0))

    return bool((means(better) >= means(worse) - 1e-12).all())


def _selected(reached: dict[str, list[Outcome]]) -> str | None:
    def mean(name: str, field: str) -> float:
        return float(np.mean([getattr(row, field) for row in reached[name]]))

    def v(name: str) -> float:
        rows = reached[name]
        return float(
            np.mean(
                [
                    r.quality - synthetic.BETA1 * r.attempts + synthetic.BETA2 * r.attempts / max(1, r.rounds)
                    for r in rows
                ]
            )
        )

    quality, attempts = mean("parallel_refine", "quality"), mean("parallel_refine", "attempts")
    passing = [
        name
        for name in builtin.ARTICLE
        if mean(name, "quality") >= synthetic.MIN_QUALITY_RATIO * quality
        and mean(name, "attempts") <= synthetic.MAX_ATTEMPT_RATIO * attempts
    ]
    return max(passing, key=v, default=None)


def _family(tree: Tree) -> str:
    return tree.header.task.partition("/")[2]


def _winner(tree: Tree) -> int:
    return int(tree.header.provenance["winner"])
