"""The child process that runs one notebook: papermill changes the folder of the whole process and drives its loop.

Started by :mod:`dreamrsi.notebook_runner` with a folder that holds ``job.json``; leaves ``result.json`` there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

# jsonschema imports this where it is installed, which takes 1.4 s, to check URIs, of which a notebook has none
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

import nbformat  # noqa: E402
import papermill  # noqa: E402
import zmq  # noqa: E402
from ipykernel.kernelspec import get_kernel_dict  # noqa: E402
from jupyter_client.kernelspec import KernelSpec  # noqa: E402
from jupyter_client.manager import AsyncKernelManager  # noqa: E402
from nbclient.exceptions import DeadKernelError  # noqa: E402

NUMBER = "dreamrsi_cell"
CHURN = ("papermill", "execution", NUMBER)  # times, paths and our own marks: gone from the executed copy


class ThisInterpreter(AsyncKernelManager):
    """Starts this interpreter as the kernel, whatever the notebook or the machine's kernelspecs say."""

    pid_file: Path

    def __init__(self, **options: Any) -> None:
        # a trait of jupyter-client >= 8.9; newer kernels warn on every start without encryption
        if self.has_trait("transport_encryption") and zmq.has("curve"):
            options.setdefault("transport_encryption", "auto")
        super().__init__(**options)

    @property
    def kernel_spec(self) -> KernelSpec:
        """A spec that no ``JUPYTER_PATH`` can replace."""
        # ipykernel's own, which says whether this version can encrypt
        spec = KernelSpec(**get_kernel_dict())
        spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return spec

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        """Start the kernel and note its process, which leads a group of its own that the deadline must end too."""
        await super().start_kernel(**options)
        provisioner: Any = self.provisioner
        self.pid_file.write_text(str(provisioner.pid))


def main(folder: Path) -> None:
    """Run the job in ``folder`` and write its result."""
    threading.Thread(target=_die_with_parent, args=(folder,), daemon=True).start()
    ThisInterpreter.pid_file = folder / "kernel"
    job = json.loads((folder / "job.json").read_text())
    _prepare(Path(job["source"]), folder / "notebook.ipynb")
    result = _execute(job, folder)
    if result.get("kind") == "start":  # a port can be taken between its choice and its use
        result = _execute(job, folder)
    _strip(Path(job["copy"]))
    (folder / "result.json").write_text(json.dumps(result))


def _execute(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    progress = folder / "cell"

    def on_cell_start(cell: Any, cell_index: int) -> None:
        first = next((line for line in cell.source.splitlines() if line.strip()), "")
        progress.write_text(json.dumps({"cell": cell.metadata.get(NUMBER), "line": first.strip()}))

    try:
        papermill.execute_notebook(
            str(folder / "notebook.ipynb"),
            job["copy"],
            parameters=job["parameters"],
            kernel_name="python3",
            language="python",
            kernel_manager_class=ThisInterpreter,
            cwd=job["cwd"],
            progress_bar=False,
            record_timing=False,
            start_timeout=120,
            autosave_cell_every=5,
            on_cell_start=on_cell_start,
        )
    except papermill.PapermillExecutionError as error:
        return {"kind": "cell", "error": error.ename, "message": error.evalue, "count": error.exec_count}
    except DeadKernelError as error:
        return {"kind": "dead", "error": "DeadKernelError", "message": str(error)}
    except Exception as error:  # whatever it is, the study goes on and says so
        started = progress.exists()
        return {"kind": "runner" if started else "start", "error": type(error).__name__, "message": str(error)}
    return {"kind": "ok"}


def _prepare(source: Path, target: Path) -> None:
    """Write the notebook with the metadata papermill needs, and with every cell's number for messages."""
    notebook = _read(source)
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    for number, cell in enumerate(notebook.cells, start=1):
        cell.metadata[NUMBER] = number
    target.write_text(_text(notebook))


def _strip(copy: Path) -> None:
    """Take out of the executed copy what differs in every run: times, paths, the random id of papermill's cell."""
    if not copy.exists():
        return
    notebook = _read(copy)
    for metadata in (notebook.metadata, *(cell.metadata for cell in notebook.cells)):
        for key in CHURN:
            metadata.pop(key, None)
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"
    copy.write_text(_text(notebook))


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _text(notebook: Any) -> str:
    return str(nbformat.writes(notebook))  # type: ignore[no-untyped-call]


def _die_with_parent(folder: Path) -> None:
    """Wait for the end of the pipe that the study holds: it closes even when the study is killed."""
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a lock on sys.stdin would break the interpreter's end
    kernel = folder / "kernel"
    for group in ([int(kernel.read_text())] if kernel.exists() else []) + [os.getpid()]:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]))
