"""The study: run the notebooks of a profile that have to run, check what they made, and say what was found."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dreamrsi import __version__, receipts
from dreamrsi.console import Console, duration
from dreamrsi.errors import UserError
from dreamrsi.exports import note_path
from dreamrsi.files import KINDS, atomic_write, locked, repository_root, sha256
from dreamrsi.notebook_runner import run_notebook
from dreamrsi.plan import Step, load_plan, notebook_names
from dreamrsi.provenance import MANIFEST, PROVENANCE, described, facts_of_run, read_manifest, write_down
from dreamrsi.receipts import Key, Receipt

Status = Literal["ok", "cached", "failed", "skipped"]
PUBLISHED = "full"  # the profile whose export is committed


@dataclass(frozen=True, slots=True)
class NotebookResult:
    """How one notebook went.

    ``why`` says why it ran, ``reason`` why it failed or was skipped; ``seconds`` are of this study, 0 if it did not
    run; ``findings`` are its sentences of what it found, of an earlier run where it is cached.
    """

    name: str
    status: Status
    seconds: float
    reason: str = ""
    findings: tuple[str, ...] = ()
    why: str = ""

    @property
    def stands(self) -> bool:
        """Whether its results are there."""
        return self.status in ("ok", "cached")


@dataclass(slots=True)
class StudyResult:
    """How a study went. ``out`` is the export folder, with figures/, tables/, notebooks/ and the manifest.

    ``same`` and ``differ`` compare the bytes of a whole study with the export committed in ``figures/``; ``published``
    counts the files that were copied there.
    """

    profile: str
    out: Path
    notebooks: list[NotebookResult] = field(default_factory=list)
    seconds: float = 0.0
    published: int = 0
    same: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the results of every notebook are there, else 1."""
        return 0 if all(notebook.stands for notebook in self.notebooks) else 1

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        notebooks = [
            {
                "name": notebook.name,
                "status": notebook.status,
                "why": notebook.why,
                "reason": notebook.reason,
                "seconds": round(notebook.seconds, 2),
                "findings": list(notebook.findings),
            }
            for notebook in self.notebooks
        ]
        return {
            "profile": self.profile,
            "out": str(self.out),
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 2),
            "notebooks": notebooks,
            "published": self.published,
            "same_as_committed": self.same,
            "differ_from_committed": self.differ,
        }


def run_study(
    profile: str = "quick",
    *,
    root: Path | None = None,
    out: Path | None = None,
    only: Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
    force: bool = False,
    console: Console | None = None,
) -> StudyResult:
    """Run the notebooks of a profile with papermill, in order, each in a process of its own.

    A notebook is not run again while its cells, its parameters, its declared inputs, what the notebooks that it needs
    made, the package and the versions below it are those of its last run, and its files are as that run left them.
    One that fails is reported and the others go on, but for those that need it. An interrupted study, started again,
    goes on where it was. What is made lies in ``out``: figures, tables, executed notebooks, ``manifest.json`` (the
    same in every run), ``provenance.json`` (times and machine). A full study that went well is published to
    ``figures/`` of the checkout.

    Parameters
    ----------
    profile
        ``quick`` or ``full``, or what else ``notebooks/study.toml`` names.
    root
        The checkout; found from the package or the current folder if None.
    out
        The export folder, relative to ``root``; ``runs/PROFILE`` if None.
    only
        Names or leading numbers of the notebooks to consider; all if empty.
    parameters
        Values over the profile's, by ``NOTEBOOK.NAME`` or ``NAME``.
    force
        Run them even if nothing changed.
    console
        Told of the progress and, at the end, of what was found; nobody is told if None.

    Raises
    ------
    UserError
        Before any kernel starts: no notebooks, unknown profile, notebook or parameter, a value of a wrong type, an
        input that is not there, a folder that cannot be written or where another study runs.
    """
    start = time.perf_counter()
    console = console or Console()
    root = root or repository_root()
    if root is None:
        raise UserError("there are no notebooks here: the study runs in a checkout of the repository, not from a wheel")
    root = root.resolve()
    steps = load_plan(root, profile, only=only, overrides=parameters)
    result = StudyResult(profile, root / (out or Path("runs") / profile))
    with locked(result.out, "study"):
        _check_writable(result.out)
        read_manifest(result.out)  # a file of that name that is none of ours is not written over
        try:
            _Run(result, root, notebook_names(root), force, console).all(steps)
        finally:
            console.clear()
        if not only and not parameters:
            if profile == PUBLISHED and result.exit_code == 0:
                result.published = publish(result.out, root)
            elif profile != PUBLISHED:
                _compare(result, root)
    result.seconds = time.perf_counter() - start
    _tell(result, console)
    return result


class _Run:
    """One study on its way."""

    def __init__(self, result: StudyResult, root: Path, names: Sequence[str], force: bool, console: Console) -> None:
        self.result = result
        self.out = result.out
        self.root = root
        self.names = names
        self.force = force
        self.console = console

    def all(self, steps: Sequence[Step]) -> None:
        """Run or skip the steps, a line each."""
        write_down(self.out, self.result.profile, self.names)
        expected = self._expected(steps)
        wide = max((len(step.name) for step in steps), default=0)
        for number, step in enumerate(steps, start=1):
            label = f"[{number}/{len(steps)}] {step.name:<{wide}}"
            after = [expected[later.name] for later in steps[number:]]
            left = None if None in after else sum(seconds or 0.0 for seconds in after)
            notebook = self._step(step, label, expected[step.name], left)
            self.result.notebooks.append(notebook)
            self.console.line(f"{label}  {_line(notebook, self.console)}" + (f"; {_left(left)}" if left else ""))

    def _expected(self, steps: Sequence[Step]) -> dict[str, float | None]:
        """Return the seconds that each step will take as far as earlier runs tell; 0 where it need not run."""
        expected: dict[str, float | None] = {}
        for step in steps:
            receipt = receipts.read(self.out, step.name)
            stands = self._why(step, receipt)[0] is None and all(expected.get(need) == 0 for need in step.needs)
            expected[step.name] = 0.0 if stands else _seconds(receipt)
        return expected

    def _why(self, step: Step, receipt: Receipt | None) -> tuple[str | None, Key]:
        key = receipts.current_key(step, self.root, self.out)
        return receipts.why(step, key, receipt, self.out, force=self.force), key

    def _step(self, step: Step, label: str, expected: float | None, left: float | None) -> NotebookResult:
        broken = [done.name for done in self.result.notebooks if not done.stands and done.name in step.needs]
        if broken:
            return NotebookResult(step.name, "skipped", 0.0, f"it needs {', '.join(broken)}")
        receipt = receipts.read(self.out, step.name)
        why, key = self._why(step, receipt)
        if why is None and receipt is not None:
            return NotebookResult(step.name, "cached", 0.0, findings=tuple(receipt.findings))

        def tick(seconds: float) -> None:
            of = f" of about {duration(expected)}" if expected else f", at most {duration(step.deadline)}"
            rest = "" if left is None or not expected else f"; {_left(left + max(0.0, expected - seconds))}"
            self.console.running(f"{label}  running {duration(seconds)}{of}{rest}; runs: {why}")

        before = _seconds(receipt)
        self._keep(step.name, Receipt("running", before))  # before its files change, so that no kill can hide it
        start = time.perf_counter()
        made = self._execute(step, key, tick)
        seconds = time.perf_counter() - start
        if isinstance(made, str):
            self._keep(step.name, Receipt("failed", before))
            return NotebookResult(step.name, "failed", seconds, made, why=why or "")
        self._keep(step.name, made)
        return NotebookResult(step.name, "ok", seconds, findings=tuple(made.findings), why=why or "")

    def _keep(self, name: str, receipt: Receipt) -> None:
        receipts.write(self.out, name, receipt)
        write_down(self.out, self.result.profile, self.names)

    def _execute(self, step: Step, key: Key, tick: Callable[[float], object]) -> Receipt | str:
        """Run one notebook and check what it was to make; return its receipt, or why it failed."""
        out, copy = self.out, self.out / "notebooks" / f"{step.name}.ipynb"
        note_path(out, step.name).unlink(missing_ok=True)  # an earlier run's findings must not pass for this one's
        before = {file: _stamp(out / file) for file in step.outputs}
        parameters = {**step.parameters, **({"out": str(out)} if step.takes_out else {})}
        facts = facts_of_run(self.root)
        start = time.perf_counter()
        reason = run_notebook(
            step.source, copy, parameters=parameters, deadline=step.deadline, log=copy.with_suffix(".log"), tick=tick
        )
        seconds = time.perf_counter() - start
        if reason is not None and copy.exists():
            reason += f"; executed copy: {_short(copy)}"
        reason = reason or _missing(out, before)
        if reason is not None:
            return reason
        note = _note(out, step.name)
        exports = described(out, {*step.outputs, *note["files"]})
        taken = self._taken(step.name, set(exports))
        if taken is not None:
            return taken
        beside = [path for path in (copy, note_path(out, step.name)) if path.is_file()]
        files = {path.relative_to(out).as_posix(): sha256(path) for path in beside}
        return Receipt(
            "ok",
            seconds=seconds,
            key=key,
            files={**{file: facts["sha256"] for file, facts in exports.items()}, **files},
            exports=exports,
            findings=note["findings"],
            version=__version__,
            facts={**facts, "seconds": round(seconds, 2)},
        )

    def _taken(self, name: str, files: set[str]) -> str | None:
        """Return the reason if the notebook wrote what another one made: each would undo the other's."""
        for other in self.names:
            receipt = receipts.read(self.out, other) if other != name else None
            both = sorted(files & set(receipt.exports)) if receipt else []
            if both:
                return f"it wrote {', '.join(both)}, which {other} made; an export needs a name of its own"
        return None


def _compare(result: StudyResult, root: Path) -> None:
    """Find out which files of a whole study have the bytes of those that are committed.

    What a notebook made with other parameters, as in another profile, may differ and is left out.
    """
    made, committed = read_manifest(result.out), read_manifest(root / "figures")
    if result.out == root / "figures":
        return
    for name in sorted(made.keys() & committed.keys()):
        mine, theirs = made[name]["files"], committed[name]["files"]
        for file in sorted(mine.keys() & theirs.keys() & _exported(result.out)):
            if mine[file]["sha256"] == theirs[file]["sha256"]:
                result.same.append(file)
            elif made[name]["parameters"] == committed[name]["parameters"]:
                result.differ.append(file)


def _tell(result: StudyResult, console: Console) -> None:
    """Say what was found, how the study went, and where the results are."""
    found = [(notebook.name[:2], text) for notebook in result.notebooks for text in notebook.findings]
    if found:
        console.line()
        console.line("Found:")
    for number, text in found:
        console.sentence(f"  {number}  ", text)
    count = Counter(notebook.status for notebook in result.notebooks)
    words = [("ran", count["ok"]), *((status, count[status]) for status in ("cached", "failed", "skipped"))]
    failed = ", ".join(notebook.name for notebook in result.notebooks if notebook.status == "failed")
    console.line()
    console.line(
        f"{duration(result.seconds)}: {', '.join(f'{number} {word}' for word, number in words if number) or 'nothing'}"
        + (f" ({failed})" if failed else "")
    )
    console.line(f"Figures, tables and executed notebooks: {_short(result.out)}")
    if result.published:
        console.line(f"Published {result.published} files to figures/")
    if result.same or result.differ:
        names = sorted({str(Path(file).with_suffix("")) for file in result.differ})  # not each format of a figure
        differ = f"; these differ: {', '.join(names)}" if names else ""
        total = len(result.same) + len(result.differ)
        console.line(f"{len(result.same)} of {total} have the bytes of the committed export in figures/{differ}")


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


def _seconds(receipt: Receipt | None) -> float | None:
    return receipt.seconds if receipt else None


def _line(notebook: NotebookResult, console: Console) -> str:
    """Return how a notebook went, without its name."""
    status = console.status(notebook.status, 7)
    if notebook.status == "cached":
        return f"{status}  unchanged"
    if notebook.status == "skipped":
        return f"{status}  {notebook.reason}"
    ran = f"{status}  {duration(notebook.seconds):>6}"
    return f"{ran}  runs: {notebook.why}" if not notebook.reason else f"{ran}  {notebook.reason} (runs: {notebook.why})"


def _left(seconds: float) -> str:
    return f"about {duration(seconds)} left"


def _short(path: Path) -> str:
    """Return the path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _check_writable(folder: Path) -> None:
    """Find out before any kernel starts: a folder may be there, and hold a lock, and still refuse new files."""
    for place in (folder, folder / "notebooks"):
        atomic_write(place / ".writable", "").unlink()
