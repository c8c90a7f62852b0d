"""The solver of the autocorrelation inequality, and the construction that it left."""

import importlib.util
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # so that its threads are limited too
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dreamrsi.tasks.autocorrelation.anneal import quotients
from dreamrsi.tasks.autocorrelation.evaluate import autoconvolution, decimals_up, evaluate, quotient
from dreamrsi.tasks.autocorrelation.solver import SAME, Level, Pool, empty, solve

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
BEST = BENCHMARKS / "constructions" / "autocorrelation.json"
TINY = (
    Level(width=6, tries=24, rows=12, stages=5, iterations=30, hard=1e4),
    Level(width=4, tries=20, rows=10, stages=5, iterations=40),
    Level(width=3, tries=12, rows=6, stages=5, iterations=40),
)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As in a live run; more threads only get in each other's way here."""
    with threadpool_limits(1):
        yield


def last_pools(steps):
    """The last pool of every level."""
    return dict(steps)


def same(a, b):
    return np.array_equal(a.heights, b.heights) and np.array_equal(a.values, b.values)


@pytest.fixture(scope="module")
def pools():
    return last_pools(solve(7, 15, TINY))


def test_the_beam_doubles_and_descends(pools):
    assert [pools[k].heights.shape[1] for k in range(4)] == [15, 30, 60, 60]
    best = [pools[k].values[0] for k in range(4)]
    assert best == sorted(best, reverse=True) and best[-1] < best[0] - 0.005
    for number, pool in pools.items():
        assert pool.values == pytest.approx(quotients(pool.heights), rel=1e-10)
        assert len(pool.values) <= (*[level.width for level in TINY], 4)[number]
        assert (np.diff(pool.values) > SAME).all() and np.allclose(pool.heights.mean(axis=1), 1)
    proven = quotient(pools[3].heights[0].tolist())[1]
    assert float(proven) == pytest.approx(pools[3].values[0], abs=1e-10)


def test_equal_seeds_find_the_same_and_others_do_not(pools):
    again, other = last_pools(solve(7, 15, TINY)), last_pools(solve(8, 15, TINY[:1]))
    assert all(same(again[k], pools[k]) for k in pools)
    assert not same(other[0], pools[0])


@pytest.mark.parametrize("done", [1, 2, 3])
def test_it_goes_on_behind_finished_levels(pools, done):
    rest = last_pools(solve(7, 15, TINY, [pools[k] for k in range(done)]))
    assert set(rest) == set(range(done, 4))
    assert all(same(rest[k], pools[k]) for k in rest)


def test_within_a_level_nothing_gets_worse():
    steps = [(number, pool.values[0]) for number, pool in solve(3, 15, TINY)]
    for (number, before), (following, after) in zip(steps, steps[1:], strict=False):
        assert following > number or after <= before
    assert len(steps) == 2 + 2 + 2 + 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1, 2) | st.sampled_from([1.5, 1.5 + 1e-6, np.nan, np.inf]), max_size=12), st.integers(1, 5))
def test_pools_keep_the_best_and_no_two_alike(values, width):
    heights = np.arange(len(values), dtype=float)[:, None]
    pool = empty(1).merged(heights, np.array(values), width)
    finite = [v for v in values if np.isfinite(v)]
    assert len(pool.values) <= width and (np.diff(pool.values) > SAME).all()
    assert pool.values[:1].tolist() == sorted(finite)[:1]
    assert all(values[int(row[0])] == value for row, value in zip(pool.heights, pool.values, strict=True))
    assert same(pool.merged(pool.heights, pool.values, width), Pool(pool.heights, pool.values))


@pytest.fixture
def benchmark(monkeypatch):
    """The benchmark's module, on the tiny levels."""
    spec = importlib.util.spec_from_file_location("math_autocorrelation", BENCHMARKS / "math_autocorrelation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LEVELS", TINY)
    monkeypatch.setattr(module, "CELLS", 15)
    return module


def test_a_row_of_the_benchmark_goes_on_behind_what_is_saved(benchmark, tmp_path, pools):
    whole, cpu, _ = benchmark.row(7, tmp_path, 1.0)
    assert same(whole, pools[3])
    saved = sorted((tmp_path / "autocorrelation-7-1").iterdir())
    assert [file.name for file in saved] == [f"level-{k}.npz" for k in range(4)]
    for file in saved[2:]:
        file.unlink()
    again, more, _ = benchmark.row(7, tmp_path, 1.0)
    assert same(again, whole) and more > 0.3 * cpu  # the time of the levels before counts
    finished, seconds, _ = benchmark.row(7, tmp_path, 1.0)
    assert same(finished, whole) and seconds == more


def test_only_a_better_construction_is_kept(benchmark, tmp_path, pools):
    path = tmp_path / "kept.json"
    benchmark.keep(path, pools[1], 7, 1.0, 2.0, "a command")
    first = path.read_text()
    benchmark.keep(path, pools[0], 7, 1.0, 2.0, "a command")
    assert path.read_text() == first
    benchmark.keep(path, pools[3], 7, 1.0, 2.0, "a command")
    content = json.loads(path.read_text())
    assert content["construction"] == pools[3].heights[0].tolist() and content["cells"] == 60
    assert evaluate(json.dumps(content["construction"]).encode()).metrics["c3_at_most"] == content["c3_at_most"]


def test_the_committed_construction_is_what_its_file_says():
    """The bound is computed again from the heights: once by the judge, once by a convolution of Python's integers."""
    content = json.loads(BEST.read_text())
    heights = content["construction"]
    result = evaluate(json.dumps(heights).encode())
    assert result.status == "ok" and result.metrics["exact"]
    assert result.metrics["c3_at_most"] == content["c3_at_most"] and len(heights) == content["cells"]
    assert {"command", "seed", "seconds", "note"} <= set(content)

    exact = [Fraction(h) for h in heights]
    unit = max(f.denominator for f in exact)
    whole = [int(f * unit) for f in exact]
    grown = np.array(whole, dtype=object)
    n = len(whole)
    c = autoconvolution(whole)
    for k in (0, 1, n // 2, n - 1, n, 2 * n - 2, int(np.argmax(np.abs(np.array(c, dtype=object))))):
        low, high = max(0, k - n + 1), min(n, k + 1)
        assert c[k] == int(grown[low:high] @ grown[k - high + 1 : k - low + 1][::-1])
    assert 2 * n * max(map(abs, c)) <= Fraction(content["c3_at_most"]) * sum(whole) ** 2
    assert sum(c) == sum(whole) ** 2  # no entry is missing: together they are the square of the sum


def test_one_cell_changed_breaks_the_claim():
    """Twin of the test above: a file that claims more than its heights give is found out."""
    content = json.loads(BEST.read_text())
    heights = content["construction"]
    heights[len(heights) // 2] += 0.05 * max(map(abs, heights))
    assert decimals_up(quotient(heights)[1]) > content["c3_at_most"]
