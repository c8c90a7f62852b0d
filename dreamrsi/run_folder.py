"""The folder of a run: one process at a time, one configuration for ever, and nothing else's folder.

runs/NAME/config.json is everything that is needed to run it again; round-NN/ and workspaces.git lie beside it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write, locked
from dreamrsi.tasks import Task

FORMAT = "dreamrsi.run/1"
_UNFINISHED = re.compile(r"\..+\..+\.\w{8}")  # as atomic_write names a file until it is whole
_LONGEST = 1e7  # seconds, some months: what timers can wait for


@contextlib.contextmanager
def opened(folder: Path, config: dict[str, Any], grows: str | None = None) -> Iterator[None]:
    """Take the folder for a run with this configuration, a new one or the one that it holds, until the block ends.

    The number named by ``grows`` may differ from that of an earlier call; the largest is kept.

    Raises
    ------
    UserError
        It holds something else or a run with other settings, another run is at work in it, or it cannot be written.
    """
    _check_ours(folder)
    with locked(folder, "live run"):
        tidy(folder)
        _check_config(folder / "config.json", {"format": FORMAT, **config}, grows)
        yield


def discard_run(folder: str | os.PathLike[str]) -> None:
    """Remove the folder of an earlier run, so that the next one starts afresh; nothing happens if it is not there.

    Raises
    ------
    UserError
        The folder is not a run's, as its ``config.json`` would say; a run is at work in it; it cannot be removed.
    """
    folder = Path(folder)
    if not os.path.lexists(folder):
        return
    try:
        found = json.loads((folder / "config.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != FORMAT:
        raise UserError(f"{folder}: has no config.json of a run, so it was left as it is; give the folder of a run")
    with locked(folder, "live run"):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise UserError(f"{folder}: cannot be removed ({error.strerror or error}); remove it yourself") from error


def round_name(number: int) -> str:
    """The folder of a round, which counts from 1."""
    return f"round-{number:02}"


def tidy(folder: Path) -> None:
    """Remove what writes that a kill cut off have left in a folder; nobody else may be writing there."""
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def keep(path: Path, content: bytes) -> None:
    """Write a file of a round, or see that it is what it was: the bytes that were scored are the bytes that run."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        atomic_write(path, content)
        return
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); restore it, or choose another folder") from error
    if found != content:
        raise UserError(f"{path}: is not what this run wrote there; remove the file, or choose another folder")


def make_folder(folder: Path) -> None:
    """Make a folder below the run's."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another folder for the run") from error


def versions(task: Task) -> dict[str, Any]:
    """What a result depends on besides its settings: versions of Python, this package and the task's libraries."""
    from dreamrsi import __version__

    names = {module.partition(".")[0] for module in task.requires}
    found = {"python": platform.python_version(), "dreamrsi": __version__}
    for name in sorted(names):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {"versions": found, "system": platform.system(), "machine": platform.machine()}


def whole(name: str, value: int, least: int) -> int:
    """Return a setting that must be a whole number of at least ``least``."""
    if type(value) is not int or value < least:
        raise UserError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return value


def workers_for(width: int, workers: int | None, timeout: float) -> int:
    """Check what limits the attempts of a run; return how many are made at once, one a processor if None."""
    if not 0 < timeout <= _LONGEST:
        raise UserError(f"timeout is {timeout!r}; it must be a positive number of seconds, at most {_LONGEST:.0f}")
    return min(width, os.cpu_count() or 1) if workers is None else whole("workers", workers, 1)


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds something else, before anything is written into it."""
    try:
        names = [entry.name for entry in folder.iterdir()]
        others = sorted(name for name in names if name != ".lock" and not _UNFINISHED.fullmatch(name))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{folder}: is no folder for a run ({error.strerror}); choose another folder") from error
    if others and "config.json" not in others:
        raise UserError(f"{folder}: is no run's folder, it holds {others[0]}; choose a new or empty folder")


def _check_config(path: Path, config: dict[str, Any], grows: str | None) -> None:
    """Write the configuration, or compare it with the one that is there."""
    if not path.exists():
        atomic_write(path, json.dumps(config, indent=1) + "\n")
        return
    try:
        found = json.loads(path.read_bytes())
        differing = [key for key in {**config, **found} if key != grows and found.get(key) != config.get(key)]
        longer = grows is not None and config[grows] > found[grows]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: is not the configuration of a run ({error!r}); choose another folder") from error
    if differing:
        what = "; ".join(f"{key} was {found.get(key)!r} and is now {config.get(key)!r}" for key in differing)
        raise UserError(f"{path}: this folder holds another run: {what}. Give the same settings or another folder")
    if longer:
        atomic_write(path, json.dumps(config, indent=1) + "\n")
