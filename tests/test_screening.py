"""What looks copied from traces is found, and what policies usually hold is not."""

import ast
import glob
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import policies, screening, traces
from dreamrsi.screening import copied, number_texts

TRACE = [
    "round 0: picks open open -> 0.0=2.531234567 [swap]  1.0=-0.04271 | best 2.531234567, 2 live branches\n"
    "round 1: picks 0 12 -> 12.34=1024.5  13.0=3.25e-07 from 45.67 | best 1024.5\n"
]


def found(line):
    return copied(line.encode(), TRACE)


def test_numbers_of_a_trace_are_its_scores_and_not_the_names_of_its_cells():
    assert number_texts(TRACE[0]) == ["2.531234567", "0.04271", "2.531234567", "1024.5", "1024.5"]


@pytest.mark.parametrize(
    "line",
    [
        "x = 2.531234567",
        "x = 2.531",
        "x = 2.5312",
        "x = 2.53123",
        "x = -2.5312",
        "x = 0.04271",
        "x = -4.271e-2",
        "x = 1024.5",
        "x = 1e3 + 24.5",
        "x = 2.5 + 0.0312",
        "x = -(2.5 + 0.031)",
        "x = 25312 / 10000",
        "x = '2.5312'",
        "x = b'best 2.5312'",
        "x = f'{y} 2.5312'",
        "def f():\n    'more than 2.5312'",
        "x = {2.531: 1}",
        "x = 1024.5 + " + " + ".join(["0"] * 900),
        "x = 1e3" + " + 0.5" * 49,
    ],
)
def test_copied_scores(line):
    assert found(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = [(0, 3), (2, 1), (5, 7)]",
        "x = {(0, 3), (2, 1), (5, 7)}",
        "x = ((0, 3), [2, 1], (5, 7))",
        "x = {0: 3, 2: 1, 5: 7}",
        "x = {(0, 3): 1, (2, 1): 1, (5, 7): 1}",
        "x = [[0, 1, -1], [2, 3, 4], [1, 2]]",
        "x = [0, 3, 3, 3, 1, 2, 5, 7]",
        "x = '0,3,3,3,1,2,5,7'",
        "x = '0.3 2.1 5.7 4.4'",
        f"x = '{'A9z' * 40}'",
        f"x = {2**64}",
    ],
)
def test_tables_of_cells(line):
    assert found(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = 3 + 5 * 0.25",
        "x = 2.53",
        "x = 2.5313",
        "x = 1000",
        "x = 1e-9",
        "x = float('-inf')",
        "x = [1, 2, 3, 4, 5, 6, 8, 10, 12]",
        "x = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)",
        "x = [(0.5, 3), (0.9, 1), (1.0, 7)]",
        "x = {'width': 4, 'strikes': 3, 'quiet': 8}",
        "x, y = 3, 4",
        "x = random.Random(0x9E3779B97F4A7C15)",
        "x = '''Open 3 branches, then extend the best 2 of them; stop after 4 rounds.'''",
        "x = 12.34",  # the name of a cell in a trace, which no policy uses as a number
        "not python",
        "# 2.5312",
        "x = True",
        "x = 1 / 0",
        "x = 10.0 ** 400",
    ],
)
def test_what_policies_usually_hold_passes(line):
    assert found(line) == []


@given(st.floats(0.001, 1e6), st.integers(4, 12))
@example(26.323500000000003, 5)  # above a tie, while the trace's 26.3235 lies below it in binary
def test_any_score_is_found_at_four_and_more_digits(score, digits):
    text = f"{score:.{digits - 1}e}"
    significant = text.partition("e")[0].replace(".", "").rstrip("0")
    flagged = copied(f"x = {text}".encode(), [f"0.0={score:.14g} |"])
    assert bool(flagged) is (len(significant) >= 4)


@pytest.mark.parametrize("trace", ["26.3235", "26.3225", "0.00123445"])
def test_a_tie_may_be_rounded_either_way(trace):
    down, up = trace[:-1], f"{trace[:-2]}{int(trace[-2]) + 1}"
    below, above = f"{trace[:-2]}{int(trace[-2]) - 1}", f"{trace[:-2]}{int(trace[-2]) + 2}"
    flagged = [bool(copied(f"x = {text}".encode(), [f"0.0={trace} |"])) for text in (below, down, up, above)]
    assert flagged == [False, True, True, False]


def called(depth, function):
    return function() if depth == 0 else called(depth - 1, function)


def test_a_source_that_is_nested_deeply_does_not_pass():
    """One line in front of a table would hide it, as a policy is screened deeper in the stack than it is loaded."""
    source = f"X = {'-' * 2900}1\nscores = [2.531234567, 1024.5]\n".encode()
    assert called(30, lambda: copied(source, TRACE))


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
def test_a_source_that_cannot_be_looked_at_is_a_finding(monkeypatch, error):
    def refuse(_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", refuse)
        lines = found("x = 1")
    assert lines == ["line 1: it is nested too deeply to be looked at"]


def test_warnings_as_errors_hide_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert copied(rb"x = '\d', 2.531234567", TRACE)


def test_the_work_grows_with_the_source_alone(monkeypatch):
    """Each operation is carried out once, though each but the last is a part of all that follow."""
    done = []
    monkeypatch.setitem(screening._FOLDS, ast.Add, lambda left, right: done.append(1) or left + right)
    assert found("\n".join(["x = 1" + " + 1" * 900] * 10)) == []
    assert len(done) == 9000


@pytest.mark.parametrize("start", ["", "1.", "from 1."])
def test_long_runs_of_digits_are_walked_once(start):
    """Minutes for 80,000 digits if a pattern may begin at each of them; the limit of a source is a million."""
    assert "can hold a table" in found(f"x = '{start}{'1' * 1_000_000}'")[0]


def test_no_false_positive_in_the_built_in_policies():
    """Against the traces of all of them on the committed history: 577 numbers of four or more digits."""
    trees = [d.Tree.load(path) for path in sorted(glob.glob("synthetic/history/*.jsonl"))]
    given_traces = [
        traces.trace(d.replay(make(), tree, 8), tree, label="tree", width=8, beta1=0.02, beta2=0.05)
        for make in (policies.ParallelRefine, policies.EarlyStop, policies.GreedyBest, policies.Adaptive)
        for tree in trees
    ]
    assert trees and len({n for text in given_traces for n in number_texts(text)}) > 300
    for path in ("dreamrsi/policies.py", "dreamrsi/schedule.py"):
        assert copied(Path(path).read_bytes(), given_traces) == []
