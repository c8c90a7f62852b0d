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
from dreamrsi.files import atomic_write, locked, repository_root, sha256
from dreamrsi.notebook_runner import run_notebook
from dreamrsi.plan import Step, load_plan, notebook_names
from dreamrsi.provenance import described, facts_of_run, read_manifest, write_down
from dreamrsi.publish import compare, publish
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
                result.same, result.differ = compare(result.out, root)
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
        self.later: set[str] = set()  # notebooks whose turn is still to come

    def all(self, steps: Sequence[Step]) -> None:
        """Run or skip the steps, a line each."""
        write_down(self.out, self.result.profile, self.names)
        expected = self._expected(steps)
        wide = max((len(step.name) for step in steps), default=0)
        for number, step in enumerate(steps, start=1):
            self.later = {other.name for other in steps[number:]}
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
        settled = {done.name: done.stands for done in self.result.notebooks}
        broken = [need for need in step.needs if not settled.get(need, True)]
        broken += [
            f"{need}, which has no results" for need in step.needs if need not in settled and not self._holds(need)
        ]
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

    def _holds(self, name: str) -> bool:
        """Whether the results of a notebook that is not run now stand as they were left."""
        receipt = receipts.read(self.out, name)
        return receipt is not None and receipt.holds(self.out)

    def _keep(self, name: str, receipt: Receipt) -> None:
        receipts.write(self.out, name, receipt)
        write_down(self.out, self.result.profile, self.names)

    def _execute(self, step: Step, key: Key, tick: Callable[[float], object]) -> Receipt | str:
        """Run one notebook and check what it was to make; return its receipt, or why it failed."""
        out, copy = self.out, self.out / "notebooks" / f"{step.name}.ipynb"
        note_path(out, step.name).unlink(missing_ok=True)  # an earlier run's findings must not pass for this one's
        before = {path: _stamp(path) for path in out.rglob("*") if path.is_file()}
        parameters = {**step.parameters, **({"out": str(out)} if step.takes_out else {})}
        facts = facts_of_run(self.root)
        start = time.perf_counter()
        reason = run_notebook(
            step.source, copy, parameters=parameters, deadline=step.deadline, log=copy.with_suffix(".log"), tick=tick
        )
        seconds = time.perf_counter() - start
        if reason is not None and copy.exists():
            reason += f"; executed copy: {_short(copy)}"
        if reason is not None:
            return reason
        try:
            note = _note(out, step.name)
        except (ValueError, KeyError, TypeError) as error:
            return f"it ran, but what it noted cannot be read ({type(error).__name__}: {error})"
        names = {*step.outputs, *note["files"]}
        reason = _missing(out, names, before) or self._changed(step, key)
        if reason is not None:
            return reason
        exports = described(out, names)
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

    def _changed(self, step: Step, key: Key) -> str | None:
        """Return the reason if what the notebook was made from is no longer what it was when it started."""
        changed = receipts.differences(key, receipts.current_key(step, self.root, self.out))
        return f"{', '.join(changed)} while it ran; run it again" if changed else None

    def _taken(self, name: str, files: set[str]) -> str | None:
        """Return the reason if the notebook wrote what another one made: each would undo the other's."""
        for other in self.names:
            # what a notebook still to come made last time, it may not make again
            receipt = None if other == name or other in self.later else receipts.read(self.out, other)
            both = sorted(files & set(receipt.exports)) if receipt else []
            if both:
                return f"it wrote {', '.join(both)}, which {other} made; an export needs a name of its own"
        return None


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


def _note(out: Path, name: str) -> dict[str, list[str]]:
    """Return the findings and files that the notebook noted, without files that it took away again."""
    path = note_path(out, name)
    note = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"findings": [], "files": []}
    return {"findings": note["findings"], "files": [file for file in note["files"] if (out / file).is_file()]}


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes whenever a file is written, whatever the clock says."""
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.is_file() else None


def _missing(out: Path, names: set[str], before: Mapping[Path, tuple[int, int] | None]) -> str | None:
    """Return the reason if a file that the notebook declared or noted is not there or was not written now."""
    absent = sorted(file for file in names if not (out / file).is_file())
    if absent:
        return f"it ran, but its declared outputs were not written: {', '.join(absent)}"
    old = sorted(file for file in names if before.get(out / file) == _stamp(out / file))
    return f"it ran, but its declared outputs are of an earlier run: {', '.join(old)}" if old else None


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
