"""Which runs notebook 08 scores, with and without real logs on the machine."""

from __future__ import annotations

import pytest

import dreamrsi as d
from dreamrsi import own_logs
from log_fixtures import real
from strategies import tree_of


def test_without_real_logs_the_committed_run_is_scored(tmp_path):
    found = own_logs.find(folder=str(tmp_path))
    assert [tree.name for tree in found.trees] == ["circle_packing_26"] and not found.reports
    assert "no real log is here" in found.source


def test_a_folder_of_logs_is_imported_and_the_environment_names_it(tmp_path, monkeypatch):
    log = real("codeevolve", "circle_packing_26_gemini_mp.jsonl").read_bytes()
    (tmp_path / "codeevolve").mkdir()
    (tmp_path / "codeevolve" / "circle_packing_26_x.jsonl").write_bytes(log)
    monkeypatch.setenv("DREAMRSI_SHARED_LOGS", str(tmp_path))
    found = own_logs.find()
    (tree,) = found.trees
    assert (tree.name, tree.header.task) == ("circle_packing_26_x", "circle_packing_26")
    assert found.reports["circle_packing_26_x"][0].startswith("attempted ")
    assert own_logs.find(folder=str(tmp_path / "elsewhere")).trees[0].name == "circle_packing_26"


def test_named_trees_come_first(tmp_path):
    tree_of([[1.0, 2.0]]).save(tmp_path / "mine.jsonl")
    found = own_logs.find([str(tmp_path / "mine.jsonl")], str(tmp_path))
    assert [tree.name for tree in found.trees] == ["mine"]
    with pytest.raises(d.UserError, match="nowhere.jsonl: cannot be read"):
        own_logs.find([str(tmp_path / "nowhere.jsonl")])
