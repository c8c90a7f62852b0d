"""Guidance: what worked in the rounds so far, told to the agent before the next one (paper, figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
