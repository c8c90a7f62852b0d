import json
import random
import subprocess
import sys
from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dreamrsi import Tree, policies, replay
from dreamrsi.files import in_checkout
from dreamrsi.tasks.sum_difference import START, SumDifference, write_set
from dreamrsi.tasks.sum_difference import ruler as rulers
from dreamrsi.tasks.sum_difference import skeleton as skeletons
from dreamrsi.tasks.sum_difference.evaluate import count, read_set, value
from dreamrsi.tasks.sum_difference.moves import MOVES
from dreamrsi.tasks.sum_difference.ruler import Ruler
from dreamrsi.tasks.sum_difference.solver import anneal, random_ruler, search, solve

TASK = SumDifference()


def judged(elements):
    return TASK.evaluate({"set.json": write_set(elements)})


GAPS = st.lists(st.integers(1, 20), min_size=1, max_size=16).map(tuple)


@settings(max_examples=60, deadline=None)
@given(GAPS, st.integers(1, 60))
def test_the_closed_form_of_a_ruler_is_what_the_judge_finds(fringe, step):
    ruler = Ruler(fringe, step)
    score, t = rulers.rate(ruler)
    assume(ruler.middle >= 0)
    made = rulers.elements(ruler, t)
    assert judged(made).score == pytest.approx(score, abs=1e-12)
    marks = ruler.marks()
    assert marks == [ruler.length - mark for mark in reversed(marks)]
    assert len(made) == ruler.length + len(marks) + 3 <= 512 < len(made) + step + 1


def test_a_ruler_that_is_too_large_has_no_score():
    assert rulers.rate(Ruler((200, 200), 3))[0] == float("-inf")


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 70), st.data())
def test_a_skeleton_is_rated_as_the_judge_does_and_read_back(n, data):
    places = st.sets(st.integers(0, n - 1), min_size=1)
    skeleton = skeletons.build(n, data.draw(places), islice(data.draw(places), 3))
    made = skeletons.elements(skeleton)
    assert skeletons.rate(skeleton) == judged(made).score
    if len(skeleton.singles) < len(skeleton.marks) < n:
        assert skeletons.read(made) == skeleton
        shifted_mirror = [7 - a for a in made]
        assert skeletons.read(shifted_mirror).n == n


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(-(10**6), 10**6), min_size=2, max_size=40))
def test_any_set_can_be_read_as_a_skeleton(elements):
    skeleton = skeletons.read(elements)
    assert judged(skeletons.elements(skeleton)).status == "ok"


STARTS = {
    "seed": START,
    "two": (0, 1),
    "far": (-(10**6), 3, 10**6),
    "full": tuple(range(512)),
    "grid": tuple(rulers.elements(Ruler((1,) * 15, 16), 15)),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("name", MOVES)
def test_every_move_gives_a_whole_artifact_and_is_repeatable(name, start, monkeypatch):
    for steps in ("TOGGLES", "SLIDES", "SETTLE", "RULER_STEPS"):
        monkeypatch.setattr(f"dreamrsi.tasks.sum_difference.moves.{steps}", 200)
    files = {"set.json": write_set(start), "note": b"kept"}
    made = MOVES[name](files, 5)
    assert made == MOVES[name](files, 5)
    assert made["note"] == b"kept"
    assert TASK.evaluate(made).status == "ok"


def test_moves_climb():
    files = TASK.seed_workspace()
    for seed, move in enumerate(("scatter", "ruler", "recentre")):
        files = TASK.moves[move](files, seed)
    assert TASK.evaluate(files).score > 1.13
    assert len(MOVES) >= 8


def test_the_search_gets_better_is_repeatable_and_ends():
    found = list(search(3, seconds=1.0))
    scores = [one.score for one in found]
    assert scores == sorted(scores) and scores[-1] > 1.12
    for one in found[:: max(1, len(found) // 5)]:
        assert judged(one.elements).score == pytest.approx(one.score, abs=1e-12)
    again = [one.elements for one in islice(search(3, seconds=60), 5)]
    assert again == [one.elements for one in found[:5]]
    assert solve(3, seconds=60, target=scores[2]).elements == found[2].elements
    with pytest.raises(ValueError, match="must be positive"):
        solve(0, seconds=0)


def test_annealing_depends_on_its_seed_alone():
    def run(seed):
        draw = random.Random(seed)
        return list(anneal(random_ruler(draw), draw, 500, 4e-4, 1e-4))

    assert run(1) == run(1) != run(2)


@pytest.mark.slow
def test_the_solver_beats_the_papers_table():
    assert solve(0, seconds=240, target=1.1454768).score >= 1.1454768


def test_the_committed_construction_is_what_its_file_says():
    data = json.loads(in_checkout("benchmarks/constructions/sum_difference.json").read_bytes())
    elements = read_set(json.dumps(data["construction"]).encode())
    sums = {a + b for a in elements for b in elements}
    differences = {a - b for a in elements for b in elements}
    assert (len(sums), len(differences)) == count(elements)
    assert [data["set_size"], data["sumset_size"], data["diffset_size"]] == [len(elements), len(sums), len(differences)]
    assert data["score"] == value(len(elements), len(sums), len(differences)) > 1.1454768
    assert data["construction"] == sorted(elements)
    assert data["command"].startswith("python benchmarks/math.py") and data["seconds"] > 0 and data["seed"] >= 0


@pytest.mark.parametrize("guard", [True, False])
def test_the_benchmark_of_this_name_does_not_hide_pythons_own_module(guard, tmp_path):
    """Twin test: a folder with a math.py that does not step aside breaks every script in it."""
    own = in_checkout("benchmarks/math.py").read_text() if guard else "sqrt = None\n"
    (tmp_path / "math.py").write_text(own)
    (tmp_path / "script.py").write_text("import math\nprint(math.sqrt(16.0))\n")
    found = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert guard is False or (found.returncode == 0 and found.stdout == "4.0\n")
    if not guard and "math" not in sys.builtin_module_names:
        assert found.returncode != 0


def test_a_row_of_the_benchmark_goes_on_after_the_seeds_it_has(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(in_checkout("benchmarks")))
    import math_rows

    asked = []

    def search(seed, seconds):
        asked.append(seed)
        yield 0.5, [1]
        yield 1.0 + seed, [2 + 2 * seed]

    def describe(elements):
        return {"score": elements[0] / 2}

    monkeypatch.setattr(math_rows, "HERE", tmp_path)
    row = math_rows.Row(search, describe, 2.0, 5.0, 3, "toy")
    math_rows.run_row("toy", row, 2, 5.0, again=False, keep=True)
    math_rows.run_row("toy", row, 3, 5.0, again=False, keep=True)
    assert asked == [0, 1, 2]
    out = capsys.readouterr().out
    assert "seed 0: 1.0000000000" in out and "missed by 1" in out
    assert "2 of 3 reached it; the best is 3.0000000000" in out
    kept = json.loads((tmp_path / "constructions" / "toy.json").read_text())
    assert (kept["score"], kept["construction"], kept["seed"]) == (3.0, [6], 2)
    math_rows.run_row("toy", row, 1, 5.0, again=True, keep=False)
    assert asked == [0, 1, 2, 0]


def test_the_recorded_run_is_whole_and_its_policy_repeats_it():
    tree = Tree.load(in_checkout("examples/sum_difference.jsonl"))
    assert [len(branch) for branch in tree.branches] == [11] * 10
    assert tree.header.task == TASK.name and not tree.header.synthetic
    episode = replay(policies.make(tree.header.policy), tree, tree.header.width)
    assert episode.picks == tree.picks
    assert tree.root == judged(START).score
    assert {attempt.tag for attempt in tree.attempts} <= set(MOVES)
    for attempt in tree.attempts:
        counts = (attempt.metrics[f"{name}_size"] for name in ("set", "sumset", "diffset"))
        assert attempt.score == value(*counts)
    # What examples/README.md says of it.
    assert tree.root == pytest.approx(1.059793, abs=1e-6)
    assert tree.best == pytest.approx(1.145476825, abs=1e-9)
    assert (tree.best_attempt.branch, tree.best_attempt.attempt) == (4, 5)
    assert all(attempt.status == "ok" for attempt in tree.attempts)
