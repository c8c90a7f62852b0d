"""A frozen suite: the trees, the current policy and the settings that a gate judges by, and the hashes of it all.

A suite is a folder: ``suite.json``, ``current.py``, ``trees/*.jsonl`` and ``SHA256SUMS``, which ``sha256sum -c`` reads
too. Nothing in it changes after it was frozen; a suite in which a byte differs is none.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dreamrsi.decision import Settings, show
from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write, sha256
from dreamrsi.record import TornRecordWarning
from dreamrsi.tree import Tree

FORMAT = "dreamrsi.suite/1"
SUMS = "SHA256SUMS"
MANIFEST = "suite.json"
CURRENT = "current.py"
TREES = "trees"

LAST = 3
"""K: coverage looks at the winners of that many trees, the last ones."""

MAX_DROP = 0.02
"""The share of its quality that a policy may lose."""

MAX_ATTEMPTS = 0.80
"""The share of the current policy's attempts that a candidate may make."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tree of a suite, and what the current policy did on it.

    ``own`` says that the current policy recorded it; ``attempts`` and ``best`` are then what the tree itself says, else
    what replaying the current policy gave when the suite was frozen. ``round`` is the number of the round in its run,
    and ``beta`` what the policy's knob was set to.
    """

    file: str
    name: str
    own: bool
    attempts: int
    best: float | None
    round: int | None = None
    beta: float | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``suite.json`` holds.

    ``trees`` are in the order in which they closed. ``beta1s`` and ``beta2s`` are the declared neighbourhood and
    ``margin`` what counts as a tie there, in units of the score. A gate fails the rule whose evidence is not here.
    """

    format: str = FORMAT
    policy: str
    settings: Settings
    max_rounds: int | None = None
    last: int = LAST
    beta1s: tuple[float, ...] = ()
    beta2s: tuple[float, ...] = ()
    margin: float | None = None
    max_drop: float = MAX_DROP
    max_attempts: float = MAX_ATTEMPTS
    trees: tuple[Entry, ...]


class Suite:
    """A frozen suite, read and checked.

    Attributes
    ----------
    folder, manifest : where it lies, and what it says.
    sha256 : the hash of the hashes, which names the suite.
    trees : in the order in which they closed.
    current : the source of the current policy.
    """

    def __init__(self, folder: Path, manifest: Manifest, name: str, trees: Sequence[Tree], current: bytes) -> None:
        self.folder = folder
        self.manifest = manifest
        self.sha256 = name
        self.trees = tuple(trees)
        self.current = current

    @property
    def current_sha256(self) -> str:
        """The hash of the current policy's source."""
        return hashlib.sha256(self.current).hexdigest()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Suite:
        """Read a suite.

        Raises
        ------
        UserError
            A file is missing, changed, unreadable, or not part of the suite; names it.
        """
        folder = Path(folder)
        sums = _check_sums(folder)
        manifest = _read_manifest(folder / MANIFEST)
        expected = {MANIFEST, CURRENT, *(entry.file for entry in manifest.trees)}
        if expected != set(sums) or len(manifest.trees) != len(sums) - 2:
            odd = ", ".join(sorted(expected ^ set(sums))) or "a tree that is listed twice"
            raise UserError(f"{folder}: {MANIFEST} and {SUMS} name different files ({odd}); freeze the suite again")
        trees = [load_closed(folder / entry.file, entry.name) for entry in manifest.trees]
        try:
            current = (folder / CURRENT).read_bytes()
        except OSError as error:
            raise UserError(f"{folder / CURRENT}: cannot be read ({error.strerror}); freeze the suite again") from error
        if _check_sums(folder) != sums or hashlib.sha256(current).hexdigest() != sums[CURRENT]:
            raise UserError(f"{folder}: changed while it was read; nothing may write to a suite")
        return cls(folder, manifest, sha256(folder / SUMS), trees, current)


def read_policy(path: str | os.PathLike[str]) -> bytes:
    """The source of a policy.

    Raises
    ------
    UserError
        It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the file of a policy") from error


def load_closed(path: Path, name: str | None = None) -> Tree:
    """Read a tree that is finished and can judge a policy.

    Raises
    ------
    UserError
        It was cut off, or none of its attempts has a score; or it is no tree.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", TornRecordWarning)
        try:
            tree = Tree.load(path)
        except TornRecordWarning as error:
            raise UserError(f"{error}. A tree that is not closed judges nothing") from None
    if tree.best_attempt is None:
        raise UserError(f"{path}: no attempt has a score; leave the tree out")
    tree.name = name or tree.name
    return tree


def round_number(path: Path) -> int | None:
    """The number of the round, where a tree lies in a run's folder (``round-07/tree.jsonl``)."""
    found = re.fullmatch(r"round-(\d{1,9})", path.absolute().parent.name)
    return int(found[1]) if found else None


def fingerprint(tree: Tree) -> str:
    """A hash of what a tree recorded, whatever its file looks like: two files with the same attempts are one tree."""
    rows = [(a.branch, a.attempt, a.score, a.status, a.origin) for a in tree]
    return hashlib.sha256(msgspec.json.encode((tree.root, rows))).hexdigest()


def seal(folder: Path) -> str:
    """Write the hashes of everything in a suite's folder, and return the suite's own.

    Whoever can write to the folder can do this, which is why a decision records the hash.
    """
    atomic_write(folder / SUMS, _sums({file: sha256(folder / file) for file in _files(folder) if file != SUMS}))
    return sha256(folder / SUMS)


def check_caps(settings: Settings) -> None:
    """Refuse a width or a cap that no run can have, with a UserError that names it."""
    for name, value in (("width", settings.width), ("steps", settings.steps), ("branches", settings.branches)):
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}; it must be at least 1")


def check_limits(manifest: Manifest) -> None:
    """Refuse limits that are no limits, or looser than the usual ones, with a UserError."""
    check_caps(manifest.settings)
    if not (0 < manifest.max_drop <= MAX_DROP and 0 < manifest.max_attempts <= MAX_ATTEMPTS):
        raise UserError(f"the limits may be made stricter than {MAX_DROP} and {MAX_ATTEMPTS}, and must be above 0")


def neighbourhood_problem(manifest: Manifest, beta1: float | None, beta2: float | None) -> str | None:
    """Why the declared neighbourhood does not prove anything about these betas; None if it does."""
    if manifest.margin is None or not (math.isfinite(manifest.margin) and manifest.margin >= 0):
        return "the suite states no margin for a tie"
    for name, beta, values in (("beta1", beta1, manifest.beta1s), ("beta2", beta2, manifest.beta2s)):
        if beta is None or not math.isfinite(beta):
            return f"{name} is not in the suite"
        if not values or not all(math.isfinite(value) and value >= 0 for value in values):
            return f"the suite declares no neighbourhood of {name}"
        if min(values) == max(values):
            return f"the neighbourhood of {name} is the single setting {show(beta)}; declare a range around it"
        if not min(values) <= beta <= max(values):
            span = f"{show(min(values))} to {show(max(values))}"
            return f"{name} {show(beta)} is not within its declared neighbourhood, {span}"
    return None


def _read_manifest(path: Path) -> Manifest:
    try:
        content = path.read_bytes()
        manifest = msgspec.json.decode(content, type=Manifest)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); freeze the suite again") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is no suite ({error}); freeze the suite again") from error
    if manifest.format != FORMAT:
        raise UserError(f"{path}: has format {manifest.format!r}, not {FORMAT!r}; freeze the suite again")
    if not manifest.trees:
        raise UserError(f"{path}: the suite has no trees; freeze it again")
    check_limits(manifest)
    return manifest


def _check_sums(folder: Path) -> dict[str, str]:
    """Hash every file of the folder, and compare with what was frozen: file -> hash."""
    try:
        stored = (folder / SUMS).read_bytes()
        files = _files(folder)
        found = {file: sha256(folder / file) for file in files if file != SUMS}
    except OSError as error:
        raise UserError(f"{folder}: is no suite that can be read ({error.strerror}: {error.filename})") from error
    if stored == _sums(found).encode():
        return found
    pairs = (line.partition("  ") for line in stored.decode(errors="replace").splitlines())
    lines = {file: digest for digest, _, file in pairs if file}
    odd = sorted(file for file in {*found, *lines} if found.get(file) != lines.get(file))
    what = "; ".join(f"{file} {_oddity(file in lines, file in found)}" for file in odd[:5]) or f"{SUMS} was changed"
    raise UserError(f"{folder}: {what}. A suite that changed judges nothing; freeze it again")


def _oddity(listed: bool, there: bool) -> str:
    return "was changed" if listed and there else "is missing" if listed else "is no part of the suite"


def _files(folder: Path) -> list[str]:
    """Every file of the folder, by its path from there; anything but plain files and folders is refused."""
    found = []
    for path in folder.rglob("*"):
        kind = path.lstat().st_mode
        if stat.S_ISREG(kind):
            found.append(path.relative_to(folder).as_posix())
        elif not stat.S_ISDIR(kind):
            raise UserError(f"{path}: is a link or a device; a suite holds files")
    return sorted(found)


def _sums(hashes: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {file}\n" for file, digest in sorted(hashes.items()))
