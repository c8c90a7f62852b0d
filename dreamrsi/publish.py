"""The committed export: the figures and tables of the full profile, copied to ``figures/`` of the checkout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamrsi.errors import UserError
from dreamrsi.files import KINDS, atomic_write, sha256
from dreamrsi.provenance import MANIFEST, PROVENANCE, read_manifest


def publish(out: Path, root: Path) -> int:
    """Copy the figures and tables of a finished study to ``figures/`` of the checkout; return how many files.

    Files that an earlier publication put there and this one does not have are removed; nothing else is touched.
    """
    target = root / "figures"
    old, new = _exported(target), _exported(out)
    if len({Path(file).name for file in new}) < len(new):
        raise UserError(f"{out} holds a figure and a table of the same file name; rename one")
    for file in old - new:
        (target / Path(file).name).unlink(missing_ok=True)
    for file in sorted(new):
        atomic_write(target / Path(file).name, (out / file).read_bytes())
    for file in (MANIFEST, PROVENANCE):
        atomic_write(target / file, (out / file).read_bytes())
    return len(new)


def compare(out: Path, root: Path) -> tuple[list[str], list[str]]:
    """Return the figures and tables of a study that have the bytes of those committed in ``figures/``, and that differ.

    What a notebook made with other parameters, as in another profile, may differ and is left out.
    """
    same, differ = [], []
    made, committed = read_manifest(out), read_manifest(root / "figures")
    for name in sorted(made.keys() & committed.keys()):
        comparable = made[name]["parameters"] == committed[name]["parameters"]
        mine, theirs = (_exported_of(entry) for entry in (made[name], committed[name]))
        files = mine.keys() | theirs.keys() if comparable else mine.keys() & theirs.keys()
        for file in sorted(files):
            copy = root / "figures" / Path(file).name
            if file in mine and copy.is_file() and sha256(copy) == mine[file]["sha256"]:
                same.append(file)
            elif comparable:
                differ.append(file)
    return same, differ


def _exported(folder: Path) -> set[str]:
    """Return the figures and tables that the manifest in a folder lists."""
    return {file for made in read_manifest(folder).values() for file in made["files"] if _is_export(file)}


def _exported_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures and tables of a notebook's entry in a manifest."""
    return {file: facts for file, facts in entry["files"].items() if _is_export(file)}


def _is_export(file: str) -> bool:
    return Path(file).suffix[1:] in KINDS.get(Path(file).parts[0], ())
