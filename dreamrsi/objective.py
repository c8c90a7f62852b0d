"""From episodes to numbers: Eq. 1 of the paper, over one setting of the betas or whole arrays of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamrsi.errors import UserError
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree

Floats = NDArray[np.float64]


def score(episode: Episode, *, beta1: float, beta2: float) -> float:
    """Replay score V = best - beta1*N + beta2*N/max(1, k) (paper, Eq. 1).

    Parameters
    ----------
    episode : N attempts revealed in k rounds.
    beta1 : cost of an attempt, in units of the score.
    beta2 : worth of an attempt more a round, in units of the score.

    Returns
    -------
    float
        -inf where nothing was scored or the policy failed.
    """
    return float(_eq1(episode.best, episode.attempts, episode.parallel, beta1, beta2))


def _eq1(best: Any, attempts: Any, parallel: Any, beta1: Any, beta2: Any) -> Any:
    """Eq. 1 for numbers and for arrays that broadcast; ``parallel`` is N/max(1, k)."""
    return best - beta1 * attempts + beta2 * parallel


class Outcome(NamedTuple):
    """What one policy reached on one tree.

    ``quality`` is the best score revealed, ``regret`` what the best recorded score has over it, ``attainment`` the
    share of the way from the root to the best that was made, from 0 to 1. ``hit`` says whether the best recorded score
    was revealed, ``opened`` whether a branch that holds it was opened at all (True if the root holds it).
    """

    policy: str
    tree: str
    quality: float
    attempts: int
    rounds: int
    hit: bool
    regret: float
    attainment: float
    opened: bool


def outcome(episode: Episode, tree: Tree) -> Outcome:
    """Compare one episode with everything the tree has recorded."""
    best = tree.best  # looked up once: it looks at every branch
    at_root = tree.root is not None and tree.root == best
    winners = {n for n, chain in enumerate(tree.world.chains) if chain.tops[-1] == best > -math.inf}
    opened = at_root or not winners or not winners.isdisjoint(episode.reveals)
    hit = episode.best >= best > -math.inf
    regret = best - episode.best if episode.best > -math.inf else math.inf
    attained = attainment(episode, tree)
    return Outcome(
        episode.policy, tree.name, episode.best, episode.attempts, episode.rounds, hit, regret, attained, opened
    )


def attainment(episode: Episode, tree: Tree) -> float:
    """The share of the way from the root to the best recorded score that an episode made (paper, appendix B.2).

    ``clip((best revealed - root) / (best recorded - root), 0, 1)``; the lowest recorded score stands in for a root that
    has none. 1 where nothing recorded is better than the root, 0 where nothing was scored.
    """
    return attained(episode.best, floor(tree), tree.best)


def attained(best: float, root: float | None, top: float) -> float:
    """:func:`attainment` from the best score revealed, the :func:`floor` and the best score recorded."""
    if best == -math.inf:
        return 0.0
    if root is None or top <= root:
        return 1.0
    return min(1.0, max(0.0, (best - root) / (top - root)))


def floor(tree: Tree) -> float | None:
    """The root's score, or the lowest recorded one where the root has none; None if nothing was scored."""
    if tree.root is not None:
        return tree.root
    return min((score for chain in tree.world.chains for score in chain.scores if score > -math.inf), default=None)


def history(trees: Iterable[Tree]) -> list[Tree]:
    """The trees that can judge a policy: those with at least one scored attempt. The others are named in a warning."""
    kept = []
    for tree in trees:
        if tree.best_attempt is None:
            warnings.warn(f"{tree.name}: no attempt has a score; the tree was left out of the history", stacklevel=2)
        else:
            kept.append(tree)
    return kept


def value(
    episodes: Sequence[Episode],
    *,
    beta1: float,
    beta2: float,
    trees: Sequence[Tree] = (),
    normalise: Literal["range"] | None = None,
) -> float:
    """A policy's value: the mean of V over the history.

    Parameters
    ----------
    episodes : one a tree.
    trees : the trees, in the same order; needed to normalise.
    normalise : None takes the scores as they are, as the paper does; ``"range"`` divides those of a tree by
        (best - root). The lowest recorded score stands in for a root that has none.

    Raises
    ------
    UserError
        The history is empty, or a tree's best is no better than its root.
    """
    if not episodes:
        raise UserError("the history is empty; give at least one tree with a scored attempt")
    scales = [1.0] * len(episodes) if normalise is None else [_range(tree) for tree in trees]
    pairs = zip(episodes, scales, strict=True)
    scores = [float(_eq1(e.best / scale, e.attempts, e.parallel, beta1, beta2)) for e, scale in pairs]
    return math.fsum(scores) / len(scores) if min(scores) > -math.inf else -math.inf


def scaled_betas(trees: Sequence[Tree]) -> tuple[float, float]:
    """beta1 and beta2 that follow the scale of the scores: 0.2 % and 0.5 % of the range from worst to best.

    The same shares as the article's 0.02 and 0.05 on scores from 0 to 10. The range is that of all recorded scores
    of all trees, roots included.

    Raises
    ------
    UserError
        No attempt has a score.
    """
    scores = [attempt.score for tree in trees for attempt in tree if attempt.score is not None]
    if not scores:
        raise UserError("no tree has a scored attempt; there is nothing to score a policy on")
    scores += [tree.root for tree in trees if tree.root is not None]
    scale = max(scores) - min(scores)
    return 0.002 * scale, 0.005 * scale


def _range(tree: Tree) -> float:
    root = floor(tree)
    if root is None or not tree.best > root:
        raise UserError(f"{tree.name}: the best score, {tree.best:g}, is no better than the root; leave the tree out")
    return tree.best - root


def select(values: Mapping[str, float], current: str) -> str:
    """The name with the highest value. On a tie the current policy stays, then the earlier one wins.

    Raises
    ------
    UserError
        The current policy is not among the candidates: without it a selection can be worse than none.
    """
    if current not in values:
        raise UserError(f"the current policy, {current}, is not among the candidates {', '.join(values)}; score it too")
    best = max(values.values())
    return current if values[current] == best else next(name for name, value in values.items() if value == best)


@dataclass(frozen=True)
class ScoreMap:
    """Mean V of every policy over a grid of (beta1, beta2).

    Attributes
    ----------
    names : P policies.
    beta1s, beta2s : the grid, B1 and B2 values.
    values : mean V, shape (P, B1, B2).
    """

    names: tuple[str, ...]
    beta1s: Floats
    beta2s: Floats
    values: Floats

    @property
    def winner(self) -> NDArray[np.int64]:
        """The place in ``names`` of the best policy, shape (B1, B2); the earlier one on a tie."""
        return np.asarray(np.argmax(self.values, axis=0))

    @property
    def margin(self) -> Floats:
        """How far the winner is ahead of the second, shape (B1, B2); inf where there is only one policy."""
        if len(self.names) < 2:
            return np.full(self.values.shape[1:], np.inf)
        ordered = np.sort(self.values, axis=0)
        with np.errstate(invalid="ignore"):  # -inf - -inf where two policies failed
            return np.asarray(np.nan_to_num(ordered[-1] - ordered[-2], nan=0.0, posinf=np.inf))

    def holds(self, beta1: float, beta2: float) -> tuple[str, tuple[float, float], tuple[float, float]]:
        """The winner at the grid point nearest to a setting, and how far it goes on winning from there.

        Returns
        -------
        winner, (lowest beta1, highest beta1), (lowest beta2, highest beta2)
            Each range is the run of grid points around the setting, the other beta kept, that the winner wins.
        """
        row = int(np.abs(self.beta1s - beta1).argmin())
        column = int(np.abs(self.beta2s - beta2).argmin())
        name = int(self.winner[row, column])
        return (
            self.names[name],
            _run(self.beta1s, self.winner[:, column] == name, row),
            _run(self.beta2s, self.winner[row] == name, column),
        )

    def share(self) -> dict[str, float]:
        """The share of the grid that each policy wins."""
        counts = np.bincount(self.winner.ravel(), minlength=len(self.names)) / self.winner.size
        return dict(zip(self.names, counts.tolist(), strict=True))


def _run(values: Floats, wins: NDArray[np.bool_], at: int) -> tuple[float, float]:
    """The lowest and highest of the values in the unbroken run of wins around a place."""
    losses = np.flatnonzero(~wins)
    first = losses[losses < at].max(initial=-1) + 1
    last = losses[losses > at].min(initial=len(values)) - 1
    return float(values[first]), float(values[last])


def score_map(episodes: Mapping[str, Sequence[Episode]], beta1s: ArrayLike, beta2s: ArrayLike) -> ScoreMap:
    """Mean V of every policy at every (beta1, beta2), from one replay each.

    V is linear in the betas, so three means a policy (best, N, N/k) are all that is needed.

    Parameters
    ----------
    episodes : policy name -> its episodes, the same trees in the same order for every policy.
    beta1s, beta2s : one-dimensional arrays of length B1 and B2, in units of the score.

    Returns
    -------
    ScoreMap
        ``values`` has shape (P, B1, B2).

    Raises
    ------
    UserError
        No episodes, policies with different numbers of episodes, or betas that are not finite.
    """
    b1, b2 = _betas("beta1s", beta1s), _betas("beta2s", beta2s)
    if not episodes or len({len(row) for row in episodes.values()}) != 1 or not next(iter(episodes.values())):
        raise UserError("every policy needs one episode a tree, on the same trees")
    rows = [[(e.best, float(e.attempts), e.parallel) for e in row] for row in episodes.values()]
    best, attempts, parallel = np.asarray(rows).mean(axis=1).T[:, :, None, None]
    return ScoreMap(tuple(episodes), b1, b2, _eq1(best, attempts, parallel, b1[:, None], b2))


def _betas(name: str, values: Any) -> Floats:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if array.ndim != 1 or not np.isfinite(array).all():
        raise UserError(f"{name} must be a one-dimensional array of finite numbers")
    return array
