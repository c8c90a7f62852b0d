"""Agents: what writes the next candidate of a workspace."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dreamrsi.guidance import Guidance
from dreamrsi.record import Attempt, Status
from dreamrsi.tasks import Task
from dreamrsi.workspace import Files

HISTORY = "history.json"
BEST = "best/"
HELPS = 1e-9
"""A smaller gain is rounding, not progress."""


@dataclass(frozen=True)
class Proposal:
    """What an agent made: the workspace with its next candidate, and a tag that names the mechanism it used.

    ``metrics`` (JSON values) are kept with the attempt, under ``agent``.
    """

    files: Files
    tag: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What an agent is told beside the files.

    Attributes
    ----------
    seed : differs from attempt to attempt; all randomness must come from it for a run to be repeatable.
    score : of the candidate in the files; None if it has none.
    earlier : the branch's attempts so far, in order: scores, statuses, errors, tags. Also those that left no files.
    guidance : what worked in earlier rounds, if the run gives such advice.
    """

    seed: int
    score: float | None = None
    earlier: tuple[Attempt, ...] = ()
    guidance: Guidance | None = None


class AgentFailure(Exception):
    """An attempt that the agent itself gives up: it gets this status, this text, these metrics and this tag."""

    def __init__(
        self,
        text: str,
        status: Status = "error",
        metrics: Mapping[str, Any] | None = None,
        tag: str | None = None,
    ) -> None:
        super().__init__(text, status, metrics, tag)
        self.text = text
        self.status = status
        self.metrics = dict(metrics or {})
        self.tag = tag


class Agent(Protocol):
    """What a live run asks of an agent. It works in a child process, so it must be picklable.

    If it has a method ``check(task)``, a recursion calls that before anything starts; it raises a UserError where the
    agent cannot work on the task.
    """

    @property
    def name(self) -> str:
        """Its name in the configuration of a run."""

    def attempt(self, task: Task, files: Files, context: Context) -> Proposal:
        """Write the next candidate.

        Parameters
        ----------
        task : what is searched.
        files : the workspace as the nearest earlier attempt of the branch left it.
        context : what else is known.

        Raises
        ------
        AgentFailure
            There is no candidate, and the attempt is to say why.
        """


class MoveAgent:
    """The offline agent: applies one of the task's moves to the best candidate that its branch has had so far.

    A move starts from the best candidate of the branch up to the parent, which may be older than the parent's own.
    The workspace that the parent left holds the best before it, in ``best/``; the parent's own takes its place if its
    score is higher. So a step that made things worse is not built upon. Before anything has scored, a move starts
    from the parent's own.

    The move is drawn with weight (1 + times it raised the workspace's best) / (2 + times it was tried);
    ``history.json`` in the workspace lists the moves tried and what each gained. Guidance multiplies the weights of the
    moves it advises. As all this is kept in the workspace, an attempt is a function of (the parent's files, seed), and
    of the round's guidance where there is one.
    """

    name = "moves"

    def attempt(self, task: Task, files: Files, context: Context) -> Proposal:
        """Learn from the parent's score, then draw a move and apply it to the best so far. The tag is its name."""
        score = context.score
        history = _learn(files, score)
        candidate = {name: content for name, content in files.items() if name != HISTORY and not name.startswith(BEST)}
        kept = {name: content for name, content in files.items() if name.startswith(BEST)}
        if score is not None and score == history["best"]:
            kept = {BEST + name: content for name, content in candidate.items()}
        start = {name.removeprefix(BEST): content for name, content in kept.items()} or candidate
        draw = random.Random(context.seed)
        names = list(task.moves)
        advised = context.guidance.weights if context.guidance is not None else {}
        weights = [_weight(history["tries"], name) * advised.get(name, 1.0) for name in names]
        move = draw.choices(names, weights)[0]
        try:
            made = task.moves[move](start, draw.getrandbits(63))
        except Exception as error:
            raise AgentFailure(f"{type(error).__name__}: {error}", tag=move) from error
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
