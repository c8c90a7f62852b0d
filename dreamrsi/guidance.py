"""Guidance: what worked in the rounds so far, told to the agent before the next one (paper, figure 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dreamrsi.record import Attempt

if TYPE_CHECKING:
    from dreamrsi.tree import Tree

STRONGEST = 4.0
"""No mechanism is advised, or advised against, by more than this factor: advice must not end the search for others."""
FEW = 3
"""A mechanism tried less often than this is not recommended: one success says little."""
_SHOWN = 5


@dataclass(frozen=True)
class Guidance:
    """Advice for an agent.

    Attributes
    ----------
    text : for an agent that reads.
    weights : mechanism (an attempt's tag) -> factor by which it should be tried more often, for an agent that draws.
    recommended : the mechanism that helped most, which policies see as ``prefix.advice``; None if none stood out.
    """

    text: str
    weights: Mapping[str, float] = field(default_factory=dict)
    recommended: str | None = None


@dataclass
class _Record:
    """What one mechanism did: attempts, those that raised their branch's best, those without a score, gains."""

    tries: int = 0
    helped: int = 0
    failed: int = 0
    gain: float = 0.0

    @property
    def rate(self) -> float:
        """The share of its attempts that helped, drawn towards one half while they are few."""
        return (1 + self.helped) / (2 + self.tries)


def summarise(trees: Sequence[Tree]) -> Guidance:
    """What worked in finished rounds: which mechanisms (tags) raised the best of their branch, and why attempts failed.

    A mechanism's weight is its rate of success over the mean rate of all, between 1/4 and 4. An attempt succeeds where
    its score is above the best of its branch so far, the root's included.
    """
    records = _records(trees)
    if not records:
        return Guidance(_text(trees, records, None))
    mean = sum(record.rate for record in records.values()) / len(records)
    weights = {tag: min(STRONGEST, max(1 / STRONGEST, record.rate / mean)) for tag, record in records.items()}
    proved = [tag for tag, record in records.items() if record.tries >= FEW and record.helped]
    best = max(proved, key=lambda tag: records[tag].rate, default=None)
    return Guidance(_text(trees, records, best), weights, best)


def _records(trees: Sequence[Tree]) -> dict[str, _Record]:
    """Mechanism -> what it did, in alphabetical order."""
    records: dict[str, _Record] = {}
    for tree in trees:
        for branch in tree.branches:
            best = tree.root
            for attempt in branch:
                if attempt.tag is not None:
                    _add(records.setdefault(attempt.tag, _Record()), attempt, best)
                if attempt.score is not None and (best is None or attempt.score > best):
                    best = attempt.score
    return dict(sorted(records.items()))


def _add(record: _Record, attempt: Attempt, best: float | None) -> None:
    record.tries += 1
    if attempt.score is None:
        record.failed += 1
    elif best is None or attempt.score > best:
        record.helped += 1
        record.gain = max(record.gain, 0.0 if best is None else attempt.score - best)


def _text(trees: Sequence[Tree], records: Mapping[str, _Record], recommended: str | None) -> str:
    best = max((tree.best for tree in trees), default=float("-inf"))
    lines = [f"Rounds so far: {len(trees)}. Best score so far: {best:.10g} (higher is better)."]
    if records:
        lines.append("What was tried, the most successful first:")
        for tag, r in sorted(records.items(), key=lambda item: -item[1].rate)[: 2 * _SHOWN]:
            gain = f", largest gain {r.gain:.4g}" if r.gain else ""
            lines.append(f"- {tag}: raised its branch's best in {r.helped} of {r.tries} attempts{gain}")
    if recommended is not None:
        lines.append(f"Recommended: {recommended}, the most successful of those tried at least {FEW} times.")
    errors = Counter(a.error.strip().splitlines()[0] for tree in trees for a in tree if a.error and a.error.strip())
    if errors:
        lines.append("Why attempts failed, the most frequent first:")
        lines += [f"- {count} times: {text[:200]}" for text, count in errors.most_common(_SHOWN)]
    return "\n".join(lines) + "\n"
