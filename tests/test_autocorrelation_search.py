"""The search of the autocorrelation inequality: gradients, annealing, the interior point, moves, the program."""

import json

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # so that its threads are limited too
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dreamrsi.programs import Candidate, Limits
from dreamrsi.tasks.autocorrelation import Autocorrelation, moves, write_heights
from dreamrsi.tasks.autocorrelation.anneal import anneal, minimise, quotients, smoothed
from dreamrsi.tasks.autocorrelation.evaluate import quotient, read_heights
from dreamrsi.tasks.autocorrelation.moves import FINEST, MOVES, random_starts
from dreamrsi.tasks.autocorrelation.polish import polish


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As in a live run; more threads only get in each other's way here."""
    with threadpool_limits(1):
        yield


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 90), st.integers(1, 4))
def test_floating_quotients_are_those_of_the_judge(seed, cells, rows):
    heights = random_starts(rows, cells, np.random.default_rng(seed))
    for value, row in zip(quotients(heights), heights, strict=True):
        exact = quotient(row.tolist())[1]
        assert value == pytest.approx(float(exact), rel=1e-11)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.sampled_from([2.0, 30.0, 300.0]))
def test_gradients_are_differences(seed, cells, sharpness):
    random = np.random.default_rng(seed)
    heights, b = random_starts(2, cells, random), np.full(2, sharpness)
    value, gradient, hard = smoothed(heights, b)
    assert (hard <= value).all() and (value <= hard + np.log(2 * cells - 1) / sharpness + 1e-12).all()
    assert hard == pytest.approx(quotients(heights), rel=1e-11)
    z = 2 * cells * np.array([np.convolve(h, h) / h.sum() ** 2 for h in heights])
    assume(np.abs(z).min() > 1e-3 or sharpness > 2)  # |z| has a kink at 0, which counts where the maximum is soft
    along = random.normal(size=cells)
    h = 1e-6
    ahead, behind = smoothed(heights + h * along, b)[0], smoothed(heights - h * along, b)[0]
    slope, size = gradient @ along, 1 + np.abs(gradient).max() ** 2
    assert np.allclose((ahead - behind) / (2 * h), slope, atol=1e-4 * sharpness * size)


def test_the_smoothed_value_never_rises_and_rows_do_not_depend_on_each_other():
    heights, b = random_starts(6, 25, np.random.default_rng(3)), np.full(6, 40.0)
    start = smoothed(heights, b)[0]
    end, _, best = minimise(heights, b, 30)
    assert (smoothed(end, b)[0] < start).all() and (best <= quotients(heights)).all()
    alone, value = anneal(heights[2:3], 10.0, 1e4, 6, 40)
    among, values = anneal(heights, 10.0, 1e4, 6, 40)
    assert value[0] == pytest.approx(values[2], abs=1e-3)
    assert np.allclose(alone.mean(), 1) and np.allclose(among.mean(axis=1), 1)
    assert values == pytest.approx(quotients(among), rel=1e-11)


def test_two_cells_by_hand():
    """Heights (1, 2): c = 1, 4, 4 and the sum is 3, so 4 * 4 / 9; where both 4s tie nothing can fall."""
    found, values = anneal(random_starts(20, 2, np.random.default_rng(0)), 3.0, 1e6, 12, 80)
    assert values == pytest.approx(np.full(20, 16 / 9), abs=1e-6) and values.min() >= 16 / 9 - 1e-12
    done = polish(found[0])
    assert quotients(done[None])[0] == pytest.approx(16 / 9, abs=1e-8)
    assert sorted(done) == pytest.approx([2 / 3, 4 / 3], abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_interior_point_only_improves(seed):
    start = random_starts(8, 40, np.random.default_rng(seed))
    rough, values = anneal(start, 10.0, 1e3, 5, 30)
    for heights, value in zip(rough, values, strict=True):
        done = polish(heights)
        assert quotients(done[None])[0] <= value
        assert done.mean() == pytest.approx(1)
    # What was annealed well gains little, and twice as many steps add nothing to it.
    fine, values = anneal(rough, 300.0, 1e5, 10, 200)
    one, two = (quotients(polish(fine[0], gap=4e-3, steps=steps)[None])[0] for steps in (80, 160))
    assert two - 1e-7 <= one <= values[0] and one == pytest.approx(two, abs=1e-6)


@pytest.fixture
def few_children(monkeypatch):
    """Moves that make two children and no more: the same code, in less time."""
    monkeypatch.setattr(moves, "_count", lambda cells: 2)


def test_every_move_gives_a_whole_artifact_and_is_repeatable(few_children):
    task = Autocorrelation()
    assert len(task.moves) >= 8
    start = {"heights.json": write_heights(random_starts(1, 24, np.random.default_rng(0))[0]), "note": b"kept"}
    for name, move in task.moves.items():
        made = move(start, 5)
        assert made == move(start, 5), name
        assert made["note"] == b"kept"
        assert task.evaluate(made).status == "ok", name
        assert task.evaluate(made).score > task.evaluate(start).score, name
    assert [len(read_heights(MOVES[name](start, 1)["heights.json"])) for name in ("double", "triple", "coarsen")] == [
        48,
        72,
        12,
    ]


@pytest.mark.parametrize("heights", [[1.0], [2.0, 2.0], [3.0, -1.0, 0.5]], ids=len)
def test_moves_work_on_the_coarsest_functions(heights, few_children):
    for name, move in MOVES.items():
        made = move({"heights.json": json.dumps(heights).encode()}, 2)
        assert Autocorrelation().evaluate(made).status == "ok", name


@pytest.mark.slow
def test_moves_stop_refining(few_children):
    files = {"heights.json": write_heights([1.0 + 0.1 * (k % 7) for k in range(FINEST)])}
    for name, move in MOVES.items():
        made = move(files, 1)
        assert len(read_heights(made["heights.json"])) <= FINEST, name


def test_moves_climb():
    task = Autocorrelation()
    files = task.seed_workspace()
    for seed, move in enumerate(("restart", "double", "double", "polish")):
        files = task.moves[move](files, seed)
    assert task.evaluate(files).metrics["c3"] < 1.4645


def test_the_first_program_runs_and_scores_like_the_seed():
    task = Autocorrelation()
    with Candidate(task.program.seed, task.program.path, limits=Limits(seconds=20)) as candidate:
        result = candidate.call("solve", 1)
    assert result.status == "ok"
    made = {task.program.artifact: json.dumps(result.value).encode()}
    assert task.evaluate(made) == task.evaluate(task.seed_workspace())
