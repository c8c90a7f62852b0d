"""The plan of a study, ``notebooks/study.toml``: which notebooks, in which order, with which parameters a profile.

::

    profiles = ["quick", "full"]

    [03_width_and_coverage]
    needs = ["01_synthetic_trees"]              # if one of these fails, this one is skipped
    inputs = ["synthetic/history", "examples/run.jsonl"]  # what it reads: a change there runs it again
    outputs = ["figures/width_hits", "tables/width_hits", "trees/live.jsonl"]
    deadline = { quick = 120, full = 3600 }     # seconds for the whole notebook, or one number for every profile

    [03_width_and_coverage.quick]               # parameters; what is not named keeps the notebook's default
    corpora = 20
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamrsi.errors import UserError
from dreamrsi.files import KINDS, PLAN
from dreamrsi.parameters import Declared, checked, declared, nearest

KEYS = ("needs", "inputs", "outputs", "deadline")


@dataclass(frozen=True, slots=True)
class Step:
    """One notebook of a study in one profile; everything in it is checked.

    ``outputs`` are files relative to the export folder. ``parameters`` leaves out ``out``, the export folder, which
    the study adds when ``takes_out``: it differs between machines and is no part of what was computed. ``effective``
    adds the notebook's defaults to them. ``inputs`` are files and folders relative to the checkout.
    """

    name: str
    source: Path
    needs: tuple[str, ...]
    outputs: tuple[str, ...]
    deadline: float
    parameters: dict[str, Any]
    effective: dict[str, Any]
    takes_out: bool
    inputs: tuple[str, ...] = ()

    def input_files(self, root: Path) -> list[str]:
        """Return the files of the inputs relative to the checkout, hidden ones left out; UserError if one lacks."""
        found: set[str] = set()
        for given in self.inputs:
            place = root / given
            files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
            names = {path.relative_to(root).as_posix() for path in files}
            seen = {name for name in names if not any(part.startswith(".") for part in Path(name).parts)}
            if not seen:
                raise UserError(f"{PLAN}, [{self.name}]: its input {given!r} is not there, or holds no file")
            found |= seen
        return sorted(found)


def load_plan(
    root: Path, profile: str, *, only: Sequence[str] = (), overrides: Mapping[str, object] | None = None
) -> list[Step]:
    """Return the steps of a profile in order, checked as far as it goes without a kernel.

    Parameters
    ----------
    root
        The checkout, which holds ``notebooks/study.toml``.
    only
        Names of notebooks, or their leading numbers; empty means all.
    overrides
        Parameters by ``NOTEBOOK.NAME`` or, for every selected notebook that declares it, by ``NAME``.

    Raises
    ------
    UserError
        Names the file, the entry and what it may be.
    """
    plan = _read(root / PLAN)
    profiles = _strings(plan.pop("profiles", ["quick", "full"]), "profiles")
    if profile not in profiles:
        raise UserError(f"there is no profile {profile!r}; {nearest(profile, profiles)}")
    names = {_full_name(name, plan) for name in only} or set(plan)
    known = {name: declared((root / PLAN).with_name(f"{name}.ipynb")) for name in plan if name in names}
    extra = _by_notebook(overrides or {}, known)
    earlier: list[str] = []
    steps = []
    owners: dict[str, str] = {}
    for name, entry in plan.items():
        _check_entry(name, entry, profiles, earlier)
        earlier.append(name)
        for output in _strings(entry.get("outputs", []), f"{PLAN}, [{name}]: outputs"):
            if owners.setdefault(output, name) != name:  # each would undo the other's in every run
                raise UserError(f"{PLAN}: {owners[output]} and {name} both declare the output {output!r}")
        if name in names:
            given = {**entry.get(profile, {}), **extra[name]}
            steps.append(_step(root, name, entry, profile, known[name], given))
    return steps


def notebook_names(root: Path) -> list[str]:
    """Return the names of all notebooks of the plan."""
    return [name for name in _read(root / PLAN) if name != "profiles"]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UserError(f"cannot read the plan of the study, {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None


def _full_name(name: str, plan: Mapping[str, Any]) -> str:
    found = [known for known in plan if known == name or known.startswith((f"{name}_", f"0{name}_"))]
    if len(found) == 1:
        return found[0]
    raise UserError(f"there is no notebook {name!r} in {PLAN}; {nearest(name, plan)}")


def _by_notebook(overrides: Mapping[str, object], known: Mapping[str, Mapping[str, Declared]]) -> dict[str, Any]:
    """Return the overrides of every selected notebook."""
    extra: dict[str, dict[str, object]] = {name: {} for name in known}
    for key, value in overrides.items():
        notebook, dot, parameter = key.rpartition(".")
        if dot:
            targets = [_full_name(notebook, known)]
        else:
            targets = [name for name, parameters in known.items() if parameter in parameters]
            if not targets:
                everything = sorted({name for parameters in known.values() for name in parameters})
                raise UserError(f"no selected notebook has a parameter {key!r}; {nearest(key, everything)}")
        for name in targets:
            extra[name][parameter] = value
    return extra


def _check_entry(name: str, entry: object, profiles: Sequence[str], earlier: Sequence[str]) -> None:
    where = f"{PLAN}, [{name}]"
    if not isinstance(entry, dict):
        raise UserError(f"{where} must be a table")
    for key, value in entry.items():
        if key not in (*KEYS, *profiles):
            raise UserError(f"{where}: unknown key {key!r}; {nearest(key, [*KEYS, *profiles])}")
        if key in profiles and not isinstance(value, dict):
            raise UserError(f"{where}: {key} must be a table of parameters")
    for needed in _strings(entry.get("needs", []), f"{where}: needs"):
        if needed not in earlier:
            raise UserError(f"{where} needs {needed!r}, which is no notebook before it; {nearest(needed, earlier)}")


def _step(
    root: Path, name: str, entry: dict[str, Any], profile: str, known: Mapping[str, Declared], given: dict[str, object]
) -> Step:
    where = f"{PLAN}, [{name}]"
    deadline = entry.get("deadline", 600)
    if isinstance(deadline, dict):
        deadline = deadline.get(profile)
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not deadline > 0:
        raise UserError(f"{where}: the deadline of profile {profile} is {deadline!r}; it must be a number of seconds")
    outputs = _strings(entry.get("outputs", []), f"{where}: outputs")
    if "out" in given:
        raise UserError(f"notebook {name}: the parameter out is set by the study; give the folder to the study itself")
    if outputs and "out" not in known:
        raise UserError(f"notebook {name} declares outputs but has no parameter out = None to say where they go")
    values = checked(name, known, given)
    step = Step(
        name=name,
        source=(root / PLAN).with_name(f"{name}.ipynb"),
        needs=tuple(entry.get("needs", [])),
        outputs=tuple(file for output in outputs for file in _files(output, where)),
        deadline=float(deadline),
        parameters=values,
        effective={key: values.get(key, known[key].default) for key in known if key != "out"},
        takes_out="out" in known,
        inputs=tuple(_inside(path, where) for path in _strings(entry.get("inputs", []), f"{where}: inputs")),
    )
    step.input_files(root)  # what lacks is said before a kernel starts
    return step


def _inside(path: str, where: str) -> str:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise UserError(f"{where}: input {path!r} must be a path relative to the checkout and in it")
    return path


def _files(output: str, where: str) -> list[str]:
    """Return the files of a declared output: ``figures/x`` and ``tables/x`` stand for every format."""
    path = Path(output)
    if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise UserError(f"{where}: output {output!r} must be a path in a folder of the export, such as figures/name")
    formats = KINDS.get(path.parts[0], ()) if not path.suffix else ()
    return [f"{output}.{kind}" for kind in formats] or [output]


def _strings(value: object, where: str) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise UserError(f"{where} must be a list of strings")
