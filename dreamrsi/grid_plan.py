"""How many branches and steps the next live run gets, from summaries of finished runs (paper, appendix B.2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

import msgspec

from dreamrsi.errors import UserError
from dreamrsi.objective import floor
from dreamrsi.prefix import OPEN
from dreamrsi.record import Attempt
from dreamrsi.replay import Episode
from dreamrsi.sandbox_server import printable
from dreamrsi.tree import Tree

# The numbers behind the rule's words; docs/decisions.md says why these.
RECENT = 3  # finished runs that speak
CHANGE = 0.25  # share by which a plan widens, deepens or shrinks
HALF_WAY = 0.5  # of the run's gain: what a branch has to reach to be one of those that the early gains come from
MANY = 0.5  # share of the branches that is many
FEW = 0.25  # share of the branches that is few
LATE = 0.25  # share of the gain that comes in the second half of the depth, from which on gains arrive late
STALLED = 0.05  # the same share, up to which depth stalls
PLATEAU = 0.5  # share of a run's attempts after its best, from which on it has plateaued
HARD = 0.5  # share of the attempts in failures that their branch never got over
REDUNDANT = 0.5  # share of the branches that reach what an earlier one had reached
SAME = 0.001  # of the range of the branches' bests: scores nearer than this are the same

_MAX_REASON = 500


@dataclass(frozen=True)
class GridPlan:
    """A proposal for the caps of the next live run, and for replays that judge policies under these caps."""

    branches: int
    steps: int
    reason: str = ""


@dataclass(frozen=True)
class Caps:
    """What a plan may ask for: hard limits, the product of branches and steps (attempts) among them, and the fallback.

    Attributes
    ----------
    branches, steps : the most of each.
    budget : the most branches times steps.
    present : the grid that stays where there is no plan, or none that may be followed.

    Raises
    ------
    UserError
        The present grid is beyond the limits.
    """

    branches: int
    steps: int
    budget: int
    present: GridPlan

    def __post_init__(self) -> None:
        problem = _problem(vars(self.present), self)
        if problem is not None:
            raise UserError(f"the present grid is beyond the caps: {problem}; raise them or start smaller")


@dataclass(frozen=True)
class Summary:
    """What a plan may know of a finished run.

    Attributes
    ----------
    branches, steps : its grid: the caps, or what was reached where it had none.
    opened, attempts : what it made of it.
    by_branch, by_depth : share of the gain (from the root, or the lowest score, to the best) that the first 1, 2, ...
        branches made, and the first 1, 2, ... attempts of all branches. All 0 where nothing was gained.
    early_branches : share of the branches that made half of the gain in the first half of the depth.
    late_branches : share of the branches that in the second half of the depth exceeded all of the first.
    failures : share of the attempts that have no score.
    hard : share of the attempts that failed and after which their branch never scored again.
    redundant : share of the branches whose best is that of another one, to within 0.1 % of the range of these bests.
    plateau : share of the attempts that came after the best.
    """

    branches: int
    steps: int
    opened: int
    attempts: int
    by_branch: tuple[float, ...]
    by_depth: tuple[float, ...]
    early_branches: float
    late_branches: float
    failures: float
    hard: float
    redundant: float
    plateau: float

    @property
    def late(self) -> float:
        """Share of the gain that came in the second half of the depth."""
        return max(self.by_depth) - self.by_depth[_half(len(self.by_depth)) - 1] if self.by_depth else 0.0

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, as a policy in the sandbox gets it."""
        return asdict(self)


def grid(tree: Tree) -> tuple[int, int]:
    """Branches and steps of a run: its caps, or what was reached where the record has none."""
    longest = max(map(len, tree.branches), default=0)
    header = tree.header
    return header.branches or len(tree.branches), header.steps or longest


def summarise(tree: Tree) -> Summary:
    """Summarise a finished run; what is in it depends on no scale of the scores."""
    branches, steps = grid(tree)
    chains = tree.world.chains
    low = floor(tree)
    gain = 0.0 if low is None else tree.best - low

    def share(score: float) -> float:
        return min(1.0, max(0.0, (score - (low or 0.0)) / gain)) if gain > 0 else 0.0

    deepest = max((len(chain.tops) for chain in chains), default=0)
    half = _half(deepest)
    levels = [-math.inf] * deepest
    for chain in chains:
        for depth, score in enumerate(chain.scores):
            levels[depth] = max(levels[depth], score)
    bests = [share(chain.tops[-1]) for chain in chains]
    early = [share(chain.tops[min(half, len(chain.tops)) - 1]) for chain in chains]
    first = max(early, default=0.0)
    count, attempts = max(1, len(chains)), max(1, len(tree))
    return Summary(
        branches=branches,
        steps=steps,
        opened=len(chains),
        attempts=len(tree),
        by_branch=tuple(accumulate(bests, max)),
        by_depth=tuple(share(level) for level in accumulate(levels, max)),
        early_branches=sum(top >= HALF_WAY for top in early) / count if gain > 0 else 0.0,
        late_branches=sum(top > first for top in bests) / count,
        failures=sum(attempt.score is None for attempt in tree) / attempts,
        hard=sum(_closing_failures(chain.scores) for chain in chains) / attempts,
        redundant=_repeated([chain.tops[-1] for chain in chains]) / count,
        plateau=_after_the_best(tree) / attempts,
    )


def _after_the_best(tree: Tree) -> int:
    """Attempts after the one that reached the best; all of them if none improved on the root."""
    best = tree.best_attempt
    if best is None or best.score is None or (tree.root is not None and best.score <= tree.root):
        return len(tree)
    return sum(attempt.seq > best.seq for attempt in tree)


def _repeated(bests: Sequence[float]) -> int:
    """How many of the scores are those of another one."""
    scored = sorted(best for best in bests if best > -math.inf)
    if not scored:
        return 0
    near = SAME * (scored[-1] - scored[0])
    return sum(above - below <= near for below, above in pairwise(scored))


def _closing_failures(scores: Sequence[float]) -> int:
    """Failures at the end of a branch."""
    return next((n for n, score in enumerate(reversed(scores)) if score > -math.inf), len(scores))


def _half(depth: int) -> int:
    return (depth + 1) // 2


def plan_grid(summaries: Sequence[Summary], caps: Caps) -> GridPlan:
    """Propose the grid of the next live run from summaries of finished ones (paper, appendix B.2).

    Shrink when failures are hard or branches redundant: either makes the other signs meaningless. Widen when early
    gains come from many branches while depth stalls, or when everything has plateaued. Deepen when gains arrive late on
    few branches. Else, and where the caps leave no room for it, keep. What is widened or deepened beyond the budget is
    paid for with the other side.

    Returns
    -------
    GridPlan
        Within the caps: :func:`check_plan` accepts it.
    """
    plan, now = _proposed(summaries, caps), caps.present
    if (plan.branches, plan.steps) != (now.branches, now.steps) or plan.reason.startswith("keep"):
        return plan
    return GridPlan(plan.branches, plan.steps, f"keep: there is no room to {plan.reason}")


def _proposed(summaries: Sequence[Summary], caps: Caps) -> GridPlan:
    """What the signs ask for, as far as the caps allow it."""
    branches, steps = caps.present.branches, caps.present.steps
    recent = summaries[-RECENT:]
    if not recent:
        return GridPlan(branches, steps, "keep: no finished run")

    def mean(name: str) -> float:
        return fmean(getattr(summary, name) for summary in recent)

    hard, redundant, early, late = mean("hard"), mean("redundant"), mean("early_branches"), mean("late")
    if hard >= HARD or redundant >= REDUNDANT:
        why = f"{hard:.0%} of the attempts are lasting failures, {redundant:.0%} of the branches repeat an earlier one"
        return GridPlan(max(1, math.floor(branches * (1 - CHANGE))), steps, f"shrink: {why}")
    if all(summary.plateau >= PLATEAU for summary in recent):
        return _widened(branches, steps, caps, f"in all of the last {len(recent)} runs half came after the best")
    if early >= MANY and late <= STALLED:
        return _widened(branches, steps, caps, f"{early:.0%} of the branches gained early, {late:.0%} came late")
    if late >= LATE and 0 < mean("late_branches") <= FEW:
        deeper = min(math.ceil(steps * (1 + CHANGE)), caps.steps, caps.budget)
        why = f"{late:.0%} of the gain came late, on {mean('late_branches'):.0%} of the branches"
        return GridPlan(min(branches, caps.budget // deeper), deeper, f"deepen: {why}")
    return GridPlan(branches, steps, "keep: no sign is strong enough")


def _widened(branches: int, steps: int, caps: Caps, why: str) -> GridPlan:
    wider = min(math.ceil(branches * (1 + CHANGE)), caps.branches, caps.budget)
    return GridPlan(wider, min(steps, caps.budget // wider), f"widen: {why}")


def check_plan(plan: object, caps: Caps) -> GridPlan:
    """The grid to use: the plan if it may be followed, else the present one, with the reason.

    Live runs and replays both have to ask this, so that a plan that was rejected judges no policy either.

    Parameters
    ----------
    plan : a GridPlan, or what came out of a policy: a dictionary with ``branches``, ``steps`` and perhaps ``reason``,
        or None where there is no plan. Anything else is rejected.
    """
    if plan is None:
        return GridPlan(caps.present.branches, caps.present.steps, "no plan; the present grid stays")
    values = vars(plan) if isinstance(plan, GridPlan) else plan
    problem = _problem(values, caps)
    if problem is not None:
        return GridPlan(caps.present.branches, caps.present.steps, f"plan rejected: {problem}; the present grid stays")
    assert isinstance(values, Mapping)
    reason = values.get("reason", "")
    text = printable(reason, _MAX_REASON) if isinstance(reason, str) else ""
    return GridPlan(values["branches"], values["steps"], text)


def _problem(values: object, caps: Caps) -> str | None:
    if type(values) is not dict:
        return f"it is of type {type(values).__name__[:50]}"
    for name, most in (("branches", caps.branches), ("steps", caps.steps)):
        value = values.get(name)
        if type(value) is not int or value < 1:
            return f"{name} is not a whole number of at least 1"
        if value > most:
            return f"more than {most} {name}"
    product = values["branches"] * values["steps"]
    return f"{product} attempts, the budget is {caps.budget}" if product > caps.budget else None


def under_plan(tree: Tree, plan: GridPlan | None) -> Tree:
    """The tree as a replay under a plan sees it: its caps are the plan's, and what lies beyond them is not there.

    Cells that the plan has and the record has not reveal nothing. Without a plan, or with one that is the recorded
    grid, the tree itself is returned. The batches are left out, since they belong to the recorded caps.
    """
    if plan is None or (plan.branches, plan.steps) == (tree.header.branches, tree.header.steps):
        return tree
    numbers: dict[int, int] = {}  # recorded -> kept; a branch goes with the attempt that it forked from
    kept: list[Attempt] = []
    for attempt in tree:
        origin = attempt.origin
        if attempt.attempt == 0:
            there = origin is None or (origin[0] in numbers and origin[1] < plan.steps)
            if not there or len(numbers) == plan.branches:
                continue
            numbers[attempt.branch] = len(numbers)
        elif attempt.branch not in numbers or attempt.attempt >= plan.steps:
            continue
        source = None if origin is None else (numbers[origin[0]], origin[1])
        kept.append(msgspec.structs.replace(attempt, branch=numbers[attempt.branch], origin=source))
    header = msgspec.structs.replace(tree.header, branches=plan.branches, steps=plan.steps)
    return Tree(header, kept, name=tree.name)


def beyond(episode: Episode, tree: Tree, planned: Tree) -> int:
    """Picks of an episode under a plan in cells beyond the recorded grid. They reveal nothing; a live run pays them.

    Parameters
    ----------
    episode : a replay of ``planned``, which is ``tree`` under a plan.
    """
    if planned is tree:
        return 0
    branches, steps = grid(tree)
    cap, depth = grid(planned)
    picks = Counter(pick for batch in episode.picks for pick in batch)
    shown = Counter(episode.reveals)  # in the order in which the branches were opened
    cells = _missed(picks.pop(OPEN, 0) - len(shown), branches - len(planned.branches), cap - branches)
    for number, branch in enumerate(shown):
        empty = picks[number] + 1 - shown[branch]
        cells += _missed(empty, steps - len(planned.branches[branch]), depth - steps)
    return cells


def _missed(empty: int, inside: int, outside: int) -> int:
    """Of the picks that revealed nothing, those beyond the grid: unrecorded cells inside it come first."""
    return min(max(0, empty - max(0, inside)), max(0, outside))
