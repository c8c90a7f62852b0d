"""Policies, and the record itself, scored on finished runs: the numbers behind ``dreamrsi score``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from dreamrsi import objective
from dreamrsi import policies as builtin
from dreamrsi.compare import RECORDED, recorded
from dreamrsi.coverage import coverage
from dreamrsi.errors import UserError
from dreamrsi.objective import Outcome, ScoreMap, outcome, score_map, value
from dreamrsi.policies import Policy
from dreamrsi.replay import Episode, replay_all
from dreamrsi.tree import Tree

DEFAULT_WIDTH = 8
"""W on a tree whose record names none, as in :func:`dreamrsi.replay.replay_all`."""

RANDOM_SEEDS = 20
"""The random floor is the mean over so many seeds."""

MAP_TIMES = (5, 8)
"""The map goes from 0 to so many times the betas that follow from the scale: 1 % and 4 % of the range of the scores."""

MAP_POINTS = 200

Normalise = Literal["range"] | None


@dataclass(frozen=True)
class Row:
    """What one row of the table stands on.

    ``width`` None is the recorded one; ``episodes`` holds one list a seed, each with one episode a tree.
    """

    name: str
    policy: str
    width: int | None
    episodes: tuple[list[Episode], ...]


class Holds(NamedTuple):
    """Who wins at one setting of the betas, and how far from there, one beta at a time; the other stays."""

    winner: str
    tied: tuple[str, ...]
    second: str | None
    margin: float
    beta1: tuple[float, float]
    beta2: tuple[float, float]


@dataclass(frozen=True)
class Scored:
    """Policies and the record on the same trees.

    Attributes
    ----------
    trees : those with a scored attempt.
    rows : the record, then the policies, then the random floor.
    widths : as asked; None is the recorded one.
    beta1, beta2 : as used; ``given`` says which the user chose.
    scaled : the betas that follow from the scale of the scores, for the map; from their size where all are equal.
    """

    trees: list[Tree]
    rows: list[Row]
    widths: tuple[int | None, ...]
    beta1: float
    beta2: float
    given: tuple[bool, bool]
    scaled: tuple[float, float]
    normalise: Normalise

    @cached_property
    def outcomes(self) -> dict[str, list[list[Outcome]]]:
        """Row -> seeds -> one outcome a tree."""
        return {
            row.name: [[outcome(e, t) for e, t in zip(episodes, self.trees, strict=True)] for episodes in row.episodes]
            for row in self.rows
        }

    @property
    def several_tasks(self) -> bool:
        """Whether the trees are of different tasks; made-up trees, which have one scale, do not count."""
        return len({tree.header.task for tree in self.trees if not tree.header.synthetic}) > 1

    def used(self, row: Row, tree: Tree) -> int | None:
        """W of a row on a tree; None where a record does not name the width that it was made with."""
        if row.policy == RECORDED:
            return tree.header.width
        return row.width or tree.header.width or DEFAULT_WIDTH

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a policy (and width): means over the trees; ``hits`` and ``never_opened`` count trees.

        Columns ``policy, [width,] hits, trees, quality, regret, attainment, attempts, rounds, V, branches_opened,
        branches, never_opened``.
        """
        lines = []
        for row in self.rows:
            seeds = self.outcomes[row.name]
            found = [one for seed in seeds for one in seed]
            played = [episode for episodes in row.episodes for episode in episodes]
            betas: dict[str, Any] = {"beta1": self.beta1, "beta2": self.beta2, "normalise": self.normalise}
            lines.append(
                {
                    "policy": row.policy,
                    "width": row.width,
                    "hits": sum(one.hit for one in found) / len(seeds),
                    "trees": len(self.trees),
                    "quality": _mean(one.quality for one in found),
                    "regret": _mean(one.regret for one in found),
                    "attainment": _mean(one.attainment for one in found),
                    "attempts": _mean(one.attempts for one in found),
                    "rounds": _mean(one.rounds for one in found),
                    "V": _mean(value(episodes, trees=self.trees, **betas) for episodes in row.episodes),
                    "branches_opened": _mean(e.opened for e in played),
                    "branches": _mean(len(tree.branches) for tree in self.trees),
                    "never_opened": sum(_unopened(e, one) for e, one in zip(played, found, strict=True)) / len(seeds),
                }
            )
        table = pd.DataFrame(lines).astype({"width": "Int64"})
        return table if len(self.widths) > 1 else table.drop(columns="width")

    @cached_property
    def by_tree(self) -> pd.DataFrame:
        """One row a tree and policy, without the random floor."""
        lines = [
            {
                "policy": row.policy,
                "width": self.used(row, tree),
                "tree": tree.name,
                "quality": found.quality,
                "attempts": found.attempts,
                "rounds": found.rounds,
                "hit": found.hit,
                "regret": found.regret,
                "attainment": found.attainment,
                "V": value([episode], beta1=self.beta1, beta2=self.beta2, trees=[tree], normalise=self.normalise),
                "never_opened": _unopened(episode, found),
                "branches_opened": episode.opened,
                "branches": len(tree.branches),
            }
            for place, tree in enumerate(self.trees)
            for row, episode, found in ((r, r.episodes[0][place], self.outcomes[r.name][0][place]) for r in self.single)
        ]
        return pd.DataFrame(lines).astype({"width": "Int64"})

    @property
    def single(self) -> list[Row]:
        """The rows with one episode a tree: all but the random floor."""
        return [row for row in self.rows if len(row.episodes) == 1]

    @cached_property
    def terms(self) -> dict[str, tuple[float, float, float]]:
        """Row -> mean best score, attempts, attempts a round: all that Eq. 1 needs. Without the random floor."""
        return {
            name: (_mean(e.best for e in row), _mean(e.attempts for e in row), _mean(e.parallel for e in row))
            for name, row in self._contenders().items()
        }

    def _contenders(self) -> dict[str, list[Episode]]:
        """Row -> its episodes, in units of the range where scores are normalised; the record last: it loses ties."""
        scales = [objective._range(tree) if self.normalise else 1.0 for tree in self.trees]
        rows = [*self.single[1:], self.single[0]]
        return {
            row.name: [replace(e, best=e.best / scale) for e, scale in zip(row.episodes[0], scales, strict=True)]
            for row in rows
        }

    @cached_property
    def map(self) -> ScoreMap:
        """Mean V over the grid of the betas: from 0 to :data:`MAP_TIMES` the scaled ones, or twice one beyond that."""
        used = (self.beta1, self.beta2)
        tops = [t * s if b <= t * s else 2 * b for t, s, b in zip(MAP_TIMES, self.scaled, used, strict=True)]
        found = score_map(self._contenders(), *(np.linspace(0, top, MAP_POINTS) for top in tops))
        size = np.abs(found.values[np.isfinite(found.values)]).max(initial=0.0)
        places = 12 - math.ceil(math.log10(size)) if size else 12  # or ties would go by the last bit
        return replace(found, values=np.round(found.values, places))

    @cached_property
    def holds(self) -> Holds:
        """Who wins at the betas used, and for which values of one beta that stays so while the other is kept."""
        values = {name: best - self.beta1 * n + self.beta2 * p for name, (best, n, p) in self.terms.items()}
        winner = max(values, key=lambda name: values[name])
        top = values[winner]
        same = [name for name in values if name != winner and math.isclose(values[name], top, rel_tol=1e-12)]
        behind = [name for name in values if name != winner and name not in same]
        second = max(behind, key=lambda name: values[name], default=None)
        low1 = low2 = 0.0
        high1 = high2 = math.inf
        best, n, p = self.terms[winner]
        for name, other in self.terms.items():  # those that tie here too: they may not elsewhere
            if name == winner or other[0] == -math.inf:
                continue
            quality, fewer, parallel = best - other[0], other[1] - n, p - other[2]
            low1, high1 = _narrowed(low1, high1, quality + self.beta2 * parallel, fewer)
            low2, high2 = _narrowed(low2, high2, quality + self.beta1 * fewer, parallel)
        margin = math.inf if second is None else top - values[second]
        return Holds(
            winner,
            tuple(same),
            second,
            margin,
            (min(low1, self.beta1), max(high1, self.beta1)),
            (min(low2, self.beta2), max(high2, self.beta2)),
        )

    @cached_property
    def same(self) -> dict[str, str]:
        """Row -> the first row whose terms of Eq. 1 are its own, so that no betas can tell the two apart."""
        first: dict[tuple[float, float, float], str] = {}
        return {name: first[terms] for name, terms in self.terms.items() if first.setdefault(terms, name) != name}

    @cached_property
    def failures(self) -> dict[str, tuple[str, int]]:
        """Row -> what went wrong first, and on how many trees; only rows whose policy failed."""
        errors = {row.name: [e.error for e in row.episodes[0] if e.error] for row in self.single}
        return {name: (found[0], len(found)) for name, found in errors.items() if found}

    @cached_property
    def misses(self) -> pd.DataFrame:
        """One row a policy, tree and winning attempt that it did not reach, and why; where it failed there is none."""
        columns = ["policy", "width", "tree", "branch", "attempt", "score", "revealed", "why"]
        lines = [
            (row.policy, self.used(row, tree), tree.name, at.branch, at.attempt, at.score, at.revealed, at.missed)
            for row in self.single
            for tree, episode, found in zip(self.trees, row.episodes[0], self.outcomes[row.name][0], strict=True)
            if not found.hit and not episode.error
            for at in coverage(tree, episode)
        ]
        return pd.DataFrame(lines, columns=columns).astype({"width": "Int64"})


def _unopened(episode: Episode, found: Outcome) -> bool:
    """Whether a policy left the winner's branch alone; one that failed did not choose to."""
    return not found.opened and episode.error is None


def _mean(values: Any) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if -math.inf not in found else -math.inf


def _narrowed(low: float, high: float, gap: float, slope: float) -> tuple[float, float]:
    """The part of an interval in which ``gap + slope * beta`` is not negative."""
    if slope > 0:
        return max(low, -gap / slope), high
    return (low, min(high, gap / -slope)) if slope < 0 else (low, high)


def score_trees(
    trees: Sequence[Tree],
    policies: Sequence[Policy | str],
    *,
    widths: Sequence[int | None] = (None,),
    max_rounds: int | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    normalise: Normalise = None,
    random_seeds: int = RANDOM_SEEDS,
) -> Scored:
    """Replay every policy at every width on every tree, and put the record itself beside them.

    Parameters
    ----------
    trees : those without a scored attempt are left out with a warning.
    policies : objects, or names such as ``early_stop:strikes=3``.
    widths : W; None is the one that a tree was recorded at, 8 where its header has none.
    max_rounds : K2; if None the number of recorded attempts, or of recorded batches if those are more.
    beta1, beta2 : in units of the score (of the range, if normalised). None follows from the scale of the scores: 0.2 %
        and 0.5 % of the range from the worst to the best.
    normalise : as in :func:`dreamrsi.objective.value`.
    random_seeds : of the random floor; 0 leaves it out.

    Raises
    ------
    UserError
        Nothing to score, betas that are not finite, or two policies of one name. A policy that fails scores -inf, with
        a warning, and the others go on.
    """
    kept = objective.history(trees)
    scaled = objective.scaled_betas(kept)
    used = (0.002, 0.005) if normalise else scaled  # the range is 1 then
    b1, b2 = used[0] if beta1 is None else beta1, used[1] if beta2 is None else beta2
    if not (math.isfinite(b1) and math.isfinite(b2)):
        raise UserError(f"beta1 and beta2 must be finite numbers; got {b1:g} and {b2:g}")
    sizes = tuple(dict.fromkeys(widths)) or (None,)
    rows = [Row(RECORDED, RECORDED, None, ([recorded(tree) for tree in kept],))]
    rows += _replayed([_built(policy) for policy in policies], kept, sizes, max_rounds)
    if random_seeds:
        seeds = [builtin.Random(seed) for seed in range(random_seeds)]
        name = f"random:{random_seeds} seeds"
        for width in sizes:
            found = replay_all(seeds, kept, width, max_rounds)
            rows.append(Row(_named(name, width, sizes), name, width, tuple(found.values())))
    if not used[0]:  # all scores are equal: the map is drawn at the scale of their size
        size = max(abs(tree.best) for tree in kept) or 1.0
        used = (0.002 * size, 0.005 * size)
    return Scored(kept, rows, sizes, b1, b2, (beta1 is not None, beta2 is not None), used, normalise)


def _built(policy: Policy | str) -> Policy:
    return builtin.make(policy) if isinstance(policy, str) else policy


def _replayed(
    policies: Sequence[Policy], trees: Sequence[Tree], widths: Sequence[int | None], max_rounds: int | None
) -> list[Row]:
    """One row a policy and width."""
    rows: list[Row] = []
    for policy in policies:
        if policy.name == RECORDED or policy.name in {row.policy for row in rows}:
            raise UserError(f"two rows would be named {policy.name}; give every policy its own name")
        for width in widths:
            (found,) = replay_all([policy], trees, width, max_rounds).values()
            for error in dict.fromkeys(episode.error for episode in found if episode.error):
                warnings.warn(f"{error}; it scores -inf", stacklevel=3)
            rows.append(Row(_named(policy.name, width, widths), policy.name, width, (found,)))
    return rows


def _named(policy: str, width: int | None, widths: Sequence[int | None]) -> str:
    """``early_stop:W=4`` where a policy is replayed at several widths."""
    if len(widths) == 1:
        return policy
    return f"{policy}{',' if ':' in policy else ':'}W={width or 'recorded'}"
