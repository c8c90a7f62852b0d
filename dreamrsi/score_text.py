"""What ``dreamrsi score`` says on the terminal, in 80 columns, and the same sentences for its page."""

from __future__ import annotations

import math
import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dreamrsi.compare import RECORDED, rounds_known
from dreamrsi.console import counted
from dreamrsi.score_report import DEFAULT_WIDTH, MAP_TIMES, Scored
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = 80

_ROUNDS = {
    "batches": "its recorded batches",
    "rounds": "the rounds that the attempts name",
    "no": "one attempt a round, since no rounds are recorded",
}

_DROPPED = ("regret", "attained")  # what the terminal's table can do without where it is too wide, in this order


def short_names(trees: Sequence[Tree]) -> list[str]:
    """The names of trees without the folder that all of them share, and without ``.jsonl``."""
    paths = [Path(os.path.abspath(tree.name)) for tree in trees]
    shared = os.path.commonpath([path.parent for path in paths])
    return [str(path.relative_to(shared)).removesuffix(".jsonl") for path in paths]


def wrapped(text: str, indent: str = "") -> str:
    """One sentence on lines of the terminal's width; file names are not cut."""
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def heading(scored: Scored) -> list[str]:
    """What was scored, at which settings."""
    trees = scored.trees
    attempts = sorted({len(tree) for tree in trees})
    made = counted(attempts[0], "attempt") if len(attempts) == 1 else f"{attempts[0]} to {attempts[-1]} attempts"
    each = " each" if len(trees) > 1 else ""
    what = f"{counted(len(trees), 'tree')}: {_branches(trees)}, {made}{each}; best {_best(trees)}"
    b1, b2 = (
        f"{name} {beta:.4g} ({'given' if given else share})"
        for name, beta, given, share in zip(
            ("beta1", "beta2"),
            (scored.beta1, scored.beta2),
            scored.given,
            ("0.2 % of the range of the scores", "0.5 % of it"),
            strict=True,
        )
    )
    return [what, f"width {_width(scored)}", f"{b1}; {b2}"]


def _best(trees: Sequence[Tree]) -> str:
    tops = sorted({tree.best for tree in trees})
    short = [f"{top:.6g}" for top in (tops[0], tops[-1])]
    low, high = short if short[0] != short[1] else (f"{tops[0]:.10g}", f"{tops[-1]:.10g}")
    return f"{tops[0]:.10g}" if low == high else f"{low} to {high}"


def _width(scored: Scored) -> str:
    """Which W was used, and where it comes from."""
    if scored.widths != (None,):
        return ", ".join("as recorded" if width is None else str(width) for width in scored.widths)
    known = sorted({tree.header.width for tree in scored.trees if tree.header.width})
    silent = sum(tree.header.width is None for tree in scored.trees)
    default = (
        f"{DEFAULT_WIDTH}, since {'the record names' if len(scored.trees) == 1 else f'{silent} records name'} none"
    )
    default += "; --width sets another"
    if not known:
        return default
    recorded = f"as recorded ({', '.join(map(str, known))})"
    return f"{recorded}; {default}" if silent else recorded


def record_line(scored: Scored) -> str:
    """How the record itself was counted."""
    kinds = Counter(rounds_known(tree) for tree in scored.trees)
    if len(kinds) == 1:
        (kind,) = kinds
        return f"{RECORDED}: the run itself, every attempt in order; rounds: {_ROUNDS[kind]}."
    parts = ", ".join(f"{_ROUNDS[kind]} ({counted(n, 'tree')})" for kind, n in kinds.items())
    return f"{RECORDED}: the runs themselves, every attempt in order; rounds: {parts}."


def warnings_of(scored: Scored) -> list[str]:
    """What may turn the verdict round: policies that failed, winners never got near, records too narrow to tell."""
    found = []
    for name, (error, n) in scored.failures.items():
        where = f" (and on {n - 1} more of {len(scored.trees)} trees)" if n > 1 else ""
        found.append(f"FAILED: {name}, {_after_the_name(error)}{where}. It scores -inf.")
    blind = [(name, n) for name, n in zip(_names(scored), scored.table.never_opened, strict=True) if n]
    if blind and len(scored.trees) == 1:
        on_average = [name if n == 1 else f"{name} (in {100 * n:.0f} %)" for name, n in blind]
        found.append(
            f"UNOPENED: {', '.join(on_average)}. The best score lies on a branch that these never opened; "
            "their V is blind there."
        )
    elif blind:
        where = ", ".join(f"{name} in {n:.3g}/{len(scored.trees)} trees" for name, n in blind)
        found.append(f"UNOPENED: {where}. The best score lies on a branch that was never opened; V is blind there.")
    narrow = []
    for tree, name in zip(scored.trees, short_names(scored.trees), strict=True):
        file = name if tree.name.endswith(name) else f"{name}.jsonl"
        widest = max(scored.used(row, tree) or 0 for row in scored.rows[1:]) if len(scored.rows) > 1 else 0
        if len(tree.branches) < widest:
            narrow.append(
                f"NARROW: {file} records {counted(len(tree.branches), 'branch')}, and a width of {widest} has room for "
                "more: what those would have found is not recorded, and no score here can show it."
            )
    if len(narrow) > 3:
        narrow[2:] = [f"NARROW: {len(narrow) - 2} more trees record fewer branches than the width."]
    return found + narrow


def _after_the_name(error: str) -> str:
    """``round 1: ValueError`` of ``policy NAME, round 1: raised ValueError``."""
    start, mark, rest = error.partition(", round ")
    return f"round {rest.replace(': raised ', ': ', 1)}" if mark and start.startswith("policy ") else error


def _names(scored: Scored) -> list[str]:
    return [row.name for row in scored.rows]


def notes(scored: Scored) -> list[str]:
    """What a reader must know before trusting the table."""
    trees, table = scored.trees, scored.table
    held = _branches(trees)
    found = [f"Replay is exact on what was recorded, {held} a tree; what lies beyond, no score here can show."]
    if all(rounds_known(tree) == "no" for tree in trees) and scored.beta2 > 0:
        found.append(
            "The record has one attempt a round and policies have up to W, for which beta2 pays them; compare at "
            "--width 1 or --beta2 0 where that is not what you mean."
        )
    forks = sum(chain.origin is not None for tree in trees for chain in tree.world.chains)
    if forks:
        total = sum(len(tree.branches) for tree in trees)
        found.append(f"{forks} of {total} branches fork from an attempt, and can be opened once that is revealed.")
    guided = any(row.policy.startswith("semantic_guidance") for row in scored.rows)
    if guided and all(tree.header.recommended is None for tree in trees):
        found.append("No tree names a recommended tag: semantic_guidance stops after its bootstrap.")
    if scored.beta2 > 0 and not scored.normalise and (table.V > table.quality).any():
        found.append("A V above the quality is no error: beta2 pays for attempts made in parallel.")
    cut = [row.name for row in scored.single if any(e.reason == "rounds" for e in row.episodes[0])]
    if cut:
        found.append(
            f"The limit of rounds ended {', '.join(cut)}: a pick that reveals nothing counts too; --max-rounds sets "
            "another limit."
        )
    if scored.beta1 == scored.beta2 == 0:
        found.append("beta1 and beta2 are 0, so V is the quality alone.")
    if scored.several_tasks and not scored.normalise:
        found.append("The trees are of different tasks, and raw scores were averaged; see --normalise range.")
    return found


def map_lines(scored: Scored) -> list[str]:
    """Who wins at the betas used and how far that holds, what the map gives to whom, and who wins nowhere."""
    at = scored.holds
    ahead = f", {at.margin:.3g} ahead of {at.second}" if at.second is not None and math.isfinite(at.margin) else ""
    tied = f", tied with {', '.join(at.tied)}" if at.tied else ""
    lines = [f"At beta1 {scored.beta1:.4g} and beta2 {scored.beta2:.4g} {at.winner} wins{ahead}{tied}."]
    missed = dict(zip(_names(scored), scored.table.never_opened, strict=True))[at.winner]
    if missed:
        trees = "there" if len(scored.trees) == 1 else f"in {missed:.0f} of {len(scored.trees)} trees"
        lines.append(f"BLIND: it never opened the branch of the best score {trees}; Eq. 1 does not mind, you may.")
    if at.second is not None:
        lines.append(f"It wins for beta1 {_range(at.beta1)}, and for beta2 {_range(at.beta2)}, the other beta kept.")
    shares = sorted(scored.map.share().items(), key=lambda pair: -pair[1])
    lines.append(f"Of the map: {', '.join(f'{name} {100 * share:.3g} %' for name, share in shares if share)}.")
    groups: dict[str, list[str]] = {}
    for name, first in scored.same.items():
        groups.setdefault(first, []).append(name)
    lines += [f"The same as {first} under any betas: {', '.join(names)}." for first, names in groups.items()]
    if idle := [name for name, share in shares if not share and name not in scored.same]:
        lines.append(f"Wins nowhere: {', '.join(idle)}.")
    return lines


def map_rule(scored: Scored) -> str:
    """Which betas the map shows, and why these."""
    top1, top2 = float(scored.map.beta1s[-1]), float(scored.map.beta2s[-1])
    rule = (
        f"1 % and 4 % of the range of the scores, {MAP_TIMES[0]} and {MAP_TIMES[1]} times the betas that follow from it"
    )
    beyond = [b > t * s for b, t, s in zip((scored.beta1, scored.beta2), MAP_TIMES, scored.scaled, strict=True)]
    if any(beyond):
        rule += "; twice a given beta that lies beyond"
    return (
        f"Map of the betas: beta1 from 0 to {top1:.4g}, beta2 from 0 to {top2:.4g} ({rule}). "
        "A tie goes to the policy named first, to the record last; random takes no part."
    )


def _range(ends: tuple[float, float]) -> str:
    low, high = ends
    if high == math.inf:
        return f"from {low:.4g} upwards" if low else "of any size"
    return f"from {low:.4g} to {high:.4g}"


def table_text(scored: Scored) -> str:
    """The means, one row a policy."""
    return fitted(shown(scored.table, several=len(scored.widths) > 1))


def by_tree_text(scored: Scored) -> str:
    """A block a tree, one row a policy."""
    return "\n\n".join(f"{title}\n{fitted(table)}" for title, table in blocks(scored))


def blocks(scored: Scored) -> list[tuple[str, pd.DataFrame]]:
    """For every tree what it is, and the rows of the policies on it as :func:`shown`."""
    found = []
    size = len(scored.single)
    for place, (tree, name) in enumerate(zip(scored.trees, short_names(scored.trees), strict=True)):
        about = f"{_branches([tree])}, {counted(len(tree), 'attempt')}, best {tree.best:.10g}"
        rows = scored.by_tree.iloc[place * size : (place + 1) * size]
        found.append((f"{name}: {about}", shown(rows, several=len(scored.widths) > 1)))
    return found


def named(table: pd.DataFrame) -> pd.DataFrame:
    """The columns under the names that a reader meets, on the terminal, in files and in the README alike."""
    return table.rename(columns={"attainment": "attained", "never_opened": "unopened", "branches_opened": "opened"})


def decimals(table: pd.DataFrame) -> dict[str, int]:
    """How many decimals the columns of floats need: 6 digits of the largest score, 3 of the smallest regret, ..."""
    return {column: _decimals(table[column].to_numpy(), column) for column in table if table[column].dtype.kind == "f"}


def _decimals(values: Sequence[float], name: str) -> int:
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if name in ("attained", "share"):
        return 4
    if name in ("hits", "unopened", "attempts", "rounds", "opened", "branches"):
        few = 2 if name in ("hits", "unopened") else 1
        return few if any(size % 1 for size in sizes) else 0
    if not sizes:
        return 1
    digits, size = (3, min(sizes)) if name == "regret" else (6, max(sizes))
    return min(12, max(0, digits - 1 - math.floor(math.log10(size))))


def shown(table: pd.DataFrame, *, several: bool) -> pd.DataFrame:
    """A table as a reader sees it: every cell as text, and W only where there are ``several``."""
    found = named(table).rename(columns={"width": "W"})
    hits = "hits" if "hits" in found else "hit"
    columns = ["policy", *(["W"] if several else []), hits, "quality", "regret", "attained"]
    columns += ["attempts", "rounds", "V", "opened", "unopened"]
    texts = {column: _cells(found[column], column) for column in columns[1:]}
    return type(table)({"policy": found.policy.tolist()} | texts, dtype=object)


def fitted(table: pd.DataFrame) -> str:
    """The table as text; where that is wider than the terminal, without what it can do without."""
    text = _aligned(table)
    for column in _DROPPED:
        if max(map(len, text)) > COLUMNS:
            table = table.drop(columns=column)
            text = _aligned(table)
    return "\n".join(text)


def _aligned(table: pd.DataFrame) -> list[str]:
    """Names to the left, numbers to the right, one space between columns."""
    columns = [[str(column), *table[column]] for column in table.columns]
    sizes = [max(map(len, column)) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        first, *rest = (
            cell.rjust(size) if place else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(cells, sizes, strict=True))
        )
        lines.append(" ".join([first, *rest]).rstrip())
    return lines


def _cells(column: pd.Series[float], name: str) -> list[str]:
    """Numbers of one column with the same decimals; yes and no; a dash for what is missing."""
    if column.dtype.kind == "b":
        return ["yes" if value else "no" for value in column]
    if name == "W":
        return ["-" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
    if name in ("quality", "V"):
        sizes = [abs(value) for value in column if math.isfinite(value)]
        top = max(sizes, default=0.0)
        if 0.1 <= top < 1e5:
            return [f"{value:.{5 - max(0, math.floor(math.log10(top)))}f}" for value in column]
        return [f"{value:.6g}" for value in column]
    if name == "attained":
        return [f"{value:.4f}" for value in column]
    if name in ("regret", "hits", "unopened"):
        return [f"{value:.3g}" for value in column]
    places = 0 if all(value == int(value) for value in column) else 1
    return [f"{value:.{places}f}" for value in column]


def _branches(trees: Sequence[Tree]) -> str:
    found = sorted({len(tree.branches) for tree in trees})
    return counted(found[0], "branch") if len(found) == 1 else f"{found[0]} to {found[-1]} branches"
