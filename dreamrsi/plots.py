"""One function a figure. Each takes data, returns a matplotlib figure in the project's style, and saves nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dreamrsi import figures
from dreamrsi.figures import label, look, new
from dreamrsi.objective import ScoreMap
from dreamrsi.record import Attempt
from dreamrsi.replay import Episode
from dreamrsi.synthetic import MAX_ATTEMPT_RATIO, MIN_QUALITY_RATIO
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

GREY = "#b0b0b0"
WINNER = "#0072B2"
ADVISED = "#CC79A7"
MISSED = "#D55E00"
SEEN = "#555555"

Options = ParamSpec("Options")


def styled(draw: Callable[Options, Figure]) -> Callable[Options, Figure]:
    """Draw in the project's style, whatever the user's matplotlib settings are."""

    @functools.wraps(draw)
    def drawn(*args: Options.args, **kwargs: Options.kwargs) -> Figure:
        with figures.context():
            return draw(*args, **kwargs)

    return drawn


def _short(name: str) -> str:
    """The name of a tree without the folder and the ending that it has when it was read from a file."""
    return Path(name).name.removesuffix(".jsonl")


def _scored(branch: Sequence[Attempt], across: str = "attempt") -> tuple[list[int], list[float]]:
    """Places and scores of the attempts that have one; a line goes on across a failure, or it would be hidden."""
    found = [a for a in branch if a.score is not None]
    return [getattr(a, across) for a in found], [a.score for a in found if a.score is not None]


def _note(ax: Any, text: str, at: tuple[float, float | None], **style: Any) -> None:
    """Write beside a point, on the side where the axes have room, so that lines pass behind."""
    left = at[0] > np.mean(ax.get_xlim())
    style |= {"ha": "right" if left else "left", "xytext": (-8 if left else 8, 0), "va": "center"}
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    ax.annotate(text, at, textcoords="offset points", bbox=box, **style)


def _whole(ax: Any) -> None:
    """Ticks at whole numbers only, however few there are."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _panels(axes: np.ndarray, shown: int, xlabel: str, ylabel: str) -> None:
    """Hide the panels that are left over, and label the lowest and the leftmost of those shown."""
    columns = axes.shape[1]
    for place, ax in enumerate(axes.flat):
        ax.set_visible(place < shown)
        if place + columns >= shown:
            ax.set_xlabel(xlabel)
            ax.tick_params(labelbottom=True)
        if place % columns == 0:
            ax.set_ylabel(ylabel)


@styled
def trees(trees: Sequence[Tree], cols: int = 3) -> Figure:
    """Every branch of every tree: score against attempt; the winner's branch thick, the recommended tag dashed."""
    cols = min(cols, len(trees))
    rows = -(-len(trees) // cols)
    figure, axes = new("text", 0.30 * rows, rows, cols, sharex=True, sharey=True, squeeze=False)
    for ax, tree in zip(axes.flat, trees, strict=False):
        best = tree.best_attempt
        for number, branch in enumerate(tree.branches):
            winner = best is not None and number == best.branch
            advised = branch[0].tag is not None and branch[0].tag == tree.header.recommended
            ax.plot(
                *_scored(branch),
                marker=".",
                markersize=2.5,
                color=WINNER if winner else ADVISED if advised else GREY,
                linestyle="--" if advised else "-",
                linewidth=1.8 if winner else 0.9,
                zorder=3 if winner else 2,
            )
        ax.set_title(_short(tree.name) + (": nothing scored" if best is None else f": winner on branch {best.branch}"))
        if best is not None:
            ax.plot(best.attempt, best.score, "*", color=WINNER, markersize=9, zorder=4)
        _whole(ax)
    _panels(axes, len(trees), "attempt in its branch", "score")
    keys = [
        Line2D([], [], color=WINNER, linewidth=1.8, marker="*", label="the winner's branch, its best score"),
        Line2D([], [], color=ADVISED, linewidth=0.9, linestyle="--", label="carries the recommended tag"),
        Line2D([], [], color=GREY, linewidth=0.9, label="other branches"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


@styled
def tradeoff(comparison: pd.DataFrame) -> Figure:
    """Mean quality against mean attempts, one point a policy; dotted lines bound what the rule for going on allows.

    Policies at the same point, or nearly, stand side by side. A policy that failed is in the legend only.
    """
    figure, ax = new("text", 0.5)
    heights = comparison.quality[np.isfinite(comparison.quality)].tolist() or [0.0]
    base = comparison[(comparison.policy == "parallel_refine") & np.isfinite(comparison.quality)]
    if len(base) and min(heights) > 0:  # elsewhere a ratio of qualities means nothing, and the rule neither
        heights.append(MIN_QUALITY_RATIO * base.quality.iloc[0])
        ax.axhline(heights[-1], color="#999999", linewidth=0.8, linestyle=":")
        ax.axvline(MAX_ATTEMPT_RATIO * base.attempts.iloc[0], color="#999999", linewidth=0.8, linestyle=":")
        rule = f"quality ≥ {MIN_QUALITY_RATIO:g}×, attempts ≤ {MAX_ATTEMPT_RATIO:g}× parallel refine's"
        text = f"a policy goes on above and left of the dotted lines\n({rule})"
        ax.set_title(text, fontsize=7, color="#666666")
    right = 1.1 * comparison.attempts.max() or 1.0
    spread = max(heights) - min(heights) or 0.1 * abs(heights[0]) or 1.0
    bottom, top = min(heights) - 0.1 * spread, max(heights) + 0.1 * spread
    taken: list[tuple[float, float]] = []
    for row in comparison.itertuples():
        failed = not np.isfinite(row.quality)
        # in points, of axes that measure about 270 by 190: aside until no marker covers an earlier one
        x, y = 270 * row.attempts / right, 190 * (row.quality - bottom) / (top - bottom)
        aside = next(s for s in count() if all(np.hypot(x + s - a, y - b) >= 9 for a, b in taken))
        taken.append((x + aside, y))
        style = look(row.policy)
        ax.plot(
            [] if failed else row.attempts,
            [] if failed else row.quality,
            style.marker,
            color=style.color,
            markersize=7,
            markerfacecolor="white" if "width=" in row.policy else style.color,
            linestyle="none",
            label=label(row.policy) + (": failed" if failed else ""),
            transform=ax.transData + ScaledTranslation(aside / 72, 0, figure.dpi_scale_trans),
        )
    ax.set_xlim(0, right)
    ax.set_ylim(bottom, top)
    _whole(ax)
    ax.set_xlabel("attempts a tree (mean)")
    ax.set_ylabel("best score revealed (mean)")
    figure.legend(loc="outside right upper")
    return figure


@styled
def anytime(tree: Tree, curves: Mapping[str, np.ndarray]) -> Figure:
    """The best score so far against attempts, one curve a policy (see :func:`dreamrsi.compare.progress`)."""
    figure, ax = new("text", 0.45)
    for policy, values in curves.items():
        ax.step(np.arange(len(values)), values, where="post", markevery=[-1], label=label(policy), **look(policy).line)
    if np.isfinite(tree.best):
        ax.axhline(tree.best, color="#999999", linewidth=0.8, linestyle=":")
        ax.text(0, tree.best, " best recorded", va="bottom", fontsize=7, color="#666666")
    ax.set_xlim(left=0)
    _whole(ax)
    ax.set_xlabel("attempts revealed")
    ax.set_ylabel("best score so far")
    ax.set_title(_short(tree.name))
    figure.legend(loc="outside right upper")
    return figure


@styled
def width_hits(hits: pd.DataFrame, trees: int, name: str = "") -> Figure:
    """Hits on the trees for every policy (rows) frozen at every width (columns)."""
    figure, ax = new("text", 0.12 + 0.075 * len(hits))
    ax.imshow(hits.to_numpy(), cmap="Blues", vmin=0, vmax=trees * 1.25, aspect="auto")
    for (row, column), value in np.ndenumerate(hits.to_numpy()):
        ax.text(column, row, f"{value}", ha="center", va="center", color="white" if value > 0.7 * trees else "black")
    ax.set_xticks(range(hits.shape[1]), [str(width) for width in hits.columns])
    ax.set_yticks(range(len(hits)), [label(policy) for policy in hits.index])
    ax.set_xlabel("width (and bootstrap)")
    ax.set_title(f"{name} trees, of {trees}, whose best recorded score is reached".strip())
    ax.grid(visible=False)
    return figure


@styled
def openings(opened: Mapping[str, np.ndarray], winners: Mapping[str, int], widths: Sequence[int], title: str) -> Figure:
    """Which branches a policy never opened: one panel a tree, widths down, branches across; a star on the winner's."""
    rows = min(2, len(opened))
    figure, axes = new("text", 0.5 if rows == 2 else 0.3, rows, -(-len(opened) // 2), sharey=True, squeeze=False)
    colours = ListedColormap(["white", "#9ecae1"])
    for ax, (name, seen) in zip(axes.flat, opened.items(), strict=False):
        ax.imshow(seen, cmap=colours, vmin=0, vmax=1, aspect="auto")
        for row, column in zip(*np.nonzero(~seen), strict=True):
            lost = column == winners[name]
            ax.text(column, row, "★" if lost else "·", ha="center", va="center", color=MISSED if lost else "#999999")
        for row in np.flatnonzero(seen[:, winners[name]]):
            ax.text(winners[name], row, "★", ha="center", va="center", color=WINNER)
        ax.set_title(_short(name))
        ax.set_yticks(range(len(widths)), [str(width) for width in widths])
        _whole(ax)
        ax.grid(visible=False)
    _panels(axes, len(opened), "branch", "frozen at width")
    figure.suptitle(title, x=0.01, ha="left")
    keys = [
        Patch(facecolor="#9ecae1", label="opened"),
        Patch(facecolor="white", edgecolor="#999999", label="never opened"),
        Line2D([], [], color=WINNER, marker="*", linestyle="none", markersize=8, label="winner, on the map"),
        Line2D([], [], color=MISSED, marker="*", linestyle="none", markersize=8, label="winner, never on the map"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=4)
    return figure


@styled
def frozen_width(tree: Tree, wide: Episode, narrow: Episode, widths: tuple[int, int]) -> Figure:
    """One tree as two policies see it: what each revealed, and dotted what it never did.

    The star marks the best recorded score; it is hollow where that was missed.
    """
    figure, axes = new("text", 0.42, 1, 2, sharey=True)
    best = tree.best_attempt
    for ax, episode, width in zip(axes, (wide, narrow), widths, strict=True):
        seen = set(episode.order)
        found = f"best {episode.best:.4g}" if np.isfinite(episode.best) else "nothing scored"
        for number, branch in enumerate(tree.branches):
            shown = [a for a in branch if (number, a.attempt) in seen]
            winner = best is not None and number == best.branch
            colour = MISSED if winner else GREY
            if len(shown) < len(branch):  # from the last attempt revealed on
                rest = branch[max(0, len(shown) - 1) :]
                ax.plot(*_scored(rest), color=colour, linestyle=":", linewidth=1.4 if winner else 0.8)
            line: dict[str, Any] = {"color": WINNER if winner else SEEN, "linewidth": 2 if winner else 0.9, "zorder": 3}
            ax.plot(*_scored(shown), marker=".", markersize=2.5, **line)
        if best is not None:
            hit = (best.branch, best.attempt) in seen
            colour = WINNER if hit else MISSED
            inside = colour if hit else "white"
            ax.plot(best.attempt, best.score, "*", color=colour, markersize=11, markerfacecolor=inside)
            fate = "found" if hit else "left too early" if best.branch in episode.reveals else "never on the map"
            _note(ax, f"branch {best.branch}: {fate}", (best.attempt, best.score), color=colour)
        ax.set_title(f"width {width}: {found} in {episode.attempts} attempts")
        ax.set_xlabel("attempt in its branch")
        _whole(ax)
    axes[0].set_ylabel("score")
    keys = [
        Line2D([], [], color=SEEN, linewidth=0.9, label="revealed"),
        Line2D([], [], color=GREY, linestyle=":", label="recorded, never revealed"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    """The borders of cells around grid values; a single value gets a cell too."""
    if len(values) == 1:
        return np.asarray(values[0] + np.array([-0.5, 0.5]) * (0.1 * abs(values[0]) or 0.1))
    middles = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])


@styled
def beta_map(found: ScoreMap, setting: tuple[float, float] | None = None) -> Figure:
    """Which policy wins under Eq. 1 at every (beta1, beta2), and how far ahead it is."""
    figure, ax = new("text", 0.62)
    winners = sorted(set(found.winner.ravel().tolist()))
    place = {policy: i for i, policy in enumerate(winners)}
    image = np.vectorize(place.__getitem__)(found.winner)
    fills: list[tuple[float, float, float, float]] = []
    for name in (found.names[w] for w in winners):  # policies of one colour differ in strength
        fill = to_rgba(look(name).color)[:3]
        fills.append((*fill, 0.55 / (1 + sum(fill == other[:3] for other in fills))))
    norm = BoundaryNorm(np.arange(len(winners) + 1) - 0.5, len(winners))
    cells = _edges(found.beta2s), _edges(found.beta1s)
    ax.pcolormesh(*cells, image, cmap=ListedColormap(fills), norm=norm, rasterized=True)
    title = "the winner under Eq. 1"
    margin = np.where(np.isfinite(found.margin), found.margin, 0.0)  # infinite where no other policy has a value
    if np.ptp(margin) > 0 and min(margin.shape) > 1:
        lines = ax.contour(found.beta2s, found.beta1s, margin, colors="#333333", linewidths=0.6)
        ax.clabel(lines, fontsize=6, fmt="%.2g")
        title += "; lines: how far it is ahead in mean V"
    if setting is not None:
        ax.plot(setting[1], setting[0], "o", color="black", markersize=6, markerfacecolor="white")
        at = f"beta1 = {setting[0]:g}, beta2 = {setting[1]:g}"
        _note(ax, at, (setting[1], setting[0]), fontsize=7)
    ax.set_xlabel("beta2: worth of an attempt more a round")
    ax.set_ylabel("beta1: cost of an attempt")
    ax.set_title(title)
    ax.grid(visible=False)
    share = found.share()
    names = [found.names[w] for w in winners]
    keys = [
        Patch(facecolor=fill, label=f"{label(name)}: {100 * share[name]:.3g} % of the settings")
        for name, fill in zip(names, fills, strict=True)
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@styled
def robustness(rows: pd.DataFrame) -> Figure:
    """The share of fresh corpora in which each row of the table holds (down), at every noise (across), for every mix.

    Beside a share that is neither 0 nor 1: its 95 % Wilson interval.
    """
    mixes = list(dict.fromkeys(rows.mix))
    names, noises = list(dict.fromkeys(rows.row)), sorted(set(rows.noise))
    # mix below mix: side by side the intervals would not fit into their cells
    height = 0.1 + (0.05 + 0.026 * len(names)) * len(mixes)
    figure, axes = new("text", height, len(mixes), 1, sharex=True, squeeze=False)
    titles = {"article": "the article's mix", "free": "branch, family and tag drawn freely"}
    for ax, mix in zip(axes.flat, mixes, strict=True):
        part = rows[rows.mix == mix].set_index(["row", "noise"])
        shares = np.array([[part.holds[name, noise] for noise in noises] for name in names])
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (down, across), share in np.ndenumerate(shares):
            found = part.loc[(names[down], noises[across])]
            text = f"{share:.3g}" if share in (0, 1) else f"{share:.3f} [{found.low:.2f}, {found.high:.2f}]"
            colour = "white" if share > 0.7 else "black"
            ax.text(across, down, text, ha="center", va="center", color=colour, fontsize=6)
        ax.set_xticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        ax.set_yticks(range(len(names)), names)
        ax.set_title(titles.get(mix, mix))
        ax.grid(visible=False)
    axes[-1, 0].set_xlabel("noise (standard deviation of a score)")
    return figure


@styled
def run(tree: Tree) -> Figure:
    """A recorded run: every attempt in the order of the picks, a line a branch, and the best score so far.

    The branch that holds the best score is blue.
    """
    figure, ax = new("text", 0.5)
    scores = np.array([np.nan if a.score is None else a.score for a in tree])
    best = np.fmax.accumulate(np.fmax(scores, np.nan if tree.root is None else tree.root))
    reached, known = best[np.isfinite(best)], scores[np.isfinite(scores)]
    top = reached.max() if len(reached) else 0.0
    low = np.quantile(known, 0.05) if len(known) else top
    floor = low - 0.3 * (top - low or 0.1 * abs(top) or 1.0)  # a few very low scores must not squeeze the others flat
    winner = None if tree.best_attempt is None else tree.best_attempt.branch
    for number, branch in enumerate(tree.branches):
        colour, order = (WINNER, 3) if number == winner else (GREY, 2)
        ax.plot(*_scored(branch, "seq"), "o-", color=colour, linewidth=0.6, markersize=3, zorder=order)
    ax.step(np.arange(len(best)), best, where="post", color="black", linewidth=1.2, zorder=4)
    below, failed = np.flatnonzero(scores < floor), np.flatnonzero(np.isnan(scores))
    for places, marker, colour in ((below, "v", "#666666"), (failed, "x", MISSED)):
        if len(places):  # an empty line that is not clipped would take room in the layout
            ax.plot(places, np.full(len(places), floor), marker, color=colour, clip_on=False)
    thin: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 0.6}
    keys = [
        (True, Line2D([], [], color="black", linewidth=1.2, label="best so far")),
        (winner is not None, Line2D([], [], color=WINNER, label=f"branch {winner}, the winner's", **thin)),
        (True, Line2D([], [], color=GREY, label="other branches", **thin)),
        (len(below), Line2D([], [], color="#666666", marker="v", linestyle="none", label="scored below the axis")),
        (len(failed), Line2D([], [], color=MISSED, marker="x", linestyle="none", label="failed")),
    ]
    figure.legend(handles=[key for shown, key in keys if shown], loc="outside lower center", ncols=len(keys))
    ax.set_ylim(floor, top + 0.05 * (top - floor))
    ax.set_xlim(-0.5, len(tree) - 0.5)
    _whole(ax)
    ax.set_xlabel("attempt, in the order of the picks")
    ax.set_ylabel("score")
    ax.set_title(f"{_short(tree.name)}: {len(tree.branches)} branches, {len(tree)} attempts")
    return figure


@styled
def packing(circles: np.ndarray, title: str = "") -> Figure:
    """Circles in the unit square; ``circles`` has shape (n, 3): x, y, radius."""
    figure, ax = new(3.25, 1.0)
    ax.add_patch(Rectangle((0, 0), 1, 1, fill=False, linewidth=0.8))
    for x, y, r in circles:
        ax.add_patch(Circle((x, y), r, facecolor="#9ecae1", edgecolor=WINNER, linewidth=0.6))
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-0.01, 1.01)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(title)
    return figure
