"""Where the winners of recorded trees are, and whether a policy gets there."""

from __future__ import annotations

from collections import Counter

import msgspec

from dreamrsi.decision import Settings
from dreamrsi.errors import UserError
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree


class Covered(msgspec.Struct, frozen=True):
    """One winning attempt, and whether an episode reached it.

    ``revealed`` is how many attempts of its branch were revealed, 0 if the branch was never opened; ``missed`` says
    why the attempt was not, None if it was.
    """

    tree: str
    branch: int
    attempt: int
    score: float
    revealed: int
    missed: str | None


def winners(tree: Tree) -> list[tuple[int, int]]:
    """The (branch, attempt) of the best score, one on every branch that holds it: the first there.

    The root is no attempt, so a tree whose root was never beaten has winners too. Empty if nothing was scored.
    """
    if tree.best_attempt is None:
        return []
    best = tree.best_attempt.score
    return [(n, chain.scores.index(best)) for n, chain in enumerate(tree.world.chains) if chain.tops[-1] == best]


def coverage(tree: Tree, episode: Episode) -> list[Covered]:
    """Look up every winning attempt of a tree in an episode: one row each."""
    counts = Counter(episode.reveals)
    opened = f"{len(counts)} of {len(tree.branches)} branches were opened"
    rows = []
    for branch, attempt in winners(tree):
        revealed = counts[branch]
        missed = None
        if not revealed:
            missed = f"never opened ({opened})"
        elif revealed <= attempt:
            missed = f"opened, but left after attempt {revealed - 1}"
        score = tree.world.chains[branch].scores[attempt]
        rows.append(Covered(tree.name, branch, attempt, score, revealed, missed))
    return rows


def workspaces_needed(tree: Tree) -> int:
    """How many branches a run has to open, in the recorded order, to get to every branch that holds the winner."""
    return max((branch + 1 for branch, _ in winners(tree)), default=0)


def as_deployed(tree: Tree, settings: Settings) -> Tree:
    """The tree as a run with these caps would have seen it: without the branches and attempts beyond them.

    Caps wider than the recorded ones change nothing, since nothing was recorded there.

    Raises
    ------
    UserError
        The caps cut a tree whose branches fork: which attempts a shallower run would have made is not recorded.
    """
    branches = _smaller(tree.header.branches, settings.branches)
    steps = _smaller(tree.header.steps, settings.steps)
    if (branches, steps) == (tree.header.branches, tree.header.steps):
        return tree
    kept = [
        attempt
        for attempt in tree
        if (branches is None or attempt.branch < branches) and (steps is None or attempt.attempt < steps)
    ]
    if tree.world.children and len(kept) < len(tree):
        raise UserError(f"{tree.name}: its branches fork, so it cannot show what fewer branches or steps would do")
    return Tree(msgspec.structs.replace(tree.header, branches=branches, steps=steps), kept, name=tree.name)


def _smaller(recorded: int | None, cap: int | None) -> int | None:
    return min((value for value in (recorded, cap) if value is not None), default=None)
