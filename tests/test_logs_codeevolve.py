"""CodeEvolve's programs as JSON Lines."""

from __future__ import annotations

import json
import pickle

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import by_id, check_import, check_quick, real
from log_writers import FIXTURES, codeevolve_program, dump_lines

RUN = FIXTURES / "codeevolve" / "programs.jsonl"


def test_a_run_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("codeevolve", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.lost) == (8, 7, 1)
    assert (report.scored, report.failed, report.rejected, report.unknown) == (5, 2, 0, 0)
    assert (report.copies, report.parents_missing, report.parents_unknown) == (2, 1, 1)
    assert (report.direction, report.direction_from) == ("max", "CodeEvolve maximises fitness")
    got = by_id(tree)
    assert tree.root == 0.0 and tree.best == 0.8 and set(got) == {"a1", "a2", "a3", "a4", "b1", "b2", "m"}
    # the migrant a1 has its parent from home, where it is not None
    assert got["a2"].branch == got["a1"].branch and got["a2"].attempt == 1
    assert got["b2"].origin == (got["a1"].branch, got["a1"].attempt)
    assert (got["a3"].status, got["a3"].score, got["a4"].status) == ("error", None, "timeout")
    assert got["a3"].error == "ValueError: no"
    assert got["m"].metrics["parent_missing"] is None and got["b1"].metrics["parent_missing"] == "gone"
    said = " ".join(report.notes)
    assert "1 of 7 iterations left no program" in said and "1 programs are migrants from island 2" in said


def test_a_failure_that_has_a_fitness_loses_it(tmp_path):
    path = tmp_path / "p.jsonl"
    dump_lines(path, [codeevolve_program("x", None, 1, 0, 0.9, returncode=1, error="boom")])
    tree, _ = logs.read("codeevolve", path)
    assert tree.attempts[0].score is None and tree.attempts[0].metrics["logged_score"] == 0.9


class Boom:
    def __reduce__(self):
        return (exec, ("raise SystemError('executed')",))


def test_a_pickle_is_refused_unread(tmp_path):
    path = tmp_path / "ckpt_100.pkl"
    path.write_bytes(pickle.dumps(Boom()))
    with pytest.raises(SystemError, match="executed"):  # the attack works where a pickle is read
        pickle.loads(path.read_bytes())
    with pytest.raises(d.UserError, match="pickles, which run code"):
        logs.read("codeevolve", path)
    path = path.rename(tmp_path / "ckpt.jsonl")
    with pytest.raises(d.UserError, match="line 1: is no JSON"):
        logs.read("codeevolve", path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 3}, "line 1: Expected `str`, got `int` - at `$.id`"),
        ({"returncode": None}, "line 1: Expected `int`, got `null` - at `$.returncode`"),
        ({"fitness": "high"}, "line 1: Expected `float | null`, got `str` - at `$.fitness`"),
        ({"eval_metrics": []}, "line 1: Expected `object`, got `array` - at `$.eval_metrics`"),
    ],
)
def test_a_flaw_names_line_and_field(change, message, tmp_path):
    path = tmp_path / "p.jsonl"
    dump_lines(path, [codeevolve_program("x", None, 1, 0, 0.9) | change])
    with pytest.raises(d.UserError) as caught:
        logs.read("codeevolve", path)
    assert f"{path}, {message}" in str(caught.value)


def test_a_program_twice_at_home_and_a_missing_field_and_a_torn_line(tmp_path):
    path = tmp_path / "p.jsonl"
    line = codeevolve_program("x", None, 1, 0, 0.9)
    dump_lines(path, [line, line])
    with pytest.raises(d.UserError, match="line 2: program 'x' is there twice on its own island 0"):
        logs.read("codeevolve", path)
    dump_lines(path, [{k: v for k, v in line.items() if k != "island_found"}])
    with pytest.raises(d.UserError, match="missing required field `island_found`"):
        logs.read("codeevolve", path)
    path.write_text(json.dumps(line) + "\n" + json.dumps(line)[:40])
    with pytest.raises(d.UserError, match="line 2: is no JSON, or was cut off"):
        logs.read("codeevolve", path)


def test_other_directions_and_options_are_errors():
    with pytest.raises(d.UserError, match="contradicts the log"):
        logs.read("codeevolve", RUN, direction="min")
    with pytest.raises(d.UserError, match="take no score"):
        logs.read("codeevolve", RUN, score="radii_sum")


@pytest.mark.slow
def test_a_hundred_thousand_programs_in_ten_seconds(tmp_path):
    path = tmp_path / "p.jsonl"
    dump_lines(path, [codeevolve_program(f"p{i}", f"p{i // 2}" if i else None, i, i % 5, 0.5) for i in range(100_001)])
    check_quick(100_000, "codeevolve", path, tmp_path)


@pytest.mark.parametrize(
    ("name", "rows", "migrants", "islands", "strays", "from_scratch"),
    [
        ("circle_packing_26_gemini_insp", 507, 40, 5, 0, 25),
        ("circle_packing_26_gemini_mp", 521, 40, 5, 0, 25),
        ("circle_packing_26_gemini_no_mp_or_insp", 416, 28, 4, 4, 20),
    ],
)
def test_the_real_runs(name, rows, migrants, islands, strays, from_scratch, tmp_path):
    path = real("codeevolve", f"{name}.jsonl")
    tree, report = check_import(lambda: logs.read("codeevolve", path), path, tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    failed = {p["id"] for p in lines if p["returncode"] != 0}
    assert len(lines) == rows and report.copies == migrants + islands - 1
    assert report.kept == rows - migrants - islands
    assert (report.failed, report.scored) == (len(failed), report.kept - len(failed))
    assert report.lost == 100 * islands - (report.kept - strays)  # every island made 100 iterations
    assert (report.parents_missing, report.parents_unknown) == (0, strays)
    seeds = {p["id"] for p in lines if p["iteration_found"] == 0}
    home = [p for p in lines if p["island"] == p["island_found"] and p["id"] not in seeds]
    assert sum(p["parent_id"] is None for p in home) == from_scratch  # with the migrants' copies it would be 40 more
    of_seeds = sum(p["parent_id"] in seeds for p in home)
    assert sum(a.attempt == 0 and a.origin is None for a in tree) == from_scratch + of_seeds + strays
    assert tree.root == 0.0 and tree.best == max(p["fitness"] for p in lines if p["id"] not in failed)
    timeouts = {p["id"] for p in lines if (p["error"] or "").startswith("TimeoutError")}
    assert sum(a.status == "timeout" for a in tree) == len(timeouts) > 100
