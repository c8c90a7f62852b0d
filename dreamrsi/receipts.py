"""Whether a notebook has to run again: what its results were made from, kept beside them, and compared by content.

A receipt is written when a notebook has succeeded. It holds the parts of its key, so that a changed part can be named,
and the hash of every file that it left, so that a file changed by hand is found. Nothing in a key depends on order,
on where the checkout lies, or on the time of a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from dreamrsi.files import atomic_write, sha256
from dreamrsi.parameters import cells
from dreamrsi.plan import Step

DISTRIBUTION = "dreamrsi-kit"
TOOLS = ("lab", "test", "distributed")  # extras on which no result depends


class Key(msgspec.Struct, frozen=True):
    """What a notebook's results depend on; each part is a hash, or small enough to be kept as it is."""

    source: str
    parameters: dict[str, Any]
    package: str
    versions: dict[str, str | None]
    inputs: dict[str, str]
    needs: dict[str, str | None]


class Receipt(msgspec.Struct, frozen=True):
    """What is kept of one notebook's last run.

    ``seconds`` is the wall time of the last run that succeeded; the other fields are of a run that is ``ok``:
    ``files`` and ``exports`` give the SHA-256 of everything it left, and of the exports among it.
    """

    status: Literal["ok", "failed", "running"]
    seconds: float | None = None
    key: Key | None = None
    files: dict[str, str] = {}
    exports: dict[str, dict[str, Any]] = {}
    findings: list[str] = []
    version: str = ""
    facts: dict[str, Any] = {}

    def holds(self, out: Path) -> bool:
        """Whether every file that the run left is as it was left."""
        return self.status == "ok" and not changed_files(self, out)


def receipt_path(out: Path, name: str) -> Path:
    """Return where the receipt of a notebook lies."""
    return out / "receipts" / f"{name}.json"


def read(out: Path, name: str) -> Receipt | None:
    """Return the receipt of a notebook; None where there is none or where it cannot be understood."""
    try:
        receipt = msgspec.json.decode(receipt_path(out, name).read_bytes(), type=Receipt)
    except (OSError, msgspec.DecodeError):
        return None
    whole = receipt.status != "ok" or (receipt.key is not None and "environment" in receipt.facts)
    return receipt if whole else None


def write(out: Path, name: str, receipt: Receipt) -> None:
    """Keep the receipt of a notebook, whole or not at all."""
    atomic_write(receipt_path(out, name), msgspec.json.format(msgspec.json.encode(receipt), indent=1) + b"\n")


def current_key(step: Step, root: Path, out: Path) -> Key:
    """Return the key of a step as everything is now."""
    return Key(
        source=_source(step.source),
        parameters=step.effective,
        package=package_hash(),
        versions=versions(),
        inputs={file: sha256(root / file) for file in step.input_files(root)},
        needs={name: _made(out, name) for name in step.needs},
    )


def why(step: Step, key: Key, receipt: Receipt | None, out: Path, *, force: bool = False) -> str | None:
    """Return why a notebook has to run, in words that follow "runs: "; None if its results stand."""
    if force:
        return "--force"
    match receipt:
        case None:
            return "the first time"
        case Receipt(status="failed"):
            return "it failed last time"
        case Receipt(status="ok", key=Key() as old):
            reasons = differences(old, key)
        case _:
            return "it was interrupted last time"
    new = [f"{file} is a new output" for file in step.outputs if file not in receipt.files]
    gone = [f"{file} was changed or is gone" for file in changed_files(receipt, out)]
    reasons += new + gone
    return ", ".join(reasons[:3]) + (f" and {len(reasons) - 3} more" if len(reasons) > 3 else "") or None


def changed_files(receipt: Receipt, out: Path) -> list[str]:
    """Return the files of a receipt that are gone or are not what they were."""
    return [file for file, hashed in receipt.files.items() if _hash_of(out / file) != hashed]


def package_hash() -> str:
    """Return the hash of the package's own files, as they lie on the disk now, hidden and compiled ones left out."""
    folder = Path(__file__).resolve().parent
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    seen = {
        name.as_posix(): path
        for name, path in files.items()
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    }
    return _hash(sorted([name, sha256(path)] for name, path in seen.items()))


def versions() -> dict[str, str | None]:
    """Return the versions of Python, of the package and of what it depends on directly; None is not installed."""
    from dreamrsi import __version__

    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # the package was put on the path and not installed
        required = []
    found: dict[str, str | None] = {"Python": sys.version.split()[0], "dreamrsi": __version__}
    for requirement in required:
        name = re.match(r"[\w.\-]+", requirement)
        if name and not any(re.search(rf"extra\s*==\s*['\"]{extra}['\"]", requirement) for extra in TOOLS):
            found[name[0]] = _version(name[0])
    return found


def differences(old: Key, new: Key) -> list[str]:
    """Return what differs between two keys, a phrase each."""
    phrases = []
    if old.source != new.source:
        phrases.append("its source changed")
    phrases += [f"parameter {name} changed" for name in _changed(old.parameters, new.parameters)]
    phrases += [f"input {file} changed" for file in _changed(old.inputs, new.inputs)]
    phrases += [f"what {name} made changed" for name in _changed(old.needs, new.needs)]
    if old.package != new.package:
        phrases.append("the package changed")
    for name in _changed(old.versions, new.versions):
        was, now = old.versions.get(name), new.versions.get(name)
        phrases.append(f"{name} changed from {was or 'none'} to {now or 'none'}")
    return phrases


def _source(notebook: Path) -> str:
    """Return the hash of a notebook's cells, and of the Python files beside it, which it can import."""
    inside = [[cell["cell_type"], _text(cell), _tags(cell), cell.get("attachments", {})] for cell in cells(notebook)]
    return _hash([inside, sorted([path.name, sha256(path)] for path in notebook.parent.glob("*.py"))])


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the names whose values differ as JSON has them: 1, 1.0 and true are three values."""
    was, now = ({name: _json(value) for name, value in part.items()} for part in (old, new))
    return sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))


def _made(out: Path, name: str) -> str | None:
    """Return the hash of what a notebook that is needed left in the export folder, as it lies there now."""
    receipt = read(out, name)
    if receipt is None or receipt.status != "ok":
        return None
    return _hash(sorted([file, _hash_of(out / file)] for file in receipt.exports))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _text(cell: Mapping[str, Any]) -> str:
    return "".join(cell["source"])  # a list of lines or one string, as the editor pleases


def _tags(cell: Mapping[str, Any]) -> list[str]:
    return sorted(cell.get("metadata", {}).get("tags", []))


def _hash_of(path: Path) -> str | None:
    return sha256(path) if path.is_file() else None


def _hash(value: object) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)
