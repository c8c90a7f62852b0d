"""A policy developer that works offline: it searches the thresholds of the policy template with Optuna."""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from dreamrsi.developers import DeveloperFailure, Draft, Request, Version
from dreamrsi.errors import UserError
from dreamrsi.schedule import EARLY_STOP, PARALLEL_REFINE, Order, Schedule, read, source

REVISIONS = 3
"""How many versions revise the base before the sampler takes over: it has little to go by until then."""

_TRIES = 200  # proposals of one kind that may have been proposed before

_SHARES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
_PAIRS: dict[str, tuple[float, ...]] = {
    "bootstrap": _SHARES,
    "width": (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0),
    "strikes": (1, 2, 3, 4, 5, 6, 8),
    "reopen": _SHARES,
    "repairs": (0, 1, 2, 3),
    "quiet": (1, 2, 3, 4, 5, 6, 8, 10, 12),
}
_OPTIONAL = ("strikes", "reopen", "repairs", "quiet")
_NUMBERS: dict[str, tuple[float, ...]] = {
    "narrow": (0.5, 0.75, 1.0),
    "fade": (0.0, 0.25, 0.5, 1.0, 2.0),
    "drift": (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2),
}
_ORDERS = get_args(Order)
_UNORDERED = (*_OPTIONAL, "order")


class ScheduleSearch:
    """Writes versions of the policy template (:mod:`dreamrsi.schedule`), without a language model.

    The first versions of a dream revise ``request.base``, the version that dreaming asks to revise: up to three of its
    parameters change. The later ones come from Optuna's tree-structured Parzen estimator, which is told the schedules
    and values of all versions so far, ``request.base`` one of them; a version that failed ranks below all others. The
    default of the knob ``beta`` stays that of the base: the sweep of beta and the rule between rounds move it.

    Where the base has no schedule, as a policy that the user wrote, there is nothing to revise: the first versions are
    then parallel refine and early stop as the template has them, and revisions of the best version that has a schedule.

    Nothing is kept between calls. The study is built anew from the request, whose seed gives all randomness, so a
    dream that was cut off goes on to the same versions. No schedule is proposed twice.
    """

    name = "schedule"

    def develop(self, request: Request) -> Draft:
        """Write a version.

        Raises
        ------
        DeveloperFailure
            All that was tried had been proposed before.
        """
        known = [(version, schedule) for version in request.versions if (schedule := schedule_of(version)) is not None]
        seen = {_identity(schedule) for _, schedule in known}
        beta = next((s for v, s in known if v.number == request.base.number), PARALLEL_REFINE).beta
        for schedule, how in _proposals(request, known, seen, beta):
            if _identity(schedule) not in seen:
                name = f"schedule_{hashlib.sha256(_identity(schedule)).hexdigest()[:8]}"
                return Draft(source(schedule, name), {"schedule": schedule.to_json(), "how": how})
        raise DeveloperFailure("every schedule that was tried had been proposed before")


def schedule_of(version: Version) -> Schedule | None:
    """The schedule of a version: what its developer noted, or what its source says; None if it has none."""
    noted = version.notes.get("schedule")
    if isinstance(noted, Mapping):
        try:
            schedule = Schedule.from_json(noted)
        except UserError:  # another developer's idea of a schedule
            return read(version.source)
        written = read(version.source)
        return schedule if written is None or _identity(written) == _identity(schedule) else written
    return read(version.source)


def _identity(schedule: Schedule) -> bytes:
    """The source without its name: schedules that differ only in parameters of unused rules are the same."""
    return source(schedule, "policy")


Known = Sequence[tuple[Version, Schedule]]


def _proposals(request: Request, known: Known, seen: Container[bytes], beta: float) -> Iterator[tuple[Schedule, str]]:
    """What to propose, the next one where one has been proposed before."""
    rng = random.Random(request.seed)
    base = next(((v, s) for v, s in known if v.number == request.base.number), None)
    if base is None:
        yield PARALLEL_REFINE, "the template's parallel refine: the base has no schedule"
        yield EARLY_STOP, "the template's early stop: the base has no schedule"
        base = max(known, key=lambda pair: (pair[0].value, -pair[0].number))
    if request.number > REVISIONS:
        for schedule in _sampled(known, seen, beta, request.seed):
            yield schedule, f"sampled, told {len(known)} versions"
    for _ in range(_TRIES):
        schedule = revised(base[1], rng)
        yield schedule, f"version {base[0].number} with {_changes(base[1], schedule)}"
    for _ in range(_TRIES):
        yield _compose(lambda _, count: rng.randrange(count), beta), "drawn at random"


def revised(schedule: Schedule, rng: random.Random) -> Schedule:
    """Change one to three parameters: a rule goes on or off, the order changes, a threshold moves by a step or two."""
    point = _locate(schedule)
    names = [name for name in (*_PAIRS, *_NUMBERS, "order") if name != "fade" or name in point]
    for name in rng.sample(names, rng.randint(1, 3)):
        if name in _UNORDERED and (not point[name] or name == "order" or rng.random() < 0.25):
            point[name] = rng.choice([other for other in range(_count(name)) if other != point[name]])
        else:
            ends = [name] if name in _NUMBERS else rng.choice([[f"{name} low"], [f"{name} high"], _ends(name)])
            step = rng.choice([-2, -1, 1, 2])
            for end in ends:
                point[end] = min(_count(end) - 1, max(0, point[end] + step))
    point.setdefault("fade", 0)  # where the rule that it belongs to was switched on just now
    return _compose(lambda name, count: point[name] if name in point else rng.randrange(count), schedule.beta)


def _ends(name: str) -> list[str]:
    return [f"{name} low", f"{name} high"]


def _changes(old: Schedule, new: Schedule) -> str:
    """What differs, in words."""
    before, after = old.to_json(), new.to_json()
    return ", ".join(f"{name} {before[name]} -> {after[name]}" for name in before if before[name] != after[name])


def _count(name: str) -> int:
    """How many values a coordinate has."""
    if name in _OPTIONAL:
        return 2
    if name == "order":
        return len(_ORDERS)
    return len(_NUMBERS[name] if name in _NUMBERS else _PAIRS[name.split()[0]])


def _compose(pick: Callable[[str, int], int], beta: float) -> Schedule:
    """A schedule from a function that picks the place of a value: (coordinate, how many values) -> place."""
    values: dict[str, Any] = {"beta": beta, "order": _ORDERS[pick("order", _count("order"))]}
    for name, allowed in _PAIRS.items():
        if name not in _OPTIONAL or pick(name, 2):
            values[name] = tuple(sorted(allowed[pick(end, len(allowed))] for end in _ends(name)))
    for name, allowed in _NUMBERS.items():
        if name != "fade" or "quiet" in values:
            values[name] = allowed[pick(name, len(allowed))]
    return Schedule(**values)


def _locate(schedule: Schedule) -> dict[str, int]:
    """The coordinates of a schedule: the nearest allowed value of each of its parameters."""
    point = {"order": _ORDERS.index(schedule.order)}
    for name, allowed in _PAIRS.items():
        pair = getattr(schedule, name)
        if name in _OPTIONAL:
            point[name] = int(pair is not None)
        if pair is not None:
            point |= {end: _nearest(allowed, value) for end, value in zip(_ends(name), pair, strict=True)}
    for name, allowed in _NUMBERS.items():
        if name != "fade" or schedule.quiet is not None:
            point[name] = _nearest(allowed, getattr(schedule, name))
    return point


def _nearest(allowed: Sequence[float], value: float) -> int:
    return min(range(len(allowed)), key=lambda place: abs(allowed[place] - value))


def _sampled(known: Known, seen: Container[bytes], beta: float, seed: int) -> list[Schedule]:
    """The first new schedule from Optuna's sampler, told the versions so far; empty if it finds none."""
    with _quiet_optuna():
        import optuna

        sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for version, schedule in known:
            study.add_trial(_trial(version.value, _locate(schedule)))
        for _ in range(_TRIES):
            schedule = _compose(_asked(study.ask()), beta)
            if _identity(schedule) not in seen:
                return [schedule]
    return []


def _asked(trial: Any) -> Callable[[str, int], int]:
    """A function that picks places as a trial of the study suggests them."""

    def pick(name: str, count: int) -> int:
        if name in _UNORDERED:
            return int(trial.suggest_categorical(name, list(range(count))))
        return int(trial.suggest_int(name, 0, count - 1))

    return pick


def _trial(value: float, point: Mapping[str, int]) -> Any:
    """A finished trial of the study. One without a finite value is a pruned one, which ranks below all others."""
    import optuna

    distributions: dict[str, Any] = {}
    for name in point:
        if name in _UNORDERED:
            distributions[name] = optuna.distributions.CategoricalDistribution(list(range(_count(name))))
        else:
            distributions[name] = optuna.distributions.IntDistribution(0, _count(name) - 1)
    if math.isfinite(value):
        return optuna.trial.create_trial(value=value, params=dict(point), distributions=distributions)
    pruned = optuna.trial.TrialState.PRUNED
    return optuna.trial.create_trial(state=pruned, params=dict(point), distributions=distributions)


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Optuna without its log and its warnings about what is experimental; the caller's own settings come back."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
