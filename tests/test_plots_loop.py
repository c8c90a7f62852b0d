"""The figures of the recursion show what their tables say, and nothing is cut off (warnings are errors here)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from dreamrsi import experiments, fidelity, plots_loop, published
from dreamrsi.experiments import Campaign
from strategies import tree_of
from test_plots import legend, shown, title


def rng():
    return np.random.default_rng(0)


def campaigns(setting="circle_packing:n=32", seeds=3, arms=("fixed", "dream")):
    drawn, found = rng(), []
    for arm in arms:
        for seed in range(seeds):
            trees, best = [], 0.0
            for _ in range(3):
                size = 4 if arm.startswith("fixed") else int(drawn.integers(1, 4))
                trees.append(tree_of([drawn.normal(size=size).round(2).tolist()], root=best))
                best = trees[-1].best
            found.append(Campaign(setting, arm, seed, tuple(trees)))
    return found


def coloured(ax, arm):
    return [line for line in ax.lines if same_color(line.get_color(), plots_loop.ARMS[arm].color)]


def test_arms_have_a_panel_a_setting_and_the_paper_s_apart():
    table = experiments.curves(campaigns(), rng())
    figure = shown(plots_loop.arms(table, published.figure("4")))
    titles = [title(ax) for ax in figure.axes if ax.get_visible()]
    panels = [f"{panel} (the paper's)" for panel in ("VGG16", "LayerNorm", "ConvDiv", "ConvMax")]
    assert titles == ["circle packing (n=32)", *panels]
    assert legend(figure) == ["fixed", "dream", "paper, printed", "paper, digitised"]
    assert "another agent and machine" in figure.get_suptitle()
    for arm in ("fixed", "dream"):
        curve, end = coloured(figure.axes[0], arm)
        mine = table[table.arm == arm]
        assert curve.get_ydata().tolist() == mine.best.tolist()
        assert end.get_ydata()[0] == mine.best.iloc[-1]


def test_printed_numbers_are_filled_and_digitised_ones_hollow():
    figure = plots_loop.arms(experiments.curves(campaigns(), rng()), published.figure("4", "ConvDiv"))
    _, printed = coloured(figure.axes[1], "dream")
    _, digitised = coloured(figure.axes[1], "fixed")
    assert same_color(printed.get_markerfacecolor(), plots_loop.ARMS["dream"].color)
    assert same_color(digitised.get_markerfacecolor(), "white")
    assert printed.get_ydata().tolist()[-1] == 1.898


def test_a_floor_hides_the_first_jump_and_a_flat_curve_is_drawn_all_the_same():
    table = experiments.curves(campaigns(), rng())
    (ax,) = shown(plots_loop.arms(table, floor=0.5)).axes
    assert 0 < ax.get_ylim()[0] < 0.5 and ax.get_ylim()[1] > table.high.max()
    flat = table.assign(best=2.0, low=2.0, high=2.0)
    (ax,) = shown(plots_loop.arms(flat, floor=2.0)).axes
    assert ax.get_ylim()[0] < 2 < ax.get_ylim()[1]


def test_four_arms_look_different_in_grey_too():
    names = ("fixed", "dream", "fixed+guidance", "dream+guidance")
    figure = shown(plots_loop.arms(experiments.curves(campaigns(arms=names), rng()), published.figure("5")))
    assert legend(figure)[:4] == ["fixed", "dream", "fixed + guidance", "dream + guidance"]
    looks = [plots_loop.ARMS[name] for name in names]
    assert len({str(look.linestyle) for look in looks}) == len({look.marker for look in looks}) == 4


def test_pace_shows_attempts_above_and_the_best_below():
    table = experiments.pace(campaigns(), rng())
    figure = shown(plots_loop.pace(table, published.figure("6")))
    above, paper_above, below, paper_below = figure.axes
    for ax, column in ((above, "attempts"), (below, "round_best")):
        for arm in ("fixed", "dream"):
            (line,) = coloured(ax, arm)
            assert line.get_ydata().tolist() == table[table.arm == arm][column].tolist()
    assert paper_above.lines[0].get_ydata().tolist()[:3] == [110, 110, 87]
    assert paper_below.lines[0].get_xdata().tolist() == list(range(1, 10))
    assert title(paper_above) == "ConvDiv (the paper's)"


def ranks():
    rows = [
        {"repeat": r, "recorder": n, "trees": t, "correlation": 0.9 - 0.1 * k + 0.01 * r, "bias": 0.0, "regret": 0.0}
        for k, n in enumerate(fidelity.RECORDERS)
        for t in (1, 2, 4)
        for r in range(3)
    ]
    return fidelity.summary(pd.DataFrame(rows), rng())


def test_fidelity_has_a_line_a_recorder_with_its_intervals():
    both = pd.concat([ranks().assign(source="synthetic worlds"), ranks().assign(source="circle packing")])
    figure = shown(plots_loop.fidelity(both))
    assert [title(ax) for ax in figure.axes] == ["synthetic worlds", "circle packing"]
    assert legend(figure) == list(fidelity.RECORDERS)
    for ax in figure.axes:
        assert len(ax.containers) == 3
        assert ax.containers[0].lines[0].get_ydata() == pytest.approx([0.91] * 3)
        assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "4"]


def test_one_repeat_is_drawn_as_a_point_without_an_interval():
    table = ranks().assign(source="synthetic worlds")
    first = table.recorder == list(fidelity.RECORDERS)[0]
    table.loc[first, ["correlation_low", "correlation_high"]] = np.nan
    (ax,) = shown(plots_loop.fidelity(table)).axes
    spans = []
    for container in ax.containers:
        line, _, (bars,) = container.lines
        assert np.isfinite(line.get_ydata(orig=False)).all()
        spans.append([float(np.ptp(path.vertices[:, 1])) for path in bars.get_paths()])
    assert np.isnan(spans[0]).all() and np.isfinite(spans[1:]).all()


def test_curse_shows_both_values_and_the_gap():
    means = pd.DataFrame({"versions": [1, 2, 4]})
    for name, values in {"replayed": [1.0, 2.0, 3.0], "fresh": [1.0, 1.5, 1.6], "gap": [0.0, 0.5, 1.4]}.items():
        means = means.assign(**{name: values, f"{name}_low": np.array(values) - 0.1, f"{name}_high": values})
    left, right = shown(plots_loop.curse(means)).axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[1, 2, 3], [1, 1.5, 1.6]]
    assert right.containers[0].lines[0].get_ydata().tolist() == [0, 0.5, 1.4]


def test_regressions_mark_what_fell_on_fresh_draws():
    rows = pd.DataFrame(
        {
            "way": ["with current"] * 2 + ["without"] * 3,
            "replayed": [0.0, 0.2, -0.1, 0.1, 0.2],
            "fresh": [0.0, -0.1, -0.2, -0.1, 0.3],
        }
    )
    figure = shown(plots_loop.regressions(rows))
    assert [title(ax) for ax in figure.axes] == [
        "with current: 1 of 2 worse",
        "without: 2 of 3 worse",
    ]
    fell = [line for line in figure.axes[1].lines if line.get_marker() == "v"]
    assert fell[0].get_ydata().tolist() == [-0.2, -0.1]
