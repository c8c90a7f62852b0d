"""What was made, and on what: the manifest is the same on every run, the facts of the machine stand beside it.

Both lie beside the exports, an entry a notebook, and an entry stays as long as that notebook's results do. :func:`of`
finds the entries of one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dreamrsi import receipts
from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write, sha256

MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def write_down(out: Path, profile: str, names: Iterable[str]) -> None:
    """Write ``manifest.json`` and ``provenance.json`` from the receipts of the notebooks whose results stand.

    A notebook that failed, or whose files were changed, is in neither. Nothing of the time or the machine is in the
    manifest. Machines that are the same are described once.
    """
    notebooks: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    environments: dict[str, Any] = {}
    for name in sorted(names):
        receipt = receipts.read(out, name)
        if receipt is None or receipt.key is None or not receipt.holds(out):
            continue
        notebooks[name] = {
            "dreamrsi": receipt.version,
            "parameters": dict(sorted(receipt.key.parameters.items())),
            "seed": receipt.key.parameters.get("seed"),
            "inputs": receipt.key.inputs,
            "files": receipt.exports,
        }
        facts = dict(receipt.facts)
        environment = facts.pop("environment")
        number = hashlib.sha256(_json(environment).encode()).hexdigest()[:8]
        environments[number] = environment
        code = {"notebook": receipt.key.source, "package": receipt.key.package}
        runs[name] = {**facts, "code": code, "environment": number}
    manifest = {"format": "dreamrsi.manifest/1", "profile": profile, "notebooks": notebooks}
    facts = {"format": "dreamrsi.provenance/1", "profile": profile, "notebooks": runs, "environments": environments}
    atomic_write(out / MANIFEST, _json(manifest))
    atomic_write(out / PROVENANCE, _json(facts))


def described(out: Path, files: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return bytes and SHA-256 of files of the export folder, by name."""
    return {file: {"bytes": (out / file).stat().st_size, "sha256": sha256(out / file)} for file in sorted(files)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the notebooks' entries of a manifest; empty where there is none. Raises UserError on a broken one."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    notebooks = _read(path).get("notebooks")
    if isinstance(notebooks, dict) and all(isinstance(old, dict) and "files" in old for old in notebooks.values()):
        return notebooks
    raise UserError(f"{path} is no manifest of a study; move it away and run the study again")


def of(path: str | Path, folder: str | Path | None = None) -> dict[str, Any]:
    """Return where an exported file comes from: what the manifest and the provenance say of it.

    Parameters
    ----------
    path
        The file. Its content decides, so that a copy under another name is found too.
    folder
        The folder with ``manifest.json`` and ``provenance.json``; that of the file, or the one above it, if None.

    Returns
    -------
    dict
        ``file``, ``notebook``, ``profile``; ``dreamrsi``, ``parameters``, ``seed`` and ``inputs`` of the notebook;
        ``run`` with ``commit``, ``dirty``, ``started``, ``seconds`` and ``environment`` (Python, packages, platform,
        processor, BLAS, threads, GPU).

    Raises
    ------
    UserError
        There is no such file or manifest, or no notebook is known to have made these bytes.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    places = [path.resolve().parent, path.resolve().parent.parent] if folder is None else [Path(folder)]
    place = next((place for place in places if (place / MANIFEST).is_file()), None)
    if place is None:
        raise UserError(f"there is no {MANIFEST} at {' or '.join(map(str, places))}; name its folder")
    hashed = sha256(path)
    same = [
        (Path(file).name != path.name, file, notebook, entry)
        for notebook, entry in read_manifest(place).items()
        for file, facts in entry["files"].items()
        if facts["sha256"] == hashed
    ]
    if not same:
        raise UserError(f"{place / MANIFEST} knows no file with the bytes of {path}: it was changed, or made elsewhere")
    _, file, notebook, entry = min(same, key=lambda match: match[:3])  # of equal files, the one of that name
    described = {"file": file, "notebook": notebook, "profile": _read(place / MANIFEST).get("profile")}
    return {**described, **{key: value for key, value in entry.items() if key != "files"}, "run": _run(place, notebook)}


def facts_of_run(root: Path) -> dict[str, Any]:
    """Return the facts of a run that starts now: commit and time, and the environment it runs in."""
    commit = _git(root, "rev-parse", "HEAD")
    return {
        "commit": commit,
        # what a full study publishes is no part of what makes it
        "dirty": None if commit is None else _git(root, "status", "--porcelain", "--", ".", ":(exclude)figures") != "",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
    }


@cache
def environment() -> dict[str, Any]:
    """Return Python, packages, machine, BLAS, settings of threads, and the GPUs if there are any."""
    import numpy  # noqa: F401 - loads the BLAS that threadpoolctl describes
    from threadpoolctl import threadpool_info

    packages = {package.metadata["Name"]: package.version for package in metadata.distributions()}
    libraries = [{key: value for key, value in library.items() if key != "filepath"} for library in threadpool_info()]
    return {
        "python": sys.version,
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "blas": libraries,
        "threads": {name: os.environ.get(name) for name in THREADS},
        "gpus": _gpus(),
    }


def _run(folder: Path, notebook: str) -> dict[str, Any] | None:
    """Return the facts of the run that made a notebook's results; None where they are not kept."""
    path = folder / PROVENANCE
    if not path.is_file():
        return None
    known = _read(path)
    run = known.get("notebooks", {}).get(notebook)
    return run and {**run, "environment": known.get("environments", {}).get(run.get("environment"))}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path} is no manifest of a study; move it away and run the study again")
    return found


def _gpus() -> list[str]:
    """Return name, driver and memory of every NVIDIA GPU; empty where none answers within a second."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def _processor() -> str:
    """Return the processor's model; Python knows it on few systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git says, or None where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
