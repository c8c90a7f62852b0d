"""Where things lie, and writing them so that a reader never sees half a file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from dreamrsi.errors import UserError

PLAN = Path("notebooks") / "study.toml"
KINDS = {"figures": ("pdf", "svg", "png"), "tables": ("csv", "tex", "md")}  # folder: the formats of every export in it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]*")


def repository_root() -> Path | None:
    """Return the checkout that holds the notebooks: the package's own, else the one around the current folder.

    None where there is neither, as after an installation from a wheel.
    """
    here = Path.cwd()
    for folder in (Path(__file__).resolve().parent.parent, here, *here.parents):
        if (folder / PLAN).is_file():
            return folder
    return None


def in_checkout(path: str) -> Path:
    """Return a file or folder that comes with the repository, wherever the program was started.

    Raises
    ------
    UserError
        The package was installed without the repository, or the checkout lacks the path.
    """
    root = repository_root()
    if root is None or not (root / path).exists():
        raise UserError(f"{path} comes with the repository and is not here; clone the repository and run from it")
    return root / path


def resolve_out(out: str | Path | None) -> Path:
    """Return the export folder as an absolute path.

    ``None`` means ``runs/interactive``. A relative path counts from the checkout and not from the current folder,
    since JupyterLab, papermill and a shell each start a notebook somewhere else.
    """
    return (repository_root() or Path.cwd()) / (Path("runs") / "interactive" if out is None else Path(out))


def check_name(name: str) -> str:
    """Return ``name`` if it can be a file name on every system and a label in LaTeX, else raise UserError."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot name an export; use letters, digits, _ and -, without a folder or an ending")
    return name


def atomic_write(path: Path, content: bytes | str | Iterable[bytes]) -> Path:
    """Write ``content`` (text as UTF-8, or pieces of bytes) beside ``path``, wait for the disk, rename it into place.

    Folders are made. The file is there whole or not at all.

    Raises
    ------
    UserError
        The place cannot be written to.
    """
    text = content.encode() if isinstance(content, str) else content
    pieces = [text] if isinstance(text, bytes) else text
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp gives 0600, which others could not read
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose another folder") from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return path


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Make the folder and keep every other ``what`` ("study", say) out of it until the block ends.

    The lock goes with the process, however that ends, so that nothing has to be cleaned up after a kill.

    Raises
    ------
    UserError
        The folder cannot be written to, or another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another {what} is running in {folder}; wait for it, or choose another folder") from None
        except OSError as error:  # some network file systems have no locks
            raise UserError(f"{folder} cannot be locked: {error.strerror}; choose a folder on another disk") from error
        yield


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
