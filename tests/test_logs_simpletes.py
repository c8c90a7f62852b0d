"""SimpleTES: programs and failures of a saved state."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import by_id, check_import, check_quick
from log_writers import FIXTURES, dump, node

RUN = FIXTURES / "simpletes"
STATE = RUN / "db_state_000200"


def test_a_run_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("simpletes", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.lost) == (9, 8, 1)
    assert (report.scored, report.failed, report.rejected, report.unknown) == (4, 3, 1, 0)
    assert (report.copies, report.parents_missing, report.parents_unknown) == (0, 1, 1)
    got = by_id(tree)
    assert tree.root == 1.0 and tree.best == 1.5 and report.direction == "max"
    assert (got["n3"].status, got["n3"].error, got["n3"].metrics["logged_score"]) == ("error", "MemoryError", "-inf")
    assert got["n4"].metrics["inspirations"] == ["n3"] and got["n5"].metrics["parent_missing"] == "gone"
    assert (got["failure 0"].status, got["failure 1"].status, got["failure 2"].status) == (
        "rejected",
        "timeout",
        "error",
    )
    assert got["failure 0"].branch == got["n1"].branch and got["failure 0"].attempt == 1  # before n4, its sibling
    assert got["n4"].origin == (got["n1"].branch, 0)
    assert (got["failure 1"].branch, got["failure 1"].attempt) == (got["n2"].branch, 1)
    assert got["failure 2"].metrics["parent_missing"] is None
    assert [got[i].round for i in ("n1", "n2", "n3", "failure 0", "n4", "failure 1", "n5")] == [0, 0, 1, 2, 2, 3, 5]
    assert got["n4"].metrics["kept_by_policy"] is True and got["n2"].metrics["kept_by_policy"] is False
    said = " ".join(report.notes)
    assert "metadata.json counts 1 failures more than failure.json holds" in said and "state db_state_000200" in said
    assert "2 programs were shown more parents than one" in said


def test_the_file_the_state_and_the_packed_file_are_the_same_run(tmp_path):
    tree = logs.read("simpletes", RUN).tree
    assert logs.read("simpletes", STATE / "nodes.json").tree.attempts == tree.attempts
    assert logs.read("simpletes", STATE).tree.attempts == tree.attempts
    packed = shutil.copytree(STATE, tmp_path / "packed")
    (packed / "nodes.json.gz").write_bytes(gzip.compress((packed / "nodes.json").read_bytes()))
    (packed / "nodes.json").unlink()
    assert logs.read("simpletes", packed).tree.attempts == tree.attempts
    (packed / "nodes.json.gz").write_bytes((packed / "nodes.json.gz").read_bytes()[:-30])
    with pytest.raises(d.UserError, match="nodes.json.gz: is not a whole gzip file"):
        logs.read("simpletes", packed)


def test_nodes_alone_are_enough(tmp_path):
    dump(tmp_path / "nodes.json", [node("r", [], None, None, 1.0, 0), node("a", ["r"], 1, 0, 2.0, 1)])
    tree, report = logs.read("simpletes", tmp_path)
    assert tree.root == 1.0 and tree.best == 2.0 and report.lost == 0
    assert "kept_by_policy" not in tree.attempts[0].metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 3}, "nodes.json: Expected `str`, got `int` - at `$[0].id`"),
        ({"score": "high"}, "node 0 (n): score is 'high', not a number"),
        ({"score": True}, "node 0 (n): score is True, not a number"),
        ({"metrics": "{"}, "node 0 (n): metrics is '{', not an object"),
        ({"parent_ids": {"a": 1}}, "node 0 (n): parent_ids is {'a': 1}, not a list"),
        ({"gen_id": 1.5}, "node 0 (n): gen_id is 1.5, not a whole number"),
    ],
)
def test_a_flaw_names_file_node_and_field(change, message, tmp_path):
    dump(tmp_path / "nodes.json", [node("n", [], 1, 0, 1.0, 0) | change])
    with pytest.raises(d.UserError) as caught:
        logs.read("simpletes", tmp_path)
    assert message in str(caught.value) and str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_foreign_and_broken_files(tmp_path):
    (tmp_path / "nodes.json").write_bytes((STATE / "nodes.json").read_bytes()[:500])
    with pytest.raises(d.UserError, match="nodes.json: is no JSON, or was cut off"):
        logs.read("simpletes", tmp_path)
    dump(tmp_path / "nodes.json", {"nodes": []})
    with pytest.raises(d.UserError, match="Expected `array`, got `object`"):
        logs.read("simpletes", tmp_path)
    dump(tmp_path / "nodes.json", [])
    dump(tmp_path / "failure.json", [{"reason": "?"}])
    with pytest.raises(d.UserError, match=r"failure.json: Object missing required field `type` - at `\$\[0\]`"):
        logs.read("simpletes", tmp_path)
    with pytest.raises(d.UserError, match="holds no nodes.json"):
        logs.read("simpletes", FIXTURES / "tables")
    with pytest.raises(d.UserError, match="it holds the runs simpletes: give one"):
        logs.read("simpletes", FIXTURES)
    with pytest.raises(d.UserError, match="contradicts the log"):
        logs.read("simpletes", RUN, direction="min")


@pytest.mark.slow
def test_a_hundred_thousand_nodes_in_ten_seconds(tmp_path):
    nodes = [node(f"n{i}", [f"n{i // 2}"] if i else [], i // 4 if i else None, 0, 0.5, i % 60) for i in range(100_001)]
    (tmp_path / "nodes.json").write_text(json.dumps(nodes))
    dump(tmp_path / "failure.json", [{"type": "generation", "gen_id": i} for i in range(20_000)])
    check_quick(120_000, "simpletes", tmp_path, tmp_path)
