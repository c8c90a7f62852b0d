"""Dreaming: a developer writes versions of the policy, the history judges them in replay, the best one is selected."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi import dream_files as files
from dreamrsi.developers import Developer, DeveloperFailure, Draft, Request, Version
from dreamrsi.dream_files import Trial
from dreamrsi.errors import UserError
from dreamrsi.files import locked
from dreamrsi.judge import Judge, Normalise, Objective, Revise, Settings
from dreamrsi.objective import history
from dreamrsi.replay import Episode
from dreamrsi.sandbox import Limits
from dreamrsi.selection import Selection, revalued, select
from dreamrsi.tree import Tree

_MAX_ERROR = 2_000  # characters of what a developer says of its failure


@dataclass(frozen=True)
class Dream:
    """What dreaming made.

    Attributes
    ----------
    versions : the current policy first, then those of the developer in order.
    selected : the one of them to deploy; what was scored is ``selected.source``, byte for byte.
    confirmed : numbers of the versions whose choices were the same in fresh processes.
    disqualified : number -> why, of better versions that were not.
    current_differs : why the current policy could not be confirmed; its value and episodes are then those of the fresh
        processes. None if it was, or if nothing was to be confirmed.
    objective : one line that says what a value is.
    beta1, beta2 : of Eq. 1.
    grids : of every version, under the sweep score, beta -> one episode a tree; empty under Eq. 1.
    seconds : wall time of developer and replays, over all calls.
    """

    versions: tuple[Version, ...]
    selected: Version
    confirmed: tuple[int, ...]
    disqualified: Mapping[int, str]
    current_differs: str | None
    objective: str
    beta1: float
    beta2: float
    grids: tuple[Mapping[float, tuple[Episode, ...]], ...] = field(repr=False)
    seconds: float = field(compare=False)

    @property
    def current(self) -> Version:
        """The policy that the dream began with."""
        return self.versions[0]


def dream(
    trees: Iterable[Tree],
    current: bytes,
    developer: Developer,
    *,
    versions: int,
    beta1: float,
    beta2: float,
    width: int,
    seed: int,
    folder: Path,
    max_rounds: int | None = None,
    objective: Objective = "eq1",
    revise: Revise = "best",
    normalise: Normalise = None,
    limits: Limits | None = None,
    current_notes: Mapping[str, Any] | None = None,
    confirm: bool = True,
    progress: Callable[[Version], object] | None = None,
) -> Dream:
    """Let a developer write versions of a policy, replay each on the whole history, and select one (paper, section 3).

    Every version runs in one sandboxed process on all trees; what goes wrong there, or with the developer, is a version
    with the value -inf and an error. Then the current policy and the best version are replayed once more, a fresh
    process an episode: a version that chooses otherwise there remembers what other episodes revealed (or draws random
    numbers) and is disqualified, and the next best one is tried. Everything is written to ``folder``. A dream that was
    cut off goes on where it was: a version that is there is neither asked for nor replayed again.

    Parameters
    ----------
    trees : the history. Trees whose attempts all failed are left out with a warning.
    current : the source of the policy to improve; version 0.
    developer : asked ``versions - 1`` times; it must follow from its request alone, or a resumed dream differs.
    versions : M, the current policy included.
    beta1, beta2 : of Eq. 1, in units of the score.
    width, max_rounds : W and K2, as for :func:`dreamrsi.replay`.
    seed : of this dream; the seeds of its versions and the order of confirmation follow from it.
    folder : of the round; ``dream.json`` and ``developer/version-NN/`` are written there.
    objective : ``"eq1"``, the mean of V; or ``"sweep"``, the sweep score (appendix B.2).
    revise : the next version revises the best one so far (the earlier on a tie), or the latest.
    normalise : of Eq. 1, as in :func:`dreamrsi.value`. Under it, and under the sweep score, values depend on scores
        that were not revealed; the developer is then told ranks instead.
    limits : of the sandbox.
    current_notes : what its developer wanted to know again of the current policy.
    confirm : False skips the confirmation, and with it the only guard against versions that remember.
    progress : called after every version.

    Returns
    -------
    Dream
        ``selected`` has the highest value among the versions that hold; on a tie the current policy stays, then the
        earlier version wins. Where no version has a finite value, the current policy stays.

    Raises
    ------
    UserError
        The history is empty; a parameter is wrong; the developer has no name; the folder cannot be written, is in use,
        or holds another dream; the sandbox does not work on this machine.
    """
    began = time.monotonic()
    settings = Settings(
        versions, beta1, beta2, width, seed, max_rounds, objective, revise, normalise, limits or Limits(), confirm
    )
    settings.check()
    if not isinstance(current, bytes):
        raise UserError(f"current is {type(current).__name__}; give the policy's source as bytes")
    name = getattr(developer, "name", None)
    if not isinstance(name, str):
        raise UserError(f"the developer {type(developer).__name__} has no name; give it an attribute name, a text")
    notes = _json(current_notes or {})
    judge = Judge(history(trees), settings)
    about = {
        "trees": [files.digest(tree) for tree in judge.history],
        "current": sha256(current).hexdigest(),
        "current_notes": notes,
        "developer": name,
        **dataclasses.asdict(settings),
    }
    with locked(folder / "developer", "dream"):
        if files.begin(folder, about):
            return load_dream(folder)
        trials: list[Trial] = []
        earlier = 0.0  # seconds that other calls took
        for number in range(versions):
            trial = files.read_trial(folder, number)
            if trial is not None:
                earlier += trial.seconds
                trial = dataclasses.replace(trial, traces=judge.traces(trial.grid))
            else:
                work = files.clear_place(folder, number)
                asked, first = time.monotonic(), number == 0
                trial = judge.trial(0, None, current, notes, ()) if first else _next(judge, trials, developer, work)
                trial = dataclasses.replace(trial, seconds=time.monotonic() - asked)
                with suppress(OSError):  # what the developer left there stays
                    work.rmdir()
                base = trial.version.base
                files.write_trial(folder, trial, None if base is None else trials[base].version)
            trials.append(trial)
            if progress is not None:
                progress(trial.version)
        found = select(judge, trials)
        files.finish(folder, _content(judge, trials, found, earlier + time.monotonic() - began))
        return load_dream(folder)


def load_dream(folder: Path) -> Dream:
    """Read a finished dream from the folder of its round.

    Raises
    ------
    UserError
        There is none, it is not finished, or its files were changed.
    """
    found = files.read_finished(folder)
    trials = []
    for entry in found.versions:
        trial = files.read_trial(folder, entry.number)
        if trial is None or trial.version.sha256 != entry.sha256:
            raise UserError(f"{folder}: version {entry.number} is not the one in dream.json; restore its files")
        if entry.number == 0 and found.fresh is not None:
            value = -math.inf if entry.value is None else entry.value
            trial = revalued(trial, files.load_grid(found.fresh), value, entry.error)
        if files.finite(trial.version.value) != entry.value:
            raise UserError(f"{folder}: version {entry.number} has another value in dream.json; restore its files")
        trials.append(trial)
    versions = tuple(trial.version for trial in trials)
    return Dream(
        versions,
        versions[found.selected],
        tuple(found.confirmed),
        found.disqualified,
        found.current_differs,
        found.objective,
        found.settings.beta1,
        found.settings.beta2,
        tuple({beta: row for beta, row in trial.grid.items() if beta is not None} for trial in trials),
        found.seconds,
    )


def _next(judge: Judge, trials: Sequence[Trial], developer: Developer, work: Path) -> Trial:
    """Ask for a version and screen it."""
    settings = judge.settings
    so_far = judge.ranked([trial.version for trial in trials])
    number = len(so_far)
    base = _base(so_far, settings.revise)
    seed = random.Random(f"{settings.seed}: version {number}").getrandbits(32)
    told = {trial.version.number: trial.traces for trial in trials}
    request = Request(number, base, so_far, told, judge.told, settings.width, seed, work)
    try:
        source, notes = _checked(developer.develop(request))
    except Exception as error:  # a developer may be any program; what it does must not lose the dream
        said = str(error) if isinstance(error, DeveloperFailure) else f"{type(error).__name__}: {error}"
        said = f"{developer.name} wrote no version: {said[:_MAX_ERROR]}".encode(errors="replace").decode()
        nothing = Version(number, base.number, b"", sha256(b"").hexdigest(), -math.inf, error=said)
        return Trial(nothing, {})
    return judge.trial(number, base.number, source, notes, trials)


def _base(versions: Sequence[Version], revise: Revise) -> Version:
    """The version to revise: the best, the earlier on a tie; or the latest one that has a source."""
    if revise == "latest":
        return next((version for version in reversed(versions) if version.source), versions[0])
    return max(versions, key=lambda version: (version.value, -version.number))


def _checked(draft: Draft) -> tuple[bytes, dict[str, Any]]:
    """Source and notes of a draft."""
    if not isinstance(draft, Draft) or not isinstance(draft.source, bytes):
        raise DeveloperFailure(f"it returned {type(draft).__name__} and not a Draft with bytes as its source")
    return draft.source, _json(draft.notes)


def _json(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Notes as they will be read again from a file."""
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(notes)), type=dict[str, Any])
    except (TypeError, ValueError) as error:
        raise UserError(f"the notes of a version must be JSON values ({error})") from None


def _content(judge: Judge, trials: Sequence[Trial], found: Selection, seconds: float) -> dict[str, Any]:
    """What dream.json says beside the settings. Only ``seconds`` differs between equal dreams."""
    judged = list(trials)
    if found.fresh is not None:
        judged[0] = found.fresh
    return {
        "objective": judge.text,
        "versions": [_entry(judge, trial, found) for trial in judged],
        "selected": found.selected,
        "selected_sha256": trials[found.selected].version.sha256,
        "confirmed": found.confirmed,
        "disqualified": {str(number): reason for number, reason in found.disqualified.items()},
        "current_differs": found.current_differs,
        "fresh": None if found.fresh is None else files.save_grid(found.fresh.grid),
        "seconds": round(seconds, 3),
    }


def _entry(judge: Judge, trial: Trial, found: Selection) -> dict[str, Any]:
    version = trial.version
    return {
        "number": version.number,
        "base": version.base,
        "sha256": version.sha256,
        "value": files.finite(version.value),
        "error": version.error,
        "notes": dict(version.notes),
        "same_as": trial.same_as,
        "trees": judge.per_tree(trial.grid),
        "confirmation": "confirmed" if version.number in found.confirmed else found.disqualified.get(version.number),
    }
