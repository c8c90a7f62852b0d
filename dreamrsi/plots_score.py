"""The figures of ``dreamrsi score``: policies, families of them and the record, told apart also in grey print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from dreamrsi.compare import RECORDED, progress
from dreamrsi.figures import Look, label, look, new
from dreamrsi.plots import _whole, styled
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree

_FILLS = ("full", "none", "left", "right", "bottom", "top")  # of the markers of policies that differ in parameters only
_WIDTHS = (1.4, 0.7, 2.2)  # and of their lines
_NEAR = 4.0  # points between two markers below which one would hide the other
_APART = 7.0  # points between the markers that stand around the same values
_ROW = 0.026  # what a line of the legend takes of the figure's width


def _looks(names: Sequence[str]) -> dict[str, tuple[Look, dict[str, Any], float]]:
    """Name -> look, keywords of the marker, and width of the line; members of a family differ in the last two."""
    seen: Counter[str] = Counter()
    found = {}
    for name in names:
        own = Look("#000000", "-", "*") if name == RECORDED else look(name)
        family = name.partition(":")[0]
        fill = _FILLS[seen[family] % len(_FILLS)]
        size = 10 if name == RECORDED else 7
        marker = {"fillstyle": fill, "markerfacecoloralt": "white", "markersize": size}
        found[name] = (own, marker, _WIDTHS[seen[family] % len(_WIDTHS)])
        seen[family] += 1
    return found


@styled
def tradeoff(rows: Mapping[str, tuple[float, float]], ylabel: str, trees: int = 1) -> Figure:
    """How good against how many attempts: one point a row, given as (attempts, quality); the record is a star.

    Markers of rows with the same values, or nearly, stand in a small ring around these; all others stand at their
    values. Far-off points lie on the lower edge, with their number in the legend. A policy that failed is in the legend
    only.
    """
    figure, ax = new("text", max(0.45, 0.06 + _ROW * len(rows)))
    known = [quality for _, quality in rows.values() if np.isfinite(quality)] or [0.0]
    floor = _floor(known)
    spread = max(known) - floor or 0.1 * abs(known[0]) or 1.0
    bottom, top = floor - 0.1 * spread, max(known) + 0.1 * spread
    right = 1.1 * max(attempts for attempts, _ in rows.values()) or 1.0
    wide, high = 72 * np.array(figure.get_size_inches()) * (0.6, 0.8)  # of the axes, in points, about
    below = {name for name, (_, quality) in rows.items() if floor > quality > -np.inf}
    shown = {
        name: (attempts, bottom if name in below else quality)
        for name, (attempts, quality) in rows.items()
        if np.isfinite(quality)
    }
    places = {name: (wide * x / right, high * (y - bottom) / (top - bottom)) for name, (x, y) in shown.items()}
    rings = _rings(places)
    for name, (own, marker, _) in _looks(list(rows)).items():
        quality = rows[name][1]
        note = f": {quality:.6g}, below" if name in below else "" if name in shown else ": failed"
        looks = {"color": own.color, "linestyle": "none", **marker}
        ax.plot([], [], own.marker, label=label(name) + note, **looks)
        if name in shown:
            x, y = rings[name]
            aside = ScaledTranslation(x / 72, y / 72, figure.dpi_scale_trans)
            ax.plot(*shown[name], own.marker, transform=ax.transData + aside, clip_on=False, **looks)
    ax.set_xlim(0, right)
    ax.set_ylim(bottom, top)
    _whole(ax)
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    ax.set_xlabel("attempts" if trees == 1 else "attempts a tree (mean)")
    ax.set_ylabel(ylabel)
    figure.legend(loc="outside right upper")
    return figure


def _rings(places: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Name -> how far its marker moves aside, in points as the places are; (0, 0) where no other one hides it."""
    groups: list[list[str]] = []
    for name, place in places.items():
        near = (group for group in groups if np.hypot(*np.subtract(place, places[group[0]])) < _NEAR)
        group = next(near, None)
        if group is None:
            groups.append(group := [])
        group.append(name)
    moves = {}
    for group in groups:
        radius = _APART / 2 / np.sin(np.pi / len(group)) if len(group) > 1 else 0.0
        for turn, name in enumerate(group):
            angle = np.pi - 2 * np.pi * turn / len(group)  # from the left, clockwise
            moves[name] = (float(radius * np.cos(angle)), float(radius * np.sin(angle)))
    return moves


def _floor(known: Sequence[float]) -> float:
    """Where the axis starts: a few far-off points must not hide how the others differ. Those go below, and say so."""
    top, low = max(known), min(known)
    near = [top - value for value in known if 0 < top - value < 0.05 * (top - low)]
    floor = top - 4 * max(near) if near else low
    return floor if sum(value < floor for value in known) <= len(known) / 3 else low


@styled
def anytime(tree: Tree, episodes: Mapping[str, Episode], title: str) -> Figure:
    """The best score so far against attempts: one curve a row, up to where it stopped, and the record in black."""
    figure, ax = new("text", max(0.45, 0.06 + _ROW * len(episodes)))
    values = {name: progress(episode, tree) for name, episode in episodes.items()}
    for name, (own, marker, linewidth) in _looks(list(episodes)).items():
        steps = values[name]
        corners = [0, *(1 + np.flatnonzero(np.diff(steps) != 0)), len(steps) - 1]  # all that a step curve needs
        below = name == RECORDED
        ax.step(
            corners,
            steps[corners],
            where="post",
            markevery=[-1],
            label=label(name),
            linewidth=linewidth,
            zorder=1.9 if below else 2.1,
            **own.line,
            **marker,
        )
    if np.isfinite(tree.best):
        ax.axhline(tree.best, color="#999999", linewidth=0.8, linestyle=":", zorder=1)
    known = np.concatenate([v[np.isfinite(v)] for v in values.values()] or [np.zeros(1)])
    _not_squeezed(ax, known)
    ax.set_xlim(0, 1.05 * max(map(len, values.values())))
    _whole(ax)
    ax.set_xlabel("attempts revealed")
    ax.set_ylabel("best score so far")
    ax.set_title(f"{title}; dotted: the best recorded")
    figure.legend(loc="outside right upper")
    return figure


def _not_squeezed(ax: Any, known: np.ndarray) -> None:
    """A few low scores at the start must not press everything later into one line at the top."""
    if not len(known):
        return
    top, low = known.max(), np.quantile(known, 0.1)
    low = min(low, np.median(known))
    span = top - low or top - known.min() or 0.1 * abs(top) or 1.0
    ax.set_ylim(max(known.min() - 0.05 * span, low - 0.5 * span), top + 0.08 * span)
