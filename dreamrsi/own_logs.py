"""Which finished runs notebook 08 scores: the user's trees, else real logs where they are, else the committed run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dreamrsi import logs
from dreamrsi.files import in_checkout, repository_root
from dreamrsi.tree import Tree

TASK = "circle_packing_26"
EXAMPLE = f"examples/{TASK}.jsonl"


class Found(NamedTuple):
    """Trees, where they come from in a sentence, and for every imported log the lines of its report."""

    trees: list[Tree]
    source: str
    reports: dict[str, list[str]]


def find(trees: Sequence[str] | None = None, folder: str | None = None) -> Found:
    """Load what there is to score.

    Parameters
    ----------
    trees : tree files of the user's own; relative paths count from the checkout.
    folder : where real logs lie, as ``codeevolve/circle_packing_26_*.jsonl``; None is the environment variable
        ``DREAMRSI_SHARED_LOGS``, else ``../shared/logs`` beside the checkout. Without any there, the committed run is
        taken.

    Raises
    ------
    UserError
        A file is missing or flawed.
    """
    root = repository_root() or Path.cwd()
    if trees is not None:
        return Found([_named(Tree.load(root / path)) for path in trees], "trees that the parameter names", {})
    place = Path(folder or os.environ.get("DREAMRSI_SHARED_LOGS") or root.parent / "shared" / "logs")
    files = sorted((root / place).glob(f"codeevolve/{TASK}_*.jsonl"))
    found = {path.stem: logs.read("codeevolve", path, task=TASK) for path in files}
    if found:
        reports = {name: imported.report.lines() for name, imported in found.items()}
        return Found([_named(one.tree) for one in found.values()], "CodeEvolve's logs, imported", reports)
    return Found([_named(Tree.load(in_checkout(EXAMPLE)))], "the committed run, since no real log is here", {})


def _named(tree: Tree) -> Tree:
    """The tree under the name of its file alone, which is all that an export should say."""
    tree.name = Path(tree.name).name.removesuffix(".jsonl")
    return tree
