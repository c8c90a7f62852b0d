"""What an episode revealed, round by round: as data, and as text for a developer. Nothing unrevealed is in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dreamrsi.prefix import OPEN, Branch, Prefix
from dreamrsi.record import Attempt
from dreamrsi.replay import Episode, reveal
from dreamrsi.sandbox_server import printable
from dreamrsi.tree import Tree

MAX_TRACE = 16_000
"""Characters a trace may have; what is too much is cut out of the middle of the rounds, with a line that says so."""

REASONS = {
    "stopped": "stopped by the policy",
    "rounds": "ended by the limit of rounds",
    "complete": "everything recorded was revealed",
    "failed": "failed",
}
"""Why an episode ended, in words."""

_MAX_LINE = 1_000
_MAX_TAG = 40


@dataclass(frozen=True)
class Shown:
    """One attempt as it was revealed; ``branch`` is the number that the policy knows the branch by."""

    branch: int
    number: int
    attempt: Attempt
    origin: tuple[int, int] | None


@dataclass(frozen=True)
class Round:
    """One round of an episode.

    Attributes
    ----------
    number : counts from 0.
    picks : the batch.
    shown : the attempts revealed, in the order of the picks.
    empty : the picks that revealed nothing.
    best : the best score so far, the root's included; -inf while there is none.
    live : how many opened branches have not ended.
    can_open : whether the policy was told that a branch can still be opened.
    """

    number: int
    picks: tuple[int, ...]
    shown: tuple[Shown, ...]
    empty: tuple[int, ...]
    best: float
    live: int
    can_open: bool


def rounds(episode: Episode, tree: Tree) -> list[Round]:
    """Walk the picks of an episode once more.

    Parameters
    ----------
    episode : made on this tree without a limit of openings a round.
    tree : stays as it is.
    """
    prefix = Prefix(tree.world, max(map(len, episode.picks), default=1))
    reveals: list[int] = []
    walked = []
    ended: set[int] = set()
    for number, picks in enumerate(episode.picks):
        opened = len(prefix.branches)
        before = {pick: prefix.branches[pick].attempts for pick in picks if pick != OPEN}
        reveal(prefix, picks, reveals)
        shown, empty = _shown(tree, prefix, picks, before, opened)
        touched = [*before, *range(opened, len(prefix.branches))]
        ended.update(branch for branch in touched if prefix.branches[branch].ended)
        live = len(prefix.branches) - len(ended)
        walked.append(Round(number, picks, tuple(shown), tuple(empty), prefix.best, live, prefix.can_open))
    return walked


def _shown(
    tree: Tree, prefix: Prefix, picks: Sequence[int], before: Mapping[int, int], opened: int
) -> tuple[list[Shown], list[int]]:
    """What each pick revealed, and the picks that revealed nothing; ``opened`` branches were open before."""
    new = iter(prefix.branches[opened:])
    shown, empty = [], []
    for pick in picks:
        branch: Branch | None = next(new, None) if pick == OPEN else prefix.branches[pick]
        if branch is None or branch.attempts == before.get(branch.number, 0):
            empty.append(pick)
        else:
            number = branch.attempts - 1
            attempt = tree.branches[branch._recorded][number]
            shown.append(Shown(branch.number, number, attempt, branch.origin if number == 0 else None))
    return shown, empty


def brief(episode: Episode, tree: Tree) -> list[str]:
    """One line a round: the picks, and how many attempts they revealed."""
    return [
        f"round {r.number:2d}  picks {_names(r.picks)}  -> {len(r.shown)} attempts, best so far {r.best:g}"
        for r in rounds(episode, tree)
    ]


def trace(
    episode: Episode,
    tree: Tree,
    *,
    label: str,
    width: int,
    beta1: float,
    beta2: float,
    scale: str | None = None,
    limit: int = MAX_TRACE,
) -> str:
    """What the replay of a version on one tree revealed, for the developer of the next version.

    Round by round: the picks; branch, place, score or status, and tag of every attempt revealed; which picks revealed
    nothing; what the policy was told. Then the terms of Eq. 1. It depends on nothing that was not revealed, so a
    developer can learn from it only what the policy could.

    Parameters
    ----------
    label : what the tree is called; neither its file, which holds what was not revealed, nor its task, whose name may
        say what it is like (``synthetic/late_peak``) and which no policy sees.
    width, beta1, beta2 : W and the weights of Eq. 1.
    scale : what V's first term is divided by, in words, where the scores are normalised: the number itself would tell
        the best recorded score. V is left out then.
    limit : characters, at least 2,000.
    """
    header = tree.header
    caps = f"branches {header.branches or 'no cap'}, attempts a branch {header.steps or 'no cap'}"
    root = "no score" if tree.root is None else f"{tree.root:.10g}"
    head = [
        label,
        f"width {width}; caps: {caps}; root {root}; advised tag {_tag(header.recommended) or 'none'}",
        "",
    ]
    body = [_line(round_) for round_ in rounds(episode, tree)]
    tail = ["", *_summary(episode, beta1, beta2, scale)]
    size = sum(len(line) + 1 for line in (*head, *tail))
    return "\n".join([*head, *_bounded(body, limit - size), *tail]) + "\n"


def _summary(episode: Episode, beta1: float, beta2: float, scale: str | None) -> list[str]:
    """How the episode ended, and the terms of its score."""
    if episode.reason == "failed":
        return [f"The policy failed, and V is -inf: {_plain(episode.error or 'no reason given', _MAX_LINE)}"]
    n, k, parallel = episode.attempts, episode.rounds, episode.parallel
    best = f"{episode.best:.10g}" if math.isfinite(episode.best) else "-inf (nothing scored)"
    lines = [
        f"{REASONS[episode.reason]} after k = {k} rounds and N = {n} attempts",
        f"best revealed {best}",
        f"cost of the attempts: beta1 * N = {beta1:g} * {n} = {beta1 * n:.6g}",
        f"worth of working in parallel: beta2 * N/max(1, k) = {beta2:g} * {parallel:.6g} = {beta2 * parallel:.6g}",
    ]
    if scale is not None:
        return [*lines, f"V = best/({scale}) - cost + worth"]
    return [*lines, f"V = best - cost + worth = {episode.best - beta1 * n + beta2 * parallel:.10g}"]


def _line(round_: Round) -> str:
    found = "  ".join(_attempt(shown) for shown in round_.shown) or "nothing"
    empty = f"; revealed nothing: {_names(round_.empty)}" if round_.empty else ""
    told = f"best {round_.best:.10g}, {round_.live} live branches, {'can' if round_.can_open else 'cannot'} open"
    line = f"round {round_.number}: picks {_names(round_.picks)} -> "
    room = _MAX_LINE - len(told) - 3
    text = line + found + empty
    return (text if len(text) <= room else text[: room - 4] + " ...") + f" | {told}"


def _attempt(shown: Shown) -> str:
    """``branch.attempt=score`` or ``branch.attempt=status``; the first of a branch with its tag and origin."""
    score = shown.attempt.status if shown.attempt.score is None else f"{shown.attempt.score:.10g}"
    text = f"{shown.branch}.{shown.number}={score}"
    if shown.number == 0 and shown.attempt.tag is not None:
        text += f" [{_tag(shown.attempt.tag)}]"
    if shown.origin is not None:
        text += f" from {shown.origin[0]}.{shown.origin[1]}"
    return text


def _names(picks: Sequence[int]) -> str:
    return " ".join("open" if pick == OPEN else str(pick) for pick in picks)


def _tag(tag: str | None) -> str | None:
    return None if tag is None else _plain(tag, _MAX_TAG)


def _plain(text: str, limit: int) -> str:
    """A text from a record or a policy on one line and of bounded size: it may have been written to mislead."""
    return printable(text, limit) + (" ..." if len(text) > limit else "")


def _bounded(lines: list[str], room: int) -> list[str]:
    """The lines, or as many of the first and last ones as there is room for."""
    if sum(len(line) + 1 for line in lines) <= room:
        return lines
    room -= 40  # for the line that says what is left out
    first, last = 0, len(lines)
    while first < last:
        line = lines[first] if first <= len(lines) - last else lines[last - 1]
        room -= len(line) + 1
        if room < 0:
            break
        if first <= len(lines) - last:
            first += 1
        else:
            last -= 1
    return [*lines[:first], f"... {last - first} rounds left out ...", *lines[last:]]
