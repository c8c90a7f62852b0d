"""What the command ``run`` says while it works."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamrsi.console import Console, counted, duration
from dreamrsi.loop import Round, Watch
from dreamrsi.record import Attempt

if TYPE_CHECKING:
    from dreamrsi.dream import Dream


class Progress(Watch):
    """A line for every round, and between them one that is written over; for a log, a line for every attempt."""

    def __init__(self, console: Console, rounds: int, attempts: int) -> None:
        self._console = console
        self._rounds = rounds
        self._all = rounds * attempts
        self._begun = time.monotonic()
        self._made = 0  # in this call
        self._best = -math.inf
        self._number = 0
        self._reasons: set[str] = set()  # that were said

    def begun(self, number: int, policy: str, total: int, there: int) -> None:
        """A round begins."""
        self._number = number
        self._console.line(
            f"round {number} of {self._rounds}: {policy}" + (f", {there} attempts already made" if there else "")
        )

    def attempt(self, done: int, total: int, attempt: Attempt) -> None:
        """An attempt was made."""
        self._made += 1
        if attempt.score is not None:
            self._best = max(self._best, attempt.score)
        result = attempt.status if attempt.score is None else f"{attempt.score:.8g}"
        tag = attempt.tag or "-"
        self._explain(attempt)
        if self._console.is_live:  # what is cut off where the terminal is narrow comes last
            left = f"{self._left(done, total)}, best {self._best:.8g}"
            self._console.running(f"  {done}/{total}, {left}, last {result} by {tag}")
        else:
            self._console.line(f"{done}/{total} branch {attempt.branch} attempt {attempt.attempt}: {tag} {result}")

    def _explain(self, attempt: Attempt) -> None:
        """Say why an attempt failed, each reason once: whoever pays for the calls wants to know at once."""
        reason = _first_line(attempt.error)
        if attempt.score is None and reason not in self._reasons and len(self._reasons) < _MOST_REASONS:
            self._reasons.add(reason)
            self._console.sentence(f"  {attempt.status}: ", reason)

    def dreaming(self, number: int) -> None:
        """A dream begins."""
        self._console.running(f"dreaming before round {number}")

    def dreamt(self, number: int, dream: Dream) -> None:
        """A dream is over."""
        chosen = dream.selected
        kept = "kept the current policy" if chosen.number == 0 else f"selected version {chosen.number}"
        failed = sum(version.error is not None for version in dream.versions)
        self._console.line(f"dream before round {number}: {len(dream.versions)} versions, {failed} failed, {kept}")
        self._console.line(f"  its value is {chosen.value:.6g}, the current policy's {dream.current.value:.6g}")
        for version in dream.versions:
            if version.error is not None:
                self._console.sentence(f"  version {version.number} failed: ", _first_line(version.error))
        for other, reason in dream.disqualified.items():
            self._console.sentence(f"  version {other} was disqualified: ", reason)

    def ended(self, round_: Round) -> None:
        """A round is complete."""
        tree = round_.tree
        self._best = max(self._best, tree.best)
        failed = Counter(attempt.status for attempt in tree if attempt.score is None)
        kinds = f" ({', '.join(f'{count} {status}' for status, count in sorted(failed.items()))})" if failed else ""
        made = f"{counted(len(tree), 'attempt')}, {failed.total()} failed{kinds}"
        self._console.line(f"  {made}, {counted(len(tree.branches), 'branch')}, {counted(len(tree.batches), 'batch')}")
        if round_.guidance is not None and round_.guidance.recommended is not None:
            self._console.line(f"  guidance recommended {round_.guidance.recommended}")
        if tree.best_attempt is not None:
            self._console.line(f"  best of the round {tree.best:.10g}, so far {self._best:.10g}")
        else:
            start = "no score" if tree.root is None else f"{tree.root:.10g}"
            self._console.line(f"  nothing was scored; the start has {start}")
        if round_.failure is not None:
            self._console.sentence("  ended early: ", f"{round_.failure}; the next round begins with the policy before")

    def guarded(self, said: Sequence[str]) -> None:
        """The guards of a gated round."""
        for line in said:
            self._console.line(f"  {line}")

    def _left(self, done: int, total: int) -> str:
        """At most how long it will take: policies may stop early."""
        each = (time.monotonic() - self._begun) / self._made
        rest = self._all - (self._number - 1) * total - done
        return f"at most {duration(rest * each)} left"


_MOST_REASONS = 10


def _first_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[0] if lines else "no reason was given"
