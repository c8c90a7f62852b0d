"""The sweep score, what a policy attains for what work over its whole knob, and the rule that moves the knob."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from dreamrsi.errors import UserError
from dreamrsi.grid_plan import GridPlan, beyond, under_plan
from dreamrsi.objective import attained, floor
from dreamrsi.policies import Policy
from dreamrsi.replay import Episode, replay_all
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from dreamrsi.schedule import DEFAULT_BETA
from dreamrsi.tree import Tree

BETAS = tuple(step / 10 for step in range(11))
"""The grid of the knob: 0, 0.1, ..., 1."""

PENALTY_WEIGHT = 0.1
"""Share of the penalty in the reward (paper, appendix B.2)."""

# The numbers behind the words of the rule for the default beta; docs/decisions.md says why these.
SHORT = 3  # finished rounds below which the history is too short
PLATEAU_ROUNDS = 2  # rounds without progress that are a plateau
PROGRESS = 0.01  # of the rise so far: a smaller one is no progress
MOVES = (0.1, 0.2)  # how far beta may move at once
MORE = 0.01  # attainment that counts as more
REASONABLE_WORK = 0.8  # share of the recorded attempts up to which work is reasonable
HIGH_BETA = 0.6  # from which on beta is high


@dataclass(frozen=True)
class SweepScore:
    """What a policy did over the grid of its knob.

    Attributes
    ----------
    betas : the grid, ascending, B values.
    work, attainment : one value a beta, means over the trees.
    auc : area over work from 0 to 1 under the best attainment at no more than that work.
    penalty : rounds an attempt, mean over betas and trees; 1 where nothing was revealed.
    reward : ``auc - 0.1 * penalty``; -inf if the policy failed anywhere.
    """

    betas: tuple[float, ...]
    work: tuple[float, ...]
    attainment: tuple[float, ...]
    auc: float
    penalty: float
    reward: float


def replay_betas(
    policy: Policy | bytes,
    trees: Sequence[Tree],
    width: int = 8,
    max_rounds: int | None = None,
    *,
    plan: GridPlan | None = None,
    betas: Iterable[float] = BETAS,
    limits: Limits | None = None,
) -> dict[float, list[Episode]]:
    """Replay a policy at every beta of the grid.

    Parameters
    ----------
    policy : an object, whose ``beta`` is set before each replay and put back at the end; or the source of a policy
        file, which then has a fresh process for every beta, so that it cannot remember one from another. An object
        without ``beta`` does the same at every beta and is replayed once.
    trees : the history.
    width, max_rounds : as for :func:`dreamrsi.replay`.
    plan : caps in place of the recorded ones (:func:`~dreamrsi.grid_plan.under_plan`), as :func:`check_plan` gave them.
    limits : of the sandbox, for a source.

    Returns
    -------
    dict
        beta -> one episode a tree. Where the policy failed, the episode is a failed one, and the others go on.

    Raises
    ------
    PolicyError
        The source cannot be loaded.
    """
    seen = [under_plan(tree, plan) for tree in trees]
    betas = list(betas)
    if isinstance(policy, bytes):
        return {beta: replay_sandboxed(policy, seen, width, max_rounds, beta=beta, limits=limits) for beta in betas}
    if not hasattr(policy, "beta"):
        once = _episodes(policy, seen, width, max_rounds)
        return {beta: list(once) for beta in betas}
    own = policy.beta
    try:
        rows = {}
        for beta in betas:
            policy.beta = beta
            rows[beta] = _episodes(policy, seen, width, max_rounds)
        return rows
    finally:
        policy.beta = own


def _episodes(policy: Policy, trees: Sequence[Tree], width: int, max_rounds: int | None) -> list[Episode]:
    if isinstance(policy, SandboxedPolicy):
        return policy.replay_all(trees, width, max_rounds)
    return replay_all([policy], trees, width, max_rounds)[policy.name]


def sweep_score(
    episodes: Mapping[float, Sequence[Episode]],
    trees: Sequence[Tree],
    width: int,
    *,
    plan: GridPlan | None = None,
) -> SweepScore:
    """Score a policy by its replays over the grid of its knob (paper, appendix B.2).

    For every beta, work is attempts revealed / attempts recorded and attainment the share of the way from the root to
    the best recorded score that was made (the lowest recorded score stands in for a root that has none), both averaged
    over the trees. ``auc`` is the area over work in [0, 1] under the right-continuous step frontier of these points,
    from (0, 0) on. A batch of b picks costs ceil(b / width) effective rounds.

    Parameters
    ----------
    episodes : beta -> one episode a tree, as :func:`replay_betas` gives them.
    trees : as they were recorded.
    width : W, attempts at once.
    plan : the plan under which the replays were made: what was picked beyond the recorded grid is work too.

    Raises
    ------
    UserError
        No beta, no tree, a tree without attempts, or another number of episodes than trees.
    """
    if not episodes or not trees or not all(len(tree) for tree in trees):
        raise UserError("the sweep score needs at least one beta and one tree, and attempts in every tree")
    if wrong := [beta for beta, row in episodes.items() if len(row) != len(trees)]:
        raise UserError(f"beta {wrong[0]:g} has {len(episodes[wrong[0]])} episodes; there are {len(trees)} trees")
    betas = tuple(sorted(episodes))
    planned = [under_plan(tree, plan) for tree in trees]
    ends = [(floor(tree), tree.best) for tree in trees]
    work, attainment, penalties = [], [], []
    for beta in betas:
        row = episodes[beta]
        costs = [e.attempts + beyond(e, tree, seen) for e, tree, seen in zip(row, trees, planned, strict=True)]
        work.append(fmean(cost / len(tree) for cost, tree in zip(costs, trees, strict=True)))
        attainment.append(fmean(attained(e.best, *end) for e, end in zip(row, ends, strict=True)))
        penalties.append(fmean(parallel_penalty(episode, width) for episode in row))
    auc, penalty = area(zip(work, attainment, strict=True)), fmean(penalties)
    reward = auc - PENALTY_WEIGHT * penalty
    if any(episode.reason == "failed" for row in episodes.values() for episode in row):
        reward = -math.inf
    return SweepScore(betas, tuple(work), tuple(attainment), auc, penalty, reward)


def parallel_penalty(episode: Episode, width: int) -> float:
    """Effective sequential rounds an attempt: ceil(b / width) for every batch of b picks. 1 if nothing was revealed."""
    if not episode.attempts:
        return 1.0
    return sum(-(-len(batch) // width) for batch in episode.picks) / episode.attempts


def area(points: Iterable[tuple[float, float]]) -> float:
    """Area over work in [0, 1] under the best attainment at no more than that work.

    Parameters
    ----------
    points : (work, attainment); (0, 0) is always one of them. Those at work 1 or above add nothing.
    """
    total = best = at = 0.0
    for work, attainment in sorted(points):
        if work >= 1:
            break
        total += best * (work - at)
        best, at = max(best, attainment), work
    return total + best * (1 - at)


def next_beta(beta: float, live_bests: Sequence[float], sweep: SweepScore | None) -> tuple[float, str]:
    """The default of the knob for the next round of the recursion (paper, appendix B.2).

    Keep it while the live best still improves. At a plateau raise it by 0.1 or 0.2 if the sweep shows that to attain
    more at reasonable work; lower it by as much if it is high and only adds work. About 0.6 while the history is short.

    Parameters
    ----------
    beta : the present default.
    live_bests : the best score of every finished live round.
    sweep : the policy's sweep over the history; None if there is none.

    Returns
    -------
    beta, reason
        The next default, in [0, 1], and why.
    """
    if len(live_bests) < SHORT:
        return DEFAULT_BETA, f"{len(live_bests)} rounds are too few to go by"
    if not _plateau(live_bests):
        return beta, "the live best still improves"
    if sweep is None:
        return beta, "a plateau, but no sweep to go by"
    work, attainment = _at_beta(sweep, beta)
    for step in sorted(MOVES, key=lambda step: _at_beta(sweep, beta + step)[1], reverse=True):  # the smaller on a tie
        more, further = _at_beta(sweep, beta + step)
        if further >= attainment + MORE and more <= REASONABLE_WORK:
            return _moved(beta, step), f"a plateau, and more patience attains {further:.3f} instead of {attainment:.3f}"
    if beta >= HIGH_BETA:
        for step in sorted(MOVES, reverse=True):
            less, same = _at_beta(sweep, beta - step)
            if less < work and same > attainment - MORE:
                return _moved(beta, -step), f"a plateau at high beta, which only adds work: {work:.3f}, not {less:.3f}"
    return beta, "a plateau, but the sweep shows nothing better nearby"


def _plateau(live_bests: Sequence[float]) -> bool:
    """Whether the last rounds raised the best by no more than a hundredth of the rise before them."""
    before = [best for best in live_bests[:-PLATEAU_ROUNDS] if best > -math.inf]
    if not before:
        return False
    rise = max(before) - before[0]
    return max(live_bests[-PLATEAU_ROUNDS:]) <= max(before) + PROGRESS * rise


def _at_beta(sweep: SweepScore, beta: float) -> tuple[float, float]:
    """Work and attainment at the point of the grid that is nearest to a beta."""
    place = min(range(len(sweep.betas)), key=lambda n: abs(sweep.betas[n] - beta))
    return sweep.work[place], sweep.attainment[place]


def _moved(beta: float, step: float) -> float:
    return min(1.0, max(0.0, round(beta + step, 6)))
