"""Tiny notebooks and checkouts for the tests of the study."""

from __future__ import annotations

import json
from pathlib import Path

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
