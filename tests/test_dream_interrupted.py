"""Dreams that are cut off, at every write and by kill -9 anywhere: each goes on and ends in equal content."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dream_fixtures import ALL, BROKEN, HALF, OTHER, Scripted, files_of, run
from dreamrsi import dream_files
from dreamrsi.dream import load_dream
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401

SCRIPT = [HALF, BROKEN, HALF, ALL]


class Killed(BaseException):
    pass


def finished(folder):
    """The versions that are there."""
    return {int(path.parent.name[-2:]) for path in Path(folder).glob("developer/version-*/version.json")}


def test_cut_off_at_any_write(tmp_path, monkeypatch):
    expected = run(tmp_path / "whole", *SCRIPT, history=[OTHER])
    write = dream_files.atomic_write
    left = 0

    def cut(path, content):
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return write(path, content)

    writes = len(files_of(tmp_path / "whole")) + 1  # dream.json is written twice
    for at in range(writes):
        folder, left = tmp_path / str(at), at
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(dream_files, "atomic_write", cut)
            run(folder, *SCRIPT, history=[OTHER])
        there = finished(folder)
        developer = Scripted(*SCRIPT)
        assert run(folder, *SCRIPT, developer=developer, history=[OTHER]) == expected == load_dream(folder)
        assert {request.number for request in developer.requests} == {1, 2, 3, 4} - there
        assert files_of(folder) == files_of(tmp_path / "whole")


PROGRAM = """
import sys, time
sys.path.insert(0, {tests!r})
from dream_fixtures import Scripted, run
from test_dream_interrupted import SCRIPT
class Slow(Scripted):
    def develop(self, request):
        (request.folder / "half").write_text("written")
        time.sleep(0.05)
        (request.folder / "half").unlink()
        print("asked", request.number, flush=True)
        return super().develop(request)
print("begun", flush=True)
run(sys.argv[1], *SCRIPT, developer=Slow(*SCRIPT), progress=lambda version: print("there", version.number, flush=True))
print("finished", flush=True)
"""


def killed(path, folder, draw):
    """Run the program and kill it somewhere; return what it said until then, and whether it was killed in time."""
    process = subprocess.Popen([sys.executable, path, folder], stdout=subprocess.PIPE, text=True)
    said = []
    for _ in range(draw.randint(1, 9)):
        said.append(process.stdout.readline())
    time.sleep(draw.uniform(0, 0.06))
    process.kill()
    said += process.communicate()[0].splitlines(keepends=True)
    return "".join(said), process.returncode == -signal.SIGKILL


def killed_and_resumed(tmp_path, seed, points):
    expected = run(tmp_path / "whole", *SCRIPT)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=str(Path(__file__).parent)))
    draw = random.Random(seed)
    kills, number, folder = 0, 0, tmp_path / "0"
    while kills < points:
        before = finished(folder)
        said, in_time = killed(program, folder, draw)
        kills += in_time
        asked = {int(line.split()[1]) for line in said.splitlines() if line.startswith("asked")}
        assert not asked & before, "it was asked again for a version that was there"
        if not in_time or draw.random() < 0.3:
            assert run(folder, *SCRIPT) == expected
            assert files_of(folder) == files_of(tmp_path / "whole")
            number += 1
            folder = tmp_path / str(number)
    assert run(folder, *SCRIPT) == expected
    assert files_of(folder) == files_of(tmp_path / "whole")


def test_killed_anywhere(tmp_path):
    killed_and_resumed(tmp_path, 1, 6)


@pytest.mark.slow
def test_killed_at_many_points(tmp_path):
    killed_and_resumed(tmp_path, 2, 20)


def test_what_a_killed_dream_left_of_a_version_is_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, HALF, KeyboardInterrupt())
    place = tmp_path / "developer/version-02"
    (place / "work" / "mess").mkdir()
    (place / "policy.py").write_text("torn")
    assert run(tmp_path, HALF, ALL).selected.number == 2
    assert not (place / "work").exists()
    assert (place / "policy.py").read_bytes() == ALL


def test_what_a_killed_write_of_dream_json_left_is_removed(tmp_path):
    run(tmp_path, HALF)
    (tmp_path / ".dream.json.x1y2").write_text("torn")
    run(tmp_path, HALF)
    assert not list(tmp_path.glob(".dream.json.*")) and (tmp_path / "dream.json").exists()
