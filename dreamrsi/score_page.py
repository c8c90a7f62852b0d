"""What ``dreamrsi score --out`` writes: tables, figures, and one page that holds all of it. Equal bytes every time."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dreamrsi import figures, plots, plots_score, score_text, tables
from dreamrsi.files import atomic_write
from dreamrsi.score_report import Scored

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PICTURED = 6
"""Trees with pictures of their own; beyond these nobody looks at them one by one."""

LARGE = 5_000
"""Attempts beyond which a tree is too dense to be drawn; its curves are."""

TRADEOFF = (
    "How good, against how many attempts. Markers of rows with the same values stand in a ring around these, so that "
    "each is seen; the numbers are in the table."
)

DIGITS = {
    "hits": 2,
    "quality": 6,
    "regret": 6,
    "attainment": 4,
    "attempts": 1,
    "rounds": 1,
    "V": 5,
    "branches_opened": 1,
    "branches": 1,
    "never_opened": 2,
    "score": 6,
    "share": 4,
    **dict.fromkeys(("beta1_from", "beta1_to", "beta2_from", "beta2_to"), 6),
}
"""Decimals of the notebook's tables; the ones here follow from the numbers."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.2rem } h3 { font-size: 1rem; margin-top: 1.6rem }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.wide { overflow-x: auto } img { max-width: 100%; height: auto } figure { margin: 1rem 0 }
.warning { border-left: 4px solid #d55e00; background: #fdf1e8; padding: .5rem .8rem; margin: .5rem 0 }
"""


class Picture(NamedTuple):
    """A figure of the page: the name of its files, what it is, what is drawn, and the place of its tree if of one."""

    name: str
    caption: str
    figure: Figure
    place: int | None = None


def write(scored: Scored, out: Path) -> Path:
    """Write ``tables/`` (csv, tex, md), ``figures/`` (pdf, svg, png) and ``report.html``; return the page.

    Parameters
    ----------
    scored : policies and record on the same trees.
    out : a folder; it is made. Files of the same names are replaced.

    Raises
    ------
    UserError
        The folder cannot be written to.
    """
    written = _tables(scored)
    for name, (frame, caption) in written.items():
        tables.save(frame, name, out / "tables", caption=caption, digits=score_text.decimals(frame))
    images = []
    for picture in pictures(scored):
        paths = figures.save(picture.figure, picture.name, out / "figures")
        images.append((picture, paths[figures.FORMATS.index("png")].read_bytes()))
    return atomic_write(out / "report.html", _page(scored, written, images))


def pictures(scored: Scored) -> Iterator[Picture]:
    """The figures: tradeoff and map; for each of the first trees its curves, and the tree if it is not too large."""
    yield Picture("tradeoff", TRADEOFF, tradeoff(scored))
    yield Picture("beta_map", "Who wins for which betas.", beta_map(scored))
    names = score_text.short_names(scored.trees)
    for place, (tree, name) in enumerate(list(zip(scored.trees, names, strict=True))[:PICTURED]):
        number = _number(scored, place)
        episodes = {row.name: row.episodes[0][place] for row in scored.single}
        yield Picture(f"anytime{number}", f"{name}: the best so far.", plots_score.anytime(tree, episodes, name), place)
        if len(tree) <= LARGE:
            yield Picture(f"tree{number}", f"{name}: the recorded run.", plots.run(tree), place)


def _number(scored: Scored, place: int) -> str:
    """What tells the pictures of one tree from those of another: its number, and its name as far as files allow."""
    if len(scored.trees) == 1:
        return ""
    name = re.sub(r"[^A-Za-z0-9]+", "-", score_text.short_names(scored.trees)[place]).strip("-")[-40:]
    return f"_{place + 1:02d}_{name}".rstrip("_")


def tradeoff(scored: Scored) -> Figure:
    """Mean quality against mean attempts; the share of the way to the best where the trees are not of one scale."""
    mixed = scored.normalise is not None or scored.several_tasks
    column, ylabel = ("attainment", "share of the way to the best") if mixed else ("quality", "best score revealed")
    mean = " (mean)" if len(scored.trees) > 1 else ""
    values = zip(scored.rows, scored.table.attempts, scored.table[column], strict=True)
    return plots_score.tradeoff({row.name: (n, y) for row, n, y in values}, ylabel + mean, len(scored.trees))


def beta_map(scored: Scored) -> Figure:
    """Who wins for which betas, with the ones used marked."""
    rounded = (float(f"{scored.beta1:.4g}"), float(f"{scored.beta2:.4g}"))  # for the label; no marker moves visibly
    return plots.beta_map(scored.map, rounded)


def beta_table(scored: Scored) -> pd.DataFrame:
    """One row a policy: its share of the map, and for the winner at the betas used how far it holds."""
    import pandas as pd

    at, share = scored.holds, scored.map.share()
    rows = []
    for name in scored.map.names:
        wins = name == at.winner
        ends = (*at.beta1, *at.beta2) if wins else (None,) * 4
        rows.append((name, share[name], scored.same.get(name), wins, *ends))
    columns = ["policy", "share", "same_as", "wins_here", "beta1_from", "beta1_to", "beta2_from", "beta2_to"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[4:], float))


def _tables(scored: Scored) -> dict[str, tuple[pd.DataFrame, str]]:
    """Name -> table and caption; trees by their short names, since folders are nobody else's business."""
    betas = f"beta1 {scored.beta1:.4g}, beta2 {scored.beta2:.4g}"
    full = [tree.name for tree in scored.trees]
    short = dict(zip(full, score_text.short_names(scored.trees), strict=True))
    by_tree, misses = (
        score_text.named(frame.assign(tree=frame.tree.map(short))) for frame in (scored.by_tree, scored.misses)
    )
    return {
        "scores": (score_text.named(scored.table), f"Policies and the record itself, means over the trees; {betas}."),
        "scores_by_tree": (by_tree, f"Policies and the record itself, tree by tree; {betas}."),
        "misses": (misses, "Winning attempts that a policy did not reach, and why."),
        "betas": (beta_table(scored), "Shares of the map of the betas, and how far the winner here goes on winning."),
    }


def _page(scored: Scored, written: Mapping[str, tuple[pd.DataFrame, str]], images: list[tuple[Picture, bytes]]) -> str:
    """One html file that needs no other."""
    shown: dict[str, str] = {}
    of_tree: dict[int, list[str]] = {}
    for picture, png in images:
        if picture.place is None:
            shown[picture.name] = _image(picture, png)
        else:
            of_tree.setdefault(picture.place, []).append(_image(picture, png))
    names = score_text.short_names(scored.trees)
    misses, _ = written["misses"]
    means = score_text.shown(scored.table, several=len(scored.widths) > 1)
    parts = [
        f"<h1>Scores on {escape(', '.join(names) if len(names) <= 3 else f'{len(names)} trees')}</h1>",
        f"<p>{'<br>'.join(map(escape, score_text.heading(scored)))}</p>",
        *(f'<p class="warning">{escape(line)}</p>' for line in score_text.warnings_of(scored)),
        _table("scores", means),
        _paragraph([score_text.record_line(scored)]),
        shown["tradeoff"],
        "<h2>For which betas</h2>",
        _list(score_text.map_lines(scored)),
        shown["beta_map"],
        _paragraph([score_text.map_rule(scored)]),
        "<h2>Winners that were missed</h2>",
        _table("misses", tables.cells(misses, score_text.decimals(misses))) if len(scored.misses) else "<p>None.</p>",
        "<h2>Tree by tree</h2>",
        _paragraph(_left_out(scored)),
    ]
    for place, (title, table) in enumerate(score_text.blocks(scored)):
        parts += [f"<h3>{escape(title)}</h3>", _table(f"tree{place}", table), *of_tree.get(place, [])]
    parts += ["<h2>Before you trust a score</h2>", _list(score_text.notes(scored))]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>dreamrsi score</title>'
        f"<style>{_STYLE}</style></head>"
    )
    return "\n".join([head, "<body>", *filter(None, parts), "</body>", "</html>", ""])


def _left_out(scored: Scored) -> list[str]:
    found = []
    if len(scored.trees) > PICTURED:
        found.append(f"The first {PICTURED} of {len(scored.trees)} trees are pictured.")
    if any(len(tree) > LARGE for tree in scored.trees[:PICTURED]):
        found.append(f"Trees of more than {LARGE} attempts are too dense to be drawn; their curves are.")
    return found


def _image(picture: Picture, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    width = round(picture.figure.get_figwidth() * 110)
    text = escape(picture.caption, quote=True)
    image = f'<img alt="{text}" width="{width}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def _table(name: str, table: pd.DataFrame) -> str:
    return f'<div class="wide">{tables.to_html(table, name=name)}</div>'


def _paragraph(sentences: list[str]) -> str:
    return f"<p>{escape(' '.join(sentences))}</p>" if sentences else ""


def _list(sentences: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in sentences)}</ul>"
