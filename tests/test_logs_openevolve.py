"""OpenEvolve's checkpoints and trace, and SkyDiscover's checkpoints."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import by_id, check_import, check_quick, real
from log_writers import FIXTURES, dump, dump_lines, program

RUN = FIXTURES / "openevolve"
LAST = RUN / "checkpoints" / "checkpoint_12"
TRACE = RUN / "evolution_trace.jsonl"


def parents(tree):
    """Every attempt's id: its parent's, or None for the root."""
    found = {(a.branch, a.attempt): a.metrics["id"] for a in tree}
    return {
        a.metrics["id"]: found[a.branch, a.attempt - 1] if a.attempt else a.origin and found[a.origin] for a in tree
    }


def test_all_checkpoints_together_have_every_attempt_and_its_parent(tmp_path):
    tree, report = check_import(lambda: logs.read("openevolve", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.lost) == (12, 9, 3)
    assert (report.scored, report.failed, report.rejected, report.unknown) == (4, 5, 0, 0)
    assert (report.copies, report.parents_missing, report.parents_unknown) == (3, 0, 0)
    assert parents(tree) == {
        **{"a": None, "b": None, "c": "a", "d": "a", "same": "a", "e": "a", "f": "d", "g": "b", "h": "e"}
    }
    assert tree.root == 0.2 and tree.best == 0.7 and report.direction == "max"
    got = by_id(tree)
    assert got["c"].status == "timeout" and got["d"].status == "invalid" and got["f"].status == "invalid"
    assert (got["b"].status, got["b"].error) == ("error", "KeyError: 1")
    assert (got["g"].score, got["g"].error) == (None, "SyntaxError: bad")
    assert got["h"].score == 0.6 and got["h"].metrics["metrics"]["error"] == 0.03
    said = " ".join(report.notes)
    assert "3 of 12 iterations left no program" in said and "2 program files belong to no island" in said
    assert "evolution_trace.jsonl is there too" in said


def test_one_checkpoint_says_what_was_evicted(tmp_path):
    tree, report = check_import(lambda: logs.read("openevolve", LAST), LAST, tmp_path)
    assert (report.kept, report.copies, report.parents_missing, report.parents_unknown) == (9, 1, 1, 1)
    got, of = by_id(tree), parents(tree)
    assert got["a"].metrics["parent_missing"] is None  # its copy stands for it
    assert got["d"].metrics["parent_missing"] == "a_migrant_2" and of["d"] is None
    assert of["e"] == of["same"] == of["c"] == "a"
    assert "other checkpoints lie beside this one" in " ".join(report.notes)


def test_the_trace_tells_the_same_run(tmp_path):
    tree, report = check_import(lambda: logs.read("openevolve", TRACE), TRACE, tmp_path)
    whole = logs.read("openevolve", RUN).tree
    assert parents(tree) == parents(whole) and tree.root == whole.root
    assert {i: (a.score, a.status) for i, a in by_id(tree).items()} == {
        i: (a.score, a.status) for i, a in by_id(whole).items()
    }
    assert (report.attempted, report.lost) == (12, 3)


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.json", "list.json"])
def test_other_files_of_a_trace(name, tmp_path):
    entries = [json.loads(line) for line in TRACE.read_text().splitlines()]
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(TRACE.read_bytes()))
    else:
        path.write_text(json.dumps({"traces": entries} if name == "t.json" else entries))
    assert logs.read("openevolve", path).tree.attempts == logs.read("openevolve", TRACE).tree.attempts


def test_a_trace_without_code_does_not_guess_what_a_migrant_was(tmp_path):
    entries = [json.loads(line) for line in TRACE.read_text().splitlines()]
    path = tmp_path / "t.jsonl"
    dump_lines(path, [{k: v for k, v in e.items() if not k.endswith("_code")} for e in entries])
    tree, report = logs.read("openevolve", path)
    assert report.parents_missing == 1 and by_id(tree)["d"].metrics["parent_missing"] == "a_migrant_2"


def test_skydiscover_says_solution_and_has_no_islands(tmp_path):
    folder = tmp_path / "checkpoint_4"
    for name, parent, iteration, score in (("s", None, 0, 1.0), ("x", "s", 1, 2.0), ("y", "x", 3, {"error": 0.0})):
        made = program(name, parent, iteration, score, artifacts={"stderr": "boom"} if iteration == 3 else {})
        made["solution"] = made.pop("code")
        made["other_context_ids"] = ["s"] if iteration == 3 else []
        dump(folder / "programs" / f"{name}.json", made)
    dump(folder / "metadata.json", {"best_program_id": "x", "last_iteration": 4})
    tree, report = check_import(lambda: logs.read("skydiscover", folder), folder, tmp_path)
    assert (report.attempted, report.kept, report.lost, report.failed) == (4, 2, 2, 1)
    assert tree.root == 1.0 and parents(tree) == {"x": None, "y": "x"} and by_id(tree)["y"].error == "boom"
    assert by_id(tree)["y"].metrics["inspirations"] == ["s"] and "inspirations" not in by_id(tree)["x"].metrics


def test_another_metric_needs_a_direction_and_is_named_among_the_candidates(tmp_path):
    folder = tmp_path / "checkpoint_1"
    for name, parent, iteration in (("s", None, 0), ("x", "s", 1)):
        dump(
            folder / "programs" / f"{name}.json",
            program(name, parent, iteration, {"overall": 1.0, "loss": iteration + 2}),
        )
    dump(folder / "metadata.json", {"islands": [["s", "x"]], "archive": [], "last_iteration": 1})
    with pytest.raises(d.UserError, match=r"no program has the metric 'combined_score'.*of these: overall, loss"):
        logs.read("openevolve", folder)
    with pytest.raises(d.UserError, match="give --direction"):
        logs.read("openevolve", folder, score="loss")
    tree, report = logs.read("openevolve", folder, score="loss", direction="min")
    assert (tree.root, tree.attempts[0].score, report.direction_from) == (-2.0, -3.0, "given with --direction")
    with pytest.raises(d.UserError, match="contradicts the log"):
        logs.read("openevolve", RUN, direction="min")


def test_a_run_in_which_everything_failed_can_be_read(tmp_path):
    folder = tmp_path / "checkpoint_1"
    dump(folder / "programs" / "s.json", program("s", None, 0, {"error": 0.0}))
    dump(folder / "metadata.json", {"islands": [["s"]], "archive": [], "last_iteration": 1})
    tree, report = logs.read("openevolve", folder)
    assert (tree.root, len(tree), report.lost) == (None, 0, 1) and "no valid score" in " ".join(report.notes)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("programs/a-mig.json", lambda t: t[: len(t) // 2], "a-mig.json: is no JSON, or was cut off"),
        ("programs/a-mig.json", lambda t: t.replace('"id"', '"uid"'), "a-mig.json: Object missing required field `id`"),
        (
            "programs/a-mig.json",
            lambda t: t.replace('"a-mig"', "7"),
            "a-mig.json: Expected `str`, got `int` - at `$.id`",
        ),
        ("programs/b.json", lambda t: t.replace('"b"', '"c"'), "its id 'c' is also that of another file"),
        ("metadata.json", lambda t: "{}", "metadata.json: Object missing required field `last_iteration`"),
        (
            "programs/c.json",
            lambda t: t.replace("# c", "# other"),
            "is not the one of the same id in an earlier checkpoint",
        ),
    ],
)
def test_a_flaw_is_one_line_that_names_file_and_field(file, change, message, tmp_path):
    run = shutil.copytree(RUN, tmp_path / "run")
    path = run / "checkpoints" / "checkpoint_12" / file
    path.write_text(change(path.read_text()))
    with pytest.raises(d.UserError) as caught:
        logs.read("openevolve", run)
    assert message in str(caught.value).replace("\\n", "") and "\n" not in str(caught.value)


def test_a_folder_without_a_run_and_a_trace_that_was_cut_off(tmp_path):
    with pytest.raises(d.UserError, match="holds neither programs/ nor checkpoint_N/"):
        logs.read("openevolve", tmp_path)
    path = tmp_path / "t.jsonl"
    path.write_bytes(TRACE.read_bytes()[:-20])
    with pytest.raises(d.UserError, match="line 9: is no JSON, or was cut off"):
        logs.read("openevolve", path)
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(TRACE.read_bytes())[:-20])
    with pytest.raises(d.UserError, match="is not a whole gzip file"):
        logs.read("openevolve", path)


@pytest.mark.slow
def test_a_hundred_thousand_lines_of_a_trace_in_ten_seconds(tmp_path):
    path = tmp_path / "t.jsonl"
    entry = json.loads(TRACE.read_text().splitlines()[0])
    with path.open("w") as file:
        for i in range(1, 100_001):
            more = {"iteration": i, "child_id": f"p{i}", "parent_id": f"p{i // 2}" if i > 1 else "seed"}
            file.write(json.dumps(entry | more | {"generation": i.bit_length()}) + "\n")
    check_quick(100_000, "openevolve", path, tmp_path)


@pytest.mark.slow
def test_a_hundred_thousand_programs_of_a_checkpoint_in_ten_seconds(tmp_path):
    folder = tmp_path / "checkpoint_100000"
    (folder / "programs").mkdir(parents=True)
    names = ["seed"]
    for i in range(100_001):
        made = program(f"p{i}", f"p{i // 2}" if i else None, i, 0.5, code="x = 1\n" * 100 + str(i), generation=i)
        (folder / "programs" / f"p{i}.json").write_text(json.dumps(made))
        names.append(f"p{i}")
    dump(folder / "metadata.json", {"islands": [names], "archive": [], "last_iteration": 100_000})
    report = check_quick(100_000, "openevolve", folder, tmp_path)
    assert report.lost == 0


def test_the_real_checkpoint(tmp_path):
    path = real("openevolve", "arc_ckpt100")
    tree, report = check_import(lambda: logs.read("openevolve", path), path, tmp_path)
    assert (report.attempted, report.kept, report.lost, report.scored) == (100, 1, 99, 1)
    assert (tree.root, tree.best) == (0.0, 1.0)
    assert any("99 of 100 iterations left no program" in note for note in report.notes)
