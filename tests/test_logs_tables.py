"""Tables with columns named by the user, and the command `import`."""

from __future__ import annotations

import csv
import json

import pytest

import dreamrsi as d
from dreamrsi import logs
from dreamrsi.console import Console
from log_fixtures import by_id, check_import, check_quick, hashes
from log_writers import FIXTURES, TABLE, TABLE_OPTIONS

CSV = FIXTURES / "tables" / "table.csv"
OPTIONS = [
    *("--column", "id=id", "--column", "parent=parent", "--column", "score=loss", "--column", "status=ended"),
    *("--column", "order=when", "--column", "tag=kind", "--root", "seed", "--direction", "min"),
]


def table(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_table_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("csv", CSV, **TABLE_OPTIONS), CSV, tmp_path)
    got = by_id(tree)
    assert tree.root == -0.9 and tree.best == -0.5 and "seed" not in got
    assert (report.attempted, report.kept, report.scored, report.failed, report.lost) == (7, 7, 5, 2, 0)
    assert (report.parents_missing, report.parents_unknown, report.copies, report.rejected) == (1, 0, 0, 0)
    assert (report.direction, report.direction_from, report.score) == ("min", "given with --direction", "column loss")
    assert [(got[i].branch, got[i].attempt) for i in "acgdbef"] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (2, 0),
        (1, 0),
        (1, 1),
        (3, 0),
    ]
    assert got["d"].origin == (0, 0) and got["f"].origin is None and got["f"].metrics["parent_missing"] == "gone"
    assert got["b"].status == "error" and got["g"].status == "timeout" and got["g"].score is None
    assert got["g"].metrics["logged_score"] == 0.0 and got["a"].tag == "widen" and got["d"].metrics["note"] == "forks"


def test_json_lines_give_the_same_tree_as_the_table(tmp_path):
    names, *rows = [line.split(",") for line in TABLE.splitlines()]
    objects = [{"deep": {"loss": cells[2]}, **dict(zip(names, cells, strict=True))} for cells in rows]
    path = table(tmp_path, "".join(json.dumps(o) + "\n\n" for o in objects), "t.jsonl")
    nested = {**TABLE_OPTIONS, "columns": TABLE_OPTIONS["columns"] | {"score": "deep.loss"}}
    tree, _ = check_import(lambda: logs.read("jsonl", path, **nested), path, tmp_path)
    expected = logs.read("csv", CSV, **TABLE_OPTIONS).tree
    assert [(a.branch, a.attempt, a.origin, a.score, a.status, a.tag) for a in tree] == [
        (a.branch, a.attempt, a.origin, a.score, a.status, a.tag) for a in expected
    ]


def test_numbers_nan_and_words_of_json_lines(tmp_path):
    lines = '{"b": 1, "s": 3}\n{"b": 1, "s": NaN}\n{"b": 2, "s": null, "e": "boom"}\n{"b": 2, "s": -Infinity}\n{"b": 2}'
    path = table(tmp_path, lines, "t.jsonl")
    columns = {"score": "s", "branch": "b", "error": "e"}
    tree, report = check_import(lambda: logs.read("jsonl", path, columns=columns, direction="max"), path, tmp_path)
    assert [(a.branch, a.score, a.status) for a in tree] == [
        (0, 3.0, "ok"),
        (0, None, "invalid"),
        (1, None, "error"),
        (1, None, "invalid"),
        (1, None, "unknown"),
    ]
    assert report.unknown == 1 and report.failed == 3


def test_branches_are_chains_in_the_order_of_the_order_column(tmp_path):
    path = table(tmp_path, "arm,s,t\nx,3,2026-01-03\ny,2,2026-01-02T12:00:00\nx,1,2026-01-01T00:00:00Z\n")
    columns = {"score": "s", "branch": "arm", "order": "t"}
    tree, _ = check_import(lambda: logs.read("csv", path, columns=columns, direction="max"), path, tmp_path)
    assert [(a.branch, a.attempt, a.score) for a in tree] == [(0, 0, 1.0), (1, 0, 2.0), (0, 1, 3.0)]


def test_a_root_that_has_no_row(tmp_path):
    path = table(tmp_path, "id,p,s\n1,0,5\n2,0,6\n")
    columns = {"score": "s", "id": "id", "parent": "p"}
    tree, report = logs.read("csv", path, columns=columns, direction="max", root="0")
    assert report.parents_missing == 0 and tree.root is None and len(tree.branches) == 2


def test_tabs_status_words_and_cells_with_whole_programs(tmp_path):
    code = "x = 1\n" * 40_000  # beyond what the csv module reads unless told
    path = table(tmp_path, f'id\tp\ts\tw\tcode\n1\t\t5\tfine\t"{code}"\n2\t1\t0\tburnt\t\n', "t.tsv")
    columns = {"score": "s", "id": "id", "parent": "p", "status": "w"}
    statuses = {"fine": "ok", "burnt": "error"}
    tree, _ = logs.read("csv", path, columns=columns, statuses=statuses, direction="max")
    assert [a.score for a in tree] == [5.0, None] and "code" not in tree.attempts[0].metrics
    with pytest.raises(d.UserError, match=r"t\.tsv, line 4000\d: status \(column 'w'\) says 'fine'"):
        logs.read("csv", path, columns=columns, direction="max")


ID = {"score": "s", "id": "id", "parent": "p"}
FLAWS = {
    "no score column named": ("id,p\n1,\n", {"id": "id", "parent": "p"}, "which column is the score"),
    "nothing says what follows what": ("id,s\n1,2\n", {"score": "s"}, "what follows what"),
    "two ways to follow": (
        "id,p,s\n1,,2\n",
        {"score": "s", "id": "id", "parent": "p", "branch": "p"},
        "give one of them",
    ),
    "unknown field": ("id,s\n1,2\n", {"score": "s", "bracnh": "id"}, "'bracnh' is no field"),
    "no such column": ("id,p,s\n1,,2\n", ID | {"score": "loss"}, "no row has a column 'loss'"),
    "nothing at all": ("", ID, "no row has a column"),
    "not a number": ("id,p,s\n1,,2\n2,1,high\n", ID, "line 3: score (column 's') is 'high', not a number"),
    "cut off in a row": ("id,p,s\n1,,2\n2,1\n", ID, "line 3: has 2 cells, the header line 3"),
    "cut off in a quote": ('id,p,s\n1,,2\n2,1,"3', ID, "was the file cut off?"),
    "an id missing": ("id,p,s\n,,2\n", ID, "line 2: id (column 'id') is empty"),
    "a column twice": ("id,p,s,s\n1,,2,3\n", ID, "names a column twice"),
    "a contradiction": ("id,p,s\n1,,2\n1,,3\n", ID, "'1' is there twice"),
    "a circle": ("id,p,s\n1,2,2\n2,1,3\n", ID, "circle"),
    "a bad order": ("id,p,s,o\n1,,2,soon\n", ID | {"order": "o"}, "order (column 'o') is 'soon', not a number"),
    "a bad round": ("id,p,s,o\n1,,2,1.5\n", ID | {"round": "o"}, "round (column 'o') is not a whole number"),
}


def test_the_limit_of_the_csv_module_is_as_it_was_while_an_error_is_held(tmp_path):
    before = csv.field_size_limit()
    with pytest.raises(d.UserError) as caught:
        logs.read("csv", table(tmp_path, "id,p,s\n1,,high\n2,1,3\n"), columns=ID, direction="max")
    assert csv.field_size_limit() == before and "line 2" in str(caught.value)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_one_line_that_names_the_place(flaw, tmp_path):
    text, columns, message = FLAWS[flaw]
    path = table(tmp_path, text)
    with pytest.raises(d.UserError) as caught:
        logs.read("csv", path, columns=columns, direction="max")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(path) in str(caught.value) or "--" in str(caught.value) or "no field" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "s": 2}\n{"id": "2", "s":', "line 2: is no JSON, or was cut off"),
        ('{"id": "1", "s": 2}\n[1]\n', "line 2: Expected `object`, got `array`"),
        ('{"id": "1", "p": {}, "s": 2}\n', "line 1: parent (column 'p') is dict, not text"),
        ('{"id": "1", "p": "", "s": true}\n', "line 1: score (column 's') is True, not a number"),
        ('{"id": "1", "p": "", "s": 2, "x": ' + "[" * 100_000, "line 1: is nested too deeply"),
    ],
)
def test_json_lines_with_a_flaw(text, message, tmp_path):
    path = table(tmp_path, text, "t.jsonl")
    with pytest.raises(d.UserError) as caught:
        logs.read("jsonl", path, columns=ID, direction="max")
    assert f"{path}, {message}" in str(caught.value)


def test_a_direction_is_needed_and_options_must_go_with_the_format(tmp_path):
    options = {**TABLE_OPTIONS, "direction": None}
    with pytest.raises(d.UserError, match="give --direction"):
        logs.read("csv", CSV, **options)
    with pytest.raises(d.UserError, match="take no score"):
        logs.read("csv", CSV, score="x", **TABLE_OPTIONS)
    with pytest.raises(d.UserError, match="'csvv' is no format"):
        logs.read("csvv", CSV)
    with pytest.raises(d.UserError, match="is not there"):
        logs.read("csv", tmp_path / "none.csv", **TABLE_OPTIONS)


def test_a_log_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = table(tmp_path, TABLE)
    decoded = logs.grow
    monkeypatch.setattr(logs, "grow", lambda *a: path.write_text(TABLE + "\n") and decoded(*a))
    with pytest.raises(d.UserError, match="changed while it was read"):
        logs.read("csv", path, **TABLE_OPTIONS)


def test_a_hundred_thousand_rows_import_in_ten_seconds(tmp_path):
    rows = "".join(f"{i},{i // 3 if i else ''},{i % 977},ok,{i},widen,\n" for i in range(1, 100_001))
    path = table(tmp_path, TABLE.splitlines()[0] + "\n" + rows)
    check_quick(100_000, "csv", path, tmp_path, **TABLE_OPTIONS)


def test_the_command_prints_the_report_and_writes_the_tree(dreamrsi, tmp_path):
    out = tmp_path / "tree.jsonl"
    before = hashes(CSV)
    done = dreamrsi("import", "csv", CSV, "-o", out, *OPTIONS)
    assert done.returncode == 0 and not done.stderr and hashes(CSV) == before
    assert "attempted 7: kept 7, left nothing in the log 0" in done.stdout
    assert "scored 5, failed 2, rejected 0, unknown 0" in done.stdout
    assert "direction min (lower is better, so the tree holds -score), given with --direction" in done.stdout
    assert "parents evicted or missing 1" in done.stdout and "branches, 7 attempts, best -0.5" in done.stdout
    again = dreamrsi("import", "csv", CSV, "-o", out, *OPTIONS, "--json", "--task", "made up")
    assert json.loads(again.stdout)["parents_missing"] == 1 and d.Tree.load(out).header.task == "made up"


def test_on_a_terminal_the_report_is_folded_to_its_width(dreamrsi, tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(Console, "of_stdout", lambda: Console(lambda text: lines.extend(text.split("\n")), width=80))
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path, "id,p,s\n1,0,5\n")
    columns = ["--column", "score=s", "--column", "id=id", "--column", "parent=p"]
    assert dreamrsi("import", "csv", path.name, "-o", "o.jsonl", *columns, "--direction", "max").returncode == 0
    dreamrsi("import", "list")
    assert max(map(len, lines)) <= 80 and "o.jsonl: 1 branch, 1 attempt, best 5" in lines
    assert any("1 attempt started a branch at the root" in " ".join(lines[n : n + 2]) for n in range(len(lines)))


def test_where_no_start_is_named_the_report_says_how(tmp_path):
    path = table(tmp_path, "id,p,s\n1,,5\n2,1,6\n")
    _, report = logs.read("csv", path, columns=ID, direction="max")
    assert "if a row is the start, name it with --root ID" in report.notes
    _, report = logs.read("csv", path, columns=ID, direction="max", root="1")
    assert not any("--root" in note for note in report.notes)
    _, report = logs.read("csv", path, columns={"score": "s", "branch": "id"}, direction="max")
    assert "if a row is the start, name it with --column id=NAME and --root ID" in report.notes


def test_the_command_never_writes_over_anything_but_a_tree(dreamrsi, tmp_path):
    path = table(tmp_path, TABLE)
    done = dreamrsi("import", "csv", path, "-o", path, *OPTIONS)
    assert done.returncode == 2 and "it is not written over" in done.stderr and path.read_text() == TABLE


def test_the_command_says_what_is_missing(dreamrsi, tmp_path):
    assert "a table with a header line" in dreamrsi("import", "list").stdout
    assert "-o with the tree file" in dreamrsi("import", "csv", CSV).stderr
    out = ["-o", tmp_path / "t.jsonl"]
    loss = dreamrsi("import", "csv", CSV, *out, "--column", "loss").stderr
    assert "--column loss: write it as FIELD=NAME; say --column score=loss" in loss
    assert "--status bad: write it as WORD=STATUS\n" in dreamrsi("import", "csv", CSV, *out, "--status", "bad").stderr
    everything = dreamrsi("import", "csv", CSV, *out).stderr
    assert len(everything.splitlines()) == 1
    assert all(f"--{o}" in everything for o in ("column score=", "column parent=", "column branch=", "direction max"))
    assert "give max or min" in dreamrsi("import", "csv", CSV, *out, "--direction", "up").stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_the_format_decides_and_not_the_name_of_the_file(tmp_path):
    path = table(tmp_path, '{"id": "a", "s": 1}\n', "run.log")
    columns = {"score": "s", "branch": "id"}
    assert len(logs.read("jsonl", path, columns=columns, direction="max").tree) == 1
    path = table(tmp_path, "id,s\na,1\n", "t.json.csv")
    assert len(logs.read("csv", path, columns=columns, direction="max").tree) == 1
