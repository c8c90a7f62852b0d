"""A notebook runs again for a reason, which is said; what has none stays as it is, wherever and whenever it lies."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from dreamrsi import receipts, study
from dreamrsi.console import Console
from dreamrsi.errors import UserError
from dreamrsi.exports import Exports
from dreamrsi.study import run_study
from notebook_fixtures import fake_study, table_a, write_notebook, write_plan

PLAN = """
[01_a]
inputs = ["data", "one.txt"]
outputs = ["tables/a"]
quick = { n = 2 }
[02_b]
needs = ["01_a"]
[03_c]
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A study that has run once: everything stands."""
    fake = fake_study(tmp_path / "checkout", monkeypatch)
    for name in ("data/x.jsonl", "data/deep/y.jsonl", "one.txt"):
        (fake.root / name).parent.mkdir(parents=True, exist_ok=True)
        (fake.root / name).write_text(name)
    write_plan(fake.root, PLAN)
    assert run_study(root=fake.root).exit_code == 0
    fake.ran.clear()
    return fake


def reasons(fake, **options):
    """Why each notebook ran, by its number; those that did not run are not in it."""
    fake.ran.clear()
    notebooks = run_study(root=fake.root, **options).notebooks
    assert [notebook.name for notebook in notebooks if notebook.why] == fake.ran
    return {notebook.name[:2]: notebook.why for notebook in notebooks if notebook.why}


def notebook(fake, name="01_a", *cells, parameters="out = None\nn = 1"):
    return write_notebook(fake.root / "notebooks" / f"{name}.ipynb", *cells, parameters=parameters)


def edited(path, change):
    """Change the parsed notebook in its file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2))


def test_what_did_not_change_does_not_run(fake):
    lines = []
    result = run_study(root=fake.root, console=Console(lines.append))
    assert fake.ran == [] and result.exit_code == 0
    assert {done.status for done in result.notebooks} == {"cached"}
    assert lines[0] == "[1/3] 01_a  cached   unchanged"
    assert "  01  one is one" in lines and lines[-2].endswith("3 cached")  # what was found is said again


def test_each_reason_to_run(fake, monkeypatch):
    path = notebook(fake, "01_a", "x = 1")
    assert reasons(fake) == {"01": "its source changed"}  # 02 needs it, but what it made is the same
    assert reasons(fake) == {}

    write_plan(fake.root, PLAN.replace("n = 2", "n = 3"))
    assert reasons(fake) == {"01": "parameter n changed"}
    assert reasons(fake, parameters={"03_c.n": 5}) == {"03": "parameter n changed"}
    assert reasons(fake) == {"03": "parameter n changed"}

    (fake.root / "one.txt").write_text("other")
    assert reasons(fake) == {"01": "input one.txt changed"}
    (fake.root / "data" / "deep" / "y.jsonl").rename(fake.root / "data" / "z.jsonl")
    assert reasons(fake) == {"01": "input data/deep/y.jsonl changed, input data/z.jsonl changed"}

    monkeypatch.setattr(receipts, "package_hash", lambda: "another")
    assert reasons(fake) == dict.fromkeys(("01", "02", "03"), "the package changed")
    known = {**receipts.versions(), "numpy": "99.0"}
    monkeypatch.setattr(receipts, "versions", lambda: known)
    assert all(why.startswith("numpy changed from ") and why.endswith(" to 99.0") for why in reasons(fake).values())

    (fake.root / "runs" / "quick" / "tables" / "a.md").write_text("by hand")
    assert reasons(fake) == {"01": "tables/a.md was changed or is gone"}
    (fake.root / "runs" / "quick" / "tables" / "a.tex").unlink()
    assert reasons(fake, only=["01"]) == {"01": "tables/a.tex was changed or is gone"}
    (fake.root / "runs" / "quick" / "notebooks" / "02_b.ipynb").unlink()
    assert reasons(fake) == {"02": "notebooks/02_b.ipynb was changed or is gone"}

    notebook(fake, "01_a", "x = 2")
    (fake.root / "one.txt").write_text("again")
    assert reasons(fake) == {"01": "its source changed, input one.txt changed"}
    assert reasons(fake, force=True) == dict.fromkeys(("01", "02", "03"), "--force")
    assert reasons(fake, force=True, only=["03"]) == {"03": "--force"}
    edited(path, lambda content: content["cells"][1]["metadata"].update(tags=["hide-input"]))
    assert reasons(fake) == {"01": "its source changed"}


def test_what_a_needed_notebook_made_is_a_reason(fake):
    fake.behaviour["01_a"] = lambda out: table_a(out, 2)
    assert reasons(fake, force=True, only=["01"]) == {"01": "--force"}
    assert reasons(fake) == {"02": "what 01_a made changed"}
    assert reasons(fake) == {}


def test_a_new_output_is_a_reason(fake):
    write_plan(fake.root, PLAN.replace('"tables/a"', '"tables/a", "trees/t.jsonl"'))
    fake.behaviour["01_a"] = lambda out: (table_a(out), Exports(out, "01_a").path("trees/t.jsonl").write_text("t"))
    assert reasons(fake) == {"01": "trees/t.jsonl is a new output", "02": "what 01_a made changed"}


def test_one_and_one_point_nought_are_two_values(fake):
    notebook(fake, "03_c", parameters="out = None\nn = None")
    run_study(root=fake.root, parameters={"03_c.n": 1})
    assert reasons(fake, parameters={"03_c.n": 1}) == {}
    assert reasons(fake, parameters={"03_c.n": 1.0}) == {"03": "parameter n changed"}
    assert reasons(fake, parameters={"03_c.n": True}) == {"03": "parameter n changed"}


def test_a_failure_and_an_interruption_are_reasons(fake):
    good = fake.behaviour["01_a"]
    fake.behaviour["01_a"] = lambda out: "cell 1: no"
    notebook(fake, "01_a", "x = 1")
    lines = []
    result = run_study(root=fake.root, console=Console(lines.append))
    assert (
        lines[0].startswith("[1/3] 01_a  failed ")
        and " s  cell 1: no" in lines[0]
        and "(runs: its source changed)" in lines[0]
    )
    assert [done.status for done in result.notebooks] == ["failed", "skipped", "cached"]
    fake.behaviour["01_a"] = good
    assert reasons(fake) == {"01": "it failed last time"}

    def interrupt(out):
        raise KeyboardInterrupt

    fake.behaviour["01_a"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_study(root=fake.root, force=True)
    assert sorted(json.loads((fake.root / "runs/quick/manifest.json").read_text())["notebooks"]) == ["02_b", "03_c"]
    fake.behaviour["01_a"] = good
    assert reasons(fake) == {"01": "it was interrupted last time"}


def test_an_interrupted_study_goes_on_and_equals_one_that_was_not(fake):
    whole = (fake.root / "runs" / "quick" / "manifest.json").read_bytes()
    shutil.rmtree(fake.root / "runs")

    def interrupt(out):
        raise KeyboardInterrupt

    fake.behaviour["02_b"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_study(root=fake.root)
    del fake.behaviour["02_b"]
    assert reasons(fake) == {"02": "it was interrupted last time", "03": "the first time"}
    assert (fake.root / "runs" / "quick" / "manifest.json").read_bytes() == whole


def test_neither_order_nor_place_nor_time_is_a_reason(fake):
    quick = PLAN.replace("quick =", "full = { n = 9 }\nquick =").split("[03_c]")
    write_plan(fake.root, "[03_c]\n" + quick[0])
    for path in fake.root.rglob("*"):
        os.utime(path, (1, 1))
    path = fake.root / "notebooks" / "01_a.ipynb"

    def churn(content):
        content["metadata"] = {"language_info": {"name": "python"}}
        for cell in content["cells"]:
            cell.update(id="other", execution_count=3, source=cell["source"].splitlines(keepends=True))
            cell["metadata"]["collapsed"] = True

    edited(path, churn)
    assert reasons(fake) == {}
    moved = fake.root.rename(fake.root.with_name("elsewhere"))
    assert reasons(fake._replace(root=moved)) == {}
    (moved / "data" / ".hidden").write_text("no input")
    assert reasons(fake._replace(root=moved)) == {}


def test_a_default_that_is_given_is_no_change(fake):
    write_plan(fake.root, PLAN + "quick = { n = 1 }")
    assert reasons(fake) == {}


@pytest.mark.parametrize(
    "content", ["", "{}", '{"status": "ok"}', '{"status": "fine"}', "[1", '{"status":"ok","key":3}']
)
def test_a_receipt_that_is_none(fake, content):
    """A torn or foreign receipt is no proof of anything: the notebook runs."""
    (fake.root / "runs" / "quick" / "receipts" / "03_c.json").write_text(content)
    assert set(reasons(fake)) == {"03"}


def test_an_export_has_one_owner(fake):
    fake.behaviour["03_c"] = lambda out: Exports(out, "03_c").path("tables/a.md").write_text("mine")
    result = run_study(root=fake.root, force=True)
    assert "it wrote tables/a.md, which 01_a made" in result.notebooks[2].reason


def test_an_input_that_is_not_there(fake):
    for given, message in [
        ("nothing", "its input 'nothing' is not there"),
        ("/etc", "in it"),
        ("../x", "in it"),
        ("data/.h", "not"),
    ]:
        write_plan(fake.root, PLAN.replace('"data"', f'"{given}"'))
        with pytest.raises(UserError, match=message):
            run_study(root=fake.root)
    assert fake.ran == []


def test_the_hash_of_the_package_follows_its_files(tmp_path, monkeypatch):
    package = tmp_path / "dreamrsi"
    (package / "tasks").mkdir(parents=True)
    (package / "receipts.py").write_text("")
    (package / "tasks" / "a.py").write_text("a")
    monkeypatch.setattr(receipts, "__file__", str(package / "receipts.py"))
    seen = [receipts.package_hash()]
    (package / "tasks" / "__pycache__").mkdir()
    (package / "tasks" / "__pycache__" / "a.cpython-311.pyc.140").write_text("no matter: it is being compiled")
    (package / "tasks" / ".a.py.swp").write_text("no matter")
    assert receipts.package_hash() == seen[0]
    (package / "tasks" / "a.py").write_text("b")
    seen.append(receipts.package_hash())
    (package / "tasks" / "a.py").rename(package / "tasks" / "b.py")
    seen.append(receipts.package_hash())
    assert len(set(seen)) == 3


def test_versions_are_those_that_results_depend_on():
    known = receipts.versions()
    assert {"Python", "dreamrsi", "numpy", "pandas", "matplotlib"} <= set(known)
    assert not {"pytest", "jupyterlab", "ruff"} & set(known) and all(known[name] for name in ("numpy", "Python"))


def test_a_cached_study_starts_nothing(fake, monkeypatch):
    """Nothing is started and nothing heavy is loaded, which is why it takes no time."""
    monkeypatch.setattr(study, "facts_of_run", lambda root: pytest.fail("git was asked"))
    assert reasons(fake) == {}
    code = f"""
import subprocess, sys
from pathlib import Path
from dreamrsi import receipts, study
receipts.package_hash = lambda: "the package"
subprocess.Popen = None
result = study.run_study(root=Path({str(fake.root)!r}))
assert [done.status for done in result.notebooks] == ["cached"] * 3, result
print(sorted({{"papermill", "jupyter_client", "nbformat", "pandas", "matplotlib", "scipy"}} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def status(result, name):
    return next(notebook for notebook in result.notebooks if notebook.name == name)


def test_a_notebook_does_not_run_on_what_a_failed_one_left(fake):
    fake.behaviour["01_a"] = lambda out: "it broke"
    run_study(root=fake.root, force=True)
    for _ in range(2):
        left = status(run_study(root=fake.root, only=["02"]), "02_b")
        assert (left.status, left.reason) == ("skipped", "it needs 01_a, which has no results")


def test_an_old_file_that_was_not_declared_does_not_pass_as_new(fake):
    def lazy(out):
        export = Exports(out, "03_c")
        target = export.path("cache/r.txt")
        if not target.exists():
            target.write_text("made once")

    fake.behaviour["03_c"] = lazy
    assert status(run_study(root=fake.root, force=True), "03_c").status == "ok"
    again = status(run_study(root=fake.root, force=True), "03_c")
    assert again.status == "failed" and "of an earlier run: cache/r.txt" in again.reason


def test_an_export_may_move_to_another_notebook(fake):
    def make(name):
        return lambda out: Exports(out, name).path("trees/t.txt").write_text(name)

    fake.behaviour["02_b"] = make("02_b")
    assert status(run_study(root=fake.root, force=True), "02_b").status == "ok"
    table = fake.behaviour["01_a"]

    def both(out):
        table(out)
        make("01_a")(out)

    del fake.behaviour["02_b"]
    fake.behaviour["01_a"] = both
    result = run_study(root=fake.root, force=True)
    assert {notebook.status for notebook in result.notebooks} == {"ok"}


def test_an_input_that_changes_under_a_running_notebook_fails_it(fake):
    data = fake.root / "data.txt"
    data.write_text("before")
    write_plan(fake.root, '[01_a]\n[02_b]\n[03_c]\ninputs = ["data.txt"]\n')
    fake.behaviour["03_c"] = lambda out: data.write_text("after") and None
    result = status(run_study(root=fake.root), "03_c")
    assert (result.status, result.reason) == ("failed", "input data.txt changed while it ran; run it again")
    del fake.behaviour["03_c"]
    assert status(run_study(root=fake.root), "03_c").status == "ok"


def test_a_python_file_beside_the_notebooks_is_a_part_of_them(fake):
    run_study(root=fake.root)
    (fake.root / "notebooks" / "helper.py").write_text("x = 1")
    assert {notebook.why for notebook in run_study(root=fake.root).notebooks} == {"its source changed"}
