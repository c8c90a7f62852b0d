"""Policy developers: what writes the next version of an exploration policy, told how earlier versions did in replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dreamrsi.replay import Episode


@dataclass(frozen=True)
class Version:
    """One version of a policy, and what its replay on the history gave.

    Attributes
    ----------
    number : 0 is the current policy; later ones in the order in which they were written.
    base : the number of the version that was revised; None for the current policy.
    source, sha256 : the bytes that were scored.
    value : by the objective, higher is better; -inf if it failed anywhere. In a :class:`Request` it is the rank among
        the versions so far (1 is the lowest, equal values share one) where the value itself would say something of
        scores that were not revealed: with normalised scores and under the sweep score.
    episodes : one a tree of the history, in its order; empty where it could not be loaded.
    notes : what the developer wants to know again of this version (JSON values).
    error : why its value is -inf.
    """

    number: int
    base: int | None
    source: bytes
    sha256: str
    value: float
    episodes: Sequence[Episode] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Request:
    """What a developer is given.

    Attributes
    ----------
    number : of the version to write.
    base : the version to revise.
    versions : all so far, the current policy first.
    traces : version number -> what its replays revealed, as text, one a tree: nothing unrevealed is in it.
    objective : one line that says what ``value`` is, and whether it is a rank.
    width : W, the most picks a batch may hold.
    seed : of this version; all randomness must come from it.
    folder : an existing empty folder of this version, for what the developer wants to leave behind.
    """

    number: int
    base: Version
    versions: tuple[Version, ...]
    traces: Mapping[int, Sequence[str]]
    objective: str
    width: int
    seed: int
    folder: Path


@dataclass(frozen=True)
class Draft:
    """A version as a developer wrote it."""

    source: bytes
    notes: Mapping[str, Any] = field(default_factory=dict)


class DeveloperFailure(Exception):
    """There is no version, and the record of the dream is to say why."""


class Developer(Protocol):
    """What dreaming asks of a developer."""

    @property
    def name(self) -> str:
        """Its name in the configuration of a run."""

    def develop(self, request: Request) -> Draft:
        """Write a version.

        Raises
        ------
        DeveloperFailure
            There is none.
        """
