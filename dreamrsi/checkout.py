"""Files in a folder that a foreign program may change in any way, read back without following its links."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from dreamrsi.commands import printable
from dreamrsi.workspace import Files

MAX_CHANGES = 50
"""Changes that are named; the others are counted."""

_MAX_ENTRIES = 10_000  # entries of folders that are looked at
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block


class Unusable(Exception):
    """Why a file cannot be taken: it is not there, no plain file, or too large."""


class Checkout:
    """A new folder with the given files. Use it in a ``with`` statement, which removes it.

    Attributes
    ----------
    files : what was written.
    """

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder = folder
        self.files = dict(files)
        folder.mkdir()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._root = os.open(folder, _FOLDER)  # it stays this folder, whatever takes its place

    def read(self, name: str, limit: int) -> bytes:
        """The content of a file, of at most ``limit`` bytes.

        Raises
        ------
        Unusable
            Its text goes on after the file's name.
        """
        folder, _, last = name.rpartition("/")
        try:
            with _inside(self._root, folder) as parent:
                found = os.stat(last, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):
                    raise Unusable(f"is no plain file but a {_kind(found.st_mode)}")
                if found.st_size > limit:
                    raise Unusable(f"has {found.st_size} bytes; at most {limit} are taken")
                return _content(parent, last, found)
        except (FileNotFoundError, NotADirectoryError):
            raise Unusable("is not there") from None
        except OSError as error:  # a link in place of a folder, say
            raise Unusable(f"cannot be read ({error.strerror})") from None

    def changes(self, allowed: Collection[str]) -> list[str]:
        """What differs from the files that were written, but for those that are ``allowed`` to; a new folder is one.

        At most 10,000 entries of folders are looked at. If there are more the last line says so.
        """
        found: list[str] = []
        seen: set[str] = set()
        folders = {parent for name in (*self.files, *allowed) for parent in _parents(name)}
        cut = False
        with suppress(OSError):
            entries = _walk(self._root, self.files, folders)
            for name, kind, same in islice(entries, _MAX_ENTRIES):
                seen.add(name)
                if name in allowed or same:
                    continue
                if name in self.files:
                    found.append(f"edited {name}" if kind == "file" else f"replaced {name} by a {kind}")
                else:
                    found.append(f"added {name}" + ("/" if kind == "folder" else f" (a {kind})" * (kind != "file")))
            cut = next(entries, None) is not None
        if not cut:
            found += [f"deleted {name}" for name in self.files if name not in seen | set(allowed)]
        more = len(found) - MAX_CHANGES
        named = [printable(os.fsencode(text), 300) for text in sorted(found)[:MAX_CHANGES]]
        named += [f"and {more} more"] * (more > 0)
        return named + [f"more than {_MAX_ENTRIES} entries; the others were not looked at"] * cut

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)
        remove(self.folder)


def remove(folder: Path) -> None:
    """Remove a folder, also one whose permissions or depth are meant to prevent it; as well as that can be done."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, str(folder)], stderr=subprocess.DEVNULL, check=False)


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


@contextmanager
def _inside(root: int, folder: str) -> Iterator[int]:
    """A descriptor of a folder below the root, reached without following a link."""
    descriptor = os.dup(root)
    try:
        os.fchmod(descriptor, 0o700)
        for part in filter(None, folder.split("/")):
            lower = _open_folder(descriptor, part)
            os.close(descriptor)
            descriptor = lower
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(parent: int, name: str) -> int:
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.chmod(name, 0o700, dir_fd=parent)  # nothing runs any more that could put a link there in between
    return os.open(name, _FOLDER, dir_fd=parent)


def _content(parent: int, name: str, found: os.stat_result) -> bytes:
    if not found.st_mode & stat.S_IRUSR:
        os.chmod(name, 0o600, dir_fd=parent)
    with open(os.open(name, _FILE, dir_fd=parent), "rb") as file:
        return file.read(found.st_size)


def _walk(root: int, files: Files, folders: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """Name and kind of every entry, and whether it is as it was written; new folders are not entered."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with _inside(root, folder) as parent, os.scandir(parent) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                found = entry.stat(follow_symlinks=False)
                kind = _kind(found.st_mode)
                if kind == "folder" and name in folders:
                    waiting.append(name)
                    continue
                expected = files.get(name)
                same = kind == "file" and expected is not None and found.st_size == len(expected)
                yield name, kind, same and _content(parent, entry.name, found) == expected


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
    ):
        if test(mode):
            return name
    return "device"
