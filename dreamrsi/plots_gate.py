"""Figures of the gate: the winner that a policy never reaches, how often rules and guards fire, what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from dreamrsi.coverage import coverage
from dreamrsi.figures import Look, label, new
from dreamrsi.plots import styled
from dreamrsi.plots_loop import ends
from dreamrsi.replay import Episode
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

FOUND, MISSED, SEEN, UNSEEN = "#0072B2", "#D55E00", "#555555", "#b0b0b0"
LOOKS = (
    Look("#000000", "-", "o"),
    Look("#D55E00", "--", "s"),
    Look("#0072B2", "-.", "^"),
    Look("#009E73", ":", "D"),
    Look("#CC79A7", (0, (5, 1)), "v"),
    Look("#E69F00", (0, (3, 1, 1, 1)), "P"),
)
EVENTS = {
    "coverage": "coverage fails",
    "refused": "gate refuses",
    "killed": "killed",
    "quality": "rolled back: quality",
    "branch": "rolled back: branch",
}
EVEN = "#999999"


def _looks(names: Sequence[str]) -> dict[str, Look]:
    return {name: LOOKS[place % len(LOOKS)] for place, name in enumerate(names)}


def _key(name: str, look: Look, line: bool = True) -> Line2D:
    style: dict[str, Any] = look.line if line else {**look.line, "linestyle": "none"}
    return Line2D([], [], **style, markersize=4, label=name.replace("_", " "))


@styled
def miss(trees: Sequence[Tree], episodes: Sequence[Episode]) -> Figure:
    """What the coverage rule looks at: a panel a tree, what the candidate reveals there, and the winner."""
    figure, axes = new("text", 0.4, 1, len(trees), sharey=True, squeeze=False)
    for ax, tree, episode in zip(axes[0], trees, episodes, strict=True):
        counts = {number: episode.reveals.count(number) for number in range(len(tree.branches))}
        rows = coverage(tree, episode)
        lost = {row.branch for row in rows if row.missed}
        for number, branch in enumerate(tree.branches):
            scores = [np.nan if attempt.score is None else attempt.score for attempt in branch]
            shown = counts[number]
            ax.plot(range(shown), scores[:shown], color=SEEN, linewidth=0.9, zorder=3)
            if shown < len(branch):
                rest = range(max(0, shown - 1), len(branch))
                colour = MISSED if number in lost else UNSEEN
                ax.plot(rest, scores[rest.start :], color=colour, linestyle=":", linewidth=1.4)
        for row in rows:
            colour, inside = (MISSED, "white") if row.missed else (FOUND, FOUND)
            ax.plot(row.attempt, row.score, "*", color=colour, markersize=11, markerfacecolor=inside, zorder=4)
        missed = [row for row in rows if row.missed]
        ax.set_title(f"{tree.name}: {'FAILED' if missed else 'passed'}", color=MISSED if missed else "black")
        where = ", ".join(str(row.branch) for row in rows)
        ax.set_xlabel(f"attempt in its branch\nwinner on branch {where}; {len(set(episode.reveals))} opened")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("score")
    star: dict[str, Any] = {"marker": "*", "linestyle": "none", "markersize": 9}
    keys = [
        Line2D([], [], color=SEEN, linewidth=0.9, label="revealed"),
        Line2D([], [], color=UNSEEN, linestyle=":", label="never revealed"),
        Line2D([], [], color=FOUND, label="winner, reached", **star),
        Line2D([], [], color=MISSED, markerfacecolor="white", label="winner, never on the map", **star),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=4)
    return figure


@styled
def fires(table: pd.DataFrame) -> Figure:
    """How often rules and guards fire (:func:`dreamrsi.gate_experiments.fires`): a panel a change, a marker a world."""
    changes, worlds = (list(dict.fromkeys(table[column])) for column in ("change", "world"))
    figure, axes = new("text", 0.42, 1, len(changes), sharey=True, squeeze=False)
    looks = _looks(worlds)
    for ax, change in zip(axes[0], changes, strict=True):
        for place, world in enumerate(worlds):
            rows = table[(table.change == change) & (table.world == world)].set_index("event").loc[list(EVENTS)]
            at = np.arange(len(EVENTS)) + 0.22 * (place - (len(worlds) - 1) / 2)
            look = looks[world]
            ax.errorbar(
                rows.share, at, xerr=ends(rows, "share"), fmt=look.marker, color=look.color, markersize=4, capsize=2
            )
        ax.set_title(fill(change, 16))
        ax.set_xlabel("share of seeds")
        ax.set_xlim(-0.06, 1.06)
        ax.set_xticks([0, 0.5, 1])
        ax.xaxis.set_major_formatter(PercentFormatter(1))
    axes[0, 0].set_yticks(range(len(EVENTS)), list(EVENTS.values()))
    axes[0, 0].invert_yaxis()
    keys = [_key(world, looks[world], line=False) for world in worlds]
    figure.legend(handles=keys, title="world; bars: 95 % Wilson intervals", loc="outside lower center", ncols=5)
    return figure


@styled
def price(table: pd.DataFrame) -> Figure:
    """What arms cost and find: a row a world, a column a change; of :func:`dreamrsi.gate_experiments.price`."""
    changes, worlds, arms = (list(dict.fromkeys(table[column])) for column in ("change", "world", "arm"))
    figure, axes = new(
        "text", 0.08 + 0.27 * len(worlds), len(worlds), len(changes), sharex="col", sharey="row", squeeze=False
    )
    looks = _looks(arms)
    for line, world in zip(axes, worlds, strict=True):
        for ax, change in zip(line, changes, strict=True):
            rows = table[(table.change == change) & (table.world == world)].set_index("arm")
            for size, arm in zip(range(3 + 2 * len(arms), 3, -2), arms, strict=True):  # equal ones show as rings
                row, look = rows.loc[[arm]], looks[arm]
                style: dict[str, Any] = {"color": look.color, "markerfacecolor": "none", "markersize": size * 0.75}
                ax.errorbar(
                    row.calls,
                    row.best,
                    xerr=ends(row, "calls"),
                    yerr=ends(row, "best"),
                    fmt=look.marker,
                    elinewidth=0.8,
                    **style,
                )
            ax.margins(0.18)
        line[0].set_ylabel(f"{world.replace('_', ' ')}\nbest of a round")
    for ax, change in zip(axes[0], changes, strict=True):
        ax.set_title(change)
    for ax in axes[-1]:
        ax.set_xlabel("calls a round")
    keys = [_key(arm, looks[arm], line=False) for arm in arms]
    for key in keys:
        key.set_markerfacecolor("none")
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
    return figure


@styled
def survivors(table: pd.DataFrame) -> Figure:
    """Shares of corpora in which a policy survives the beta sweep: a panel a noise, policies down, factors across."""
    noises = sorted(set(table.noise))
    events = [column for column in table if column.startswith("survives ") and not column.endswith(("_low", "_high"))]
    columns = [*events, "covered"]
    names = list(table[table.noise == noises[0]].policy)
    figure, axes = new("text", 0.14 + 0.024 * len(names), 1, len(noises), sharey=True, squeeze=False)
    for ax, noise in zip(axes[0], noises, strict=True):
        shares = table[table.noise == noise].set_index("policy").loc[names, columns].to_numpy(float)
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        for (down, across), share in np.ndenumerate(shares):
            colour = "white" if share > 0.7 else "black" if share else UNSEEN
            ax.text(across, down, f"{share:.2g}", ha="center", va="center", color=colour, fontsize=6)
        ax.axvline(len(events) - 0.5, color="black", linewidth=1.2)
        ax.set_xticks(range(len(columns)), [*(event.split()[1] for event in events), "covers"])
        ax.set_title(f"noise {noise:g}")
        ax.set_xlabel("betas from 1/f to f times their setting: f")
        ax.grid(visible=False)
    axes[0, 0].set_yticks(range(len(names)), [_short(name) for name in names])
    return figure


def _short(policy: str) -> str:
    """The name of a policy as a narrow label."""
    return label(policy).replace("schedule (number=", "schedule (").replace("width=4, bootstrap=4", "width 4")


@styled
def at_width(table: pd.DataFrame) -> Figure:
    """Real and drawn trees at narrow width: hits above, attainment below; a column a policy.

    ``table`` is that of :func:`dreamrsi.gate_reach.width_shares`. The grey line is a winner that may be on any branch.
    """
    policies, sources = (list(dict.fromkeys(table[column])) for column in ("policy", "source"))
    figure, axes = new("text", 0.75, 2, len(policies), sharex=True, sharey="row", squeeze=False)
    looks = _looks(sources)
    widths = sorted(set(table.width))
    for column, policy in zip(axes.T, policies, strict=True):
        for ax, event in zip(column, ("hit", "attainment"), strict=True):
            for place, source in enumerate(sources):
                rows = table[(table.policy == policy) & (table.source == source)]
                aside = 0.08 * (place - (len(sources) - 1) / 2)
                style: dict[str, Any] = {**looks[source].line, "markersize": 3.5, "capsize": 1.5, "elinewidth": 0.7}
                ax.errorbar(rows.width + aside, rows[event], ends(rows, event), **style)
            ax.set_ylim(-0.05, 1.05)
        column[0].plot(widths, np.array(widths) / max(widths), color=EVEN, linewidth=0.8, zorder=1)
        column[0].set_title(label(policy))
        column[1].set_xlabel("width")
        column[1].set_xticks(widths)
    axes[0, 0].set_ylabel("trees whose winner is found")
    axes[1, 0].set_ylabel("attainment")
    keys = [_key(source, looks[source]) for source in sources]
    keys.append(Line2D([], [], color=EVEN, linewidth=0.8, label="width / branches"))
    figure.legend(handles=keys, loc="outside lower center", ncols=4, handlelength=3)
    return figure


@styled
def ratios(table: pd.DataFrame) -> Figure:
    """One arm against another, task by task and by geometric mean: of :func:`dreamrsi.gate_experiments.ratios`."""
    panels = {
        "equal_calls": "final best at equal calls",
        "equal_rounds": "at equal rounds",
        "cost": "calls of the rounds",
    }
    figure, axes = new("text", 0.16 + 0.035 * len(table), 1, len(panels), sharey=True, squeeze=False)
    at = np.arange(len(table))
    for ax, (column, title) in zip(axes[0], panels.items(), strict=True):
        ax.axvline(1, color=EVEN, linewidth=0.8)
        style: dict[str, Any] = {"xerr": ends(table, column), "fmt": "none", "capsize": 2, "elinewidth": 1}
        ax.errorbar(table[column], at, ecolor="black", **style)
        ax.plot(table[column][:-1], at[:-1], "o", color=FOUND, markersize=4)
        ax.plot(table[column].iloc[-1], at[-1], "D", color=MISSED, markersize=5)
        ax.axhline(len(table) - 1.5, color=EVEN, linewidth=0.6)
        ax.set_title(title)
        ax.set_xlabel("ratio to fixed exploration")
        ax.margins(0.12)
    axes[0, 0].set_yticks(at, [str(task).replace("_", " ") for task in table.task])
    axes[0, 0].set_ylim(len(table) - 0.4, -0.6)
    return figure
