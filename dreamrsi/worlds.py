"""Synthetic worlds for the recursion: every round has a full tree, and a live run on it is a replay that is recorded.

The rules are in ``synthetic/README.md``, written before any policy was scored on these worlds.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from dreamrsi.errors import UserError
from dreamrsi.policies import Policy
from dreamrsi.prefix import OPEN
from dreamrsi.record import Attempt, Batch, Root
from dreamrsi.replay import Episode, replay
from dreamrsi.synthetic import Family, draw
from dreamrsi.tree import Tree

FAMILIES: dict[str, tuple[Family, tuple[float, float]]] = {
    "late_peak_first": ("late_peak", (0.0, 0.125)),
    "late_peak_last": ("late_peak", (0.75, 1.0)),
    "early_peak": ("early_peak", (0.0, 0.5)),
    "plateau": ("plateau", (0.5, 1.0)),
}
"""World -> how its trees are drawn, and where their winners are, as shares of the branches."""

NAMES = (*FAMILIES, "mixture")
BRANCHES, STEPS, NOISE = 10, 11, 0.05
CEILING = 10.0
LEVEL = 6.0
"""The drawn score that stands for no progress over the root."""


def world(
    name: str,
    seed: int,
    round_: int = 0,
    *,
    root: float = 0.0,
    branches: int = BRANCHES,
    steps: int = STEPS,
    noise: float = NOISE,
) -> Tree:
    """Draw all that a live run could find in one round of the recursion.

    Parameters
    ----------
    name : one of :data:`NAMES`.
    seed, round_ : the draw depends on these two alone; rounds count from 0.
    root : the best score of the rounds before. The gains are in proportion to the room between it and 10.
    branches, steps : the caps; the width is ``branches``.
    noise : standard deviation on the drawn scores, before they are scaled.

    Raises
    ------
    UserError
        A world that does not exist, or a root at or above 10.
    """
    if name not in NAMES:
        raise UserError(f"there is no world {name!r}; choose one of {', '.join(NAMES)}")
    if not root < CEILING:
        raise UserError(f"the root is {root}; there is no room below {CEILING:g}")
    rng = np.random.default_rng([seed, round_])
    kind = str(rng.choice(list(FAMILIES))) if name == "mixture" else name
    family, (low, high) = FAMILIES[kind]
    first = int(low * branches)
    winner = int(rng.integers(first, max(first + 1, int(high * branches))))
    drawn = draw(family, rng, name, winner, family == "early_peak", branches, steps, noise, seed=seed)
    scale = (CEILING - root) / CEILING
    attempts = [
        msgspec.structs.replace(a, score=round(root + scale * (a.score - LEVEL), 6))
        for a in drawn
        if a.score is not None  # all have one
    ]
    about = {"generator": "dreamrsi.worlds", "round": round_, "family": kind, "winner": winner, "noise": noise}
    header = msgspec.structs.replace(drawn.header, task=f"synthetic/{name}", root=Root(root), provenance=about)
    return Tree(header, attempts, name=f"{name}-{seed}-{round_}")


def record(full: Tree, episode: Episode) -> Tree:
    """The tree that a live run leaves behind if it does on a full tree what an episode did there.

    Parameters
    ----------
    full : every branch up to both caps, none forking.
    episode : a replay on it at its recorded width.

    Returns
    -------
    Tree
        The revealed attempts alone, with the batches. As in a live run, empty batches at the end are left out.

    Raises
    ------
    UserError
        The tree lacks attempts that a live run would have made.
    """
    header = full.header
    if header.branches is None or any(len(branch) != header.steps for branch in full.branches):
        raise UserError(f"{full.name}: is not full; a live run could make attempts that it has not recorded")
    order = iter(episode.order)
    attempts: list[Attempt] = []
    batches: list[Batch] = []
    for round_, picks in enumerate(episode.picks):
        opened = len({attempt.branch for attempt in attempts})
        opens = picks.count(OPEN)
        made = len(picks) - opens + min(opens, header.branches - opened)
        batches.append(Batch(picks, round_, made))
        for branch, place in (next(order) for _ in range(made)):
            source = full.branches[branch][place]
            attempts.append(msgspec.structs.replace(source, seq=len(attempts), round=round_))
    while batches and not batches[-1].attempts:
        batches.pop()
    return Tree(msgspec.structs.replace(header, policy=episode.policy), attempts, batches, full.name)


def live(policy: Policy, full: Tree, max_rounds: int | None = None) -> Tree:
    """A live run of a policy on a synthetic world: the record of its replay there, at the world's width."""
    return record(full, replay(policy, full, full.header.width or len(full.branches), max_rounds))


def in_process(source: bytes) -> Policy:
    """A policy from a source that this package wrote itself: it runs here and not in the sandbox.

    Thousands of rounds are made of it, and what it does is known. Sources from elsewhere go through
    :class:`dreamrsi.sandbox.SandboxedPolicy`.
    """
    namespace: dict[str, Any] = {"__name__": "policy"}
    exec(compile(source, "policy.py", "exec"), namespace)
    policy: Policy = namespace["Policy"]()
    return policy
