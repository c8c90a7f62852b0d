"""Agents: what writes the next candidate of a workspace."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any, Protocol

from dreamrsi.tasks import Task
from dreamrsi.workspace import Files

HISTORY = "history.json"
BEST = "best/"
HELPS = 1e-9
"""A smaller gain is rounding, not progress."""


@dataclass(frozen=True)
class Proposal:
    """What an agent made: the workspace with its next candidate, and a tag that names the mechanism it used."""

    files: Files
    tag: str | None = None


class Agent(Protocol):
    """What a live run asks of an agent. It works in a child process, so it must be picklable."""

    @property
    def name(self) -> str:
        """Its name in the configuration of a run."""

    def attempt(self, task: Task, files: Files, score: float | None, seed: int) -> Proposal:
        """Write the next candidate.

        Parameters
        ----------
        task : what is searched.
        files : the workspace as the parent left it.
        score : the score of the candidate in ``files``; None if it has none.
        seed : differs from attempt to attempt; all randomness must come from it for a run to be repeatable.
        """


class MoveAgent:
    """The offline agent: applies one of the task's moves to the best candidate that its branch has had so far.

    A move starts from the best candidate of the branch up to the parent, which may be older than the parent's own.
    The workspace that the parent left holds the best before it, in ``best/``; the parent's own takes its place if its
    score is higher. So a step that made things worse is not built upon. Before anything has scored, a move starts
    from the parent's own.

    The move is drawn with weight (1 + times it raised the workspace's best) / (2 + times it was tried);
    ``history.json`` in the workspace lists the moves tried and what each gained. As all this is kept in the workspace,
    an attempt is a function of (the parent's files, seed).
    """

    name = "moves"

    def attempt(self, task: Task, files: Files, score: float | None, seed: int) -> Proposal:
        """Learn from the parent's score, then draw a move and apply it to the best so far. The tag is its name."""
        history = _learn(files, score)
        candidate = {name: content for name, content in files.items() if name != HISTORY and not name.startswith(BEST)}
        kept = {name: content for name, content in files.items() if name.startswith(BEST)}
        if score is not None and score == history["best"]:
            kept = {BEST + name: content for name, content in candidate.items()}
        start = {name.removeprefix(BEST): content for name, content in kept.items()} or candidate
        draw = random.Random(seed)
        names = list(task.moves)
        move = draw.choices(names, [_weight(history["tries"], name) for name in names])[0]
        made = task.moves[move](start, draw.getrandbits(63))
        history["tries"].append({"move": move, "gain": None})
        return Proposal({**made, **kept, HISTORY: (json.dumps(history, indent=1) + "\n").encode()}, move)


def _learn(files: Files, score: float | None) -> dict[str, Any]:
    """The history, with the gain of the parent's move filled in; the gain of a failed move stays None."""
    history: dict[str, Any] = json.loads(files.get(HISTORY, b'{"best": null, "tries": []}'))
    best = history["best"]
    if score is not None:
        if history["tries"] and best is not None:
            history["tries"][-1]["gain"] = score - best
        if best is None or score > best:
            history["best"] = score
    return history


def _weight(tries: list[dict[str, Any]], move: str) -> float:
    gains: list[float | None] = [entry["gain"] for entry in tries if entry["move"] == move]
    return (1 + sum(gain is not None and gain > HELPS for gain in gains)) / (2 + len(gains))
