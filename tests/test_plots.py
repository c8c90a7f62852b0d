"""Every figure shows what its data say, and draws for odd data too (warnings are errors here)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color, to_rgba
from matplotlib.text import Text

import dreamrsi as d
from dreamrsi import compare, figures, plots, robustness, synthetic
from strategies import tree_of


def odd_trees():
    """Trees that a recorded run may well leave behind: failures, nothing scored, one attempt, equal scores."""
    trees = {
        "odd": tree_of([[None, None, None], [1.0, None, 3.0], [None, 2.0, 2.5]], steps=3, branches=3),
        "none": tree_of([[None, None]]),
        "single": tree_of([[1.0]]),
        "flat": tree_of([[2.0, 2.0]] * 2, root=2.0),
        "low": tree_of([[5.0] * 30, [5.1] * 29 + [-1e6], [4.9] * 30]),
        "root": tree_of([[1.0, 2.0]], root=9.0),
    }
    for name, tree in trees.items():
        tree.name = f"/some/where/{name}.jsonl"
    return trees


ODD = odd_trees()
odd = pytest.mark.parametrize("tree", ODD.values(), ids=ODD)


def markers(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker]


def points(line):
    return np.column_stack(line.get_data()).tolist()


def texts(ax):
    return {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in ax.texts}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def title(ax):
    return ax.get_title(loc="left")


def shown(figure):
    """Lay the figure out, which may warn, and see that no title, note or legend is cut off."""
    figure.draw_without_rendering()
    axes = [ax for ax in figure.axes if ax.get_visible()]
    ticks = {text for ax in axes for axis in (ax.xaxis, ax.yaxis) for text in axis.get_ticklabels(which="both")}
    parts = [text for ax in axes for text in ax.findobj(Text) if text.get_text() and text not in ticks]
    for part in parts + figure.legends:
        box = part.get_window_extent()
        inside = box.x0 > -1 and box.x1 < figure.bbox.x1 + 1 and box.y0 > -1 and box.y1 < figure.bbox.y1 + 1
        assert inside, part
    return figure


# --- trees and runs -----------------------------------------------------------------------------------------------


def test_trees_draw_every_branch_and_a_star_at_the_winner_s_best():
    trees = synthetic.committed("history")
    figure = shown(plots.trees(trees))
    assert len(figure.axes) == 6
    for ax, tree in zip(figure.axes, trees, strict=True):
        best = tree.best_attempt
        *lines, star = ax.lines
        assert len(lines) == len(tree.branches)
        for line, branch in zip(lines, tree.branches, strict=True):
            assert points(line) == [[a.attempt, a.score] for a in branch]
            assert (line.get_linestyle() == "--") is (branch[0].tag == tree.header.recommended)
            assert (line.get_linewidth() > 1) is (branch[0].branch == best.branch)
        assert star.get_marker() == "*" and points(star) == [[best.attempt, best.score]]
        assert title(ax) == f"{tree.name}: winner on branch {best.branch}"


@odd
def test_trees_draw_odd_trees(tree):
    (ax,) = shown(plots.trees([tree])).axes
    best = tree.best_attempt
    assert [points(line) for line in ax.lines[: len(tree.branches)]] == [
        [[a.attempt, a.score] for a in branch if a.score is not None] for branch in tree.branches
    ]
    assert title(ax).startswith(tree.name.split("/")[-1].removesuffix(".jsonl") + ": ")
    assert len(markers(ax, "*")) == (best is not None)
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_panels_over_empty_places_are_labelled():
    figure = shown(plots.trees(list(ODD.values())[:4]))
    assert [ax.get_visible() for ax in figure.axes] == [True] * 4 + [False] * 2
    assert [ax.get_xlabel() != "" for ax in figure.axes[:4]] == [False, True, True, True]
    assert any(t.get_visible() and t.get_text() for t in figure.axes[1].get_xticklabels())


def test_a_run_shows_every_attempt_in_the_order_of_the_picks():
    tree = tree_of([[None, 2.0], [1.0, None], [3.0, 2.5]], root=0.5)
    figure = shown(plots.run(tree))
    (ax,) = figure.axes
    branches = markers(ax, "o")
    assert [points(line) for line in branches] == [[[3, 2.0]], [[1, 1.0]], [[2, 3.0], [5, 2.5]]]
    assert [same_color(line.get_color(), plots.WINNER) for line in branches] == [False, False, True]
    (best,) = (line for line in ax.lines if line.get_color() == "black")
    assert best.get_ydata().tolist() == [0.5, 1, 3, 3, 3, 3]
    (failed,) = markers(ax, "x")
    assert failed.get_xdata().tolist() == [0, 4]
    assert legend(figure) == ["best so far", "branch 2, the winner's", "other branches", "failed"]
    assert title(ax) == "tree: 3 branches, 6 attempts"


def test_a_very_low_score_is_marked_at_the_lower_edge_and_does_not_flatten_the_rest():
    figure = shown(plots.run(ODD["low"]))
    (below,) = markers(figure.axes[0], "v")
    assert below.get_xdata().tolist() == [88] and figure.axes[0].get_ylim()[0] == below.get_ydata()[0] > 4
    assert "scored below the axis" in legend(figure)


@odd
def test_runs_of_odd_trees(tree):
    figure = shown(plots.run(tree))
    (ax,) = figure.axes
    assert ax.yaxis.get_converter() is None
    assert [len(line.get_xdata()) for line in markers(ax, "o")] == [
        sum(a.score is not None for a in branch) for branch in tree.branches
    ]
    assert ("failed" in legend(figure)) is any(a.score is None for a in tree)
    assert ax.yaxis.get_major_formatter().get_offset() == ""
    low, high = ax.get_ylim()
    assert all(low < a.score < high for a in tree if a.score is not None and a.score > -1e6)


# --- policies -----------------------------------------------------------------------------------------------------


def comparison(**rows):
    """Policy -> (attempts, quality)."""
    return pd.DataFrame([(n, *row) for n, row in rows.items()], columns=["policy", "attempts", "quality"])


def places(figure):
    """Where the markers of ``tradeoff`` stand, in points of 1/72 inch."""
    lines = [line for line in figure.axes[0].lines if line.get_label()[0] != "_" and len(line.get_xdata())]
    shown = [line.get_transform().transform(np.column_stack(line.get_data()).astype(float))[0] for line in lines]
    return {line.get_label(): xy * 72 / figure.dpi for line, xy in zip(lines, shown, strict=True)}


def test_tradeoff_puts_every_policy_at_its_means_and_bounds_the_rule():
    table = comparison(parallel_refine=(80.0, 9.0), early_stop=(40.0, 8.9), **{"early_stop:width=4": (20.0, 7.0)})
    figure = shown(plots.tradeoff(table))
    (ax,) = figure.axes
    level, upright, refine, early, narrow = ax.lines
    assert level.get_ydata()[0] == pytest.approx(0.98 * 9) and upright.get_xdata()[0] == pytest.approx(0.8 * 80)
    assert [points(line) for line in (refine, early, narrow)] == [[[80, 9]], [[40, 8.9]], [[20, 7]]]
    assert narrow.get_markerfacecolor() == "white" and same_color(narrow.get_color(), early.get_color())
    assert early.get_markerfacecolor() == early.get_color()
    assert legend(figure) == ["parallel refine", "early stop", "early stop (width=4)"]
    for name, x, y in zip(legend(figure), table.attempts, table.quality, strict=True):
        assert places(figure)[name] == pytest.approx(ax.transData.transform((x, y)) * 72 / figure.dpi)
    assert "0.98×" in title(ax) and "0.8×" in title(ax)


def test_markers_at_one_point_or_nearly_do_not_hide_each_other():
    rows = {"a": (88, 9.0), "b": (88, 9.0), "c": (87, 9.0), "e": (88, 9.01), "f": (44, 7.0), "g": (44, 7.0)}
    narrow = (robustness.NARROW_REFINE, robustness.NARROW_STOP)
    study = compare.compare(synthetic.committed("history"), [*d.policies.ARTICLE, "portfolio", *narrow])
    for table in (comparison(**rows), study):
        found = np.array(list(places(shown(plots.tradeoff(table))).values()))
        assert len(found) == len(table)
        apart = np.linalg.norm(found[:, None] - found, axis=2)[np.triu_indices(len(found), 1)]
        assert apart.min() > 6.5  # a marker measures 7


@pytest.mark.parametrize(
    "rows",
    [
        {"parallel_refine": (1.0, 1.0)},
        {"parallel_refine": (0.0, -np.inf)},
        {"parallel_refine": (3.0, 0.0), "x": (3.0, 0.0)},
        {"parallel_refine": (3.0, -2.0), "x": (3.0, -np.inf)},
        {"x": (0.0, -np.inf), "parallel_refine": (3.0, 2.0)},
    ],
)
def test_tradeoff_of_odd_comparisons(rows):
    figure = shown(plots.tradeoff(comparison(**rows)))
    sound = [name.replace("_", " ") for name, (_, quality) in rows.items() if quality > -np.inf]
    assert list(places(figure)) == sound
    assert sorted(legend(figure)) == sorted(sound + [f"{n.replace('_', ' ')}: failed" for n in rows if rows[n][1] < -9])
    assert all(0 <= x <= 1 and 0 <= y <= 1 for line in figure.axes[0].lines for x, y in relative(line))
    positive = rows["parallel_refine"][1] > 0  # elsewhere there is no ratio, so no bounds
    assert (title(figure.axes[0]) != "") is positive


def relative(line):
    """The points of a line as shares of its axes."""
    return line.axes.transAxes.inverted().transform(line.get_transform().transform(line.get_xydata()))


def test_anytime_draws_one_curve_a_policy_and_the_best_recorded():
    tree = tree_of([[None, 1.0], [2.0, 4.0]])
    curves = {"early_stop": np.array([np.nan, np.nan, 2.0, 4.0]), "mine": np.array([np.nan, 1.0])}
    figure = shown(plots.anytime(tree, curves))
    early, mine, best = figure.axes[0].lines
    np.testing.assert_array_equal(early.get_ydata(), curves["early_stop"])
    np.testing.assert_array_equal(mine.get_xdata(), [0, 1])
    assert early.get_drawstyle() == "steps-post" and early.get_markevery() == [-1]
    assert best.get_ydata()[0] == 4.0 and legend(figure) == ["early stop", "mine"]


@odd
def test_anytime_of_odd_trees(tree):
    episode = d.replay(d.policies.ParallelRefine(), tree, 3)
    figure = shown(plots.anytime(tree, {"parallel_refine": compare.progress(episode, tree)}))
    assert len(figure.axes[0].lines) == 1 + (tree.best > -np.inf)


def test_packing_draws_every_circle():
    circles = np.array([[0.25, 0.25, 0.25], [0.7, 0.6, 0.1]])
    (ax,) = shown(plots.packing(circles, "two")).axes
    assert [(*p.center, p.radius) for p in ax.patches[1:]] == [tuple(row) for row in circles]
    assert len(shown(plots.packing(np.zeros((0, 3)))).axes[0].patches) == 1


# --- width and coverage -------------------------------------------------------------------------------------------


def test_width_hits_writes_the_frame():
    hits = pd.DataFrame([[2, 3, 6], [0, 6, 6]], ["parallel_refine", "mine"], [1, 2, 8])
    (ax,) = shown(plots.width_hits(hits, 6, "history")).axes
    assert texts(ax) == {(c, r): str(hits.iat[r, c]) for r in range(2) for c in range(3)}
    assert ax.images[0].get_array().tolist() == hits.to_numpy().tolist()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "8"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["parallel refine", "mine"]
    assert "history trees, of 6" in title(ax)
    assert [t.get_color() for t in ax.texts][:3] == ["black", "black", "white"]


def test_openings_star_the_winner_and_say_whether_it_was_on_the_map():
    opened = {
        "one": np.array([[True, False], [True, True]]),
        "two": np.array([[True, False, False], [True, True, False]]),
        "three": np.array([[True], [True]]),
    }
    figure = shown(plots.openings(opened, {"one": 1, "two": 0, "three": 0}, (1, 2), "parallel refine"))
    one, two, three, empty = figure.axes
    assert texts(one) == {(1, 0): "★", (1, 1): "★"}
    assert [t.get_color() for t in one.texts] == [plots.MISSED, plots.WINNER]
    assert texts(two) == {(1, 0): "·", (2, 0): "·", (2, 1): "·", (0, 0): "★", (0, 1): "★"}
    for ax, rows in zip((one, two, three), opened.values(), strict=True):
        assert ax.images[0].get_array().tolist() == rows.tolist()
        assert ax.get_xlim() == (-0.5, rows.shape[1] - 0.5)
    assert not empty.get_visible()
    assert [ax.get_xlabel() for ax in (one, two, three)] == ["", "branch", "branch"]
    assert [t.get_text() for t in one.get_yticklabels()] == ["1", "2"]


def test_openings_of_one_tree_fill_the_figure():
    assert len(shown(plots.openings({"one": np.array([[True]])}, {"one": 0}, (3,), "x")).axes) == 1


@pytest.mark.parametrize("place", [0, 1, 3])
def test_frozen_width_marks_the_winner_solid_where_found_and_hollow_where_missed(place):
    tree = synthetic.committed("history")[place]
    wide = d.replay(d.policies.ParallelRefine(), tree, 8)
    narrow = d.replay(d.policies.ParallelRefine(width=4, bootstrap=4), tree, 8)
    figure = shown(plots.frozen_width(tree, wide, narrow, (8, 4)))
    best = tree.best_attempt
    for ax, episode, hit in zip(figure.axes, (wide, narrow), (True, best.branch < 4), strict=True):
        (star,) = markers(ax, "*")
        assert points(star) == [[best.attempt, best.score]]
        assert (star.get_markerfacecolor() == "white") is not hit
        assert ax.texts[0].get_text() == f"branch {best.branch}: {'found' if hit else 'never on the map'}"
        drawn = [line for line in ax.lines if line.get_marker() == "." and len(line.get_xdata())]
        assert len(drawn) == episode.opened
        assert sum(line.get_linestyle() == ":" for line in ax.lines) == len(tree.branches) - episode.opened
    assert title(figure.axes[1]) == f"width 4: best {narrow.best:.4g} in 44 attempts"


def test_frozen_width_tells_a_branch_left_too_early_from_one_never_opened():
    tree = tree_of([[3.0, 1.0, 5.0], [2.0, 2.5, 2.0]], steps=3, branches=2)
    wide = d.replay(d.policies.ParallelRefine(), tree, 2)
    strict = d.replay(d.policies.EarlyStop(strikes=1), tree, 2)
    _, ax = shown(plots.frozen_width(tree, wide, strict, (2, 2))).axes
    assert ax.texts[0].get_text() == "branch 0: left too early"
    assert points(ax.lines[0]) == [[1, 1.0], [2, 5.0]] and ax.lines[0].get_linestyle() == ":"
    assert points(ax.lines[1]) == [[0, 3.0], [1, 1.0]] and ax.lines[1].get_linestyle() == "-"


@odd
def test_frozen_width_of_odd_trees(tree):
    wide, narrow = (d.replay(d.policies.ParallelRefine(width=w), tree, 3) for w in (None, 1))
    figure = shown(plots.frozen_width(tree, wide, narrow, (3, 1)))
    assert all(len(markers(ax, "*")) == (tree.best_attempt is not None) for ax in figure.axes)


# --- maps over many settings --------------------------------------------------------------------------------------


def score_map(values, beta1s=(0.0, 0.1), beta2s=(0.0, 0.1, 0.3), names=("early_stop", "greedy_best", "mine")):
    shape = (len(values), len(beta1s), len(beta2s))
    values = np.broadcast_to(np.asarray(values, dtype=float).reshape(len(values), -1, 1), shape)
    return d.ScoreMap(names[: len(values)], np.array(beta1s), np.array(beta2s), values)


def colours_of(mesh):
    return mesh.to_rgba(mesh.get_array()).reshape(*mesh.get_array().shape, 4)


def test_the_beta_map_colours_every_cell_by_its_winner_and_says_the_shares():
    found = score_map([[5.0, 1.0, 1.0], [2.0, 3.0, 3.0], [0.0, 0.0, 0.0]], (0.0, 0.1, 0.2))
    figure = shown(plots.beta_map(found, (0.1, 0.3)))
    (ax,) = figure.axes
    cells = colours_of(ax.collections[0])
    for row, column in np.ndindex(found.winner.shape):
        colour = figures.look(found.names[found.winner[row, column]]).color
        np.testing.assert_allclose(cells[row, column], to_rgba(colour, 0.55), atol=1e-6)
    assert legend(figure) == [
        f"{n}: {100 * found.share()[k]:.3g} % of the settings"
        for n, k in (("early stop", "early_stop"), ("greedy best", "greedy_best"))
    ]
    (here,) = markers(ax, "o")
    assert points(here) == [[0.3, 0.1]] and ax.texts[-1].get_text() == "beta1 = 0.1, beta2 = 0.3"
    assert "how far it is ahead" in title(ax)


ALONE, OTHER_FAILED, ALWAYS = [[1.0, 1.0]], [[1.0, 1.0], [-np.inf, -np.inf]], [[2.0, 3.0], [1.0, 1.0]]
TIED, ALL_FAILED = [[1.0, 1.0]] * 2, [[-np.inf] * 2] * 2


@pytest.mark.parametrize(
    ("values", "beta1s", "beta2s"),
    [
        *((values, (0.0, 0.1), (0.0, 0.1, 0.3)) for values in (ALONE, OTHER_FAILED, ALWAYS, TIED, ALL_FAILED)),
        *((ALWAYS, *grid) for grid in (((0.1,), (0.0, 0.3)), ((0.0, 0.1), (0.0,)), ((0.0,), (0.05,)))),
    ],
)
def test_the_beta_map_of_odd_maps(values, beta1s, beta2s):
    found = score_map([row[: len(beta1s)] for row in values], beta1s, beta2s)
    figure = shown(plots.beta_map(found, (0.02, 0.05)))
    (ax,) = figure.axes
    assert legend(figure) == ["early stop: 100 % of the settings"]
    mesh = ax.collections[0]
    assert mesh.get_array().shape == (len(beta1s), len(beta2s))
    (x0, y0), (x1, y1) = mesh.get_coordinates()[0, 0], mesh.get_coordinates()[-1, -1]
    assert x1 > x0 and y1 > y0  # a grid of one value has an area too
    assert ("lines" in title(ax)) is (len(ax.collections) > 1)


def test_two_policies_of_one_colour_can_be_told_apart():
    found = score_map([[5.0, 1.0], [2.0, 3.0]], names=("mine", "yours"))
    figure = shown(plots.beta_map(found))
    first, second = (patch.get_facecolor() for patch in figure.legends[0].get_patches())
    assert first[:3] == second[:3] and abs(first[3] - second[3]) > 0.2
    np.testing.assert_allclose(colours_of(figure.axes[0].collections[0])[:, 0], [first, second], atol=1e-6)


def test_robustness_writes_every_share_into_its_cell():
    rows = pd.DataFrame(
        [
            {"mix": mix, "noise": noise, "row": row, "holds": share, "low": share / 2, "high": (1 + share) / 2}
            for place, mix in enumerate(("article", "free"))
            for column, noise in enumerate((0.0, 0.05, 0.1))
            for row, share in (("b", 1.0 - 0.2 * column), ("a", 0.1 * column + 0.3 * place))
        ]
    )
    figure = shown(plots.robustness(rows))
    assert [title(ax) for ax in figure.axes] == ["the article's mix", "branch, family and tag drawn freely"]
    for ax, mix in zip(figure.axes, ("article", "free"), strict=True):
        assert [t.get_text() for t in ax.get_yticklabels()] == ["b", "a"]
        cells = rows[rows.mix == mix].set_index(["row", "noise"])
        for (across, down), text in texts(ax).items():
            cell = cells.loc[("ba"[down], (0.0, 0.05, 0.1)[across])]
            assert text.split(" ")[0] == (f"{cell.holds:g}" if cell.holds in (0, 1) else f"{cell.holds:.3f}")
            assert ("[" in text) is (cell.holds not in (0, 1))
            assert "[" not in text or text.endswith(f"[{cell.low:.2f}, {cell.high:.2f}]")
        assert len(texts(ax)) == 6
    assert [t.get_text() for t in figure.axes[1].get_xticklabels()] == ["0", "0.05", "0.1"]


def test_the_texts_of_the_study_s_robustness_fit_their_cells():
    cells = [(*at, 0.415, 0.349, 0.484) for at in product(robustness.MIXES, robustness.NOISES, robustness.ROWS)]
    figure = shown(plots.robustness(pd.DataFrame(cells, columns=["mix", "noise", "row", "holds", "low", "high"])))
    for ax in figure.axes:
        width = np.diff(ax.transData.transform([(0, 0), (1, 1)]), axis=0)[0]
        for text in ax.texts:
            extent = text.get_window_extent()
            assert extent.width < width[0] and extent.height < -width[1]
