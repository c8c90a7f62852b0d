"""What the dreaming arm does before a round: develop the policy, set its knob, plan its grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from dreamrsi import grid_plan
from dreamrsi.developers import Developer
from dreamrsi.dream import Dream, dream
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.grid_plan import GridPlan
from dreamrsi.judge import Objective, Revise, Settings
from dreamrsi.objective import history, scaled_betas
from dreamrsi.policy_file import Deployed
from dreamrsi.sandbox import Limits, SandboxedPolicy
from dreamrsi.sweep_score import next_beta, sweep_score
from dreamrsi.tree import Tree

Plan = Literal["policy", "rule", "none"]


@dataclass(frozen=True)
class Caps:
    """The limits of every round: the most branches, attempts a branch, W, and K2."""

    workspaces: int
    steps: int
    width: int
    limit: int


@dataclass(frozen=True)
class Dreaming:
    """How policies are developed in this run."""

    developer: Developer
    versions: int
    beta1: float | None
    beta2: float | None
    objective: Objective
    revise: Revise
    plan: Plan
    max_rounds: int | None
    width: int
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """For the run's configuration."""
        names = ("versions", "beta1", "beta2", "objective", "revise", "plan")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Refuse a wrong setting now, and not after the first round."""
        Settings(
            versions=self.versions,
            beta1=self.beta1 or 0.0,
            beta2=self.beta2 or 0.0,
            width=self.width,
            seed=self.seed,
            max_rounds=self.max_rounds,
            objective=self.objective,
            revise=self.revise,
            normalise=None,
            limits=Limits(),
            confirm=True,
        ).check()
        if self.plan not in get_args(Plan):
            raise UserError(f"plan is {self.plan!r}; it is one of {', '.join(get_args(Plan))}")

    def knob(self, beta: float, trees: Sequence[Tree], dream: Dream) -> tuple[float, str] | None:
        """What to set the selected policy's knob to, and why; None under Eq. 1, which knows no knob."""
        if self.objective != "sweep":
            return None
        grid = dream.grids[dream.selected.number]
        bests = list(accumulate((tree.best for tree in trees), max))
        return next_beta(beta, bests, sweep_score(grid, history(trees), self.width) if grid else None)

    def grid(self, policy: SandboxedPolicy, trees: Sequence[Tree], caps: Caps, present: GridPlan) -> GridPlan:
        """The caps of the next round; a plan that fails or may not be followed leaves them as they are."""
        budget = caps.workspaces * caps.steps
        limits = grid_plan.Caps(budget, budget, budget, present)
        summaries = [grid_plan.summarise(tree) for tree in trees]
        if self.plan == "rule":
            return grid_plan.plan_grid(summaries, limits)
        if self.plan == "none":
            return present
        try:
            return grid_plan.check_plan(policy.plan_grid([summary.to_json() for summary in summaries]), limits)
        except PolicyError as error:
            return GridPlan(present.branches, present.steps, f"plan failed: {error}; the present grid stays")

    def dream(self, number: int, trees: Sequence[Tree], current: Deployed, folder: Path) -> Dream:
        """Develop the policy of round ``number`` from the trees before it."""
        # The scale of the first tree with scores, once and for all: with a scale that moved, so would the trade.
        scaled = scaled_betas([next(tree for tree in trees if tree.best_attempt is not None)])
        return dream(
            trees,
            current.source,
            self.developer,
            versions=self.versions,
            beta1=scaled[0] if self.beta1 is None else self.beta1,
            beta2=scaled[1] if self.beta2 is None else self.beta2,
            width=self.width,
            max_rounds=self.max_rounds,
            objective=self.objective,
            revise=self.revise,
            seed=_seed(self.seed, number),
            folder=folder,
            current_notes=current.notes,
        )


def _seed(seed: int, number: int) -> int:
    """The seed of the dream before round ``number``."""
    import numpy as np

    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])
