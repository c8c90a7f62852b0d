"""The study: run the notebooks of a profile in order, check what they made, and say what was found."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dreamrsi.errors import UserError
from dreamrsi.exports import note_path
from dreamrsi.files import KINDS, atomic_write, locked, repository_root
from dreamrsi.notebook_runner import run_notebook
from dreamrsi.plan import Step, load_plan
from dreamrsi.provenance import MANIFEST, entry, read_manifest, write_manifest, write_provenance

Status = Literal["ok", "failed", "skipped"]
Echo = Callable[[str], object]
PUBLISHED = "full"  # the profile whose export is committed


@dataclass(frozen=True, slots=True)
class NotebookResult:
    """How one notebook went: wall seconds, the reason if it failed or was skipped, its sentences of what it found."""

    name: str
    status: Status
    seconds: float
    reason: str = ""
    findings: tuple[str, ...] = ()


@dataclass(slots=True)
class StudyResult:
    """How a study went. ``out`` is the export folder, with figures/, tables/, notebooks/ and the manifest."""

    profile: str
    out: Path
    notebooks: list[NotebookResult] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if every notebook ran and made what it declared, else 1."""
        return 0 if all(notebook.status == "ok" for notebook in self.notebooks) else 1

    @property
    def summary(self) -> str:
        """One line a notebook, then what they found."""
        wide = max((len(notebook.name) for notebook in self.notebooks), default=0)
        lines = [_line(notebook, wide) for notebook in self.notebooks]
        found = [f"  {notebook.name[:2]}  {text}" for notebook in self.notebooks for text in notebook.findings]
        return "\n".join(lines + (["", "Found:", *found] if found else []))


def run_study(
    profile: str = "quick",
    *,
    root: Path | None = None,
    out: Path | None = None,
    only: Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
    echo: Echo = lambda line: None,
) -> StudyResult:
    """Run the notebooks of a profile with papermill, in order, each in a process of its own.

    A notebook that fails is reported and the others go on, but for those that need it. What is made lies in ``out``:
    figures, tables, executed notebooks, ``manifest.json`` (the same in every run), ``provenance.json`` (times and
    machine). A full study that went well is published to ``figures/`` of the checkout.

    Parameters
    ----------
    profile
        ``quick`` or ``full``, or what else ``notebooks/study.toml`` names.
    root
        The checkout; found from the package or the current folder if None.
    out
        The export folder, relative to ``root``; ``runs/PROFILE`` if None.
    only
        Names or leading numbers of the notebooks to run; all if empty.
    parameters
        Values over the profile's, by ``NOTEBOOK.NAME`` or ``NAME``.
    echo
        Called with each line of progress and, at the end, with the summary.

    Raises
    ------
    UserError
        Before any kernel starts: no notebooks, unknown profile, notebook or parameter, a value of a wrong type, a
        folder that cannot be written or where another study runs.
    """
    root = root or repository_root()
    if root is None:
        raise UserError("there are no notebooks here: the study runs in a checkout of the repository, not from a wheel")
    root = root.resolve()
    steps = load_plan(root, profile, only=only, overrides=parameters)
    folder = root / (out or Path("runs") / profile)
    result = StudyResult(profile, folder)
    with locked(folder, "study"):
        _check_writable(folder)
        _run_all(steps, result, root, echo)
        if profile == PUBLISHED and result.exit_code == 0 and not only and not parameters:
            echo(f"published {publish(folder, root)} files to figures/")
    echo("\n" + result.summary)
    for line in _where(folder, root, only or parameters or profile == PUBLISHED):
        echo(line)
    return result


def _where(folder: Path, root: Path, part: object) -> list[str]:
    """Say where the results are and, for a whole study, which differ from those that are committed."""
    lines = ["", f"Figures, tables and executed notebooks: {_short(folder)}"]
    made, committed = _hashes(folder), _hashes(root / "figures")
    if not part and committed and folder != root / "figures":
        both = sorted(made.keys() & committed.keys())
        other = [file for file in both if made[file] != committed[file]]
        differ = f"; these differ: {', '.join(other)}" if other else ""
        lines.append(
            f"{len(both) - len(other)} of {len(both)} have the bytes of the committed export in figures/{differ}"
        )
    return lines


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hashes that the manifest in a folder lists, of figures and tables."""
    files = {file: facts for made in read_manifest(folder).values() for file, facts in made["files"].items()}
    return {file: files[file]["sha256"] for file in _exported(folder)}


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
    atomic_write(target / MANIFEST, (out / MANIFEST).read_bytes())
    return len(new)


def _run_all(steps: Sequence[Step], result: StudyResult, root: Path, echo: Echo) -> None:
    """Run the steps; the manifest is written even when Ctrl-C ends the study, of what is done by then."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    made: dict[str, dict[str, Any]] = {}
    begun: list[str] = []
    try:
        for number, step in enumerate(steps, start=1):
            begun.append(step.name)
            result.notebooks.append(_run_step(step, result, made, f"[{number}/{len(steps)}]", echo))
    finally:
        write_manifest(result.out, result.profile, made, begun)
        seconds = {notebook.name: round(notebook.seconds, 2) for notebook in result.notebooks}
        facts = {"profile": result.profile, "started": started, "seconds": seconds}
        write_provenance(result.out, root, facts)


def _run_step(
    step: Step, result: StudyResult, made: dict[str, dict[str, Any]], counter: str, echo: Echo
) -> NotebookResult:
    """Run or skip one notebook, and say so."""
    broken = [done.name for done in result.notebooks if done.status != "ok" and done.name in step.needs]
    if broken:
        notebook = NotebookResult(step.name, "skipped", 0.0, f"it needs {', '.join(broken)}")
    else:
        echo(f"{counter} {step.name}  running, at most {step.deadline:g} s")
        notebook = _execute(step, result.out, made)
    echo(f"{counter} {_line(notebook)}")
    return notebook


def _execute(step: Step, out: Path, made: dict[str, dict[str, Any]]) -> NotebookResult:
    """Run one notebook, check what it was to make, and enter it in ``made``."""
    copy = out / "notebooks" / f"{step.name}.ipynb"
    note_path(out, step.name).unlink(missing_ok=True)  # an earlier run's findings must not pass for this one's
    before = {file: _stamp(out / file) for file in step.outputs}
    parameters = {**step.parameters, **({"out": str(out)} if step.takes_out else {})}
    start = time.perf_counter()
    reason = run_notebook(
        step.source, copy, parameters=parameters, deadline=step.deadline, log=copy.with_suffix(".log")
    )
    seconds = time.perf_counter() - start
    if reason is not None and copy.exists():
        reason += f"; executed copy: {_short(copy)}"
    reason = reason or _missing(out, before)
    if reason is not None:
        return NotebookResult(step.name, "failed", seconds, reason)
    note = _note(out, step.name)
    made[step.name] = entry(out, {*step.outputs, *note["files"]}, step.parameters)
    return NotebookResult(step.name, "ok", seconds, findings=tuple(note["findings"]))


def _note(out: Path, name: str) -> dict[str, list[str]]:
    """Return the findings and files that the notebook noted, without files that it took away again."""
    path = note_path(out, name)
    note = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"findings": [], "files": []}
    return {"findings": note["findings"], "files": [file for file in note["files"] if (out / file).is_file()]}


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes whenever a file is written, whatever the clock says."""
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.is_file() else None


def _missing(out: Path, before: Mapping[str, tuple[int, int] | None]) -> str | None:
    """Return the reason if a declared output is not there or was not written now."""
    absent = [file for file in before if _stamp(out / file) is None]
    if absent:
        return f"it ran, but its declared outputs were not written: {', '.join(absent)}"
    old = [file for file, stamp in before.items() if _stamp(out / file) == stamp]
    return f"it ran, but its declared outputs are of an earlier run: {', '.join(old)}" if old else None


def _exported(folder: Path) -> set[str]:
    """Return the figures and tables that the manifest in a folder lists."""
    files = {file for made in read_manifest(folder).values() for file in made["files"]}
    return {file for file in files if Path(file).suffix[1:] in KINDS.get(Path(file).parts[0], ())}


def _line(notebook: NotebookResult, wide: int = 0) -> str:
    line = f"{notebook.name:<{wide}}  {notebook.status:<7}  {notebook.seconds:6.1f} s"
    return f"{line}  {notebook.reason}" if notebook.reason else line


def _short(path: Path) -> str:
    """Return the path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _check_writable(folder: Path) -> None:
    """Find out before any kernel starts: a folder may be there, and hold a lock, and still refuse new files."""
    for place in (folder, folder / "notebooks"):
        atomic_write(place / ".writable", "").unlink()
