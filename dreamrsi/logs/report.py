"""What an import found, and what the log could not say."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dreamrsi.console import counted
from dreamrsi.errors import UserError
from dreamrsi.logs.rows import Direction, Grown, Log


@dataclass
class Report:
    """The account of one import: ``attempted = kept + lost`` and ``kept = scored + failed + rejected + unknown``.

    ``lost`` are attempts that the log shows were made and that left nothing to import. ``copies`` are rows of
    programs that are there already. ``parents_missing`` are attempts whose parent the log names and does not hold
    (evicted, say); ``parents_unknown`` those that had a parent which the log does not name.
    """

    format: str
    score: str
    direction: Direction
    direction_from: str
    attempted: int
    kept: int
    lost: int
    scored: int
    failed: int
    rejected: int
    unknown: int
    copies: int
    parents_missing: int
    parents_unknown: int
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for machines."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report as a reader sees it, one line an entry."""
        better = "higher is better" if self.direction == "max" else "lower is better, so the tree holds -score"
        return [
            f"attempted {self.attempted}: kept {self.kept}, left nothing in the log {self.lost}",
            f"kept {self.kept}: scored {self.scored}, failed {self.failed}, rejected {self.rejected}, "
            f"unknown {self.unknown}",
            f"copies collapsed {self.copies}; parents evicted or missing {self.parents_missing}, "
            f"not named {self.parents_unknown}",
            f"score: {self.score}; direction {self.direction} ({better}), {self.direction_from}",
            *(f"note: {note}" for note in self.notes),
        ]


def settle(log: Log, asked: Direction | None) -> tuple[Direction, str]:
    """Return the direction of the score, and where it comes from.

    Raises
    ------
    UserError
        Neither the log nor the user says it, or the two contradict each other.
    """
    if log.direction is None:
        if asked is None:
            raise UserError(f"the log does not say whether higher is better ({log.score}); give --direction max or min")
        return asked, "given with --direction"
    if asked is not None and asked != log.direction:
        raise UserError(
            f"--direction {asked} contradicts the log, where the direction is {log.direction}: {log.because}"
        )
    return log.direction, log.because


def account(name: str, log: Log, grown: Grown, direction: Direction, source: str) -> Report:
    """Count what was kept, and say what happened on the way."""
    statuses = [attempt.status for attempt in grown.attempts]
    kept = len(statuses)
    failed = sum(statuses.count(status) for status in ("invalid", "error", "timeout"))
    return Report(
        format=name,
        score=log.score,
        direction=direction,
        direction_from=source,
        attempted=kept + log.lost,
        kept=kept,
        lost=log.lost,
        scored=statuses.count("ok"),
        failed=failed,
        rejected=statuses.count("rejected"),
        unknown=statuses.count("unknown"),
        copies=log.copies + grown.copies + max(0, grown.starts - 1),
        parents_missing=grown.missing,
        parents_unknown=grown.orphans,
        notes=[*log.notes, *_what_happened(log, grown)],
    )


def _what_happened(log: Log, grown: Grown) -> list[str]:
    notes = []
    starts = sum(row.start for row in log.rows)
    if not grown.attempts:
        notes.append("the log holds no attempt; the tree is empty, and no policy can be scored on it")
    elif not any(attempt.status == "ok" for attempt in grown.attempts):
        notes.append("no attempt has a score; no policy can be scored on this tree")
    if starts and not grown.starts:
        notes.append(f"{starts} starting programs differ in score: kept as attempts, under a root without a score")
    if grown.starts > 1:
        notes.append(f"the starting program is there {grown.starts} times, with one score: it is one root")
    if grown.starts and grown.root is None:
        notes.append("the starting program has no valid score, so the root has none")
    if not starts:
        notes.append("the log has no starting program, so the root has no score")
    if lost := grown.missing + grown.orphans:
        notes.append(
            f"{counted(lost, 'attempt')} started a branch at the root because the log does not hold the parent; a "
            "replay may open it earlier than the run could have"
        )
    if grown.moved:
        notes.append(f"{counted(grown.moved, 'attempt')} stood after the children in the log, and came before them")
    if grown.dropped:
        notes.append(f"{counted(grown.dropped, 'attempt')} without success had a number for a score; it was left out")
    if grown.endless:
        notes.append(f"{counted(grown.endless, 'attempt')} had NaN or an infinity for a score, and so failed")
    return notes
