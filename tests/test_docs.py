"""What README and docs tell a reader to type works, and their numbers are those of the committed export."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from pathlib import Path

import pytest

import dreamrsi as d
from dreamrsi import synthetic

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def test_the_readme_s_python_prints_what_it_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = blocks(README, "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    said = [found.split("#")[1].strip() for found in code.splitlines() if found.startswith("print") and "#" in found]
    shown = printed.getvalue().splitlines()
    assert shown[0] == said[0]
    assert float(shown[1]) == pytest.approx(float(said[1]), abs=5e-4)


def test_the_readme_s_log_is_a_tree(tmp_path):
    (lines,) = blocks(README, "json")
    path = tmp_path / "my.jsonl"
    path.write_text(lines)
    tree = d.Tree.load(path)
    assert [a.score for a in tree] == [0.41, None]


@pytest.mark.parametrize(("corpus", "first"), [("history", 1), ("heldout", 5)])
def test_the_readme_s_table_is_the_committed_export(corpus, first):
    with open(ROOT / "figures" / f"policies_{corpus}.csv") as file:
        rows = list(csv.DictReader(file))
    table = README.split("| policy | history: hits")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert float(cells[first].split()[0]) == pytest.approx(float(row["hits"]), abs=5e-3)
        assert float(cells[first + 1]) == pytest.approx(float(row["attempts"]), abs=0.05)
        if corpus == "history":
            assert float(cells[3]) == pytest.approx(float(row["rounds"]), abs=0.05)
        assert float(cells[4 if corpus == "history" else 7]) == pytest.approx(float(row["V"]), abs=5e-4)


def test_the_policy_of_the_docs_runs():
    (code,) = [
        block for block in blocks((ROOT / "docs/adding-a-policy.md").read_text(), "python") if "class Policy" in block
    ]
    space: dict = {}
    exec(code, space)
    for tree in synthetic.committed("history"):
        assert d.replay(space["Policy"](), tree, 8).attempts > 10


def test_the_fields_of_the_docs_are_those_of_the_format():
    text = (ROOT / "docs/record.md").read_text()
    header, attempt = text.split("## Attempt")
    documented = [
        set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in header.splitlines() if line.startswith("| `")
    ]
    assert set().union(*documented) == set(d.Header.__struct_fields__)
    rows = attempt.split("## Batch")[0].splitlines()
    documented = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in rows if line.startswith("| `")]
    assert set().union(*documented) == set(d.Attempt.__struct_fields__)


def test_files_that_the_readme_names_are_there():
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`(figures/[\w.]+|examples/[\w.]*|synthetic/[\w./-]+)`", README):
        assert (ROOT / name).exists(), name


def test_notebooks_are_committed_without_outputs():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"]), path.name
