"""The files of a dream: the settings, every version with what its replays gave, and what was selected.

dream.json is there from the beginning with the settings, and in the end with everything that a reader wants.
developer/version-NN/version.json is written when all of that version is there, and holds what a dream that was
cut off needs to go on.
"""

from __future__ import annotations

import difflib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi.developers import Version
from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write
from dreamrsi.record import encode_lines
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree

FORMAT = "dreamrsi.dream/1"

Grid = Mapping[float | None, tuple[Episode, ...]]
"""What was set as ``policy.beta`` (None: left alone) -> one episode a tree."""

_MAX_DIFF = 10_000  # lines of a file; difflib takes minutes on larger ones


@dataclass(frozen=True)
class Trial:
    """A version, and all that its replays gave.

    ``same_as`` is the earlier version that has the same bytes; ``traces`` one text a tree; ``seconds`` those that the
    developer and the screening took.
    """

    version: Version
    grid: Grid
    traces: tuple[str, ...] = ()
    same_as: int | None = None
    seconds: float = field(default=0.0, compare=False)


class SavedEpisode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An :class:`~dreamrsi.replay.Episode` in JSON; ``best`` is null where nothing was scored."""

    policy: str
    tree: str
    picks: tuple[tuple[int, ...], ...]
    reveals: tuple[int, ...]
    best: float | None
    reason: str
    error: str | None


class SavedVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """version.json; ``value`` is null for -inf. The source lies beside it as policy.py."""

    number: int
    base: int | None
    sha256: str
    value: float | None
    error: str | None
    notes: dict[str, Any]
    same_as: int | None
    grid: list[tuple[float | None, list[SavedEpisode]]]
    seconds: float


class SavedEntry(msgspec.Struct, frozen=True):
    """What is read again of a version in dream.json."""

    number: int
    sha256: str
    value: float | None
    error: str | None


class SavedSettings(msgspec.Struct, frozen=True):
    """What is read again of the settings in dream.json."""

    versions: int
    beta1: float
    beta2: float


class SavedDream(msgspec.Struct, frozen=True):
    """What is read again of dream.json when the dream is finished."""

    settings: SavedSettings
    objective: str
    versions: list[SavedEntry]
    selected: int
    selected_sha256: str
    confirmed: list[int]
    disqualified: dict[int, str]
    current_differs: str | None
    fresh: list[tuple[float | None, list[SavedEpisode]]] | None
    seconds: float


def place_of(folder: Path, number: int) -> Path:
    """The folder of a version."""
    return folder / "developer" / f"version-{number:02d}"


def clear_place(folder: Path, number: int) -> Path:
    """Make the folder of a version anew, without what an interrupted dream left; return where the developer works."""
    place = place_of(folder, number)
    try:
        if place.exists():
            shutil.rmtree(place)
        work = place / "work"
        work.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{place}: cannot be made anew ({error.strerror or error}); remove it yourself") from error
    return work


def write_trial(folder: Path, trial: Trial, base: Version | None) -> None:
    """Write everything of a version; version.json comes last, so that where it is, all is."""
    version, place = trial.version, place_of(folder, trial.version.number)
    atomic_write(place / "policy.py", version.source)
    for number, text in enumerate(trial.traces):
        atomic_write(place / f"trace-{number:02d}.txt", text)
    if base is not None:
        atomic_write(place / "diff.patch", diff(base, version))
    saved = SavedVersion(
        version.number,
        version.base,
        version.sha256,
        finite(version.value),
        version.error,
        dict(version.notes),
        trial.same_as,
        [(beta, [_save(episode) for episode in row]) for beta, row in trial.grid.items()],
        trial.seconds,
    )
    atomic_write(place / "version.json", msgspec.json.encode(saved) + b"\n")


def read_trial(folder: Path, number: int) -> Trial | None:
    """A version as it was written, without its traces; None where it was not finished.

    Raises
    ------
    UserError
        The files are not those that were written.
    """
    place = place_of(folder, number)
    if not (place / "version.json").exists():
        return None
    try:
        saved = msgspec.json.decode((place / "version.json").read_bytes(), type=SavedVersion)
        source = (place / "policy.py").read_bytes()
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{place}: the version cannot be read ({error}); choose another folder") from error
    if saved.number != number or saved.sha256 != sha256(source).hexdigest():
        raise UserError(f"{place}/policy.py: is not what version.json speaks of, it was changed; restore it")
    grid = load_grid(saved.grid)
    version = Version(
        number,
        saved.base,
        source,
        saved.sha256,
        _value(saved.value),
        grid.get(None, ()),
        saved.notes,
        saved.error,
    )
    return Trial(version, grid, (), saved.same_as, saved.seconds)


def begin(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Write the settings of a dream, or compare them with those that are there; whether the dream was finished.

    Raises
    ------
    UserError
        The folder holds a dream with other settings, or dream.json is something else.
    """
    path = folder / "dream.json"
    for torn in folder.glob(".dream.json.*"):  # of a write that was killed; the caller holds the lock
        torn.unlink(missing_ok=True)
    if not path.exists():
        _write_json(path, {"format": FORMAT, "settings": settings})
        return False
    found = read_dream(folder)
    wanted = json.loads(json.dumps(settings))
    before = found["settings"]
    differing = [key for key in {**before, **wanted} if before.get(key) != wanted.get(key)]
    if differing:
        what = "; ".join(f"{key} was {_short(before.get(key))}, now {_short(wanted.get(key))}" for key in differing)
        raise UserError(f"{path}: this folder holds another dream: {what}. Give the same settings or another folder")
    return "selected" in found


def finish(folder: Path, content: Mapping[str, Any]) -> None:
    """Add to the settings what came out."""
    _write_json(folder / "dream.json", {**read_dream(folder), **content})


def read_dream(folder: Path) -> dict[str, Any]:
    """The content of dream.json."""
    path = folder / "dream.json"
    try:
        found = json.loads(path.read_bytes())
        if found["format"] != FORMAT or not isinstance(found["settings"], dict):
            raise ValueError(f"its format is not {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not the record of a dream ({error}); choose another folder") from error
    return dict(found)


def read_finished(folder: Path) -> SavedDream:
    """The content of dream.json, where the dream is finished.

    Raises
    ------
    UserError
        It is not finished, or what is there cannot have been written by a dream.
    """
    path, content = folder / "dream.json", read_dream(folder)
    if "selected" not in content:
        raise UserError(f"{folder}: this dream is not finished; run it again with the same settings to go on")
    try:
        found = msgspec.convert(content, SavedDream, str_keys=True)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: was changed ({error}); restore it") from error
    problem = _contradiction(found)
    if problem is not None:
        raise UserError(f"{path}: was changed: {problem}; restore it")
    return found


def _contradiction(found: SavedDream) -> str | None:
    """What in the record of a finished dream cannot be."""
    numbers = range(found.settings.versions)
    if [entry.number for entry in found.versions] != list(numbers) or not found.versions:
        return f"its versions are not those from 0 to {numbers.stop - 1}"
    if not {found.selected, *found.confirmed, *found.disqualified} <= set(numbers):
        return f"it selects, confirms or disqualifies a version that is not among the {numbers.stop}"
    left = [entry for entry in found.versions if entry.number not in found.disqualified]
    best = max(left, key=lambda entry: (_value(entry.value), -entry.number), default=None)
    if best is None or best.number != found.selected or best.sha256 != found.selected_sha256:
        return f"version {found.selected} is not the one that was selected"
    return None


def diff(base: Version, version: Version) -> bytes:
    """A version as a patch of its base."""
    old, new = _lines(base.source), _lines(version.source)
    if max(len(old), len(new)) > _MAX_DIFF:
        return b"# too long for a diff\n"
    before, after = (f"version-{v.number:02d}".encode() for v in (base, version))
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, b"a/policy.py", b"b/policy.py", before, after)
    ends = [line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines]
    return b"".join(ends)


def digest(tree: Tree) -> dict[str, Any]:
    """What a replay depends on, as a hash: neither times nor what an attempt left behind."""
    header = msgspec.structs.replace(tree.header, policy=None, seed=None, provenance={})
    nothing: dict[str, Any] = {"error": None, "seconds": None, "commit": None, "metrics": {}}
    bare = (msgspec.structs.replace(attempt, **nothing) for attempt in tree)
    found = sha256()
    for line in encode_lines(header, bare, tree.batches):
        found.update(line)
    return {"task": tree.header.task, "attempts": len(tree), "sha256": found.hexdigest()}


def finite(number: float) -> float | None:
    """A number for JSON, which knows no infinity."""
    return number if math.isfinite(number) else None


def save_grid(grid: Grid) -> list[Any]:
    """Episodes for JSON."""
    saved: list[Any] = msgspec.to_builtins([(beta, [_save(e) for e in row]) for beta, row in grid.items()])
    return saved


def load_grid(saved: Sequence[tuple[float | None, Sequence[SavedEpisode]]]) -> Grid:
    """Episodes as they were read."""
    return {beta: tuple(map(_load, row)) for beta, row in saved}


def _save(episode: Episode) -> SavedEpisode:
    e = episode
    return SavedEpisode(e.policy, e.tree, e.picks, tuple(e.reveals), finite(e.best), e.reason, e.error)


def _load(saved: SavedEpisode) -> Episode:
    return Episode(saved.policy, saved.tree, saved.picks, saved.reveals, _value(saved.best), saved.reason, saved.error)


def _value(number: float | None) -> float:
    """The number that :func:`finite` wrote."""
    return -math.inf if number is None else number


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    atomic_write(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _lines(source: bytes) -> list[bytes]:
    """The lines with their ends. Only line feeds end one, as in every tool that reads patches."""
    *whole, last = source.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " ..."
