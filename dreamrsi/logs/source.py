"""Reading the files of a log: never written to, hashed as they are read, and checked for changes at the end."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import shutil
import stat
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dreamrsi.errors import UserError

T = TypeVar("T")


class Source:
    """A file or folder that holds a log.

    A file that changes while it is read belongs to a run that is still going on: half of one state and half of the
    next would be neither, and are refused.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise UserError(f"{self.path}: is not there; give the file or the folder of the log")
        self._files: dict[str, tuple[str, _State]] = {}  # path: SHA-256, and the state in which it was read
        self._root = str(self.path if self.path.is_dir() else self.path.parent)

    @property
    def name(self) -> str:
        """The name of the file without its endings, or of the folder: what the task is called if nobody says."""
        place = self.path.absolute()
        return place.name if place.is_dir() else place.name.split(".")[0] or place.name

    def file(self, name: str) -> Path:
        """Return the path itself if it is a file, else the file of this name in the folder.

        Raises
        ------
        UserError
            The folder holds none.
        """
        if self.path.is_file():
            return self.path
        if (self.path / name).is_file():
            return self.path / name
        raise UserError(f"{self.path}: holds no {name}; give the folder or the file of the log")

    def read(self, path: str | Path) -> bytes:
        """Return the whole of a file."""
        with readable(path), self._open(path) as file:
            data = file.read()
            self._note(path, file, hashlib.sha256(data).hexdigest())
            return data

    def lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers from 1; a ``.gz`` is unpacked on the way."""
        with readable(path), self._open(path) as file:
            self._note(path, file, hashlib.file_digest(file, "sha256").hexdigest())
            file.seek(0)
            with gzip.open(file) if path.suffix == ".gz" else file as unpacked:
                for number, line in enumerate(unpacked, 1):
                    if not line.isspace():
                        yield number, line

    def copy(self, path: Path, to: Path) -> None:
        """Copy a file, for readers that would write beside the original."""
        with readable(path), self._open(path) as file:
            self._note(path, file, hashlib.file_digest(file, "sha256").hexdigest())
            file.seek(0)
            with to.open("wb") as copied:
                shutil.copyfileobj(file, copied)

    def digest(self) -> dict[str, Any]:
        """Return name, number of files and one hash of what was read: of the lines ``SHA-256, two blanks, file name``.

        Raises
        ------
        UserError
            A file changed while the log was read.
        """
        lines = []
        for path, (hashed, before) in self._files.items():
            with readable(path):
                if _state(os.stat(path)) != before:
                    raise UserError(f"{path}: changed while it was read; wait until the run is over, or import a copy")
            lines.append(f"{hashed}  {path.removeprefix(self._root).lstrip(os.sep)}\n")
        total = hashlib.sha256("".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
        return {"name": _utf8(self.path.absolute().name), "files": len(lines), "sha256": total}

    def _open(self, path: str | Path) -> io.BufferedReader:
        """Open a file, and only a file: a pipe would let us wait for ever."""
        file: io.BufferedReader = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise UserError(f"{path}: is not a file")
        return file

    def _note(self, path: str | Path, file: io.BufferedReader, hashed: str) -> None:
        self._files[str(path)] = (hashed, _state(os.fstat(file.fileno())))


class readable:
    """Turn what can go wrong with a file of a log into one clear error."""

    def __init__(self, path: str | Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            raise UserError(f"{self.path}: is not a whole gzip file ({error})") from error
        if isinstance(error, OSError):
            raise UserError(f"{self.path}: cannot be read ({error.strerror or error})") from error


_State = tuple[int, int, int]


def _state(found: os.stat_result) -> _State:
    return found.st_ino, found.st_size, found.st_mtime_ns


def decode(data: bytes, kind: type[T], where: str | Path) -> T:
    """Decode JSON into ``kind``. NaN and Infinity, which some systems write although JSON has neither, are read.

    Raises
    ------
    UserError
        Names ``where`` and the field: no JSON, cut off, a field that is missing or of another type.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(json.loads(data), kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}; is it a log of this format?") from error
    except RecursionError as error:
        raise UserError(f"{where}: is nested too deeply") from error
    except ValueError as error:
        raise UserError(f"{where}: is no JSON, or was cut off ({error})") from error


def number(value: Any) -> float | None:
    """Return a finite number as a float; None for anything else, true and false among it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: Any) -> float | None:
    """Return a duration; None for what is no finite number, or negative."""
    found = number(value)
    return found if found is not None and found >= 0 else None


def moment(text: str) -> float | None:
    """Return a date and time in ISO format as seconds since 1970, UTC if it names no zone; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def strict(value: Any) -> Any:
    """Return a value of JSON that strict JSON can hold: NaN, infinities and huge integers become text."""
    kind = type(value)  # exact types first: most values are these
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is str:
        return _utf8(value)
    if isinstance(value, dict):
        return {_utf8(str(key)): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{value:.17g}" if abs(value) < 10**300 else "a number too large"
    return value if value is None or isinstance(value, int) else _utf8(str(value))


def brief(text: Any, limit: int = 300) -> str | None:
    """Return the last line that is not blank, where a traceback says what happened; None if there is no text."""
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return _utf8(lines[-1][:limit]) if lines else None


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()
