import json
import os
import signal
import threading
import time

import pytest

import toy_task
from dreamrsi import policies
from dreamrsi.agents import Proposal
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.live import attempt_seed, discard_run, live_run
from dreamrsi.prefix import OPEN
from dreamrsi.replay import replay
from dreamrsi.tree import Tree
from dreamrsi.workspace import Workspaces
from live_fixtures import ALL, SMALL, content, none_is_left, start, whole_run  # noqa: F401
from toy_task import Careless, Toy


def test_a_run_is_a_tree_with_its_workspaces(whole):
    tree, _, out = whole
    assert [len(branch) for branch in tree.branches] == [3, 3, 3, 3]
    assert tree.root == 1.0 and tree.header.task == "toy" and tree.header.policy == ALL.name
    assert {attempt.tag for attempt in tree} <= {"climb", "spoil", "fail"}
    assert {attempt.status for attempt in tree} == {"ok", "invalid", "error"}
    store = Workspaces(out / "workspaces.git")
    for attempt in tree:
        if attempt.commit is not None:
            value = store.load(attempt.commit)["value"]
            assert value == b"spoilt" if attempt.status == "invalid" else float(value) == attempt.score
    assert not (out / "scratch").exists()
    assert json.loads((out / "config.json").read_text())["seed"] == 5


@pytest.mark.parametrize(
    "policy",
    [
        ALL,
        policies.EarlyStop(),
        policies.GreedyBest(bootstrap=2),
        policies.Adaptive(),
        policies.Portfolio(),
        policies.Random(3),
    ],
    ids=lambda policy: policy.name,
)
def test_replaying_the_recording_policy_repeats_the_record(policy, tmp_path):
    tree = live_run(Toy(), policy, tmp_path, **SMALL)
    episode = replay(policy, tree, width=3)
    assert episode.picks == tree.picks
    assert [tree.branches[branch][place].seq for branch, place in episode.order] == list(range(len(tree)))


def test_the_result_does_not_depend_on_workers_or_on_who_finishes_first(whole, tmp_path):
    tree = live_run(Toy(), ALL, tmp_path, seed=5, **{**SMALL, "workers": 1})
    assert content(tree) == content(whole[0])


def test_a_finished_run_is_returned_without_any_work(whole):
    tree, data, out = whole
    calls = []
    again = live_run(Toy(), ALL, out, seed=5, progress=lambda *call: calls.append(call), **SMALL)
    assert content(again) == content(tree) and not calls
    assert (out / "round-01/tree.jsonl").read_bytes() == data


def test_progress_counts_and_seeds_differ(tmp_path):
    calls = []
    tree = live_run(Toy(toy_task.climb), ALL, tmp_path, progress=lambda *call: calls.append(call), **SMALL)
    assert [call[:2] for call in calls] == [(k, 12) for k in range(1, 13)]
    assert len({attempt.score for attempt in tree}) == 12
    assert len({attempt_seed(s, b, a) for s in range(3) for b in range(5) for a in range(5)}) == 75


FAILURES = {
    toy_task.crash: ("error", "the process died of SIGSEGV", False),
    toy_task.leave: ("error", "the process ended with exit code 3 before it gave a result", False),
    toy_task.fail: ("error", "agent moves: RuntimeError: broken in .?", False),
    toy_task.fail_hard: ("error", "agent moves: SystemExit: enough", False),
    toy_task.nan: ("error", "evaluator: ValueError: the score of a candidate that is ok is a finite number", True),
    toy_task.infinite: ("error", "evaluator: ValueError: the score of a candidate that is ok is a finite number", True),
    toy_task.not_files: ("error", "agent moves: TypeError: a workspace maps file names to bytes", False),
    toy_task.kill_judge: ("error", "the process died of SIGKILL", True),
    toy_task.spoil: ("invalid", "the value is spoilt", True),
}


@pytest.mark.parametrize("move", FAILURES, ids=lambda move: move.__name__)
def test_whatever_goes_wrong_is_an_attempt(move, tmp_path):
    tree = live_run(Toy(move), ALL, tmp_path, **{**SMALL, "branches": 2, "steps": 2})
    status, error, has_files = FAILURES[move]
    assert len(tree) == 4
    for attempt in tree:
        assert attempt.score is None and attempt.status == status
        assert attempt.error.startswith(error)
        assert (attempt.commit is not None) is has_files


def test_a_hanging_attempt_is_ended_with_its_children(tmp_path):
    before = time.monotonic()
    hang = toy_task.Hang(tmp_path / "pids")
    tree = live_run(Toy(hang), ALL, tmp_path / "run", width=2, branches=2, steps=1, workers=2, timeout=1.0)
    assert time.monotonic() - before < 20
    assert [(attempt.status, attempt.error) for attempt in tree] == [("timeout", "took longer than 1 s")] * 2
    assert len(list(hang.pids.iterdir())) == 2 and none_is_left(hang.pids)


def test_threads_and_noise_of_a_candidate_do_no_harm(tmp_path, capfd):
    tree = live_run(Toy(toy_task.leave_thread, toy_task.chatter), ALL, tmp_path, **{**SMALL, "steps": 2})
    assert {attempt.status for attempt in tree} == {"ok"}
    assert capfd.readouterr().out == ""


def test_a_careless_evaluator_and_a_careless_agent(tmp_path):
    tree = live_run(Careless(toy_task.climb), ALL, tmp_path / "a", **{**SMALL, "branches": 1})
    assert {attempt.error for attempt in tree} == {"evaluator: TypeError: returned float; it must return an Evaluation"}
    tree = live_run(Toy(), ALL, tmp_path / "b", agent=Mute(), **{**SMALL, "branches": 1})
    assert {attempt.error for attempt in tree} == {
        "agent mute: TypeError: returned dict; it must return a Proposal",
    }
    tree = live_run(Toy(), ALL, tmp_path / "c", agent=Odd(), **{**SMALL, "branches": 1})
    assert all(attempt.error.startswith("malformed result: Expected `str | null`") for attempt in tree)


class Mute:
    name = "mute"

    def attempt(self, task, files, context):
        return dict(files)


class Odd:
    name = "odd"

    def attempt(self, task, files, context):
        return Proposal(files, 17)


class Scripted:
    """Picks what it is told to, whatever the prefix."""

    name = "scripted"

    def __init__(self, *batches):
        self.batches = batches

    def start(self, width):
        self.left = list(self.batches)

    def choose(self, prefix):
        return self.left.pop(0) if self.left else []


def test_an_open_beyond_the_cap_creates_nothing_and_counts_a_round(tmp_path):
    policy = Scripted([OPEN, OPEN, OPEN], [OPEN], [0, OPEN], [OPEN])
    tree = live_run(Toy(toy_task.climb), policy, tmp_path, width=3, branches=2, steps=3)
    assert tree.picks == ((OPEN, OPEN, OPEN), (OPEN,), (0, OPEN))  # the last round, which gave nothing, is left out
    assert [batch.attempts for batch in tree.batches] == [2, 0, 1]
    assert [attempt.round for attempt in tree] == [0, 0, 2]
    assert replay(policy, tree, width=3).picks == tree.picks


def test_a_dead_fork_server_is_replaced(whole, tmp_path):
    from multiprocessing import forkserver

    def kill(done, total, attempt):
        pid = forkserver._forkserver._forkserver_pid
        if pid is not None and done in (2, 5):
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    killed = live_run(Toy(), ALL, tmp_path, seed=5, **SMALL, progress=kill)
    assert content(killed) == content(whole[0])


def test_max_rounds_ends_a_run(tmp_path):
    tree = live_run(Toy(), ALL, tmp_path, max_rounds=2, **SMALL)
    assert len(tree.picks) == 2


def test_a_policy_that_fails_leaves_a_record_that_can_be_resumed(tmp_path):
    with pytest.raises(PolicyError, match="scripted, round 1, pick 0: branch 7 is not open"):
        live_run(Toy(), Scripted([OPEN], [7]), tmp_path, **SMALL)
    assert len(live_run(Toy(), Scripted([OPEN], [0]), tmp_path, **SMALL)) == 2
    with pytest.raises(UserError, match="round 1: the policy picks .-1,., but the record says .0,."):
        live_run(Toy(), Scripted([OPEN], [OPEN]), tmp_path, **SMALL)
    with pytest.raises(UserError, match="round 1: the policy picks nothing"):
        live_run(Toy(), Scripted([OPEN]), tmp_path, **SMALL)


def test_another_configuration_is_refused(whole, tmp_path):
    with pytest.raises(UserError, match="seed was 5 and is now 6. Give the same settings"):
        live_run(Toy(), ALL, whole[2], seed=6, **SMALL)
    with pytest.raises(UserError, match="task was 'toy' and is now 'other'; policy was"):
        live_run(Toy(name="other"), policies.EarlyStop(), whole[2], seed=5, **SMALL)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match="is not the configuration of a run"):
        live_run(Toy(), ALL, tmp_path, **SMALL)


def test_bad_arguments_and_folders_are_user_errors(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/run: is no folder for a run .Not a directory.; choose another folder"):
        live_run(Toy(), ALL, tmp_path / "file" / "run", **SMALL)
    with pytest.raises(UserError, match="is no run's folder, it holds file"):
        live_run(Toy(), ALL, tmp_path, **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    for wrong in ({"width": 0}, {"steps": 1.5}, {"seed": -1}, {"workers": 0}, {"timeout": 0}, {"max_rounds": 0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            live_run(Toy(), ALL, tmp_path / "run", **{**SMALL, **wrong})
    with pytest.raises(UserError, match="there is no task 'chess'"):
        live_run("chess", ALL, tmp_path / "run")
    unsendable = Toy()
    unsendable.lock = threading.Lock()
    with pytest.raises(UserError, match="cannot be sent to a child process"):
        live_run(unsendable, ALL, tmp_path / "run", **SMALL)
    hopeless = Toy()
    hopeless.seed_workspace = dict
    with pytest.raises(UserError, match="its seed workspace cannot be evaluated .evaluator: KeyError"):
        live_run(hopeless, ALL, tmp_path / "other", **SMALL)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="git was not found"):
        live_run(Toy(), ALL, tmp_path / "without", **SMALL)
    assert not (tmp_path / "without").exists()


@pytest.mark.parametrize(
    "place", ["round-01", "scratch", "workspaces.git", "config.json/folder", "round-01/tree.jsonl/folder"]
)
def test_files_and_folders_in_the_wrong_place_are_user_errors(whole, tmp_path, place):
    """A file where the run has a folder, and a folder where it has a file."""
    (tmp_path / "config.json").write_bytes((whole[2] / "config.json").read_bytes())
    wrong = place.removesuffix("/folder")
    if wrong == "config.json":
        (tmp_path / "config.json").unlink()
    if wrong == place:
        (tmp_path / place).write_text("mine")
    else:
        (tmp_path / wrong).mkdir(parents=True)
    with pytest.raises(UserError, match=f"{tmp_path}/{wrong}.*(choose another folder|see that the folder is whole)"):
        live_run(Toy(), ALL, tmp_path, seed=5, **SMALL)
    assert wrong != place or (tmp_path / place).read_text() == "mine"


def test_discard_run_removes_a_run_and_nothing_else(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    discard_run(run)  # not there: nothing to do
    live_run(Toy(), ALL, run, max_rounds=1, **SMALL)
    discard_run(run)
    assert not run.exists()
    other.mkdir()
    for text in (None, "", "[]", '"text"', "{}", '{"format": "dreamrsi.tree/1"}'):
        if text is not None:
            (other / "config.json").write_text(text)
        with pytest.raises(UserError, match="other: has no config.json of a run, so it was left as it is"):
            discard_run(str(other))
    with pytest.raises(UserError, match="has no config.json of a run"):
        discard_run(other / "config.json")
    assert (other / "config.json").exists()
    live_run(Toy(), ALL, run, max_rounds=1, **SMALL)
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(UserError, match="link: cannot be removed"):
        discard_run(tmp_path / "link")
    assert (run / "config.json").exists()


PLAIN = """
import sys
from dreamrsi import policies
from dreamrsi.live import live_run
from dreamrsi.tasks import Evaluation
print("main is run")
class Task:
    name = "inline"
    requires = ()
    moves = {{"more": lambda files, seed: {{"x": files["x"] + b"x"}}}}
    def seed_workspace(self):
        return {{"x": b""}}
    def evaluate(self, files):
        return Evaluation(score=len(files["x"]))
tree = live_run(Task(), policies.ParallelRefine(), sys.argv[1], width=2, branches=2, steps=3, workers=2)
print([[attempt.score for attempt in branch] for branch in tree.branches])
"""


def test_a_plain_script_without_a_main_guard_and_with_its_own_task(tmp_path):
    process = start(PLAIN, tmp_path / "run", tmp_path)
    out, errors = process.communicate(timeout=60)
    assert errors == ""
    assert out == "main is run\n[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]\n"


@pytest.mark.slow
def test_a_notebook_with_its_own_task(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    source = PLAIN.format().replace("sys.argv[1]", repr(str(tmp_path / "run")))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert "[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]" in "".join(output["text"] for output in notebook.cells[0].outputs)


@pytest.mark.slow
def test_circle_packing_end_to_end(tmp_path):
    settings = {"width": 4, "branches": 4, "steps": 3}
    trees = [live_run("circle_packing", policies.ParallelRefine(), tmp_path / name, **settings) for name in "ab"]
    assert content(trees[0]) == content(trees[1])
    assert trees[0].best > 2.55
    assert Tree.load(tmp_path / "a/round-01/tree.jsonl").picks == replay(policies.ParallelRefine(), trees[0], 4).picks


def test_no_thread_pools_in_workers(tmp_path):
    tree = live_run(Threads(toy_task.climb), ALL, tmp_path, **{**SMALL, "branches": 1, "steps": 1})
    assert tree.attempts[0].metrics == {"threads": [1], "variable": "1"}


class Threads(Toy):
    requires = ("numpy",)

    def evaluate(self, files):
        import numpy  # noqa: F401
        from threadpoolctl import threadpool_info

        from dreamrsi.tasks import Evaluation

        threads = sorted({pool["num_threads"] for pool in threadpool_info()})
        return Evaluation(score=1.0, metrics={"threads": threads, "variable": os.environ["OMP_NUM_THREADS"]})
