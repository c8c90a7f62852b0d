"""Policies side by side on a set of trees, as data frames: what the notebooks and the command line show."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dreamrsi import policies as builtin
from dreamrsi import synthetic
from dreamrsi.errors import UserError
from dreamrsi.objective import outcome, score, value
from dreamrsi.policies import Policy
from dreamrsi.prefix import OPEN
from dreamrsi.replay import Episode, replay, replay_all
from dreamrsi.tree import Tree

RECORDED = "recorded"
"""The name under which a record stands beside the policies that are replayed on it."""


def build(policies: Sequence[Policy | str]) -> list[Policy]:
    """Policies from objects or from names such as ``early_stop:width=4``."""
    return [builtin.make(policy) if isinstance(policy, str) else policy for policy in policies]


def outcomes(episodes: Mapping[str, Sequence[Episode]], trees: Sequence[Tree]) -> pd.DataFrame:
    """One row a policy and tree: the fields of :class:`~dreamrsi.objective.Outcome`."""
    rows = [outcome(e, t) for row in episodes.values() for e, t in zip(row, trees, strict=True)]
    return pd.DataFrame(rows)


def _episodes(
    trees: Sequence[Tree], policies: Sequence[Policy], width: int | None, max_rounds: int | None
) -> dict[str, list[Episode]]:
    """Replay every policy on every tree; a policy that failed is named in a warning."""
    if not trees or not policies:
        raise UserError("there is nothing to compare; give at least one tree and one policy")
    episodes = replay_all(policies, trees, width, max_rounds)
    for failure in [episode.error for row in episodes.values() for episode in row if episode.error]:
        warnings.warn(f"{failure}; it scores -inf", stacklevel=3)
    return episodes


def by_tree(
    trees: Sequence[Tree],
    policies: Sequence[Policy | str],
    *,
    width: int | None,
    max_rounds: int | None,
    beta1: float,
    beta2: float,
) -> pd.DataFrame:
    """One row a policy and tree: the fields of :class:`~dreamrsi.objective.Outcome`, V, and ``never_opened``."""
    episodes = _episodes(trees, build(policies), width, max_rounds)
    table = outcomes(episodes, trees)
    table["V"] = [score(episode, beta1=beta1, beta2=beta2) for row in episodes.values() for episode in row]
    return table.assign(never_opened=~table.pop("opened"))


def compare(
    trees: Sequence[Tree],
    policies: Sequence[Policy | str],
    *,
    width: int | None = synthetic.WIDTH,
    max_rounds: int | None = synthetic.MAX_ROUNDS,
    beta1: float = synthetic.BETA1,
    beta2: float = synthetic.BETA2,
    normalise: Literal["range"] | None = None,
    baseline: str = "parallel_refine",
) -> pd.DataFrame:
    """One row a policy: means over the trees, and the ratios to a baseline.

    Parameters
    ----------
    trees, policies : every policy is replayed on every tree.
    width, max_rounds : W and K2; a width of None is the one that each tree was recorded at.
    beta1, beta2 : of Eq. 1, in units of the score.
    normalise : as in :func:`dreamrsi.objective.value`.
    baseline : the policy the ratios are taken to; replayed too if it is not among the policies.

    Returns
    -------
    DataFrame
        ``policy, hits, trees, quality, regret, attainment, attempts, rounds, V``, all means but for the first three;
        ``never_opened`` (misses on a branch that was not opened), ``quality_ratio``, ``attempt_ratio``, and ``goes_on``
        (the rule of ``synthetic/README.md``). A ratio of qualities means nothing where they are not positive, and is
        NaN there.
    """
    chosen = build(policies)
    names = [policy.name for policy in chosen]
    extra = [] if baseline in names else build([baseline])
    episodes = _episodes(trees, chosen + extra, width, max_rounds)
    table = outcomes(episodes, trees).assign(never_opened=lambda t: ~t.opened)
    rows = table.groupby("policy", sort=False).agg(
        hits=("hit", "sum"),
        trees=("hit", "size"),
        quality=("quality", "mean"),
        regret=("regret", "mean"),
        attainment=("attainment", "mean"),
        attempts=("attempts", "mean"),
        rounds=("rounds", "mean"),
        never_opened=("never_opened", "sum"),
    )
    betas: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "trees": trees, "normalise": normalise}
    rows.insert(7, "V", [value(episodes[name], **betas) for name in rows.index])
    rows = go_on(rows, baseline)
    return rows.loc[names].reset_index()


def go_on(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Add ``quality_ratio`` and ``attempt_ratio`` to a baseline, and ``goes_on``, to a table indexed by policy.

    The rule is that of ``synthetic/README.md``. Ratios are NaN where qualities are not positive or the baseline failed.
    """
    base = rows.loc[baseline]
    usable = math.isfinite(base.quality) and bool((rows.quality[np.isfinite(rows.quality)] > 0).all())
    quality = rows.quality / base.quality if usable else np.nan
    attempts = rows.attempts / base.attempts if base.attempts > 0 else np.nan
    rows = rows.assign(quality_ratio=quality, attempt_ratio=attempts)
    good, cheap = rows.quality_ratio >= synthetic.MIN_QUALITY_RATIO, rows.attempt_ratio <= synthetic.MAX_ATTEMPT_RATIO
    return rows.assign(goes_on=good & cheap)


def pool(comparison: pd.DataFrame, name: str) -> pd.DataFrame:
    """The same table with the policies called ``name`` or ``name:...`` as one row, the mean over them."""
    mine = comparison.policy.str.partition(":")[0] == name
    if not mine.any():
        raise UserError(f"no policy of the table is called {name} or {name}:...; it has {', '.join(comparison.policy)}")
    mean: dict[str, Any] = comparison[mine].drop(columns=["policy", "goes_on"]).mean().to_dict()
    mean |= {"policy": f"{name}:mean of {mine.sum()}", "goes_on": bool(comparison[mine].goes_on.all())}
    return pd.concat([comparison[~mine], pd.DataFrame([mean])], ignore_index=True).astype({"trees": int})


def selected(comparison: pd.DataFrame) -> str | None:
    """The policy with the highest mean V among those that pass the rule for going on; None if none does."""
    passing = comparison[comparison.goes_on]
    return None if passing.empty else str(passing.policy[passing.V.idxmax()])


def width_hits(
    trees: Sequence[Tree],
    policies: Sequence[str] = ("parallel_refine", "early_stop", "greedy_best", "semantic_guidance"),
    widths: Sequence[int] = range(1, 9),
    max_rounds: int | None = synthetic.MAX_ROUNDS,
) -> pd.DataFrame:
    """Hits on the trees of a policy frozen at a width, bootstrap included: one row a policy, one column a width."""
    rows = {
        name: [
            sum(outcome(replay(builtin.make(name), tree, w, max_rounds), tree).hit for tree in trees) for w in widths
        ]
        for name in policies
    }
    return (
        pd.DataFrame.from_dict(rows, orient="index", columns=list(widths))
        .rename_axis("policy")
        .rename_axis("width", axis=1)
    )


def openings(trees: Sequence[Tree], policy: str, widths: Sequence[int] = range(1, 9)) -> dict[str, np.ndarray]:
    """Tree name -> which branches a policy opened at each width, booleans of shape (widths, branches)."""
    if len({tree.name for tree in trees}) != len(trees):
        raise UserError("two trees have the same name; rename one")
    found = {}
    for tree in trees:
        rows = np.zeros((len(widths), len(tree.branches)), dtype=bool)
        for row, width in zip(rows, widths, strict=True):
            row[list(set(replay(builtin.make(policy), tree, width, synthetic.MAX_ROUNDS).reveals))] = True
        found[tree.name] = rows
    return found


def progress(episode: Episode, tree: Tree) -> np.ndarray:
    """The best score after 0, 1, ... attempts of an episode, the root's included; shape (N + 1,), NaN for none."""
    start = np.nan if tree.root is None else tree.root
    scores = [tree.branches[b][a].score for b, a in episode.order]
    values = np.array([start] + [np.nan if s is None else s for s in scores], dtype=float)
    return np.fmax.accumulate(values)


def rounds_known(tree: Tree) -> Literal["batches", "rounds", "no"]:
    """How a record says which attempts were made in one round: by its batches, by a ``round`` each, or not at all."""
    if tree.batches:
        return "batches"
    return "rounds" if len(tree) and all(attempt.round is not None for attempt in tree) else "no"


def recorded(tree: Tree) -> Episode:
    """The recorded run itself as an episode: every attempt, in the order in which they were started.

    Its rounds are the recorded batches; without those the distinct ``round`` values; without those one attempt a round
    (see :func:`rounds_known`).
    """
    picks = tree.picks
    if not picks:
        known = rounds_known(tree) == "rounds"
        rounds: dict[int | None, list[int]] = {}
        for place, attempt in enumerate(tree):
            pick = attempt.branch if attempt.attempt else OPEN
            rounds.setdefault(attempt.round if known else place, []).append(pick)
        picks = tuple(tuple(batch) for batch in rounds.values())
    return Episode(RECORDED, tree.name, picks, [attempt.branch for attempt in tree], tree.best, "complete")
