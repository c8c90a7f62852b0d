"""What a notebook hands over lands in one folder, is noted once, and shows the same under any backend."""

import json
import subprocess
import sys

import pandas as pd
import pytest

import dreamrsi as d
from dreamrsi import figures
from dreamrsi.files import atomic_write, resolve_out


@pytest.fixture
def export(tmp_path):
    return d.Exports(tmp_path, "01_a")


def drawn():
    figure, axes = figures.new("half")
    axes.plot([1, 2], [3, 4])
    return figure


def note(tmp_path):
    return json.loads((tmp_path / "findings" / "01_a.json").read_text())


def test_a_figure_is_written_and_shows_what_was_written(export, tmp_path):
    shown = export.figure(drawn(), "lines")
    assert [path.name for path in shown.paths] == ["lines.pdf", "lines.svg", "lines.png"]
    bundle, metadata = shown._repr_mimebundle_()
    assert set(bundle) == {"image/png", "text/plain"} and metadata["image/png"]["width"] == 325
    assert repr(shown) == "figures/lines.{pdf,svg,png}"
    assert note(tmp_path)["files"] == ["figures/lines.pdf", "figures/lines.png", "figures/lines.svg"]


def test_a_figure_of_pyplot_is_closed_so_that_it_shows_once(export):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    export.figure(figure, "lines")
    assert plt.get_fignums() == []


def test_a_table_shows_as_html_and_markdown(export):
    shown = export.table(pd.DataFrame({"a<b": [1.5]}), "t", caption="one & two")
    bundle, _ = shown._repr_mimebundle_()
    assert "a&lt;b" in bundle["text/html"] and "one &amp; two" in bundle["text/html"]
    assert repr(shown).startswith("one & two\n\n|")
    assert "0x" not in repr(shown)  # an address would differ in every run


def test_findings_are_replaced_and_not_added_to(export, tmp_path):
    export.finding("a", "b")
    export.finding("a")
    assert note(tmp_path)["findings"] == ["a", "b"]
    d.Exports(tmp_path, "01_a").finding("c")
    assert note(tmp_path)["findings"] == ["c"]


def test_other_files(export, tmp_path):
    export.path("trees/live.jsonl").write_text("x")
    assert note(tmp_path)["files"] == ["trees/live.jsonl"]
    with pytest.raises(d.UserError, match="leads out of"):
        export.path("../x")


@pytest.mark.parametrize("name", ["a/b", "", "a.png", "../x", "a b"])
def test_a_name_that_is_no_name(export, name):
    with pytest.raises(d.UserError, match="cannot name an export"):
        export.figure(drawn(), name)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(d.UserError, match="cannot write .*choose another folder"):
        d.Exports(tmp_path / "file", "01_a").finding("a")


def test_where_the_exports_go(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # a kernel's folder has no say
    root = resolve_out(None).parents[1]
    assert resolve_out(None) == root / "runs" / "interactive" and (root / "pyproject.toml").is_file()
    assert resolve_out("runs/x") == root / "runs" / "x"
    assert resolve_out(tmp_path / "y") == tmp_path / "y"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = atomic_write(tmp_path / "a", "old")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(d.UserError, match="No space left"):
        atomic_write(target, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_import_stays_light():
    heavy = "{'matplotlib', 'pandas', 'papermill', 'scipy', 'cvxpy', 'nbformat', 'jupyter_client', 'rich'}"
    code = f"import sys, dreamrsi; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
