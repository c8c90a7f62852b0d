"""Whatever is wrong with a log, there is a tree or one line that says what; and any log is left as it is."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import hashes
from log_writers import FIXTURES, TABLE_OPTIONS, WRITERS

CASES = {
    "csv": ("tables", TABLE_OPTIONS),
    "openevolve": ("openevolve", {}),
    "codeevolve": ("codeevolve", {}),
    "shinka": ("shinka", {}),
    "simpletes": ("simpletes", {}),
    "aide": ("aide", {}),
    "autoresearch": ("autoresearch", {}),
}
VALUES = [None, True, -1, 0.5, 10**400, float("nan"), "", "text", "\ud800", [], [1], {}, {"a": {}}, "None", "1e999"]


def path_of(name, folder):
    return folder / {"csv": "table.csv", "codeevolve": "programs.jsonl"}.get(name, "")


def attempt(name, folder):
    """Import, and check what may come out: a tree that can be saved and read back, or one line."""
    options = CASES[name][1]
    before = hashes(folder)
    try:
        tree, report = logs.read(name, path_of(name, folder), **options)
    except d.UserError as error:
        assert "\n" not in str(error) and str(folder) in str(error)
        assert hashes(folder) == before
        return False
    assert hashes(folder) == before
    out = folder.parent / "tree.jsonl"
    tree.save(out)
    assert d.Tree.load(out).attempts == tree.attempts
    assert report.kept == len(tree) == report.scored + report.failed + report.rejected + report.unknown
    return True


@pytest.mark.parametrize("name", CASES)
def test_cut_off_and_flipped_bytes(name, tmp_path):
    rng = random.Random(name)
    whole = FIXTURES / CASES[name][0]
    assert attempt(name, shutil.copytree(whole, tmp_path / "whole"))
    done = []
    for turn in range(60):
        folder = shutil.copytree(whole, tmp_path / str(turn))
        file = rng.choice([p for p in sorted(folder.rglob("*")) if p.is_file()])
        data = bytearray(file.read_bytes())
        if turn % 2:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(3):
                data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(bytes(data))
        done.append(attempt(name, folder))
    assert False in done  # something was broken by it


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("csv", "shinka", "autoresearch")])
def test_values_of_another_type(name, tmp_path):
    """Every value of every object in turn becomes something else."""
    rng = random.Random(name)
    whole = FIXTURES / CASES[name][0]
    done = []
    for turn in range(150):
        folder = shutil.copytree(whole, tmp_path / str(turn))
        file = rng.choice([p for p in sorted(folder.rglob("*.json*")) if p.is_file()])
        if file.suffix == ".jsonl":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            _change(rng.choice(lines), rng)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        else:
            value = json.loads(file.read_text())
            _change(value, rng)
            file.write_text(json.dumps(value))
        done.append(attempt(name, folder))
    assert True in done and False in done


def _change(value, rng):
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = rng.choice(list(keys))
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.8:
            value = value[key]
            continue
        value[key] = rng.choice(VALUES)
        return


def test_every_format_has_a_made_up_log_and_a_line_of_help():
    assert {module for module, _ in logs.FORMATS.values()} <= {{"tables": "tables"}.get(name, name) for name in WRITERS}
    assert all(about for _, about in logs.FORMATS.values())


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "shinka"])  # a database: test_logs_shinka.py
def test_the_committed_log_is_the_one_written_here(name, tmp_path):
    WRITERS[name](tmp_path)
    written, committed = (
        {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (tmp_path, FIXTURES / name)
    )
    assert written == committed


def test_a_pipe_among_the_files_is_refused_and_not_waited_for(tmp_path):
    run = shutil.copytree(FIXTURES / "openevolve", tmp_path / "run")
    os.mkfifo(run / "checkpoints" / "checkpoint_5" / "programs" / "pipe.json")
    with pytest.raises(d.UserError, match=r"pipe\.json: is not a file"):
        logs.read("openevolve", run)


def test_a_name_that_is_too_long_is_one_line(tmp_path):
    with pytest.raises(d.UserError, match="cannot be read|is not there"):
        logs.read("aide", tmp_path / ("x" * 5000))
