"""Which version is deployed: the best one that chooses the same in fresh processes, where it can remember nothing."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dreamrsi.dream_files import Grid, Trial
from dreamrsi.errors import PolicyError
from dreamrsi.judge import Judge


@dataclass
class Selection:
    """What selection found out."""

    selected: int = 0
    confirmed: list[int] = field(default_factory=list)
    disqualified: dict[int, str] = field(default_factory=dict)
    current_differs: str | None = None
    fresh: Trial | None = None  # the current policy by its fresh episodes, where those differ


def select(judge: Judge, trials: Sequence[Trial]) -> Selection:
    """The best version that holds, the current policy where none is better."""
    found = Selection()
    confirm = judge.settings.confirm
    current = trials[0]
    rejected: dict[str, str] = {}
    if confirm and current.grid:  # one that cannot be loaded has none
        fresh, difference = _confirm(judge, current)
        if difference is None:
            found.confirmed.append(0)
        else:
            value, problem = judge.value(fresh) if fresh else (-math.inf, difference)
            screened, sha = current.version.value, current.version.sha256
            found.current_differs = rejected[sha] = difference
            found.fresh = current = revalued(current, fresh, value, problem)
            warnings.warn(
                f"the current policy is not reproducible: {difference}. Its value is that of fresh processes, "
                f"{value:g}, and not {screened:g}; make it deterministic and let it forget between episodes",
                stacklevel=3,
            )
    for trial in sorted(trials[1:], key=lambda trial: (-trial.version.value, trial.version.number)):
        version = trial.version
        if not version.value > current.version.value:
            break
        difference = rejected.get(version.sha256)
        if confirm and difference is None:
            _, difference = _confirm(judge, trial)
        if difference is None:
            found.selected = version.number
            found.confirmed += [version.number] if confirm else []
            break
        found.disqualified[version.number] = rejected[version.sha256] = difference
    return found


def _confirm(judge: Judge, trial: Trial) -> tuple[Grid, str | None]:
    """The episodes in fresh processes, and the first difference to those of the screening."""
    number = trial.version.number
    try:
        fresh = judge.fresh(trial.version.source, f"{judge.settings.seed}: confirm {number}")
    except PolicyError as error:
        return {}, f"in a fresh process it could not be loaded: {error}"
    return fresh, next(_differences(trial.grid, fresh), None)


def _differences(screened: Grid, fresh: Grid) -> Iterator[str]:
    """Where a version chose otherwise, or failed otherwise."""
    for beta, row in screened.items():
        for one, other in zip(row, fresh[beta], strict=True):
            place = one.tree if beta is None else f"{one.tree}, beta {beta:g}"
            if (one.reason == "failed") != (other.reason == "failed"):
                where, error = ("among other episodes", one.error) if one.error else ("in a fresh process", other.error)
                yield f"{place}: it failed only {where} ({error})"
            elif (one.picks, one.reason) != (other.picks, other.reason):
                rounds = max(one.rounds, other.rounds)
                at = next((n for n in range(rounds) if one.picks[n : n + 1] != other.picks[n : n + 1]), rounds)
                picked = [" ".join(map(str, e.picks[at])) if at < e.rounds else "nothing" for e in (one, other)]
                yield (
                    f"{place}, round {at}: it picked {picked[0]} among other episodes and {picked[1]} in a fresh "
                    "process; it remembers, or draws random numbers"
                )


def revalued(trial: Trial, grid: Grid, value: float, error: str | None) -> Trial:
    """A version by other episodes than those of its screening."""
    version = dataclasses.replace(trial.version, value=value, episodes=grid.get(None, ()), error=error)
    return dataclasses.replace(trial, version=version, grid=grid)
