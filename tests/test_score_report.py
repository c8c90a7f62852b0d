"""The numbers behind the command ``score``: the record as an episode, the map, and how far its winner holds."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import dreamrsi as d
import strategies
from dreamrsi import plots_score, score_page, score_text, synthetic
from dreamrsi.compare import RECORDED, recorded, rounds_known
from dreamrsi.figures import render
from dreamrsi.score_report import MAP_TIMES, score_trees
from strategies import tree_of

NAMES = [name for name in d.policies.BUILTIN if name != "random"]


@settings(deadline=None)
@given(strategies.universes(), strategies.builtin_policies(), st.integers(1, 4))
def test_the_record_of_a_live_run_is_the_episode_that_made_it(universe, policy, width):
    made = d.replay(policy, universe, width)
    tree = strategies.recording(universe, made)
    episode = recorded(tree)
    assert rounds_known(tree) == ("batches" if made.picks else "no")
    assert (episode.picks, list(episode.reveals)) == (made.picks, list(made.reveals))
    assert (episode.attempts, episode.rounds, episode.best) == (made.attempts, made.rounds, tree.best)


def test_without_batches_the_rounds_named_count_and_without_those_every_attempt():
    tree = tree_of([[1.0, 2.0], [3.0, 1.0]])
    assert (rounds_known(tree), recorded(tree).rounds) == ("no", 4)
    assert recorded(tree).picks == ((d.OPEN,), (d.OPEN,), (0,), (1,))
    named = [msgspec.structs.replace(a, round=7 + 3 * a.attempt) for a in tree]
    by_round = d.Tree(tree.header, named)
    assert (rounds_known(by_round), recorded(by_round).picks) == ("rounds", ((d.OPEN, d.OPEN), (0, 1)))
    partly = d.Tree(tree.header, [*named[:3], msgspec.structs.replace(named[3], round=None)])
    assert (rounds_known(partly), recorded(partly).rounds) == ("no", 4)


@settings(deadline=None)
@given(strategies.trees())
def test_the_record_reveals_everything_and_is_never_blind(tree):
    episode = recorded(tree)
    found = d.outcome(episode, tree)
    assert (episode.attempts, episode.opened, episode.best) == (len(tree), len(tree.branches), tree.best)
    assert found.opened and (found.hit or tree.best == -math.inf)


TIED = d.Tree(
    d.Header(task="toy", width=3),
    [
        d.Attempt(branch=0, attempt=0, seq=0, score=0.0, status="ok"),
        d.Attempt(branch=1, attempt=0, seq=1, score=None, status="error", origin=(0, 0)),
    ],
)
"""Every policy has V = 0 where the betas are 0, and some make fewer attempts."""


@settings(deadline=None, max_examples=40)
@given(strategies.trees(), st.floats(0, 3), st.floats(0, 3), st.floats(0, 1))
@example(TIED, 0.0, 0.0, 1.0)
def test_the_winner_wins_just_where_it_says_it_does(tree, beta1, beta2, share):
    if tree.best_attempt is None:
        return
    scored = score_trees([tree], NAMES, beta1=beta1, beta2=beta2, random_seeds=0)
    at = scored.holds

    def ahead(b1, b2):
        values = {name: q - b1 * n + b2 * p for name, (q, n, p) in scored.terms.items()}
        slack = 1e-11 * (1 + max(abs(value) for value in values.values() if value > -math.inf))
        return values[at.winner] >= max(values.values()) - slack

    assert ahead(beta1, beta2)
    for low, high, setting in (
        (*at.beta1, lambda beta: (beta, beta2)),
        (*at.beta2, lambda beta: (beta1, beta)),
    ):
        top = min(high, low + 100)
        assert ahead(*setting(low + share * (top - low)))
        if high < math.inf:
            assert not ahead(*setting(2 * high + 1))
        if low > 1e-2:
            assert not ahead(*setting(low / 2))


def test_the_map_agrees_with_the_table_and_with_where_the_winner_holds():
    scored = score_trees(synthetic.committed("history"), NAMES, max_rounds=80, beta1=0.02, beta2=0.05)
    table = scored.table.set_index("policy")
    assert scored.holds.winner == table.V[list(scored.map.names)].idxmax() == "early_stop"
    assert scored.map.names[-1] == RECORDED and not any("random" in name for name in scored.map.names)
    for name, (best, n, parallel) in scored.terms.items():
        assert table.V[name] == pytest.approx(best - 0.02 * n + 0.05 * parallel)
    assert sum(scored.map.share().values()) == pytest.approx(1)
    assert scored.same == {RECORDED: "parallel_refine"}
    scores = [a.score for tree in scored.trees for a in tree]
    spread = max(scores) - min(scores)
    assert scored.map.beta1s[-1] == pytest.approx(0.01 * spread)
    assert scored.map.beta2s[-1] == pytest.approx(0.04 * spread)
    winner, (low, high), _ = scored.map.holds(0.02, 0.05)
    step = scored.map.beta1s[1]
    assert winner == "early_stop" and scored.holds.beta1[0] <= low <= scored.holds.beta1[0] + 2 * step
    assert high == scored.map.beta1s[-1] < scored.holds.beta1[1]


def test_the_grid_reaches_a_given_beta_and_beyond():
    tree = tree_of([[1.0, 2.0], [3.0]])
    inside = score_trees([tree], NAMES, random_seeds=0)
    assert (inside.beta1, inside.beta2) == d.scaled_betas([tree])
    assert [g[-1] for g in (inside.map.beta1s, inside.map.beta2s)] == pytest.approx(
        [t * s for t, s in zip(MAP_TIMES, inside.scaled, strict=True)]
    )
    outside = score_trees([tree], NAMES, beta2=5.0, random_seeds=0)
    assert outside.map.beta2s[-1] == 10 and outside.map.beta1s[-1] == inside.map.beta1s[-1]


def test_a_tie_by_rounding_is_a_tie():
    """On the diagonal of this map two policies are equal in exact arithmetic, whatever the last bit says."""
    scored = score_trees(synthetic.committed("history")[3:4], NAMES)
    assert all(share == 0 or share > 0.01 for share in scored.map.share().values())


def test_normalised_scores_are_normalised_in_the_map_too():
    trees = [tree_of([[1.0, 2.0], [3.0]], root=0.0), tree_of([[1000.0, 2000.0], [3000.0]], root=0.0)]
    scored = score_trees(trees, NAMES, normalise="range")
    assert scored.terms[RECORDED][0] == pytest.approx(1.0)
    assert scored.table.V[0] == pytest.approx(1 - 0.002 * 3 + 0.005 * 1)
    assert scored.by_tree.V[:2].tolist() != scored.by_tree.quality[:2].tolist()


def test_random_is_the_mean_over_its_seeds():
    tree = synthetic.committed("history")[0]
    scored = score_trees([tree], [], widths=[8], random_seeds=5)
    episodes = [d.replay(d.policies.Random(seed), tree, 8) for seed in range(5)]
    floor = scored.table.set_index("policy").loc["random:5 seeds"]
    assert floor.attempts == np.mean([e.attempts for e in episodes])
    assert floor.branches_opened == np.mean([e.opened for e in episodes])
    assert floor.hits == np.mean([d.outcome(e, tree).hit for e in episodes])


class Broken:
    name = "broken"

    def start(self, width):
        pass

    def choose(self, prefix):
        raise ValueError("no")


def test_a_policy_that_fails_scores_minus_infinity_and_the_others_go_on():
    with pytest.warns(UserWarning, match="broken, round 0: raised ValueError: no; it scores -inf"):
        scored = score_trees([tree_of([[1.0, 2.0]])], [Broken(), "early_stop"])
    table = scored.table.set_index("policy")
    assert table.V["broken"] == -math.inf and math.isfinite(table.V["early_stop"])
    assert scored.map.share()["broken"] == 0 and scored.holds.winner != "broken"
    assert "broken" in " ".join(score_text.map_lines(scored))
    assert score_text.table_text(scored)
    failed = "FAILED: broken, round 0: ValueError: no. It scores -inf."
    assert [line for line in score_text.warnings_of(scored) if "broken" in line] == [failed]
    assert failed in score_page._page(scored, score_page._tables(scored), _no_images())
    assert table.never_opened["broken"] == 0 and not scored.by_tree.never_opened[1]
    assert "broken" not in set(scored.misses.policy)


def _no_images():
    """Stand-ins for the two pictures that the page asks for."""
    return [(score_page.Picture(name, "", Figure()), b"") for name in ("tradeoff", "beta_map")]


def test_a_policy_that_fails_on_several_trees_is_one_line():
    with pytest.warns(UserWarning, match="broken, round 0"):
        scored = score_trees([tree_of([[1.0, 2.0]]), tree_of([[1.0], [2.0]])], [Broken()])
    (line,) = [line for line in score_text.warnings_of(scored) if line.startswith("FAILED")]
    assert line.endswith("ValueError: no (and on 1 more of 2 trees). It scores -inf.")


def test_two_policies_of_one_name_are_an_error():
    with pytest.raises(d.UserError, match="two rows would be named early_stop"):
        score_trees([tree_of([[1.0]])], ["early_stop", d.policies.EarlyStop()])


def test_misses_say_where_the_winner_was_and_why():
    tree = tree_of([[1.0, 1.0, 1.0], [1.0, 2.0, 9.0], [0.0, 0.0, 0.0]], width=3)
    scored = score_trees([tree], ["parallel_refine:width=1", "semantic_guidance", "parallel_refine"])
    found = scored.misses.set_index("policy")
    assert set(found.index) == {"parallel_refine:width=1", "semantic_guidance"}
    assert (found.branch == 1).all() and (found.attempt == 2).all()
    assert found.why["parallel_refine:width=1"].startswith("never opened (1 of 3")
    assert found.why["semantic_guidance"] == "opened, but left after attempt 0"


def test_what_the_limit_of_rounds_ended_is_named():
    tree = tree_of([[1.0, 2.0, 3.0]], width=1)
    cut = score_trees([tree], ["parallel_refine"], max_rounds=2)
    (note,) = [note for note in score_text.notes(cut) if "limit of rounds" in note]
    assert "ended parallel_refine:" in note
    assert not any("limit of rounds" in note for note in score_text.notes(score_trees([tree], ["parallel_refine"])))


def test_forks_and_narrow_records_are_said():
    tree = tree_of([[1.0, 2.0], [3.0]], origins={1: (0, 1)}, width=None)
    scored = score_trees([tree], NAMES)
    assert "1 of 2 branches fork from an attempt" in " ".join(score_text.notes(scored))
    (narrow,) = [line for line in score_text.warnings_of(scored) if line.startswith("NARROW")]
    assert "records 2 branches, and a width of 8" in narrow


def test_many_narrow_records_are_counted_not_listed():
    scored = score_trees([tree_of([[1.0, 2.0]], width=4) for _ in range(6)], NAMES)
    found = [line for line in score_text.warnings_of(scored) if line.startswith("NARROW")]
    assert len(found) == 3 and "4 more trees" in found[-1]


@settings(deadline=None, max_examples=30)
@given(strategies.trees())
def test_any_tree_can_be_told(tree):
    if tree.best_attempt is None:
        return
    scored = score_trees([tree, tree], NAMES, widths=[1, 3], random_seeds=2)
    lines = [*score_text.heading(scored), *score_text.map_lines(scored), *score_text.notes(scored)]
    assert all(line and "nan" not in line for line in lines)
    assert len(score_text.by_tree_text(scored).split("\n\n")) == 2
    assert scored.table.shape[0] == 1 + 2 * len(NAMES) + 2


def test_short_names_keep_what_tells_trees_apart():
    named = [tree_of([[1.0]]) for _ in range(2)]
    named[0].name, named[1].name = "runs/a/round-01/tree.jsonl", "runs/a/round-02/tree.jsonl"
    assert score_text.short_names(named) == ["round-01/tree", "round-02/tree"]
    assert score_text.short_names(named[:1]) == ["tree"]


def test_members_of_a_family_are_told_apart_and_far_off_points_say_their_number():
    looks = plots_score._looks(["early_stop:strikes=1", "early_stop:strikes=3", "greedy_best", RECORDED])
    first, second = looks["early_stop:strikes=1"], looks["early_stop:strikes=3"]
    assert first[0] == second[0] and first[1] != second[1] and first[2] != second[2]
    rows = {RECORDED: (40, 1.0), "early_stop": (20, 0.99), "greedy_best": (30, 0.995), "adaptive": (5, 0.0)}
    figure = plots_score.tradeoff(rows, "quality")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["recorded", "early stop", "greedy best", "adaptive: 0, below"]
    assert figure.axes[0].get_ylim()[0] > 0.9
    assert render(figure, "svg") == render(plots_score.tradeoff(rows, "quality"), "svg")


def test_pictures_of_several_trees_have_the_names_of_the_trees():
    trees = [tree_of([[1.0, 2.0]]) for _ in range(3)]
    trees[0].name, trees[1].name, trees[2].name = "runs/a/tree.jsonl", "runs/b c/tree.jsonl", "runs/日.jsonl"
    scored = score_trees(trees, ["early_stop"], random_seeds=0)
    assert [score_page._number(scored, place) for place in range(3)] == ["_01_a-tree", "_02_b-c-tree", "_03"]
    assert score_page._number(score_trees(trees[:1], ["early_stop"], random_seeds=0), 0) == ""


def test_pictures_stand_below_the_title_of_their_tree():
    trees = [tree_of([[1.0, 2.0]]) for _ in range(2)]
    trees[0].name, trees[1].name = "runs/日.jsonl", "runs/01.jsonl"  # in files _01 and _02_01
    scored = score_trees(trees, ["early_stop"], random_seeds=0)
    of_trees = [(score_page.Picture(f"anytime{place}", f"of {place}", Figure(), place), b"") for place in range(2)]
    page = score_page._page(scored, score_page._tables(scored), _no_images() + of_trees)
    first, second = page.split("<h3>")[1:]
    assert first.startswith("日:") and "of 0" in first and "of 1" not in first
    assert second.startswith("01:") and "of 1" in second and "of 0" not in second


def test_markers_of_equal_rows_stand_around_their_values_and_inside_the_axes():
    rows = {RECORDED: (88, 9.0), "early_stop": (44, 9.0), "greedy_best": (88, 9.0), "adaptive": (88, 9.0)}
    figure = plots_score.tradeoff(rows | {"portfolio": (5, -math.inf)}, "quality")
    figure.canvas.draw()
    ax = figure.axes[0]
    drawn = [line for line in ax.lines if len(line.get_xdata())]
    values = [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn]
    assert values == list(rows.values())
    points = np.array([line.get_transform().transform(line.get_xydata())[0] for line in drawn])
    off = (points - ax.transData.transform(values)) * 72 / figure.dpi
    assert off[1] == pytest.approx([0, 0]) and off[[0, 2, 3]].sum(axis=0) == pytest.approx([0, 0])
    assert all(1 < np.hypot(*off[place]) < drawn[place].get_markersize() for place in (0, 2, 3))
    right = (ax.get_window_extent().x1 - points[:, 0].max()) * 72 / figure.dpi
    assert right > max(line.get_markersize() for line in drawn) / 2


@given(st.integers(1, 8))
def test_a_ring_has_its_markers_apart_and_its_centre_at_the_values(size):
    moves = np.array(list(plots_score._rings({str(n): (50.0, 20.0) for n in range(size)}).values()))
    assert moves.sum(axis=0) == pytest.approx([0, 0], abs=1e-9) and np.hypot(*moves.T).max() < 10
    assert all(np.hypot(*(a - b)) > 6.9 for n, a in enumerate(moves) for b in moves[:n])


def test_curves_keep_every_step():
    tree = tree_of([[None, 1.0, 1.0, 5.0, 2.0]], width=1)
    figure = plots_score.anytime(tree, {RECORDED: recorded(tree)}, "t")
    x, y = figure.axes[0].lines[0].get_data()
    assert [(int(a), float(b)) for a, b in zip(x, y, strict=True) if b == b] == [(2, 1.0), (4, 5.0), (5, 5.0)]
