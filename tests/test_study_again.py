"""The study's promises, with kernels: a killed study ends as one that was not, and two studies are the same bytes."""

import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dreamrsi import receipts
from dreamrsi.study import run_study
from notebook_fixtures import write_notebook, write_plan

ROOT = Path(__file__).parent.parent
START = "from dreamrsi import Exports\nexport = Exports(out, NAME)"
TREE = "export.finding(f'{NAME} is done')\nexport.path(f'trees/{NAME}.txt').write_text(str(n))"
DRAW = (
    "from dreamrsi import figures\nfigure, axes = figures.new()\naxes.plot([1, 2], [n, 3])\n"
    "export.figure(figure, 'line')"
)


def contents(out, *kinds):
    files = [path for kind in kinds for path in out.glob(kind) if path.is_file()]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_a_killed_study_that_goes_on_equals_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(receipts, "package_hash", lambda: "the package")  # whoever edits it while the tests run
    waits, go = tmp_path / "waits", tmp_path / "go"
    wait = (
        f"import pathlib, time\npathlib.Path({str(waits)!r}).touch()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    )
    for name, cells in {"01_a": [TREE, DRAW], "02_b": [TREE, wait], "03_c": [TREE]}.items():
        start = START.replace("NAME", repr(name))
        write_notebook(
            tmp_path / "notebooks" / f"{name}.ipynb",
            f"NAME = {name!r}\n{start}",
            *cells,
            parameters="out = None\nn = 1",
        )
    write_plan(
        tmp_path,
        '[01_a]\noutputs = ["figures/line"]\n[02_b]\nneeds = ["01_a"]\noutputs = ["trees/02_b.txt"]\n[03_c]\n',
    )
    code = (
        "from pathlib import Path; from dreamrsi import receipts, study; "
        f"receipts.package_hash = lambda: 'the package'; study.run_study(root=Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        deadline = time.monotonic() + 60
        while not waits.exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    go.touch()
    result = run_study(root=tmp_path)
    assert [(done.status, done.why) for done in result.notebooks] == [
        ("cached", ""),
        ("ok", "it was interrupted last time"),
        ("ok", "the first time"),
    ]
    everything = ("figures/*", "trees/*", "notebooks/*", "findings/*", "manifest.json")
    resumed = contents(result.out, *everything)
    shutil.rmtree(result.out)
    assert resumed == contents(run_study(root=tmp_path).out, *everything) and len(resumed) == 3 + 3 + 3 + 3 + 1


@pytest.mark.slow
def test_two_studies_of_this_repository_are_the_same_bytes(tmp_path):
    """The notebooks themselves, two studies side by side, made smaller where they take long."""
    fewer = {"02.corpora": 2, "02.random_seeds": 2, "05.workspaces": 2, "05.steps": 2}
    fewer |= {"06.worlds_shown": 1, "06.world_rounds": 2, "06.trees": 2, "06.largest": 4}
    for number in ("06", "07"):  # the second goes on with the runs of the first
        small = {"seeds": 1, "circles": 5, "workspaces": 2, "steps": 2, "rounds": 2}
        fewer |= {f"{number}.{name}": value for name, value in small.items()}
    fewer |= {"09.seeds": 4, "09.corpora": 2, "09.trees": 2, "09.circles": 5}

    def study(name):
        result = run_study(root=ROOT, out=tmp_path / name, parameters=fewer, force=True)
        assert result.exit_code == 0, result.notebooks
        return contents(result.out, "figures/*", "tables/*", "findings/*", "manifest.json")

    with ThreadPoolExecutor(2) as both:
        first, second = both.map(study, ["first", "second"])
    assert len(first) > 70 and [name for name in first if first[name] != second[name]] == []
    assert first.keys() == second.keys()
