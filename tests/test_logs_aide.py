"""AIDE's and MLEvolve's journal."""

from __future__ import annotations

import json
import math

import pytest
import yaml

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import by_id, check_import, check_quick, real
from log_writers import FIXTURES, dump, journal_node

RUN = FIXTURES / "aide"
EVOLVED = RUN / "mlevolve"


def journal(tmp_path, nodes, parents=None):
    dump(tmp_path / "journal.json", {"nodes": nodes, "node2parent": parents or {}})
    return tmp_path


def test_a_run_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("aide", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.lost) == (9, 8, 1)
    assert (report.scored, report.failed, report.rejected, report.unknown) == (2, 4, 0, 2)
    assert (report.copies, report.parents_missing, report.parents_unknown) == (0, 1, 0)
    assert (report.direction, report.direction_from) == ("min", "metric.maximize of 2 scored nodes")
    got = by_id(tree)
    assert tree.root is None and tree.best == -0.3
    assert [a.metrics["id"] for a in tree] == ["d1", "d2", "f2", "f1", "f3", "f4", "f5", "f6"]
    assert (got["d2"].status, got["d2"].error) == ("error", "KeyError: column 'x'")
    assert (got["f2"].status, got["f2"].error, got["f2"].attempt) == ("timeout", "TimeoutError", 1)
    assert (got["f3"].status, got["f3"].score, got["f3"].metrics["logged_score"]) == ("invalid", None, 0.2)
    assert (got["f4"].status, got["f5"].status, got["f6"].status) == ("unknown", "invalid", "unknown")
    assert got["f6"].score is None and got["f6"].origin == (0, 1) and got["f3"].origin == (0, 0)
    assert got["f5"].metrics["parent_missing"] == "gone" and got["d1"].seconds == 0.5
    assert "1 of 9 steps left no node" in " ".join(report.notes)


def test_the_config_is_not_obeyed(tmp_path):
    path = journal(tmp_path, [journal_node("a", 0, 0.5)])
    (path / "config.yaml").write_text(f"log_dir: !!python/object/apply:os.mkdir\n- {tmp_path}/obeyed\n")
    assert "config.yaml was not read" in " ".join(logs.read("aide", path).report.notes)
    assert not (tmp_path / "obeyed").exists()
    yaml.unsafe_load((path / "config.yaml").read_text())  # the guard off: a loader that builds what the tags ask for
    assert (tmp_path / "obeyed").exists()


def test_mlevolve_has_a_root_stages_and_numbers_as_text(tmp_path):
    tree, report = check_import(lambda: logs.read("aide", EVOLVED), EVOLVED, tmp_path)
    got = by_id(tree)
    assert (report.kept, report.scored, report.failed, report.direction) == (3, 2, 1, "max")
    assert tree.root is None and got["x"].score == 0.6 and got["y"].score == 0.7
    assert (got["z"].status, got["z"].score) == ("invalid", None)
    assert [got[i].tag for i in "xyz"] == ["draft", "improve", "fusion"] and got["z"].metrics["branch"] == 2
    assert got["y"].attempt == 1 and got["z"].origin == (0, 0)


def test_a_conflict_of_directions_is_an_error_whatever_the_user_says(tmp_path):
    path = journal(tmp_path, [journal_node("a", 0, 0.5, True), journal_node("b", 1, 0.4), journal_node("c", 2, 0.3)])
    for direction in (None, "max", "min"):
        with pytest.raises(d.UserError, match="1 scored nodes say that higher is better .*, 2 that lower is"):
            logs.read("aide", path, direction=direction)


def test_the_direction_of_a_failure_counts_for_nothing(tmp_path):
    path = journal(tmp_path, [journal_node("a", 0, 0.5, True, is_buggy=True), journal_node("b", 1, 0.4)])
    assert logs.read("aide", path).report.direction == "min"
    with pytest.raises(d.UserError, match="--direction max contradicts the log"):
        logs.read("aide", path, direction="max")


def test_a_journal_without_a_direction_needs_one(tmp_path):
    path = journal(tmp_path, [journal_node("a", 0, None)])
    with pytest.raises(d.UserError, match="give --direction"):
        logs.read("aide", path)
    assert logs.read("aide", path, direction="min").report.direction_from == "given with --direction"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "journal.json: Expected `str`, got `null` - at `$.nodes[0].id`"),
        ({"metric": {"value": "high"}}, "node 0 (a): metric.value is 'high', not a number"),
        ({"metric": {"value": True}}, "node 0 (a): metric.value is True, not a number"),
        ({"metric": {"value": 1, "maximize": "up"}}, "node 0 (a): metric.maximize is 'up', not true"),
        ({"is_buggy": "no"}, "journal.json: Expected `bool | null`, got `str` - at `$.nodes[0].is_buggy`"),
    ],
)
def test_a_flaw_names_file_node_and_field(change, message, tmp_path):
    with pytest.raises(d.UserError) as caught:
        logs.read("aide", journal(tmp_path, [journal_node("a", 0, 0.5) | change]))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_foreign_and_broken_files(tmp_path):
    with pytest.raises(d.UserError, match="holds no journal.json"):
        logs.read("aide", tmp_path)
    path = tmp_path / "journal.json"
    path.write_bytes((RUN / "journal.json").read_bytes()[:900])
    with pytest.raises(d.UserError, match="journal.json: is no JSON, or was cut off"):
        logs.read("aide", path)
    path.write_text('{"nodes": []}')
    with pytest.raises(d.UserError, match="missing required field `node2parent`"):
        logs.read("aide", path)
    dump(path, {"nodes": [journal_node("a", 0, 1.0), journal_node("b", 1, 1.0)], "node2parent": {"a": "b", "b": "a"}})
    with pytest.raises(d.UserError, match="the parents go round in a circle"):
        logs.read("aide", path)


@pytest.mark.slow
def test_a_hundred_thousand_nodes_in_ten_seconds(tmp_path):
    nodes = [journal_node(f"n{i}", i, 0.5) for i in range(100_000)]
    parents = {f"n{i}": f"n{i // 2}" for i in range(1, 100_000)}
    path = tmp_path / "journal.json"
    path.write_text(json.dumps({"nodes": nodes, "node2parent": parents}))
    check_quick(100_000, "aide", path, tmp_path)


def test_the_real_journal(tmp_path):
    path = real("aide", "translucent_spaniel")
    tree, report = check_import(lambda: logs.read("aide", path), path, tmp_path)
    assert (report.attempted, report.kept, report.scored, report.failed) == (20, 20, 12, 8)
    assert (report.direction, report.direction_from) == ("min", "metric.maximize of 12 scored nodes")
    assert sum(a.attempt == 0 and a.origin is None for a in tree) == 5
    assert tree.best == -0.13394 and tree.root is None
    curve, best = [], -math.inf
    for node in json.loads((path / "journal.json").read_text())["nodes"]:
        best = max(best, -math.inf if node["is_buggy"] else -node["metric"]["value"])
        curve.append(best)
    shown, best = [], -math.inf
    for attempt in tree:
        best = max(best, -math.inf if attempt.score is None else attempt.score)
        shown.append(best)
    assert shown == curve
