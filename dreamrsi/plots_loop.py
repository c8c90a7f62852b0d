"""Figures of the recursion: arms against calls and rounds, beside the paper's, and what replay is worth afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dreamrsi.figures import Look, label, new
from dreamrsi.plots import styled

if TYPE_CHECKING:
    import pandas as pd

ARMS = {
    "fixed": Look("#0072B2", "-", "o"),
    "dream": Look("#D55E00", "--", "s"),
    "fixed early stop": Look("#000000", (0, (1, 1)), "P"),
    "dream early stop": Look("#CC79A7", (0, (5, 1)), "v"),
    "fixed+guidance": Look("#56B4E9", "-.", "^"),
    "dream+guidance": Look("#E69F00", ":", "D"),
}
"""How an arm is drawn everywhere; fixed exploration is parallel refine and has its colour."""

RECORDERS = (Look("#0072B2", "-", "o"), Look("#CC79A7", "-.", "v"), Look("#D55E00", "--", "s"))
PAPER = "paper: another agent and machine"


def ends(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Lengths of the error bars, shape (2, rows)."""
    return np.array([rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]]).clip(0)


def _key(arm: str) -> Line2D:
    return Line2D([], [], **ARMS[arm].line, markersize=4, label=arm.replace("+", " + "))


def _paper(ax: Any, rows: pd.DataFrame, column: str = "x") -> None:
    """Curves of the paper: filled markers for printed numbers, hollow ones for those read off a curve."""
    for arm, curve in rows.groupby("series", sort=False):
        look = ARMS[str(arm)]
        ax.plot(curve[column], curve.y, color=look.color, linestyle=look.linestyle, linewidth=1)
        for how, points in curve.groupby("how"):
            face = look.color if how == "printed" else "white"
            ax.plot(
                points[column], points.y, look.marker, color=look.color, markerfacecolor=face, markersize=4, zorder=3
            )


def _readings(rows: pd.DataFrame) -> list[Line2D]:
    words = {"printed": "paper, printed", "digitised": "paper, digitised"}
    style: dict[str, Any] = {"color": "#555555", "marker": "o", "linestyle": "none", "markersize": 4}
    return [
        Line2D([], [], markerfacecolor="#555555" if how == "printed" else "white", label=words[how], **style)
        for how in words
        if how in set(rows.how)
    ]


def _legend(figure: Figure, ours: pd.DataFrame, paper: pd.DataFrame | None) -> None:
    """The arms shown, in one order everywhere, and how the paper's numbers were read."""
    shown = {*ours.arm, *([] if paper is None else paper.series)}
    keys = [_key(arm) for arm in ARMS if arm in shown] + ([] if paper is None else _readings(paper))
    figure.legend(handles=keys, loc="outside lower center", ncols=min(len(keys), 5), handlelength=3)


def _say_bands(figure: Figure, paper: pd.DataFrame | None) -> None:
    text = "bands: 95 % intervals over the seeds" + ("" if paper is None else f"; {PAPER}")
    figure.suptitle(text, x=0.01, ha="left", fontsize=8)


def _grid(count: int, cols: int, height: float) -> tuple[Figure, list[Any]]:
    """Panels in rows; those left over are hidden."""
    cols = min(cols, count)
    rows = -(-count // cols)
    figure, axes = new("text", height * rows, rows, cols, squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_visible(False)
    for place, ax in enumerate(axes.flat[:count]):
        if place % cols == 0:
            ax.set_ylabel("best score so far")
    return figure, list(axes.flat[:count])


@styled
def arms(curves: pd.DataFrame, paper: pd.DataFrame | None = None, floor: float | None = None) -> Figure:
    """The best score so far against calls: one panel a setting, then one a panel of the paper.

    Parameters
    ----------
    curves : of :func:`dreamrsi.experiments.curves`; the band is a 95 % interval at each point.
    paper : of :func:`dreamrsi.published.figure`, drawn in panels of its own since its agent and machine are others.
    floor : the lowest score shown, where the first calls would dwarf the rest.
    """
    settings = list(dict.fromkeys(curves.setting))
    panels = [] if paper is None else list(dict.fromkeys(paper.panel))
    cols = min(3, len(settings) + len(panels))
    figure, axes = _grid(len(settings) + len(panels), cols, 0.36 if cols > 1 else 0.5)
    for ax, setting in zip(axes, settings, strict=False):
        for arm, curve in curves[curves.setting == setting].groupby("arm", sort=False):
            look = ARMS[str(arm)]
            ax.fill_between(curve.calls, curve.low, curve.high, color=look.color, alpha=0.13, linewidth=0, step="post")
            ax.step(curve.calls, curve.best, where="post", color=look.color, linestyle=look.linestyle)
            ax.plot(curve.calls.iloc[-1], curve.best.iloc[-1], look.marker, color=look.color, markersize=4)
        top = curves[curves.setting == setting].high.max()
        if floor is not None and floor < top:
            ax.set_ylim(floor - 0.05 * (top - floor), top + 0.05 * (top - floor))
        ax.set_title(label(setting))
    for ax, panel in zip(axes[len(settings) :], panels, strict=True):
        assert paper is not None
        _paper(ax, paper[paper.panel == panel])
        ax.set_title(f"{panel} (the paper's)")
        ax.set_ylabel("the paper's score")
    for ax in axes:
        ax.set_xlim(left=0)
        ax.set_xlabel("calls")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _legend(figure, curves, paper)
    _say_bands(figure, paper)
    return figure


@styled
def pace(ours: pd.DataFrame, paper: pd.DataFrame | None = None) -> Figure:
    """Attempts and best of each round: ours by arm (of :func:`dreamrsi.experiments.pace`), then the paper's."""
    sides: list[tuple[str, pd.DataFrame]] = [(str(name), group) for name, group in ours.groupby("setting", sort=False)]
    figure, axes = new("text", 0.62, 2, len(sides) + (paper is not None), squeeze=False, sharex="col")
    for column, (setting, group) in enumerate(sides):
        for ax, name in zip(axes[:, column], ("attempts", "round_best"), strict=True):
            for arm, rows in group.groupby("arm", sort=False):
                look = ARMS[str(arm)]
                ax.fill_between(
                    rows["round"], rows[f"{name}_low"], rows[f"{name}_high"], color=look.color, alpha=0.13, linewidth=0
                )
                ax.plot(rows["round"], rows[name], **look.line, markersize=4)
        axes[0, column].set_title(label(setting))
    if paper is not None:
        for ax, panel in zip(axes[:, -1], ("attempts", "round best"), strict=True):
            rows = paper[paper.panel == panel]
            _paper(ax, rows.assign(round=rows["round"] + 1), "round")  # the paper counts its rounds from E0
        axes[0, -1].set_title("ConvDiv (the paper's)")
    _say_bands(figure, paper)
    for ax in axes[0]:
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("attempts in the round")
    axes[1, 0].set_ylabel("best of the round")
    for ax in axes[1]:
        ax.set_xlabel("round")
        ax.set_xlim(left=0.5)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    _legend(figure, ours, paper)
    return figure


@styled
def fidelity(summary: pd.DataFrame, panels: str = "source") -> Figure:
    """Rank correlation of replayed and fresh values against the number of history trees: a line a recorder."""
    names = list(dict.fromkeys(summary[panels]))
    figure, axes = new("text", 0.45, 1, len(names), squeeze=False, sharey=True)
    recorders = list(dict.fromkeys(summary.recorder))
    looks = {name: RECORDERS[place % len(RECORDERS)] for place, name in enumerate(recorders)}
    for ax, name in zip(axes[0], names, strict=True):
        for place, recorder in enumerate(recorders):
            rows = summary[(summary[panels] == name) & (summary.recorder == recorder)]
            aside = 1.04 ** (place - (len(recorders) - 1) / 2)  # side by side, or one interval would hide the other
            bars = ends(rows, "correlation")
            ax.errorbar(rows.trees * aside, rows.correlation, bars, capsize=2, markersize=4, **looks[recorder].line)
        ax.set_xscale("log", base=2)
        ticks = sorted(set(summary[summary[panels] == name].trees))
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.axhline(0, color="#999999", linewidth=0.6)
        ax.axhline(1, color="#999999", linewidth=0.6)
        ax.set_title(name.replace("_", " "))
        ax.set_xlabel("history trees")
    axes[0, 0].set_ylabel("rank correlation (Spearman)")
    keys = [Line2D([], [], **looks[name].line, markersize=4, label=name) for name in recorders]
    figure.legend(handles=keys, title="history recorded", loc="outside lower center", ncols=len(keys), handlelength=3)
    return figure


@styled
def curse(means: pd.DataFrame) -> Figure:
    """The value of what is selected from M versions, in replay and on fresh worlds, and the gap between them."""
    figure, (left, right) = new("text", 0.42, 1, 2)
    looks = {"replayed": Look("#0072B2", "-", "o"), "fresh": Look("#D55E00", "--", "s")}
    for name, look in looks.items():
        low, high = means[f"{name}_low"], means[f"{name}_high"]
        left.fill_between(means.versions, low, high, color=look.color, alpha=0.13, linewidth=0)
        left.plot(means.versions, means[name], **look.line, label=f"{name} value", markersize=4)
    left.set_ylabel("V of the selected version (mean)")
    left.legend(loc="lower right")
    right.errorbar(means.versions, means.gap, ends(means, "gap"), color="black", marker="o", capsize=2, markersize=4)
    right.axhline(0, color="#999999", linewidth=0.6)
    right.set_ylabel("replayed minus fresh")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(means.versions), [str(v) for v in means.versions])
        ax.minorticks_off()
        ax.set_xlabel("versions M, the current policy among them")
    return figure


@styled
def regressions(rows: pd.DataFrame, ways: Sequence[str] = ("with current", "without")) -> Figure:
    """Every dream: the change of value on the history (across) and on fresh draws (up), one panel a way to select."""
    figure, axes = new("text", 0.45, 1, len(ways), squeeze=False, sharex=True, sharey=True)
    for ax, way in zip(axes[0], ways, strict=True):
        mine = rows[rows.way == way]
        fell = mine.fresh < -1e-9
        ax.axhline(0, color="#999999", linewidth=0.6)
        ax.axvline(0, color="#999999", linewidth=0.6)
        same: dict[str, Any] = {"linestyle": "none", "markersize": 3.5, "alpha": 0.7}
        ax.plot(mine.replayed[~fell], mine.fresh[~fell], "o", color="#0072B2", **same)
        ax.plot(mine.replayed[fell], mine.fresh[fell], "v", color="#D55E00", **same)
        ax.set_title(f"{way}: {int(fell.sum())} of {len(mine)} worse")
        ax.set_xlabel("V on the history, minus the current policy's")
    axes[0, 0].set_ylabel("the same on fresh draws")
    keys = [
        Line2D([], [], color="#0072B2", marker="o", linestyle="none", markersize=4, label="no worse than the current"),
        Line2D([], [], color="#D55E00", marker="v", linestyle="none", markersize=4, label="worse on fresh draws"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure
