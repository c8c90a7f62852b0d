"""ShinkaEvolve's database, whose rows may all be in the write-ahead log."""

from __future__ import annotations

import sqlite3

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import by_id, check_import, check_quick, hashes, real
from log_writers import FIXTURES, SHINKA, write_shinka

RUN = FIXTURES / "shinka"


def test_the_committed_run_is_the_one_written_here(tmp_path):
    write_shinka(tmp_path)
    assert logs.read("shinka", tmp_path).tree.attempts == logs.read("shinka", RUN).tree.attempts


def test_a_run_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("shinka", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.lost) == (8, 8, 0)
    assert (report.scored, report.failed, report.rejected, report.unknown) == (3, 2, 3, 0)
    assert (report.copies, report.parents_missing, report.parents_unknown) == (1, 1, 1)
    got = by_id(tree)
    assert tree.root == 1.0 and tree.best == 2.0 and "p0" not in got and "p0-copy" not in got
    assert got["p2"].origin is None and "parent_missing" not in got["p2"].metrics  # its parent was a copy of the start
    assert (got["p2"].status, got["p2"].error, got["p2"].metrics["logged_score"]) == ("error", "boom", 0.0)
    assert (got["p3"].status, got["p3"].score, got["p3"].tag) == ("invalid", None, "cross")
    assert got["p5"].metrics["inspirations"] == ["p1", "p2"] and "inspirations" not in got["p1"].metrics
    assert got["p6"].metrics["parent_missing"] == "gone"
    assert (got["proposal 1"].status, got["proposal 1"].error) == ("rejected", "patch_apply_failed")
    assert got["proposal 1"].origin == (got["p1"].branch, got["p1"].attempt)
    assert got["proposal 0"].seq < got["p5"].seq and got["proposal 2"].metrics["parent_missing"] is None
    assert "not rejected proposals were not read: evaluation_failed 1" in " ".join(report.notes)


def test_the_rows_are_in_the_write_ahead_log_and_nowhere_else(tmp_path):
    path = tmp_path / "programs.sqlite"
    path.write_bytes((RUN / "programs.sqlite").read_bytes())  # without the log beside it there is nothing to read
    with pytest.raises(d.UserError, match="no table `programs`"):
        logs.read("shinka", path)
    assert len(logs.read("shinka", RUN / "programs.sqlite").tree) == 8


def test_opening_in_place_would_change_the_log(tmp_path):
    write_shinka(tmp_path)
    before = hashes(tmp_path)
    logs.read("shinka", tmp_path)
    assert hashes(tmp_path) == before
    database = sqlite3.connect(tmp_path / "programs.sqlite")  # the guard off: what the importer does not do
    database.execute("SELECT count(*) FROM programs").fetchone()
    database.close()
    assert hashes(tmp_path) != before


def test_a_closed_database_and_missing_columns(tmp_path):
    write_shinka(tmp_path, proposals=False, wal=False)
    tree, report = logs.read("shinka", tmp_path)
    assert len(tree) == 5 and report.lost == 1 and "no attempt_log" in " ".join(report.notes)
    assert "1 of 6 generations left neither" in " ".join(report.notes)
    database = sqlite3.connect(tmp_path / "programs.sqlite")
    for column in ("timestamp", "metadata", "island_idx", "public_metrics", "text_feedback"):
        database.execute(f"ALTER TABLE programs DROP COLUMN {column}")
    database.commit()
    tree, _ = logs.read("shinka", tmp_path)
    assert [a.metrics["generation"] for a in tree] == [1, 2, 3, 5, 6]  # without the metadata, a copy is a start like p0
    assert tree.root == 1.0
    database.execute("ALTER TABLE programs DROP COLUMN correct")
    database.close()
    with pytest.raises(d.UserError, match="table `programs` has no column `correct`"):
        logs.read("shinka", tmp_path)


def test_an_empty_database_is_an_empty_tree(tmp_path):
    write_shinka(tmp_path / "run", programs=[], proposals=False)
    tree, report = check_import(lambda: logs.read("shinka", tmp_path / "run"), tmp_path / "run", tmp_path)
    assert len(tree) == 0 and report.attempted == 0 and "holds no attempt" in " ".join(report.notes)


def test_nothing_of_the_database_runs(tmp_path):
    """A view in the place of the table, or a column that is computed by a function, is not evaluated."""
    path = tmp_path / "v.sqlite"
    with sqlite3.connect(path) as database:
        columns = "'x' AS id, NULL AS parent_id, 1 AS generation, 1.0 AS combined_score, 1 AS correct"
        database.execute(f"CREATE VIEW programs AS SELECT {columns}")
    database.close()
    with pytest.raises(d.UserError, match="no table `programs`"):
        logs.read("shinka", path)
    path = tmp_path / "g.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE programs (id TEXT, parent_id TEXT, generation INTEGER, correct INTEGER, "
            "text_feedback TEXT AS (upper(id)), combined_score REAL)"
        )
        database.execute("INSERT INTO programs VALUES ('x', NULL, 1, 1, 2.0)")
        assert database.execute("SELECT text_feedback FROM programs").fetchone() == ("X",)  # the guard off
    database.close()
    tree, _ = logs.read("shinka", path)  # the computed column is hidden from the list of columns, and not read
    assert [a.score for a in tree] == [2.0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("x", None, 1, 1.0, "high", 1, 0, {}), "program x: `combined_score` is 'high', not a number"),
        (("x", None, "one", 1.0, 1.0, 1, 0, {}), "program x: `generation` is 'one', not a whole number"),
    ],
)
def test_a_cell_of_another_type_is_named(row, message, tmp_path):
    write_shinka(tmp_path, programs=[row])
    with pytest.raises(d.UserError, match=message):
        logs.read("shinka", tmp_path)


def test_broken_json_in_a_column_and_broken_files(tmp_path):
    write_shinka(tmp_path, wal=False)
    path = tmp_path / "programs.sqlite"
    whole = path.read_bytes()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE programs SET metadata = '{\"a\":' WHERE id = 'p1'")
    database.close()
    with pytest.raises(d.UserError, match="program p1: metadata: is no JSON"):
        logs.read("shinka", path)
    for broken in (whole[: len(whole) // 2], b"not a database, but long enough to be looked at" * 99):
        path.write_bytes(broken)
        with pytest.raises(d.UserError, match="is no whole SQLite database"):
            logs.read("shinka", path)
    with pytest.raises(d.UserError, match=r"holds no \.sqlite file"):
        logs.read("shinka", FIXTURES / "tables")
    (tmp_path / "other.sqlite").write_bytes(whole)
    with pytest.raises(d.UserError, match="holds several databases"):
        logs.read("shinka", tmp_path)
    (tmp_path / "other.sqlite").rename(tmp_path / "prompts.sqlite")
    path.write_bytes(whole)
    assert len(logs.read("shinka", tmp_path).tree) == 8


@pytest.mark.slow
def test_a_hundred_thousand_programs_in_ten_seconds(tmp_path):
    rows = [(f"p{i}", f"p{i // 2}" if i else None, i, float(i), 0.5, 1, 0, SHINKA[2][-1]) for i in range(100_001)]
    write_shinka(tmp_path, programs=rows, proposals=False)
    check_quick(100_000, "shinka", tmp_path, tmp_path)


def test_the_real_run_in_the_write_ahead_log(tmp_path):
    path = real("shinka", "novelty_wal_20251004")
    tree, report = check_import(lambda: logs.read("shinka", path), path, tmp_path)
    assert (report.attempted, report.kept, report.failed, report.scored, report.copies) == (6, 6, 6, 0, 1)
    assert tree.root is None and len(tree.branches) == 6 and all(a.origin is None for a in tree)
    assert all(a.metrics["logged_score"] == 0.0 and a.status == "invalid" for a in tree)


def test_the_real_database_without_rows(tmp_path):
    path = real("shinka", "agent_design_20251004")
    tree, report = check_import(lambda: logs.read("shinka", path), path, tmp_path)
    assert len(tree) == report.attempted == 0 and "holds no attempt" in " ".join(report.notes)
