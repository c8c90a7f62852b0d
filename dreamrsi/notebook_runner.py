"""Run one notebook in a child process, with a deadline for the whole of it, and leave no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GRACE = 2.0  # seconds between asking a group of processes to end and ending it


def run_notebook(
    source: Path,
    copy: Path,
    *,
    parameters: dict[str, Any],
    deadline: float,
    log: Path,
    tick: Callable[[float], object] = lambda seconds: None,
) -> str | None:
    """Run ``source`` and save the executed notebook as ``copy``; return None, or why it failed in one line.

    The kernel is this interpreter, its folder that of ``source``, as in JupyterLab.

    Parameters
    ----------
    parameters
        JSON values, checked before; injected after the cell tagged ``parameters``.
    deadline
        Seconds for the whole notebook, the start of the kernel included.
    log
        Where the standard output of the processes goes; it stays if the notebook fails.
    tick
        Called every second with the seconds so far.
    """
    copy.unlink(missing_ok=True)  # a copy of an earlier run must not pass for this one's
    with tempfile.TemporaryDirectory(prefix="dreamrsi-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job = {"source": str(source), "copy": str(copy), "parameters": parameters, "cwd": str(source.parent)}
        (folder / "job.json").write_text(json.dumps(job, allow_nan=False))
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "dreamrsi.notebook_child", name],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(folder),
                start_new_session=True,
            )
            try:
                late = not _wait(child, deadline, tick)
            finally:
                _end(child, folder)
        reason = f"ran past its deadline of {deadline:g} s, in {_place(folder)}" if late else None
        reason = reason or _reason(folder, child.returncode, log)
        if reason is None or log.stat().st_size == 0:
            log.unlink()  # what Jupyter says on the way of a run that went well would only alarm
        return reason


def _wait(child: subprocess.Popen[bytes], deadline: float, tick: Callable[[float], object]) -> bool:
    """Wait for the child's end; return whether it came before the deadline."""
    start = time.monotonic()
    while (seconds := time.monotonic() - start) < deadline:
        tick(seconds)
        try:
            child.wait(min(1.0, deadline - seconds))
            return True
        except subprocess.TimeoutExpired:
            continue
    return False


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment without what would make a run depend on who starts it."""
    environment = {
        key: value for key, value in os.environ.items() if key != "MPLBACKEND" and not key.startswith("JPY_")
    }
    environment.setdefault("PYTHONHASHSEED", "0")  # sets of strings come in the same order in every run
    environment["IPYTHONDIR"] = str(folder / "ipython")  # no startup files and no history of the user's
    environment["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else a debugger that nobody uses warns on the log
    return environment


def _reason(folder: Path, code: int, log: Path) -> str | None:
    """Return why the notebook failed, from the exception alone: papermill marks dead cells as completed."""
    path, place = folder / "result.json", _place(folder)
    if not path.exists():
        return f"its process ended with exit code {code}, in {place}; see {log}"
    result = json.loads(path.read_text())
    what = f"{result.get('error')}: {_one_line(result.get('message', ''))}"
    match result["kind"]:
        case "ok":
            return None
        case "cell":
            return f"{place} (In [{result['count']}]): {what}"
        case "dead":
            return f"the kernel died in {place}: something ended its process, perhaps for lack of memory"
        case "start":
            return f"the kernel did not start, in two tries: {what}"
        case _:
            return f"{place}: {what}"


def _place(folder: Path) -> str:
    """Return the cell that started last."""
    try:
        last = json.loads((folder / "cell").read_text())
    except (OSError, ValueError):
        return "the start of its kernel"
    number = f"cell {last['cell']}" if last["cell"] else "the cell of injected parameters"
    return number + (f" `{last['line']}`" if last["line"] else "")


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + " ..."


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    """End the child's group and the kernel's, which Jupyter starts as a group of its own."""
    groups = [child.pid]
    try:
        groups.append(int((folder / "kernel").read_text()))
    except (OSError, ValueError):
        pass  # the kernel had not started; if it is starting, it ends with its parent
    try:
        _signal(groups, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and (child.poll() is None or _signal(groups, 0)):
            time.sleep(0.02)
    finally:  # a second Ctrl-C only cuts the grace short
        _signal(groups, signal.SIGKILL)
        child.wait()
    assert child.stdin is not None
    child.stdin.close()


def _signal(groups: list[int], number: int) -> bool:
    """Send a signal to the groups; return whether one of them still has a process."""
    alive = False
    for group in groups:
        try:
            os.killpg(group, number)
            alive = True
        except (ProcessLookupError, PermissionError):
            continue
    return alive
