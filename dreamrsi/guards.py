"""What guards a gated live round: the frozen numbers, when a run is killed, and when a policy is rolled back.

Both rules are functions of the tree and of numbers that were frozen before the round began. Without such numbers they
fire: a round that nothing guards is not run.
"""

from __future__ import annotations

import msgspec

from dreamrsi.coverage import winners
from dreamrsi.decision import percent
from dreamrsi.rules import keeps_quality
from dreamrsi.suite import Suite
from dreamrsi.tree import Tree


class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of the last frozen round that a gated live round is held to.

    Attributes
    ----------
    calls : the ceiling, attempts that the last round made.
    quality : the best score of the last round; at most ``max_drop`` of it may be lost.
    opened : branches that the last round opened; they are numbered from 0.
    required : branches beyond these that the gate required, since they held a winner.
    """

    calls: int
    quality: float
    opened: int
    required: tuple[int, ...]
    max_drop: float


def frozen_numbers(suite: Suite) -> Frozen:
    """Copy the numbers of a suite's last round."""
    tree, manifest = suite.trees[-1], suite.manifest
    opened = len(tree.branches)
    held = {branch for other in suite.trees[-manifest.last :] for branch, _ in winners(other)}
    required = tuple(sorted(branch for branch in held if branch >= opened))
    return Frozen(len(tree), tree.best, opened, required, manifest.max_drop)


def kill(calls: int, frozen: Frozen | None, batch: int = 0) -> str | None:
    """Whether a live round has to be ended now.

    Parameters
    ----------
    calls : attempts made so far.
    frozen : numbers of the last round; None if they are not there.
    batch : attempts that the policy asks for next. A batch that would go beyond the ceiling is not started.

    Returns
    -------
    str or None
        Why it has to end; None if it may go on.
    """
    if frozen is None:
        return "the numbers of the last frozen round are missing"
    if calls >= frozen.calls:
        return f"{calls} calls were made, and the ceiling is {frozen.calls}"
    if calls + batch > frozen.calls:
        return f"the next batch would make {calls + batch} calls, and the ceiling is {frozen.calls}"
    return None


def rollback_reasons(tree: Tree, frozen: Frozen | None) -> tuple[str, ...]:
    """Why the policy of a closed live round has to be taken back; empty if it may stay.

    Parameters
    ----------
    tree : the round, closed.
    frozen : numbers of the last round before it; None if they are not there.
    """
    if frozen is None:
        return ("the numbers of the last frozen round are missing",)
    best = tree.best_attempt
    if best is None:
        return ("no attempt of the round has a score",)
    fired = []
    if not keeps_quality(tree.best, frozen.quality, frozen.max_drop):
        last = f"the last round's {frozen.quality:.6g}"
        fired.append(f"quality {tree.best:.6g} is more than {percent(frozen.max_drop)} below {last}")
    if best.branch >= frozen.opened and best.branch not in frozen.required:
        where = f"branch {best.branch}, which the last round never opened ({frozen.opened} were)"
        fired.append(f"the best attempt sits on {where} and the gate did not require")
    return tuple(fired)
