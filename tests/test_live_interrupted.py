"""Live runs that are cut off: by a kill, Ctrl-C, a torn record or a full disk; each resumes to the same tree."""

import random
import signal
import subprocess
import time
import warnings

import pytest

from dreamrsi.errors import UserError
from dreamrsi.live import discard_run, live_run
from dreamrsi.workspace import Workspaces
from live_fixtures import ALL, SMALL, content, kill_after, none_is_left, start, whole_run  # noqa: F401
from toy_task import Toy


@pytest.mark.parametrize("share", [0.0, 0.02, 0.12, 0.3, 0.55, 0.8, 0.99])
def test_a_record_cut_anywhere_is_resumed_to_the_same_run(whole, tmp_path, share):
    tree, data, out = whole
    cut = data[: int(share * len(data))]
    (tmp_path / "round-01").mkdir()
    (tmp_path / "round-01/tree.jsonl").write_bytes(cut)
    (tmp_path / "config.json").write_bytes((out / "config.json").read_bytes())
    subprocess.run(["cp", "-r", out / "workspaces.git", tmp_path], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the torn line is reported, which is another test
        again = live_run(Toy(), ALL, tmp_path, seed=5, **SMALL)
    assert content(again) == content(tree)
    kept = cut.splitlines(keepends=True)
    kept = kept[:-1] if kept and not kept[-1].endswith(b"\n") else kept
    assert (tmp_path / "round-01/tree.jsonl").read_bytes().startswith(b"".join(kept))  # nothing lost or repeated


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import toy_task
from dreamrsi import policies
from dreamrsi.live import live_run
print("begun", flush=True)
def say(done, total, attempt):
    print(done, flush=True)
task = toy_task.Toy({moves})
caps = dict(width=3, branches=4, steps=3, workers=2, timeout=60.0)
{before}
live_run(task, policies.ParallelRefine(bootstrap=4), sys.argv[1], seed=5, progress=say, **caps)
"""


def killed_and_resumed(whole, tmp_path, seed, times):
    draw = random.Random(seed)
    out = tmp_path / "run"
    kills = sum(
        kill_after(start(SCRIPT, out, tmp_path), draw.randint(1, 5), draw.uniform(0, 0.1)) for _ in range(times)
    )
    assert kills >= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = live_run(Toy(), ALL, out, seed=5, **SMALL)
    assert content(tree) == content(whole[0])
    data = (out / "round-01/tree.jsonl").read_bytes()
    assert len(data.splitlines()) == 1 + len(tree.batches) + len(tree)  # no attempt is there twice
    assert not (out / "scratch").exists()


def test_a_killed_run_resumes_to_the_same_tree(whole, tmp_path):
    killed_and_resumed(whole, tmp_path, 1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_killed_many_times(whole, tmp_path, seed):
    killed_and_resumed(whole, tmp_path, seed, 5)


def test_ctrl_c_ends_the_children_and_leaves_a_resumable_run(tmp_path):
    out = tmp_path / "run"
    pids = tmp_path / "pids"
    process = start(SCRIPT, out, tmp_path, moves=f"toy_task.Hang({str(pids)!r})")
    assert process.stdout.readline() == "begun\n"
    wait_until(lambda: len(list(pids.glob("*"))) == 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors.splitlines()[-1]
    assert not (out / "scratch").exists()
    assert none_is_left(pids)
    tree = live_run(Toy(), ALL, out, seed=5, **SMALL)
    assert len(tree) == 12


def wait_until(there):
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_runs_in_one_folder_are_refused(tmp_path):
    out = tmp_path / "run"
    process = start(SCRIPT, out, tmp_path, moves=f"toy_task.Hang({str(tmp_path / 'pids')!r})")
    try:
        wait_until((out / "config.json").exists)
        with pytest.raises(UserError, match="another live run is running in .*run; wait for it"):
            live_run(Toy(), ALL, out, seed=5, **SMALL)
        with pytest.raises(UserError, match="another live run is running in"):
            discard_run(out)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"


@pytest.mark.parametrize("room", [50, 300, 700, 1200, 3000])
def test_a_full_disk_is_one_message_and_leaves_a_resumable_run(whole, tmp_path, room):
    """No file may grow beyond ``room`` bytes, which hits the configuration or the record, early or late."""
    out = tmp_path / "run"
    for _ in range(2):  # the second time it is no better, and no worse
        _, errors = start(SCRIPT, out, tmp_path, before=FULL.format(room)).communicate(timeout=60)
        message = errors.splitlines()[-1]
        assert message.startswith("dreamrsi.errors.UserError: ") and str(out) in message, errors
        assert "choose another folder" in message or "resume the run" in message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn line, which is another test
        tree = live_run(Toy(), ALL, out, seed=5, **SMALL)
    assert content(tree) == content(whole[0])


def test_a_result_that_the_disk_does_not_take_is_no_attempt(tmp_path):
    out = tmp_path / "run"
    process = start(SCRIPT, out, tmp_path, moves="toy_task.grow", before=FULL.format(50_000))
    message = process.communicate(timeout=60)[1].splitlines()[-1]
    assert "run/scratch: an attempt could not write its result" in message and "resume the run" in message
    tree = live_run(Toy(), ALL, out, seed=5, **SMALL)
    assert len(tree) == 12


@pytest.mark.parametrize(("room", "command"), [(20, "init"), (50_000, "fast-import")])
def test_git_on_a_full_disk_is_one_message(tmp_path, room, command):
    script = "import os, sys\nfrom dreamrsi.workspace import Workspaces\n{before}\nstore = Workspaces(sys.argv[1])\n"
    script += "store.save({{'noise': os.urandom(100_000)}}, 'refs/heads/root', 'seed')"
    process = start(script, tmp_path / "w.git", tmp_path, before=FULL.format(room))
    message = process.communicate(timeout=60)[1].splitlines()[-1]
    assert f"w.git: git {command} failed (ended by signal" in message and "its disk has room" in message
    store = Workspaces(tmp_path / "w.git")
    assert store.load(store.save({"x": b"1"}, "refs/heads/root", "seed")) == {"x": b"1"}
