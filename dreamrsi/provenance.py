"""What was made, and on what: the manifest is the same on every run, the facts of the machine stand beside it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

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


def entry(out: Path, files: Iterable[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's entry of one notebook: its parameters, and SHA-256 and bytes of every file it made."""
    from dreamrsi import __version__

    described = {file: {"bytes": (out / file).stat().st_size, "sha256": sha256(out / file)} for file in sorted(files)}
    return {"dreamrsi": __version__, "parameters": dict(sorted(parameters.items())), "files": described}


def write_manifest(out: Path, profile: str, made: Mapping[str, dict[str, Any]], ran: Iterable[str]) -> Path:
    """Write ``manifest.json``: the entries ``made`` now, and earlier ones of notebooks that did not run now.

    An earlier entry stays only while its files are what it says. Nothing of the time or the machine is in it.
    """
    kept = {name: old for name, old in read_manifest(out).items() if name not in set(ran) and _holds(out, old)}
    manifest = {
        "format": "dreamrsi.manifest/1",
        "profile": profile,
        "notebooks": dict(sorted({**kept, **made}.items())),
    }
    return atomic_write(out / MANIFEST, _json(manifest))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the notebooks' entries of a manifest; empty where there is none. Raises UserError on a broken one."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    try:
        notebooks = json.loads(path.read_text(encoding="utf-8"))["notebooks"]
        if all("files" in old for old in notebooks.values()):
            return dict(notebooks)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path} is no manifest of a study; move it away and run the study again")


def write_provenance(out: Path, root: Path, facts: Mapping[str, Any]) -> Path:
    """Write ``provenance.json``: ``facts`` of the run (start, seconds) and of the code and the machine."""
    return atomic_write(out / PROVENANCE, _json({**facts, "code": _code(root), "machine": _machine()}))


def _holds(out: Path, old: Mapping[str, Any]) -> bool:
    files = old["files"].items()
    return all((out / file).is_file() and sha256(out / file) == facts["sha256"] for file, facts in files)


def _code(root: Path) -> dict[str, Any]:
    packages = {package.metadata["Name"]: package.version for package in metadata.distributions()}
    commit = _git(root, "rev-parse", "HEAD")
    return {
        "commit": commit,
        "dirty": None if commit is None else _git(root, "status", "--porcelain") != "",
        "python": sys.version,
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def _machine() -> dict[str, Any]:
    import numpy  # noqa: F401 - loads the BLAS that threadpoolctl describes
    from threadpoolctl import threadpool_info

    libraries = [{key: value for key, value in library.items() if key != "filepath"} for library in threadpool_info()]
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "blas": libraries,
        "threads": {name: os.environ.get(name) for name in THREADS},
    }


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
