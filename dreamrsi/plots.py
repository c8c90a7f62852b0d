"""One function a figure. Each takes data, returns a matplotlib figure in the project's style, and saves nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dreamrsi import figures
from dreamrsi.figures import label, look, new
from dreamrsi.objective import ScoreMap
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

GREY = "#b0b0b0"
WINNER = "#0072B2"
ADVISED = "#CC79A7"
MISSED = "#D55E00"

Options = ParamSpec("Options")


def styled(draw: Callable[Options, Figure]) -> Callable[Options, Figure]:
    """Draw in the project's style, whatever the user's matplotlib settings are."""

    @functools.wraps(draw)
    def drawn(*args: Options.args, **kwargs: Options.kwargs) -> Figure:
        with figures.context():
            return draw(*args, **kwargs)

    return drawn


@styled
def trees(trees: Sequence[Tree], cols: int = 3) -> Figure:
    """Every branch of every tree: score against attempt; the winner's branch thick, the recommended tag dashed."""
    rows = -(-len(trees) // cols)
    figure, axes = new("text", 0.30 * rows, rows, cols, sharex=True, sharey=True, squeeze=False)
    for ax, tree in zip(axes.flat, trees, strict=False):
        best = tree.best_attempt
        for number, branch in enumerate(tree.branches):
            scores = [np.nan if a.score is None else a.score for a in branch]
            winner = best is not None and number == best.branch
            advised = branch[0].tag is not None and branch[0].tag == tree.header.recommended
            ax.plot(
                scores,
                color=WINNER if winner else ADVISED if advised else GREY,
                linestyle="--" if advised else "-",
                linewidth=1.8 if winner else 0.9,
                zorder=3 if winner else 2,
            )
        if best is not None:
            ax.plot(best.attempt, best.score, "*", color=WINNER, markersize=9, zorder=4)
            ax.set_title(f"{tree.name}: winner on branch {best.branch}")
    for ax in axes.flat[len(trees) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("attempt in its branch")
    for ax in axes[:, 0]:
        ax.set_ylabel("score")
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

    Policies at the same point stand side by side.
    """
    from dreamrsi.synthetic import MAX_ATTEMPT_RATIO, MIN_QUALITY_RATIO

    figure, ax = new("text", 0.5)
    base = comparison[comparison.policy == "parallel_refine"]
    if len(base):
        bounds = MIN_QUALITY_RATIO * base.quality.iloc[0], MAX_ATTEMPT_RATIO * base.attempts.iloc[0]
        ax.axhline(bounds[0], color="#999999", linewidth=0.8, linestyle=":")
        ax.axvline(bounds[1], color="#999999", linewidth=0.8, linestyle=":")
        rule = f"goes on: above and left of the dotted lines\n(quality ≥ {MIN_QUALITY_RATIO:g}×, attempts ≤ {MAX_ATTEMPT_RATIO:g}×)"
        ax.text(0.02, 0.03, rule, transform=ax.transAxes, fontsize=7, color="#666666")
    taken: dict[tuple[int, float], int] = {}
    for row in comparison.itertuples():
        style = look(row.policy)
        frozen = "width=" in row.policy
        place = (round(row.attempts), round(row.quality, 4))
        beside = taken[place] = taken.get(place, -1) + 1
        ax.plot(
            row.attempts,
            row.quality,
            style.marker,
            color=style.color,
            markersize=7,
            markerfacecolor="white" if frozen else style.color,
            linestyle="none",
            label=label(row.policy),
            transform=ax.transData + ScaledTranslation(beside * 9 / 72, 0, figure.dpi_scale_trans),
        )
    ax.set_xlim(0, comparison.attempts.max() * 1.1)
    low, high = comparison.quality.min(), comparison.quality.max()
    ax.set_ylim(low - 0.15 * (high - low), high + 0.08 * (high - low))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("attempts a tree (mean)")
    ax.set_ylabel("best score revealed (mean)")
    figure.legend(loc="outside right upper")
    return figure


@styled
def anytime(tree: Tree, curves: Mapping[str, np.ndarray]) -> Figure:
    """The best score so far against attempts, one curve a policy (see :func:`dreamrsi.compare.progress`)."""
    figure, ax = new("text", 0.45)
    for policy, values in curves.items():
        style = look(policy)
        ax.step(
            np.arange(len(values)),
            values,
            where="post",
            color=style.color,
            linestyle=style.linestyle,
            label=label(policy),
        )
        ax.plot(len(values) - 1, values[-1], style.marker, color=style.color)
    ax.axhline(tree.best, color="#999999", linewidth=0.8, linestyle=":")
    ax.annotate("best recorded", (0, tree.best), xytext=(2, 2), textcoords="offset points", fontsize=7, color="#666666")
    ax.set_xlabel("attempts revealed")
    ax.set_ylabel("best score so far")
    ax.set_title(tree.name)
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
    figure, axes = new("text", 0.5, 2, -(-len(opened) // 2), sharex=True, sharey=True, squeeze=False)
    colours = ListedColormap(["white", "#9ecae1"])
    for ax, (name, rows) in zip(axes.flat, opened.items(), strict=False):
        ax.imshow(rows, cmap=colours, vmin=0, vmax=1, aspect="auto")
        for row, column in zip(*np.nonzero(~rows), strict=True):
            lost = column == winners[name]
            ax.text(column, row, "★" if lost else "·", ha="center", va="center", color=MISSED if lost else "#999999")
        for row in np.flatnonzero(rows[:, winners[name]]):
            ax.text(winners[name], row, "★", ha="center", va="center", color=WINNER)
        ax.set_title(name)
        ax.set_yticks(range(len(widths)), [str(width) for width in widths])
        ax.set_xticks(range(rows.shape[1]))
        ax.grid(visible=False)
    for ax in axes.flat[len(opened) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("branch")
    for ax in axes[:, 0]:
        ax.set_ylabel("frozen at width")
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
    """One tree as two policies see it: what each revealed, and in faint dots the branches it never opened."""
    figure, axes = new("text", 0.42, 1, 2, sharey=True)
    best = tree.best_attempt
    for ax, episode, width in zip(axes, (wide, narrow), widths, strict=True):
        seen = set(episode.order)
        for number, branch in enumerate(tree.branches):
            scores = np.array([np.nan if a.score is None else a.score for a in branch])
            shown = [(number, a.attempt) in seen for a in branch]
            winner = best is not None and number == best.branch
            if any(shown):
                colour = WINNER if winner else "#555555"
                ax.plot(np.where(shown, scores, np.nan), color=colour, linewidth=2 if winner else 0.9, zorder=3)
            else:
                ax.plot(scores, color=MISSED if winner else GREY, linestyle=":", linewidth=1.4 if winner else 0.8)
        if best is not None:
            hit = (best.branch, best.attempt) in seen
            colour = WINNER if hit else MISSED
            ax.plot(
                best.attempt, best.score, "*", color=colour, markersize=11, markerfacecolor=colour if hit else "white"
            )
            text = f"branch {best.branch}: " + ("found" if hit else "never on the map")
            ax.annotate(
                text, (best.attempt, best.score), xytext=(-8, -1), textcoords="offset points", ha="right", color=colour
            )
        ax.set_title(f"width {width}: best {episode.best:.2f} in {episode.attempts} attempts")
        ax.set_xlabel("attempt in its branch")
    axes[0].set_ylabel("score")
    keys = [
        Line2D([], [], color="#555555", linewidth=0.9, label="revealed"),
        Line2D([], [], color=GREY, linestyle=":", label="recorded, never opened"),
    ]
    axes[0].legend(handles=keys, loc="lower right")
    return figure


@styled
def beta_map(found: ScoreMap, setting: tuple[float, float] | None = None) -> Figure:
    """Which policy wins under Eq. 1 at every (beta1, beta2), and how far ahead it is."""
    figure, ax = new("text", 0.62)
    winners = sorted(set(found.winner.ravel().tolist()))
    place = {policy: i for i, policy in enumerate(winners)}
    image = np.vectorize(place.__getitem__)(found.winner)
    colours = ListedColormap([to_rgba(look(found.names[w]).color, 0.55) for w in winners])
    norm = BoundaryNorm(np.arange(len(winners) + 1) - 0.5, len(winners))
    ax.pcolormesh(found.beta2s, found.beta1s, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    margin = np.where(np.isfinite(found.margin), found.margin, np.nan)
    if np.nanmax(margin) > 0 and min(margin.shape) > 1:
        lines = ax.contour(found.beta2s, found.beta1s, margin, colors="#333333", linewidths=0.6)
        ax.clabel(lines, fontsize=6, fmt="%.2g")
    if setting is not None:
        ax.plot(setting[1], setting[0], "o", color="black", markersize=6, markerfacecolor="white")
        at = f"beta1 = {setting[0]:g}, beta2 = {setting[1]:g}"
        ax.annotate(at, (setting[1], setting[0]), xytext=(7, 4), textcoords="offset points", fontsize=7)
    ax.set_xlabel("beta2: worth of an attempt more a round")
    ax.set_ylabel("beta1: cost of an attempt")
    ax.set_title("the winner under Eq. 1; lines: how far it is ahead in mean V")
    ax.grid(visible=False)
    share = found.share()
    keys = [
        Patch(
            facecolor=to_rgba(look(found.names[w]).color, 0.55),
            label=f"{label(found.names[w])}: {100 * share[found.names[w]]:.3g} % of the settings",
        )
        for w in winners
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


@styled
def robustness(rows: pd.DataFrame) -> Figure:
    """The share of fresh corpora in which each row of the table holds (down), at every noise (across), for every mix.

    Below a share that is neither 0 nor 1: its 95 % Wilson interval.
    """
    mixes = list(dict.fromkeys(rows.mix))
    names, noises = list(dict.fromkeys(rows.row)), sorted(set(rows.noise))
    figure, axes = new("text", 0.12 + 0.055 * len(names), 1, len(mixes), sharey=True, squeeze=False)
    titles = {"article": "the article's mix", "free": "branch, family and tag drawn freely"}
    for ax, mix in zip(axes.flat, mixes, strict=True):
        part = rows[rows.mix == mix].set_index(["row", "noise"])
        shares = np.array([[part.holds[name, noise] for noise in noises] for name in names])
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (down, across), share in np.ndenumerate(shares):
            found = part.loc[(names[down], noises[across])]
            text = f"{share:.3g}" if share in (0, 1) else f"{share:.3f}\n[{found.low:.2f}, {found.high:.2f}]"
            colour = "white" if share > 0.7 else "black"
            ax.text(across, down, text, ha="center", va="center", color=colour, fontsize=5.5)
        ax.set_xticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        ax.set_yticks(range(len(names)), names)
        ax.set_title(titles.get(mix, mix))
        ax.set_xlabel("noise (standard deviation of a score)")
        ax.grid(visible=False)
    return figure


@styled
def run(tree: Tree) -> Figure:
    """A recorded run: every attempt in the order of the picks, a line a branch, and the best score so far.

    The branch that holds the best score is blue.
    """
    figure, ax = new("text", 0.5)
    scores = np.array([np.nan if a.score is None else a.score for a in tree])
    best = np.fmax.accumulate(np.fmax(scores, np.nan if tree.root is None else tree.root))
    top, low = np.nanmax(best), np.nanquantile(scores, 0.05)
    floor = low - max(0.3 * (top - low), 1e-9)  # a few very low scores must not squeeze all others into a line
    winner = None if tree.best_attempt is None else tree.best_attempt.branch
    for number, branch in enumerate(tree.branches):
        ok = [(a.seq, a.score) for a in branch if a.score is not None]
        colour, order = (WINNER, 3) if number == winner else (GREY, 2)
        ax.plot(*zip(*ok, strict=True), "o-", color=colour, linewidth=0.6, markersize=3, zorder=order)
    ax.step(np.arange(len(best)), best, where="post", color="black", linewidth=1.2, zorder=4)
    below, failed = np.flatnonzero(scores < floor), np.flatnonzero(np.isnan(scores))
    ax.plot(below, np.full(len(below), floor), "v", color="#666666", clip_on=False)
    ax.plot(failed, np.full(len(failed), floor), "x", color=MISSED, clip_on=False)
    keys = [
        Line2D([], [], color="black", linewidth=1.2, label="best so far"),
        Line2D([], [], color=WINNER, marker="o", markersize=3, linewidth=0.6, label=f"branch {winner}, the winner's"),
        Line2D([], [], color=GREY, marker="o", markersize=3, linewidth=0.6, label="other branches"),
        Line2D([], [], color="#666666", marker="v", linestyle="none", label="scored below the axis"),
        Line2D([], [], color=MISSED, marker="x", linestyle="none", label="failed"),
    ]
    ax.legend(handles=[*keys[:3], *keys[3:4][: len(below)], *keys[4:][: len(failed)]], loc="lower right")
    ax.set_ylim(floor, top + 0.05 * (top - floor))
    ax.set_xlim(-0.5, len(tree) - 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("attempt, in the order of the picks")
    ax.set_ylabel("score")
    ax.set_title(f"{tree.name}: {len(tree.branches)} branches, {len(tree)} attempts")
    return figure


@styled
def packing(circles: np.ndarray, title: str = "") -> Figure:
    """Circles in the unit square; ``circles`` has shape (n, 3): x, y, radius."""
    from matplotlib.patches import Circle, Rectangle

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
