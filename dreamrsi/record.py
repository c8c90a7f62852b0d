"""The record on disk: one JSON Lines file a tree, a header and then one line an attempt.

A live run also appends one line a batch, before the batch starts, so that a run that was cut off knows
what it was doing. A line that was torn by a power cut (the last one, without its line end) is dropped
with a warning; every other flaw is a :class:`~dreamrsi.errors.RecordError` that names file, line and field.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, get_args

import msgspec

from dreamrsi.errors import RecordError, UserError

FORMAT = "dreamrsi.tree/1"

Status = Literal["ok", "invalid", "error", "timeout", "rejected", "unknown"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Cap = Annotated[int, msgspec.Meta(ge=1)]


class TornRecordWarning(UserWarning):
    """A record ends in the middle of a line or of a batch; what is complete was read."""


class Root(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The starting workspace. Not an attempt; may carry a score, the baseline."""

    score: float | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a record.

    ``width`` is the number of attempts a round of the recorded run could hold; ``branches`` and ``steps``
    (attempts a branch) are its caps, None where a log has none. ``recommended`` is the tag that guidance
    recommended before the run.
    """

    format: str = FORMAT
    task: str
    width: Cap | None = None
    branches: Cap | None = None
    steps: Cap | None = None
    policy: str | None = None
    seed: int | None = None
    synthetic: bool = False
    recommended: str | None = None
    root: Root = Root()
    provenance: dict[str, Any] = {}


# gc=False: attempts hold JSON values only, which cannot form cycles; without it the garbage collector
# walks a million of them again and again while they are loaded.
class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """One generate-and-evaluate call. Higher scores are better; only an attempt that is ``ok`` has one.

    ``branch`` and ``attempt`` (the place in its branch) count from 0; ``seq`` follows the order of the picks;
    ``round`` counts from 0, None where a log has none. ``origin`` is the (branch, attempt) that the first attempt
    of a branch forked from, None for the root. ``seconds`` is wall time.
    """

    branch: Count
    attempt: Count
    seq: Count
    round: Count | None = None
    score: float | None
    status: Status
    error: str | None = None
    tag: str | None = None
    origin: tuple[Count, Count] | None = None
    seconds: float | None = None
    commit: str | None = None
    metrics: dict[str, Any] = {}


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The picks of one round of a live run, and how many attempts they create."""

    picks: tuple[int, ...]
    round: Count
    attempts: Count


class Record(msgspec.Struct):
    """What a file holds, in the order of its lines, before any check across lines.

    ``lines`` gives the line number of every attempt; ``size`` the bytes up to the end of the last whole line.
    """

    header: Header
    attempts: list[Attempt]
    batches: list[Batch]
    lines: list[int]
    size: int


_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_attempt = msgspec.json.Decoder(Attempt).decode
_decode_batch = msgspec.json.Decoder(Batch).decode


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record line by line.

    Raises
    ------
    RecordError
        Names the file, the line and the field of the first flaw.
    UserError
        The file cannot be opened.
    """
    try:
        with open(path, "rb") as file:
            return _read(str(path), file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a tree file") from error


def _read(name: str, file: Iterable[bytes]) -> Record:
    header: Header | None = None
    attempts: list[Attempt] = []
    batches: list[Batch] = []
    lines: list[int] = []
    size = 0
    for number, line in enumerate(file, 1):
        try:
            if header is None:
                header = _header(line)
            elif not line.isspace():
                _append(line, attempts, batches)
        except RecursionError as error:
            raise RecordError(f"{name}, line {number}: is nested too deeply") from error
        except msgspec.DecodeError as error:
            # A torn line is the beginning of an object and so no JSON; one that is JSON was written as it is.
            whole = line.endswith(b"\n") or isinstance(error, msgspec.ValidationError)
            if whole or header is None:
                raise RecordError(f"{name}, line {number}: {_explain(error, line, header is None)}") from error
            warnings.warn(
                f"{name}, line {number}: the last line is torn and was dropped; everything before it was read",
                TornRecordWarning,
                stacklevel=4,
            )
            break
        size += len(line)
        if len(attempts) > len(lines):
            lines.append(number)
    if header is None:
        raise RecordError(f"{name}: is empty; a tree file starts with a header line")
    return Record(header, attempts, batches, lines, size)


class _Format(msgspec.Struct):
    format: str


def _header(line: bytes) -> Header:
    line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that some editors put first
    found = msgspec.json.decode(line, type=_Format).format
    if found != FORMAT:
        raise msgspec.ValidationError(f"format {found!r} is not {FORMAT!r}, the one that is read here - at `$.format`")
    return _decode_header(line)


def _explain(error: Exception, line: bytes, header: bool) -> str:
    """What is wrong with a line, and what to write instead where that can be told."""
    text = str(error)
    if "unknown field" in text:
        known = Header.__struct_fields__ if header else Attempt.__struct_fields__
        near = difflib.get_close_matches(text.split("`")[1], known, 1)
        text += f"; did you mean `{near[0]}`?" if near else "; what has no field of its own belongs into `metrics`"
    elif "enum value" in text:
        text += f"; a status is one of {', '.join(get_args(Status))}"
    elif b"NaN" in line or b"Infinity" in line:
        text += "; JSON has no NaN or Infinity, the score of a failure is null"
    if header:
        text += f". The first line must be the header, with `format` ({FORMAT!r}) and `task`"
    return text


def _append(line: bytes, attempts: list[Attempt], batches: list[Batch]) -> None:
    try:
        attempt = _decode_attempt(line)
    except msgspec.ValidationError:
        if "picks" not in msgspec.json.decode(line):
            raise
        batches.append(_decode_batch(line))
        return
    if (attempt.score is None) is (attempt.status == "ok"):
        problem = (
            "an attempt that is ok needs a score" if attempt.score is None else "only an attempt that is ok has a score"
        )
        raise msgspec.ValidationError(f"{problem}; status is {attempt.status!r} - at `$.score`")
    attempts.append(attempt)


def encode_lines(header: Header, attempts: Iterable[Attempt], batches: Iterable[Batch] = ()) -> Iterator[bytes]:
    """The lines of a record: the header, and every batch before the attempts of its round."""
    yield _encode(header) + b"\n"
    waiting = sorted(batches, key=lambda batch: batch.round, reverse=True)
    for attempt in attempts:
        while waiting and attempt.round is not None and waiting[-1].round <= attempt.round:
            yield _encode(waiting.pop()) + b"\n"
        yield _encode(attempt) + b"\n"
    while waiting:
        yield _encode(waiting.pop()) + b"\n"


class RecordWriter:
    """Appends to a record, each line flushed to disk before the call returns.

    ``RecordWriter(path, header)`` starts a new file and refuses one that exists; ``RecordWriter.resume(path)``
    cuts a torn last line off and goes on behind it.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open(path, "xb")
        except FileExistsError as error:
            raise UserError(f"{path}: exists already; resume it or choose another folder") from error
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from error
        self.append(header)
        _sync_folder(Path(path).parent)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], record: Record) -> RecordWriter:
        """Go on behind the last whole line of ``record``, which was read from ``path``."""
        writer = cls.__new__(cls)
        writer._path = path
        try:
            writer._file = open(path, "r+b")
            writer._file.truncate(record.size)
            writer._file.seek(max(0, record.size - 1))
            if writer._file.read(1) != b"\n":  # a whole last line that only lacks its end
                writer._file.write(b"\n")
        except OSError as error:
            raise writer._failed(error) from error
        return writer

    def append(self, line: Header | Attempt | Batch) -> None:
        """Append one line and wait until it is on disk.

        Raises
        ------
        UserError
            The disk is full or gone; what was appended before is there, and the record can be resumed.
        """
        try:
            self._file.write(_encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> UserError:
        return UserError(
            f"{self._path}: cannot be written ({error.strerror}); make room or access, then resume the run"
        )

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # what could not be flushed was reported when it was appended
            self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable too, where the system allows it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
