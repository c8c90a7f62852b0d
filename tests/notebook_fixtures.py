"""Tiny notebooks and checkouts for the tests of the study."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from dreamrsi import receipts, study
from dreamrsi.exports import Exports

PYTHON3 = {"name": "python3", "language": "python", "display_name": "Python 3"}


def write_notebook(
    path: Path, *cells: str, parameters: str | None = "out = None", kernelspec: dict[str, str] | None = PYTHON3
) -> Path:
    """A notebook of code cells, the first one tagged ``parameters`` unless that is None."""
    sources = [(parameters, ["parameters"])] if parameters is not None else []
    sources += [(cell, []) for cell in cells]
    content = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernelspec} if kernelspec else {},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {"tags": tags} if tags else {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, (source, tags) in enumerate(sources)
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_plan(root: Path, plan: str) -> Path:
    """A checkout's ``notebooks/study.toml``."""
    path = root / "notebooks" / "study.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plan)
    return path


class FakeStudy(NamedTuple):
    """A checkout of three notebooks; ``behaviour[name](out)`` runs instead of a kernel, and ``ran`` lists what did."""

    root: Path
    behaviour: dict[str, Callable[[Path], Any]]
    ran: list[str]


def fake_study(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStudy:
    for name in ("01_a", "02_b", "03_c"):
        write_notebook(root / "notebooks" / f"{name}.ipynb", parameters="out = None\nn = 1")
    write_plan(root, '[01_a]\noutputs = ["tables/a"]\nquick = { n = 2 }\n[02_b]\nneeds = ["01_a"]\n[03_c]\n')
    fake = FakeStudy(root, {"01_a": table_a}, [])

    def run(
        source: Path, copy: Path, *, parameters: dict[str, Any], tick: Callable[[float], None], **_: object
    ) -> str | None:
        fake.ran.append(source.stem)
        tick(0.0)
        copy.write_text("{}")
        made = fake.behaviour.get(source.stem, lambda out: None)(Path(parameters["out"]))
        return made if isinstance(made, str) else None

    monkeypatch.setattr(study, "run_notebook", run)
    monkeypatch.setattr(receipts, "package_hash", lambda: "the package")  # whoever edits it while the tests run
    return fake


def table_a(out: Path, value: int = 1) -> None:
    export = Exports(out, "01_a")
    export.table(pd.DataFrame({"n": [value]}), "a")
    export.finding("one is one")
