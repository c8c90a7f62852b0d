"""A policy walks a recorded tree. Attempts are revealed, never created (paper, section 3)."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from dreamrsi.errors import IllegalBatch, PolicyError, UserError
from dreamrsi.policies import Policy
from dreamrsi.prefix import OPEN, Branch, Prefix
from dreamrsi.tree import Tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Episode:
    """What one replay or live run did.

    Attributes
    ----------
    policy, tree : their names.
    picks : the batches, one tuple of picks a round.
    reveals : the branch of every attempt revealed, in order.
    best : the best score revealed, the root's included; -inf if there is none, or if the policy failed.
    reason : why it ended: ``stopped`` (empty batch), ``rounds`` (the limit), ``complete`` (all revealed) or ``failed``.
    error : what the policy did wrong, if it failed.
    """

    policy: str
    tree: str
    picks: tuple[tuple[int, ...], ...]
    reveals: Sequence[int]
    best: float
    reason: str
    error: str | None = None

    @property
    def attempts(self) -> int:
        """N of Eq. 1: the attempts revealed."""
        return len(self.reveals)

    @property
    def rounds(self) -> int:
        """k of Eq. 1: the non-empty batches."""
        return len(self.picks)

    @property
    def parallel(self) -> float:
        """N / max(1, k) of Eq. 1: attempts a round."""
        return len(self.reveals) / max(1, len(self.picks))

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """The attempts in the order they were revealed, as (branch, attempt)."""
        places: dict[int, count[int]] = {}
        return tuple((branch, next(places.setdefault(branch, count()))) for branch in self.reveals)

    @property
    def opened(self) -> int:
        """Branches opened."""
        return len(set(self.reveals))


def replay(
    policy: Policy,
    tree: Tree,
    width: int = 8,
    max_rounds: int | None = None,
    *,
    max_opens_per_round: int | None = None,
) -> Episode:
    """Let a policy walk a tree that sees only what it has revealed.

    Parameters
    ----------
    policy : started afresh with ``policy.start(width)``.
    tree : stays as it is.
    width : W, the most picks a batch may hold.
    max_rounds : K2; if None the number of recorded attempts, or of recorded batches if those are more.
    max_opens_per_round : OPENs of a batch that count; further ones reveal nothing. 1 is the literal reading of
        the paper's A(T), a set that holds one root.

    Raises
    ------
    IllegalBatch
        The policy picked what may not be picked.
    PolicyError
        The policy raised.
    """
    if isinstance(policy, (str, type)):
        raise UserError(
            f"policy is {policy!r}; give an object, such as policies.EarlyStop() or policies.make('early_stop')"
        )
    if width < 1:
        raise UserError(f"width is {width}; a batch needs room for at least one pick")
    if max_rounds is not None and max_rounds < 0:
        raise UserError(f"max_rounds is {max_rounds}; it must be at least 0")
    limit = max(len(tree), len(tree.batches)) if max_rounds is None else max_rounds
    prefix = Prefix(tree.world, width)
    name = policy.name
    picks: list[tuple[int, ...]] = []
    reveals: list[int] = []
    reason = "complete"
    total = len(tree)
    ask(name, policy.start, width, 0)
    choose = policy.choose
    while len(reveals) < total:
        if len(picks) >= limit:
            reason = "rounds"
            break
        batch = check_batch(name, prefix, ask(name, choose, prefix, prefix._round))
        if not batch:
            reason = "stopped"
            break
        picks.append(batch)
        reveal(prefix, batch, reveals, max_opens_per_round)
    return Episode(name, tree.name, tuple(picks), reveals, prefix._best, reason)


def ask(policy: str, question: Callable[[Any], T], subject: Any, round_: int) -> T:
    """Call a policy's ``start`` or ``choose``; whatever it raises is a PolicyError that names policy and round."""
    try:
        return question(subject)
    except PolicyError:  # a sandboxed policy says itself what went wrong
        raise
    except Exception as error:
        raise PolicyError(f"policy {policy}, round {round_}: raised {type(error).__name__}: {error}") from error


def check_batch(policy: str, prefix: Prefix, batch: Sequence[int]) -> tuple[int, ...]:
    """Return the batch as a tuple of plain integers.

    Raises
    ------
    IllegalBatch
        Not a list or tuple of integers; too many picks; an unknown branch, one ended by the cap, or one picked twice.
    """
    round_ = prefix._round
    if type(batch) is not list and not (isinstance(batch, Sequence) and not isinstance(batch, (str, bytes))):
        problem = f"returned {type(batch).__name__}; return a list of picks, empty to stop"
        raise IllegalBatch(f"policy {policy}, round {round_}: {problem}")
    picks = tuple(batch)  # once: a list of the policy's own making may show other picks each time
    if len(picks) > prefix._width:
        raise IllegalBatch(f"policy {policy}, round {round_}: {len(picks)} picks; the width allows {prefix._width}")
    branches = prefix._opened
    opened = len(branches)
    steps = prefix._world.header.steps
    for pick in picks:
        if type(pick) is not int:
            picks = tuple(_plain(policy, round_, place, pick) for place, pick in enumerate(picks))
            break
    for place, pick in enumerate(picks):
        if pick == OPEN:
            continue
        if not 0 <= pick < opened:
            raise _illegal(policy, round_, place, f"branch {pick} is not open; {opened} are, counted from 0")
        branch = branches[pick]
        if branch._n == steps:
            raise _illegal(
                policy, round_, place, f"branch {pick} has ended, it has all {steps} attempts that the cap allows"
            )
        if branch._picked == round_:
            raise _illegal(policy, round_, place, f"branch {pick} is picked twice in one batch")
        branch._picked = round_
    return picks


def _plain(policy: str, round_: int, place: int, pick: object) -> int:
    """A pick as a plain integer: numpy's integers are fine, booleans and floats are not."""
    try:
        if not isinstance(pick, bool):
            return operator.index(pick)  # type: ignore[arg-type]  # whether it can is the question
    except Exception:  # whatever an object of the policy's own does
        pass
    raise _illegal(policy, round_, place, f"{pick!r} is not a branch number")


def _illegal(policy: str, round_: int, place: int, problem: str) -> IllegalBatch:
    return IllegalBatch(f"policy {policy}, round {round_}, pick {place}: {problem}")


def reveal(prefix: Prefix, batch: tuple[int, ...], reveals: list[int], max_opens: int | None = None) -> None:
    """Show the recorded outcome of a checked batch; ``reveals`` gets the recorded branch of every attempt shown."""
    world = prefix._world
    steps = world.header.steps
    branches = prefix._opened
    shown = len(reveals)
    best = prefix._best
    opens = 0
    for pick in batch:
        if pick >= 0:
            branch = branches[pick]
            n = branch._n
            if n == len(branch._chain.scores):
                branch._ended = True
                continue
            branch._n = n + 1
            if n + 1 == steps:
                branch._ended = True
        else:
            opens += 1
            if max_opens is not None and opens > max_opens:
                continue
            opened = _open(prefix, steps)
            if opened is None:
                prefix._open_failed = shown
                continue
            branch, n = opened, 0
        reveals.append(branch._recorded)
        score = branch._chain.scores[n]
        if score > best:
            best = score
    if world.children:
        _offer_forks(prefix, reveals[shown:])
    prefix._best = best
    prefix._revealed = len(reveals)
    prefix._round += 1


def _offer_forks(prefix: Prefix, revealed: Sequence[int]) -> None:
    """Make what forks from this round's attempts openable from the next round on: the picks of a batch are parallel."""
    children = prefix._world.children
    for recorded in revealed:  # once a round and branch, since a batch picks no branch twice
        place = (recorded, prefix._opened[prefix._numbers[recorded]]._n - 1)
        for child in children.get(place, ()):
            heapq.heappush(prefix._available, child)


def _open(prefix: Prefix, steps: int | None) -> Branch | None:
    """Open the earliest-created unopened branch whose origin is revealed; None if there is none."""
    world = prefix._world
    roots, available, branches = world.roots, prefix._available, prefix._opened
    if prefix._next < len(roots) and not (available and available[0] < roots[prefix._next]):
        recorded = roots[prefix._next]
        prefix._next += 1
    elif available:
        recorded = heapq.heappop(available)
    else:
        return None
    chain = world.chains[recorded]
    origin = chain.origin
    if world.children:
        prefix._numbers[recorded] = len(branches)
        if origin is not None:
            origin = (prefix._numbers[origin[0]], origin[1])
    branch = Branch(len(branches), recorded, chain, origin, steps == 1)
    branches.append(branch)
    return branch


def failed(policy: str, tree: str, error: PolicyError) -> Episode:
    """The episode of a policy that broke its contract: it revealed nothing and scores -inf."""
    return Episode(policy, tree, (), (), -math.inf, "failed", str(error))


def replay_all(
    policies: Iterable[Policy], trees: Sequence[Tree], width: int | None = 8, max_rounds: int | None = None
) -> dict[str, list[Episode]]:
    """Replay every policy on every tree: policy name -> one episode a tree.

    ``width`` None replays every tree at the width it was recorded at, 8 where its header has none. A policy that fails
    on a tree gets a failed episode there, and the others go on.
    """
    episodes: dict[str, list[Episode]] = {}
    for policy in policies:
        if policy.name in episodes:
            raise UserError(f"two policies are named {policy.name}; give each its own name")
        row = episodes[policy.name] = []
        for tree in trees:
            recorded = tree.header.width or 8
            try:
                row.append(replay(policy, tree, recorded if width is None else width, max_rounds))
            except PolicyError as error:
                row.append(failed(policy.name, tree.name, error))
    return episodes
