"""A corpus at one seed proves little: how often each row of the study's table holds over fresh corpora."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from dreamrsi import compare, synthetic
from dreamrsi import policies as builtin
from dreamrsi.errors import UserError
from dreamrsi.objective import Outcome, outcome, value
from dreamrsi.replay import Episode, replay_all
from dreamrsi.sweep import spread
from dreamrsi.tree import Tree

NOISES = (0.0, 0.01, 0.02, 0.05, 0.1)
MIXES: tuple[Literal["article", "free"], ...] = ("article", "free")
FIRST_SEED = 10_000
CORPORA_A_CHUNK = 10  # about 0.1 s of work
NARROW_REFINE = "parallel_refine:width=4,bootstrap=4"
NARROW_STOP = "early_stop:width=4,bootstrap=4"
POLICIES = (*builtin.ARTICLE, NARROW_REFINE, NARROW_STOP)
Z = 1.959963984540054  # of the normal distribution, 95 % two-sided


@dataclass(frozen=True)
class Reached:
    """What every policy reached on one corpus: the outcomes by policy, one a tree, and the article's five compared."""

    trees: Sequence[Tree]
    outcomes: Mapping[str, Sequence[Outcome]]
    comparison: pd.DataFrame

    @classmethod
    def of(cls, episodes: Mapping[str, Sequence[Episode]], trees: Sequence[Tree]) -> Reached:
        """Judge the episodes of all of :data:`POLICIES`, one a tree."""
        found = {n: [outcome(e, t) for e, t in zip(row, trees, strict=True)] for n, row in episodes.items()}
        means = [
            (
                name,
                math.fsum(x.quality for x in found[name]) / len(trees),
                math.fsum(x.attempts for x in found[name]) / len(trees),
                value(episodes[name], beta1=synthetic.BETA1, beta2=synthetic.BETA2),
            )
            for name in builtin.ARTICLE
        ]
        rows = pd.DataFrame(means, columns=["policy", "quality", "attempts", "V"]).set_index("policy")
        return cls(trees, found, compare.go_on(rows, "parallel_refine").reset_index())


def _hits(rows: Sequence[Outcome]) -> bool:
    return all(row.hit for row in rows)


def _only(rows: Sequence[Outcome], expected: Sequence[bool]) -> bool:
    return [row.hit for row in rows] == expected


def _costs(rows: Sequence[Outcome], attempts: int, rounds: int) -> bool:
    return all((row.attempts, row.rounds) == (attempts, rounds) for row in rows)


def _dominates(better: Sequence[Outcome], worse: Sequence[Outcome]) -> bool:
    """No worse in all three means that Eq. 1 is made of, so no non-negative betas can turn the order round."""

    def means(rows: Sequence[Outcome]) -> np.ndarray:
        columns = np.array([(r.quality, -r.attempts, r.attempts / max(1, r.rounds)) for r in rows])
        return np.asarray(columns.mean(axis=0))

    return bool((means(better) >= means(worse) - 1e-12).all())


def _family(tree: Tree) -> str:
    return tree.header.task.partition("/")[2]


def _winner(tree: Tree) -> int:
    return int(tree.header.provenance["winner"])


ROWS: dict[str, Callable[[Reached], bool]] = {
    "parallel refine hits all": lambda r: _hits(r.outcomes["parallel_refine"]),
    "parallel refine: 88 attempts, 11 rounds": lambda r: _costs(r.outcomes["parallel_refine"], 88, 11),
    "early stop hits all": lambda r: _hits(r.outcomes["early_stop"]),
    "early stop: 44 attempts a tree on average": lambda r: (
        sum(x.attempts for x in r.outcomes["early_stop"]) == 44 * len(r.trees)
    ),
    "greedy best hits all": lambda r: _hits(r.outcomes["greedy_best"]),
    "greedy best: 87 attempts, 80 rounds": lambda r: _costs(r.outcomes["greedy_best"], 87, 80),
    "guidance hits early peaks only": lambda r: _only(
        r.outcomes["semantic_guidance"], [_family(t) == "early_peak" for t in r.trees]
    ),
    "refine at width 4 hits branches 0-3 only": lambda r: _only(
        r.outcomes[NARROW_REFINE], [_winner(t) < 4 for t in r.trees]
    ),
    "its misses are on branches never opened": lambda r: (
        not any(x.opened and not x.hit for x in r.outcomes[NARROW_REFINE])
    ),
    "refine at width 4: 44 attempts, 11 rounds": lambda r: _costs(r.outcomes[NARROW_REFINE], 44, 11),
    "early stop at width 4 hits all": lambda r: _hits(r.outcomes[NARROW_STOP]),
    "early stop at width 4 hits what it hits at 8": lambda r: _only(
        r.outcomes[NARROW_STOP], [x.hit for x in r.outcomes["early_stop"]]
    ),
    "early stop dominates greedy at any betas": lambda r: _dominates(
        r.outcomes["early_stop"], r.outcomes["greedy_best"]
    ),
    "early stop is selected": lambda r: compare.selected(r.comparison) == "early_stop",
}
"""The rows of the study's table: name -> whether it holds in a corpus."""


def survey(
    corpora: int = 200,
    noises: Sequence[float] = NOISES,
    mixes: Sequence[Literal["article", "free"]] = MIXES,
    *,
    first_seed: int = FIRST_SEED,
    n_jobs: int = -1,
    scheduler: str | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score fresh corpora, the same seeds at every noise and mix.

    ``n_jobs`` and ``scheduler`` say where, as for :func:`dreamrsi.sweep.sweep`; the result does not depend on it.

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
    if corpora < 1:
        raise UserError(f"corpora is {corpora}; a share needs at least one corpus")
    seeds = np.arange(first_seed, first_seed + corpora)
    slices = np.array_split(seeds, math.ceil(corpora / CORPORA_A_CHUNK))
    chunks = [(mix, noise, part.tolist()) for mix in mixes for noise in noises for part in slices]
    parts = spread(_chunk, chunks, n_jobs=n_jobs, scheduler=scheduler)
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
        reached = Reached.of(episodes, trees)
        about = {"mix": mix, "noise": noise, "seed": seed}
        holds += [about | {"row": name, "holds": test(reached)} for name, test in ROWS.items()]
        found += [
            about
            | {
                "policy": name,
                "hits": sum(x.hit for x in rows),
                "attempts": float(np.mean([x.attempts for x in rows])),
                "missed_open": float(np.mean([x.opened and not x.hit for x in rows])),
                "missed_unopened": float(np.mean([not x.opened and not x.hit for x in rows])),
            }
            for name, rows in reached.outcomes.items()
        ]
    return holds, found


def wide(rows: pd.DataFrame) -> pd.DataFrame:
    """The shares of :func:`survey` to read: one line a mix and row, one column a noise, ``share [low, high]``."""
    cell = rows.apply(lambda r: f"{r.holds:.3f} [{r.low:.3f}, {r.high:.3f}]", axis=1)
    table = rows.assign(cell=cell).pivot_table("cell", ["mix", "row"], "noise", aggfunc="first", sort=False)
    return table.rename(columns=lambda noise: f"noise {noise:g}").rename_axis(None, axis=1).reset_index()


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share."""
    share = successes / trials
    centre = share + Z * Z / (2 * trials)
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials))
    scale = 1 + Z * Z / trials
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
    half = Z * groups[["hits", "attempts"]].sem()
    means = groups[["hits", "attempts", "missed_open", "missed_unopened"]].mean()
    means.insert(1, "hits_ci", half.hits)
    means.insert(3, "attempts_ci", half.attempts)
    return means.reset_index()
