"""The study: what is wrong is said before a kernel starts, what fails is named, and nothing is left running."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dreamrsi import study
from dreamrsi.console import Console
from dreamrsi.errors import UserError
from dreamrsi.study import run_study
from notebook_fixtures import fake_study, write_notebook, write_plan

OF_THE_MACHINE = ("provenance.json", "receipts")  # the only places with times
OPEN_EXPORT = "from dreamrsi import Exports\nexport = Exports(out, '01_ok')"
TABLE = "import pandas as pd\nexport.finding(f'n is {n}')\nexport.table(pd.DataFrame({'n': [n]}), 'numbers')"


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


# --- without kernels: the notebook is stood in for -----------------------------------------------------------------


@pytest.fixture
def fake(tmp_path, monkeypatch):
    return fake_study(tmp_path, monkeypatch)


def test_a_study_that_goes_well(fake):
    lines = []
    result = run_study(root=fake.root, console=Console(lines.append))
    assert (result.exit_code, result.out) == (0, fake.root / "runs" / "quick")
    assert re.fullmatch(r"\[1/3\] 01_a  ok      +\d+ s  runs: the first time", lines[0])
    assert lines[4:6] == ["Found:", "  01  one is one"]
    assert lines[-2].endswith(" s: 3 ran")
    assert lines[-1] == f"Figures, tables and executed notebooks: {fake.root / 'runs' / 'quick'}"
    manifest = json.loads((result.out / "manifest.json").read_text())
    made = manifest["notebooks"]["01_a"]
    assert made["parameters"] == {"n": 2} and sorted(made["files"]) == [
        f"tables/a.{kind}" for kind in ("csv", "md", "tex")
    ]
    assert set(made["files"]["tables/a.csv"]) == {"sha256", "bytes"}


def test_a_study_says_which_files_differ_from_the_committed_export(fake):
    root = fake.root
    run_study(root=root)
    study.publish(root / "runs" / "quick", root)
    lines = []
    console = Console(lines.append)
    run_study(root=root, console=console)
    assert lines[-1] == "3 of 3 have the bytes of the committed export in figures/"
    (root / "figures" / "a.md").write_text("edited")
    (root / "figures" / "a.csv").unlink()
    result = run_study(root=root, console=console)
    assert lines[-1] == "1 of 3 have the bytes of the committed export in figures/; these differ: tables/a"
    assert result.as_dict()["differ_from_committed"] == ["tables/a.csv", "tables/a.md"]
    run_study(root=root, only=["01"], console=console)
    assert lines[-1].startswith("Figures, tables")  # a part of a study is compared with nothing


def test_two_runs_write_the_same_manifest(fake, tmp_path):
    root = fake.root
    one, two = (run_study(root=root, out=Path(name)).out / "manifest.json" for name in ("x", "y/z"))
    assert one.read_bytes() == two.read_bytes() and str(tmp_path).encode() not in one.read_bytes()


def test_a_failure_skips_what_needs_it_and_nothing_else(fake):
    root, behaviour, _ = fake
    behaviour["01_a"] = lambda out: "cell 2: no"
    result = run_study(root=root)
    assert [(done.status, done.reason) for done in result.notebooks] == [
        ("failed", "cell 2: no; executed copy: " + str(result.out / "notebooks" / "01_a.ipynb")),
        ("skipped", "it needs 01_a"),
        ("ok", ""),
    ]
    assert result.exit_code == 1


def test_declared_outputs_must_be_there_and_new(fake):
    root, behaviour, _ = fake
    good = behaviour["01_a"]
    run_study(root=root)
    behaviour["01_a"] = lambda out: None
    result = run_study(root=root, force=True)
    assert (
        result.notebooks[0].status == "failed" and "are of an earlier run: tables/a.csv" in result.notebooks[0].reason
    )
    assert not result.notebooks[0].findings  # an earlier run's findings are not this one's
    assert "01_a" not in json.loads((result.out / "manifest.json").read_text())["notebooks"]

    behaviour["01_a"] = lambda out: (good(out), (out / "tables" / "a.md").unlink())[0]
    assert "were not written: tables/a.md" in run_study(root=root).notebooks[0].reason


def test_only_keeps_what_the_others_made(fake):
    root = fake.root
    before = (run_study(root=root).out / "manifest.json").read_bytes()
    result = run_study(root=root, only=["03"])
    assert [done.name for done in result.notebooks] == ["03_c"]
    assert (result.out / "manifest.json").read_bytes() == before
    (result.out / "tables" / "a.csv").write_text("changed by hand")
    run_study(root=root, only=["03"])
    assert "01_a" not in json.loads((result.out / "manifest.json").read_text())["notebooks"]


def test_a_full_study_is_published_and_only_that(fake):
    root, behaviour, _ = fake
    run_study("quick", root=root)
    run_study("full", root=root, only=["01_a"])
    run_study("full", root=root, parameters={"n": 3})
    assert not (root / "figures").exists()
    run_study("full", root=root)
    published = sorted(path.name for path in (root / "figures").iterdir())
    assert published == ["a.csv", "a.md", "a.tex", "manifest.json", "provenance.json"]
    (root / "figures" / "README.md").write_text("not ours")
    write_plan(root, "[03_c]\n")
    run_study("full", root=root)
    left = sorted(path.name for path in (root / "figures").iterdir())
    assert left == ["README.md", "manifest.json", "provenance.json"]


def test_ctrl_c_keeps_what_is_done(fake):
    root, behaviour, _ = fake

    def interrupt(out):
        raise KeyboardInterrupt

    behaviour["02_b"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_study(root=root)
    assert list(json.loads((root / "runs/quick/manifest.json").read_text())["notebooks"]) == ["01_a"]
    behaviour["02_b"] = lambda out: None
    assert run_study(root=root).exit_code == 0  # and the folder is free again


def test_no_kernel_starts_when_something_is_wrong(fake, monkeypatch):
    root, behaviour, _ = fake
    behaviour["01_a"] = lambda out: pytest.fail("it ran")
    for options, message in [
        ({"profile": "fast"}, "no profile 'fast'"),
        ({"only": ["04_d"]}, "no notebook '04_d'"),
        ({"parameters": {"m": 1}}, "has a parameter 'm'"),
        ({"parameters": {"n": "1"}}, "must be int"),
        ({"parameters": {"n": float("nan")}}, "n is nan, which a notebook file cannot hold"),
        ({"out": root / "notebooks" / "study.toml"}, "cannot write to .*choose another folder"),
    ]:
        with pytest.raises(UserError, match=message):
            run_study(root=root, **options)
    write_notebook(root / "notebooks" / "03_c.ipynb", parameters="out = None\nn = 1\nm = n * 10")
    with pytest.raises(UserError, match="03_c.ipynb: m = n \\* 10 is not a literal; derive values in the cell after"):
        run_study(root=root)
    monkeypatch.setattr(study, "repository_root", lambda: None)
    with pytest.raises(UserError, match="runs in a checkout of the repository"):
        run_study()


def test_two_studies_in_one_folder(fake):
    root = fake.root
    folder = run_study(root=root).out
    with (folder / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another study is running in .*runs/quick"):
            run_study(root=root)
    assert run_study(root=root).exit_code == 0


def test_a_manifest_that_is_none(fake):
    root = fake.root
    path = run_study(root=root).out / "manifest.json"
    path.write_text("[]")
    with pytest.raises(UserError, match="is no manifest of a study; move it away"):
        run_study(root=root)
    assert path.read_text() == "[]"


# --- with kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_way_a_notebook_can_go(tmp_path, monkeypatch):
    """One real study: each notebook goes another way, under kernelspecs and settings that would break it."""
    notebooks = tmp_path / "notebooks"
    pids = tmp_path / "pids"
    seen = (
        "import os, sys, json\ntripled = n * 3  # derived after the parameters: follows them\n"
        "print(json.dumps([sys.executable, os.getcwd(), n, tripled, pair, os.environ.get('MPLBACKEND')]))"
    )
    parameters = "out = None\nn: int = 3\npair = [0, 0]"
    write_notebook(notebooks / "01_ok.ipynb", OPEN_EXPORT, TABLE, seen, parameters=parameters, kernelspec=None)
    write_notebook(notebooks / "02_fails.ipynb", "# why\ny = 2", "raise KeyError('one\\ntwo')", "y = 3")
    write_notebook(notebooks / "03_needs_it.ipynb", "y = 2")
    other = {"name": "hijacked", "language": "R", "display_name": "R"}
    write_notebook(notebooks / "04_dies.ipynb", "import os", "os.kill(os.getpid(), 9)", kernelspec=other)
    hang = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getppid()}} {{os.getpid()}} {{child.pid}}')\n"
        "while True: time.sleep(1)"
    )
    write_notebook(notebooks / "05_hangs.ipynb", hang)
    write_notebook(notebooks / "06_makes_nothing.ipynb", "y = 1")
    write_plan(
        tmp_path,
        '[01_ok]\noutputs = ["tables/numbers"]\nquick = { n = 7 }\n[02_fails]\n[03_needs_it]\nneeds = ["02_fails"]\n'
        '[04_dies]\n[05_hangs]\ndeadline = 60\n[06_makes_nothing]\noutputs = ["figures/nothing"]\n',
    )
    for name in ("python3", "hijacked"):
        spec = tmp_path / "share" / "kernels" / name / "kernel.json"
        spec.parent.mkdir(parents=True)
        spec.write_text(
            json.dumps({"argv": ["/bin/false", "{connection_file}"], "display_name": name, "language": "x"})
        )
    startup = tmp_path / "ipython" / "profile_default" / "startup" / "00.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("raise SystemExit")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "no_such_backend")
    monkeypatch.chdir(tmp_path)

    result = run_study(root=tmp_path, parameters={"pair": (np.int64(1), np.float32(0.5))})
    ok, fails, needs, dies, hangs, nothing = result.notebooks

    assert (ok.status, ok.findings) == ("ok", ("n is 7",)), ok.reason
    executed = json.loads((result.out / "notebooks" / "01_ok.ipynb").read_text())
    (line,) = executed["cells"][-1]["outputs"][0]["text"]
    interpreter, folder, *values, backend = json.loads(line)
    assert values == [7, 21, [1, 0.5]]  # a tuple and numpy's numbers arrive as what they are
    assert (interpreter, folder) == (sys.executable, str(notebooks)) and backend != "no_such_backend"
    assert str(result.out.parent.parent / "notebooks") not in json.dumps(executed["metadata"])
    assert not (result.out / "notebooks" / "01_ok.log").exists()  # a run that goes well has nothing to say

    assert fails.reason == (
        "cell 3 `raise KeyError('one\\ntwo')` (In [4]): KeyError: 'one\\ntwo'; "
        "executed copy: runs/quick/notebooks/02_fails.ipynb"
    )
    assert "KeyError" in (result.out / "notebooks" / "02_fails.ipynb").read_text()
    assert (needs.status, needs.reason) == ("skipped", "it needs 02_fails")
    assert dies.status == "failed" and dies.reason.startswith("the kernel died in cell 3 `os.kill(os.getpid(), 9)`")
    assert hangs.status == "failed" and hangs.reason.startswith("ran past its deadline of 60 s, in cell 2 `import os, ")
    assert hangs.seconds < 120
    assert not [pid for pid in map(int, pids.read_text().split()) if alive(pid)]
    assert "were not written: figures/nothing.pdf" in nothing.reason
    assert result.exit_code == 1
    assert list(json.loads((result.out / "manifest.json").read_text())["notebooks"]) == ["01_ok"]


@pytest.mark.slow
def test_two_runs_leave_the_same_bytes(tmp_path):
    """Exports, manifest and even the executed copy; times and the machine are in provenance.json alone."""
    draw = (
        "from dreamrsi import figures\nfigure, axes = figures.new()\naxes.plot([1, 2], [len(set('abc')), n])\n"
        "export.figure(figure, 'line')"
    )
    write_notebook(tmp_path / "notebooks" / "01_ok.ipynb", OPEN_EXPORT, TABLE, draw, parameters="out = None\nn = 3")
    write_plan(tmp_path, '[01_ok]\noutputs = ["tables/numbers", "figures/line"]\nquick = { n = 4 }\n')

    def contents():
        out = run_study(root=tmp_path, force=True).out
        files = {path.relative_to(out): path for path in out.rglob("*") if path.is_file()}
        own = {name: path.read_bytes() for name, path in files.items() if name.parts[0] not in OF_THE_MACHINE}
        assert len(files) == len(own) + len(OF_THE_MACHINE)
        return own

    first = contents()
    assert len(first) == 10 and contents() == first  # 3 + 3 exports, manifest, findings, copy, lock


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_study_leaves_no_process(tmp_path, end):
    pids = tmp_path / "pids"
    hang = f"import os, time\nopen({str(pids)!r}, 'w').write(f'{{os.getppid()}} {{os.getpid()}}')\ntime.sleep(600)"
    write_notebook(tmp_path / "notebooks" / "01_hangs.ipynb", hang)
    write_plan(tmp_path, "[01_hangs]\n")
    code = f"from pathlib import Path; from dreamrsi.study import run_study; run_study(root=Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        process.send_signal(end)
        _, error = process.communicate(timeout=30)
    wait_for(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), seconds=10)
    if end == signal.SIGINT:
        assert error.rstrip().endswith("KeyboardInterrupt")
        assert (tmp_path / "runs" / "quick" / "manifest.json").exists()


@pytest.mark.slow
def test_the_kernel_is_tried_twice(tmp_path, monkeypatch):
    """A kernel that cannot start, here for want of ipykernel's launcher, is reported as that."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "ipykernel_launcher.py").write_text(
        f"open({str(tmp_path / 'tries')!r}, 'a').write('x'); raise SystemExit(3)"
    )
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", "x = 1")
    write_plan(tmp_path, "[01_a]\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    (result,) = run_study(root=tmp_path).notebooks
    assert result.reason.startswith("the kernel did not start, in two tries: ")
    assert (tmp_path / "tries").read_text() == "xx"


def test_a_lock_goes_with_its_process(tmp_path):
    """A killed study leaves no lock behind, since the lock is the system's and not a file's existence."""
    (tmp_path / ".lock").write_text("")
    os.chmod(tmp_path / ".lock", 0o644)
    (tmp_path / "notebooks").mkdir()
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb")
    write_plan(tmp_path, "")
    assert run_study(root=tmp_path, out=tmp_path).exit_code == 0
