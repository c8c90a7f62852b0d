"""Candidate programs: what goes in and comes out, what is said of a broken one, and an attempt that runs one.

The attacks are in test_sandbox_programs.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dreamrsi import programs
from dreamrsi.live import live_run
from dreamrsi.policies import ParallelRefine
from dreamrsi.programs import Candidate, Limits, call
from dreamrsi.sandbox_values import pack, unpack
from dreamrsi.tasks import Program
from dreamrsi.tasks.circle_packing import CirclePacking
from dreamrsi.workspace import Workspaces
from program_fixtures import Gone, ProgramTask, Writer
from sandbox_fixtures import needs, no_server_left, nothing_left  # noqa: F401

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
NUMBERS = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="="),
    arrays.unsigned_integer_dtypes(endianness="="),
    arrays.floating_dtypes(),
    arrays.complex_number_dtypes(),
)
ARRAYS = arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return type(b) is list and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or a != a)


@given(st.lists(st.one_of(JSON, ARRAYS), max_size=4))
def test_what_is_packed_comes_out_the_same(values):
    assert same(values, unpack(pack(values)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(JSON, ARRAYS), max_size=3))
def test_what_is_passed_to_a_program_comes_back_the_same(values):
    result = call(b"def solve(*values): return values", "solve", values)
    assert (result.status, result.reason) == ("ok", None)
    assert same(values, result.value)


@given(st.binary(max_size=200))
def test_bytes_of_a_hostile_process_are_refused_or_read(body):
    with contextlib.suppress(ValueError):
        assert same(value := unpack(body), value)


SOLVERS = b"""
import numpy as np
from scipy.optimize import differential_evolution, linprog, minimize

def solve(seed):
    linear = linprog([-1, -1], A_ub=[[1, 2], [2, 1]], b_ub=[1, 1], method="highs")
    room = {"type": "ineq", "fun": lambda x: 1 - x.sum()}
    curved = minimize(lambda x: ((x - 1) ** 2).sum(), np.zeros(2), method="SLSQP", constraints=[room])
    random = differential_evolution(lambda x: ((x - 0.25) ** 2).sum(), [(0, 1)] * 2, seed=seed)
    return [linear.x, curved.x, random.x]
"""


def test_a_program_may_use_the_optimisers_of_scipy():
    result = call(SOLVERS, "solve", [3])
    assert result.status == "ok", result.reason
    assert np.allclose(result.value, [[1 / 3, 1 / 3], [0.5, 0.5], [0.25, 0.25]], atol=1e-5)


METHODS = "Nelder-Mead Powell CG BFGS L-BFGS-B TNC COBYLA COBYQA SLSQP trust-constr".split()
OTHERS = {
    "linprog": "linprog([-1, -1], scipy.sparse.csr_array([[1, 2], [2, 1]]), [1, 1], method='highs-ds').x * 0.9",
    "milp": "milp([-1, -1], integrality=[1, 1], bounds=Bounds(0, 1)).x * 0.3",
    "least_squares": "least_squares(lambda x: x - 0.3, np.zeros(2)).x",
    "root": "root(lambda x: x - 0.3, np.zeros(2)).x",
    "differential_evolution": "differential_evolution(f, [(0, 1)] * 2, seed=1).x",
    "dual_annealing": "dual_annealing(f, [(0, 1)] * 2, maxiter=20, seed=1).x",
    "basinhopping": "basinhopping(f, np.zeros(2), niter=3, seed=1).x",
    "shgo": "shgo(f, [(0, 1)] * 2).x",
    "direct": "direct(f, [(0, 1)] * 2).x",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression", [f"minimize(f, np.zeros(2), method={m!r}).x" for m in METHODS] + [*OTHERS.values()]
)
def test_the_optimisers_that_the_docs_name(expression):
    source = "import numpy as np\nimport scipy.sparse\nfrom scipy.optimize import *\n"
    source += f"f = lambda x: ((x - 0.3) ** 2).sum()\ndef solve(): return {expression}"
    result = call(source.encode(), "solve")
    assert result.status == "ok", result.reason
    assert np.allclose(result.value, 0.3, atol=1e-2)
    if "(" in expression and (name := expression.split("(")[0]) != "minimize":
        assert f"`{name}`" in (Path(__file__).parent.parent / "docs/adding-a-task.md").read_text()


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("x = (", "error", "p.py, line 1: SyntaxError: '(' was never closed"),
        ("x = '\0'", "error", "p.py: SyntaxError: source code string cannot contain null bytes"),
        ("import nothing_here", "error", "p.py, line 1: cannot import nothing_here (ModuleNotFoundError"),
        ("1 / 0", "error", "p.py, line 1: raised ZeroDivisionError: division by zero while it was loaded"),
        ("while True: pass", "timeout", "p.py: loading took longer than 0.3 s"),
        ("#" * 2**20 + "#", "error", "p.py: has 1048577 bytes; a program may have 1048576"),
        ("solve = 3", "error", "p.py: defines no function solve()"),
        ("def solve(a, b): pass", "error", "p.py: solve() raised TypeError: solve() missing 1 required positional"),
        (
            "def solve(seed):\n    return 1 / 0",
            "error",
            "p.py, line 2: solve() raised ZeroDivisionError: division by zero",
        ),
        ("def solve(seed): raise SystemExit(3)", "error", "p.py, line 1: solve() raised SystemExit: 3"),
        ("def solve(seed): raise ValueError('\x1b[2J')", "error", "p.py, line 1: solve() raised ValueError:  [2J"),
        ("def solve(seed):\n    while True: pass", "timeout", "p.py: its call took longer than 0.3 s"),
        ("import os\ndef solve(seed): os._exit(5)", "error", "p.py: the process ended by itself with exit code 5"),
        ("import os\ndef solve(seed): os.kill(os.getpid(), 11)", "error", "p.py: the process ended with SIGSEGV"),
        ("import os\ndef solve(seed): os.write(3, bytes(4))", "error", "p.py: gave a malformed answer"),
        ("def solve(seed): return object()", "error", "p.py: the value cannot be sent (TypeError: a object is neither"),
        ("def solve(seed):\n    import scipy_nothing", "error", "p.py, line 2: solve() raised ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_program_is_a_result_with_its_reason(source, status, reason):
    result = call(source.encode(), "solve", [1], file="p.py", limits=Limits(seconds=0.3))
    assert (result.status, result.value) == (status, None)
    assert result.reason.startswith(reason)


def test_once_a_process_is_gone_every_call_gives_the_same_failure():
    with Candidate(b"def solve(s):\n    while s: pass\n    return s", limits=Limits(seconds=0.2)) as candidate:
        assert candidate.call("solve", 0).value == 0
        late = candidate.call("solve", 1)
        assert late.status == "timeout"
        assert candidate.call("solve", 0) is late
    with Candidate(b"def solve(s): return s") as candidate:
        assert candidate.call("solve", 2).value == 2
    assert candidate.call("solve", 2).reason == "program.py: was closed"


def test_only_the_work_is_timed_by_the_callers_clock():
    source = b"import time\ntime.sleep(0.2)\ndef solve(a, s):\n    time.sleep(s)\n    return a"
    big = np.zeros(10**6)
    result = call(source, "solve", [big, 0.1])
    assert 0.1 <= result.seconds < 0.19
    assert result.value.nbytes == big.nbytes


def test_an_argument_that_is_no_value_is_the_callers_mistake():
    with Candidate(b"def solve(s): return s") as candidate:
        with pytest.raises(TypeError, match="a object is neither a JSON value nor an array"):
            candidate.call("solve", object())
        assert candidate.call("solve", 1).value == 1


@given(JSON)
def test_an_artifact_is_the_value_as_json(value):
    assert same(json.loads(programs.artifact_bytes(value)), value)


def test_arrays_in_an_artifact_become_lists_that_read_back_the_same():
    draw = np.random.default_rng(0).random((5, 3))
    assert json.loads(programs.artifact_bytes(draw)) == draw.tolist()
    assert programs.artifact_bytes({"x": draw[0]}) == (json.dumps({"x": draw[0].tolist()}) + "\n").encode()
    assert programs.artifact_bytes(np.array([[1, 2], [3, 4]])) == b"[[1, 2],\n [3, 4]]\n"
    with pytest.raises(ValueError, match="complex numbers"):
        programs.artifact_bytes([draw * 1j])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("np.full((1, 2**24 - 200), -128, np.int8)", "solve() returned arrays of more than 1,000,000 numbers"),
        ("[np.zeros(600_000, bool), {'x': np.zeros(600_000, bool)}]", "solve() returned arrays of more than 1,000,000"),
        ("np.ones(3, np.longdouble)", "cannot be sent (TypeError: an array of float128 has numbers that are too wide"),
        ("[np.longdouble(1)]", "cannot be sent (TypeError: a longdouble is neither"),
        ("np.ones(3, np.clongdouble)", "cannot be sent (TypeError: an array of complex256 has numbers that are too"),
        ("np.ones(3, complex)", "solve() returned complex numbers"),
    ],
)
def test_values_that_make_no_artifact(tmp_path, value, problem):
    needs(np.dtype(np.longdouble).itemsize == 16, "no extended floats here")
    program = Program("solve.py", "a.json", "", b"")
    source = f"import numpy as np\ndef solve(seed): return {value}".encode()
    before = peak()
    result = programs.make_artifact(program, source, 1, scratch=tmp_path)
    assert result.status == "error" and problem in result.reason
    assert peak() - before < 200 * 2**10, "kilobytes, for 16 million numbers"


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_an_artifact_is_bounded_however_often_it_names_one_array():
    many = np.zeros(10**6)
    assert programs.artifact_bytes([many]).count(b"0.0") == 10**6
    with pytest.raises(ValueError, match="more than 1,000,000 numbers"):
        programs.artifact_bytes([many] * 10**4)
    with pytest.raises(ValueError, match="numbers of float128; make them float64"):
        programs.artifact_bytes([np.ones(2, np.longdouble)])


@pytest.mark.parametrize("depth", [300, 900, 985, 1500])
def test_a_deep_value_is_an_artifact_or_an_error(tmp_path, depth):
    source = f"def solve(seed):\n    x = []\n    for _ in range({depth}): x = [x]\n    return x".encode()
    result = programs.make_artifact(Program("solve.py", "a.json", "", b""), source, 1, scratch=tmp_path)
    assert result.status in {300: ["ok"], 1500: ["error"]}.get(depth, ["ok", "error"])
    assert result.status == "error" or result.value.count(b"[") == depth + 1


def test_too_deep_a_value_for_json_is_an_error(tmp_path, monkeypatch):
    """Whatever nesting the values' own check lets through."""

    def deep(value):
        raise RecursionError

    monkeypatch.setattr(programs, "artifact_bytes", deep)
    result = programs.make_artifact(Program("p.py", "a.json", "", b""), b"def solve(s): return 1", 1, scratch=tmp_path)
    assert (result.status, result.reason) == ("error", "p.py: solve() returned too deep a nesting")


# Attempts.


def run_writer(out, *sources, **settings):
    given = {"width": 1, "branches": 1, "steps": len(sources), "timeout": 60.0} | settings
    return live_run(ProgramTask(), ParallelRefine(bootstrap=1), out, agent=Writer(*sources), **given)


def test_an_attempts_program_makes_its_artifact(tmp_path):
    sources = [
        b"def solve(seed): return 3.5",
        b"import random\ndef solve(seed): return random.Random(seed).random()",
        b"def solve(seed): return 1 / 0",
        b"def solve(seed):\n    while True: pass",
        b"def solve(seed): return 1j",
        b"def solve(seed): return 'nan'",
        b"def solve(seed): return 4.5",
    ]
    tree = run_writer(tmp_path / "run", *sources)
    attempts = tree.attempts
    assert [a.status for a in attempts] == ["ok", "ok", "error", "timeout", "error", "error", "ok"]
    assert attempts[0].score == 3.5 and 0 < attempts[1].score < 1 and attempts[6].score == 4.5
    assert attempts[2].error == "program: solve.py, line 1: solve() raised ZeroDivisionError: division by zero"
    assert attempts[3].error == "program: solve.py: its call took longer than 1 s"
    assert attempts[4].error.startswith("program: solve.py: the value cannot be sent (TypeError: a complex is neither")
    assert attempts[5].error.startswith("evaluator: ValueError: could not convert string to float")
    assert [a.metrics["agent"] for a in attempts] == [{"number": n} for n in range(7)]
    store = Workspaces(tmp_path / "run/workspaces.git")
    files = [store.load(a.commit) for a in attempts]
    assert [f["solve.py"] for f in files] == sources
    assert files[0]["value"] == b"3.5\n"
    assert ["value" in f for f in files] == [True, True, False, False, False, True, True]
    again = run_writer(tmp_path / "again", *sources[:2])
    assert [a.commit for a in again.attempts] == [a.commit for a in attempts[:2]], "equal runs are equal"


def test_a_workspace_without_a_program_is_judged_as_it_is(tmp_path):
    tree = live_run(
        ProgramTask(), ParallelRefine(bootstrap=1), tmp_path / "run", agent=Gone(), width=1, branches=1, steps=1
    )
    assert tree.attempts[0].score == 7


def test_a_deadline_takes_the_sandbox_along(tmp_path):
    """The program notes its process id where the test finds it: in its command line, through prctl."""
    mark = f"drs{os.getpid()}"[:15]
    source = f"import ctypes\ndef solve(seed):\n    ctypes.CDLL(None).prctl(15, {mark.encode()!r}, 0, 0, 0)\n"
    source += "    while True: pass"
    slow = Program("solve.py", "value", "", b"", seconds=100.0)
    task = ProgramTask()
    task.program = slow
    begun = time.monotonic()
    tree = live_run(
        task,
        ParallelRefine(bootstrap=1),
        tmp_path / "run",
        agent=Writer(source.encode()),
        width=1,
        branches=1,
        steps=1,
        timeout=3.0,
    )
    assert (tree.attempts[0].status, tree.attempts[0].error) == ("timeout", "took longer than 3 s")
    assert Workspaces(tmp_path / "run/workspaces.git").load(tree.attempts[0].commit)["solve.py"] == source.encode()
    deadline = time.monotonic() + 5
    while named(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not named(mark)
    assert time.monotonic() - begun < 20
    assert not list((tmp_path / "run").glob("scratch*"))


def named(mark):
    """Processes with this name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == mark:
                found.append(path.parent.name)
    return found


def test_the_packing_programs_first_version_makes_the_seed_packing():
    for n in (2, 26):
        task = CirclePacking(n)
        result = call(task.program.seed, "solve", [1])
        artifact = {"packing.json": programs.artifact_bytes(result.value)}
        assert task.evaluate(artifact) == task.evaluate(task.seed_workspace())
        assert str(n) in task.program.statement and task.program.artifact == "packing.json"


def test_the_task_of_the_docs_runs(tmp_path, monkeypatch):
    docs = Path(__file__).parent.parent / "docs/adding-a-task.md"
    task, use, judge = re.findall(r"```python\n(.*?)```", docs.read_text(), flags=re.S)
    (tmp_path / "points.py").write_text(task)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(use, space := {})
    tree = space["tree"]
    assert len(tree) == 20 and tree.best > tree.root == pytest.approx(2**0.5 / 9)
    points = space["Points"]()
    made = call(points.program.seed, "solve", [0])
    assert points.evaluate({"points.json": programs.artifact_bytes(made.value)}).score == tree.root
    assert points.evaluate({"points.json": b"[[NaN, 0.5]]"}).status == "invalid"
    source = b"def lasso_path(X, y): return X.T @ y"
    exec(judge, inside := {"files": {"solve.py": source}, "X": np.eye(3), "y": np.arange(3.0)})
    assert inside["value"].tolist() == [0, 1, 2] and inside["seconds"] > 0
