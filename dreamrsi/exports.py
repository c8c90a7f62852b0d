"""What a notebook uses to hand over its results: figures, tables, other files and findings, in one folder."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write, check_name, resolve_out

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Shown:
    """What an export returns: as the last line of a cell it shows what was written; ``paths`` says where."""

    def __init__(self, bundle: dict[str, Any], paths: list[Path], metadata: dict[str, Any] | None = None) -> None:
        self.paths = paths
        self._bundle = bundle
        self._metadata = metadata or {}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._bundle, self._metadata

    def __repr__(self) -> str:
        return str(self._bundle["text/plain"])


class Exports:
    """The exports of one notebook.

    Parameters
    ----------
    out
        The export folder; None means ``runs/interactive`` of the checkout, and a relative path counts from there
        too, never from the current folder.
    notebook
        The notebook's name without ``.ipynb``; its findings are filed under it.
    """

    def __init__(self, out: str | Path | None, notebook: str) -> None:
        self.out = resolve_out(out)
        self.notebook = check_name(notebook)
        self._findings: list[str] = []
        self._files: set[str] = set()

    def figure(self, figure: Figure, name: str, *, caption: str = "") -> Shown:
        """Write ``figures/NAME.pdf``, ``.svg`` and ``.png``, and show the png, which is what a write-up will get.

        It shows the same under any backend. A figure made with pyplot is closed, or the notebook would show it twice.
        """
        from dreamrsi import figures

        paths = self._written(figures.save(figure, name, self.out / "figures"))
        _forget(figure)
        png = paths[figures.FORMATS.index("png")].read_bytes()
        width = round(figure.get_figwidth() * 100)  # a screen's 100 dots an inch: sharp, and as wide as other output
        bundle = {
            "image/png": base64.b64encode(png).decode(),
            "text/plain": caption or f"figures/{name}.{{{','.join(figures.FORMATS)}}}",
        }
        return Shown(bundle, paths, {"image/png": {"width": width}})

    def table(self, frame: pd.DataFrame, name: str, *, caption: str = "", **options: Any) -> Shown:
        """Write ``tables/NAME.csv``, ``.tex`` and ``.md``, and show the table; options as in :func:`tables.save`."""
        from dreamrsi import tables

        paths = self._written(tables.save(frame, name, self.out / "tables", caption=caption, **options))
        html = tables.to_html(frame, caption=caption, **options)
        return Shown({"text/html": html, "text/plain": paths[tables.FORMATS.index("md")].read_text()}, paths)

    def path(self, name: str) -> Path:
        """Return where to write another file, such as ``trees/live.jsonl``; its folder is made.

        Raises
        ------
        UserError
            The name leads out of the export folder, or the folder cannot be made.
        """
        target = (self.out / name).resolve()
        if not target.is_relative_to(self.out.resolve()):
            raise UserError(f"{name!r} leads out of the export folder {self.out}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {target.parent}: {error.strerror}; choose another folder") from error
        self._written([target])
        return target

    def finding(self, *sentences: str) -> Shown:
        """Report what was found, a sentence with its numbers each; the study prints them at its end."""
        self._findings += [sentence for sentence in sentences if sentence not in self._findings]
        self._note()
        markdown = "\n".join(f"> **Finding.** {sentence}\n" for sentence in sentences)
        return Shown({"text/markdown": markdown, "text/plain": "\n".join(sentences)}, [])

    def _written(self, paths: list[Path]) -> list[Path]:
        self._files |= {path.resolve().relative_to(self.out.resolve()).as_posix() for path in paths}
        self._note()
        return paths

    def _note(self) -> None:
        """Write what this run of the notebook found and wrote; an earlier run's note is replaced, not added to."""
        note = {"findings": self._findings, "files": sorted(self._files)}
        atomic_write(note_path(self.out, self.notebook), json.dumps(note, indent=1, ensure_ascii=False) + "\n")


def note_path(out: Path, notebook: str) -> Path:
    """Return where the findings and the list of files of a notebook lie."""
    return out / "findings" / f"{notebook}.json"


def _forget(figure: Figure) -> None:
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
