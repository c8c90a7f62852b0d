"""The agent that is a command: what it is given, what of its work is kept, and how each misbehaviour ends."""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from dreamrsi import checkout
from dreamrsi.agents import AgentFailure, Context
from dreamrsi.checkout import Checkout, Unusable, remove
from dreamrsi.command_agent import MAX_PROGRAM, CommandAgent, tag_of
from dreamrsi.commands import Command
from dreamrsi.errors import UserError
from dreamrsi.guidance import Guidance
from dreamrsi.live import live_run
from dreamrsi.policies import ParallelRefine
from dreamrsi.record import Attempt
from dreamrsi.tasks import Evaluation, Program
from dreamrsi.workspace import Workspaces
from live_fixtures import start
from sandbox_fixtures import is_alive
from stand_in_agent import PROGRAM
from toy_task import Toy

SEED = b"def solve(seed):\n    return [0]\n"
STAND_IN = f"{sys.executable} {Path(__file__).parent / 'stand_in_agent.py'}"


@dataclass(frozen=True)
class Sums:
    """A program's ``solve(seed)`` returns numbers; the score is how many they are."""

    name: str = "sums"
    requires: tuple[str, ...] = ()

    @property
    def moves(self):
        return {}

    @property
    def program(self):
        return Program("solve.py", "numbers.json", "Return a list of whole numbers.", SEED)

    def seed_workspace(self):
        return {"notes.txt": b"as it was", "gone.txt": b"still here", "numbers.json": b"[0]"}

    def evaluate(self, files):
        return Evaluation(score=float(len(json.loads(files["numbers.json"]))))


def attempt(number, score=None, **others):
    values = {"status": "error" if score is None else "ok", "branch": 0, "seq": number, "score": score}
    return Attempt(attempt=number, **values | others)


EARLIER = (
    attempt(0, 2.5, tag="grow one circle", commit="c0"),
    attempt(
        1, error="agent x: the command ended with exit code 1", metrics={"agent": {"proposal": "# Push\n\nMaybe.\n"}}
    ),
)
FILES = {
    **Sums().seed_workspace(),
    "solve.py": SEED,
    "proposals/000.md": b"# Grow one circle\n",
    "proposals/000-solve.py": SEED,
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    for name in ("work", "notes", "outside"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("STAND_IN_NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("STAND_IN_OUTSIDE", str(tmp_path / "outside/secret.py"))
    (tmp_path / "outside/secret.py").write_bytes(PROGRAM)
    yield
    assert list((tmp_path / "work").iterdir()) == []


def agent(what, seconds=60.0, **others):
    return CommandAgent(Command(f"{STAND_IN} {what}", seconds, ["STAND_IN_NOTES", "STAND_IN_OUTSIDE"]), **others)


def make(what, files=None, context=None, seconds=60.0, agent_files=None):
    context = Context(0, 2.5, EARLIER) if context is None else context
    return agent(what, seconds, files=agent_files).attempt(Sums(), FILES if files is None else files, context)


def failure(what, **others):
    with pytest.raises(AgentFailure) as caught:
        make(what, **others)
    return caught.value


def test_a_good_command_leaves_its_proposal_and_its_program():
    made = make("good")
    text = b"# Swap two circles\n\nBecause growing one alone is stuck.\n"
    restored = {"proposals/001.md": b"# Push\n\nMaybe.\n"}  # of the attempt that failed and left no files
    new = {"solve.py": PROGRAM, "proposals/002.md": text, "proposals/002-solve.py": PROGRAM}
    told = made.files["proposals/results.md"]
    assert b"## Attempt 001" in told
    assert made.files == {**FILES, **restored, **new, "proposals/results.md": told}
    assert made.tag == "Swap two circles"
    assert made.metrics["exitcode"] == 0 and made.metrics["output"] == "done  [31mred\n"
    assert "undone" not in made.metrics and "note" not in made.metrics
    json.dumps(made.metrics)


def test_the_first_attempt_of_a_branch_starts_from_the_seed_program():
    made = make("good", Sums().seed_workspace(), Context(0, 1.0))
    assert made.files["proposals/000-solve.py"] == PROGRAM and "proposals/000.md" in made.files


def test_the_seed_program_is_there_to_be_read_and_is_none_of_its_own(tmp_path):
    files, start = Sums().seed_workspace(), Context(0, 1.0)
    assert "solve.py" not in files
    make("tell", files, start)
    assert json.loads((tmp_path / "notes/given").read_text())["files"]["solve.py"] == SEED.decode()
    failed = failure("nothing", files=files, context=start)
    assert (failed.status, failed.text) == ("rejected", "the command changed nothing: solve.py is as it was")


def test_what_an_earlier_round_left_is_numbered_apart():
    """Otherwise the inherited proposals/000.md would pass for the one that the first attempt should have written."""
    first = make("good")  # attempt 2 of its branch
    start = Context(0, 3.0)
    second = make("good", {**first.files, "solve.py": b"better"}, start)
    assert {"proposals/000.md", "proposals/earlier-000.md", "proposals/earlier-002-solve.py"} < set(second.files)
    assert "proposals/002.md" not in second.files
    results = second.files["proposals/earlier-results.md"].decode()
    assert "## Attempt earlier-001: without a name" in results and "proposals/earlier-000.md" in results
    third = make("only_program", {**second.files, "solve.py": b"best"}, start)
    assert {"proposals/earlier-002.md", "proposals/earlier-003.md"} < set(third.files)
    assert third.metrics["note"] == "proposals/000.md was not written"
    assert third.files["proposals/earlier-results.md"].count(b"# Measured results") == 2


def test_it_reads_proposals_results_task_and_guidance(tmp_path):
    make("tell", context=Context(0, 2.5, EARLIER, Guidance("Try swaps.")))
    given = json.loads((tmp_path / "notes/given").read_text())
    files, prompt = given["files"], given["stdin"]
    assert files["TASK.md"] == "Return a list of whole numbers." and files["GUIDANCE.md"] == "Try swaps."
    assert files["proposals/000.md"] == "# Grow one circle\n" and files["proposals/001.md"] == "# Push\n\nMaybe.\n"
    assert files["solve.py"] == files["proposals/000-solve.py"] == SEED.decode()
    results = files["RESULTS.md"]
    assert "## Attempt 000: grow one circle\n\n- score 2.5, the best of this line\n" in results
    assert "- see proposals/000-solve.py, proposals/000.md" in results
    assert "## Attempt 001: without a name\n\n- failed, status error: agent x: the command ended with" in results
    assert "The files here are those of attempt 000 (score 2.5)." in results
    for word in ("RESULTS.md", "proposals/002.md", "solve.py", "GUIDANCE.md", "mechanism", "60 seconds"):
        assert word in prompt
    make("tell", context=Context(0, 2.5, EARLIER))
    given = json.loads((tmp_path / "notes/given").read_text())
    assert "GUIDANCE.md" not in given["files"] and "GUIDANCE.md" not in given["stdin"]


def test_what_else_it_changed_is_undone_and_listed():
    made = make("forbidden")
    assert {name: made.files[name] for name in FILES if name != "solve.py"} == {
        name: content for name, content in FILES.items() if name != "solve.py"
    }
    new = {"proposals/001.md", "proposals/002.md", "proposals/002-solve.py", "proposals/results.md"}
    assert set(made.files) - set(FILES) == new
    assert made.metrics["undone"] == [
        "added folder/",
        "added link (a link)",
        "added new.txt",
        "added pipe (a pipe)",
        "deleted gone.txt",
        "edited notes.txt",
        "edited proposals/000.md",
    ]


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("fail", "error", "the command ended with exit code 1; its last line was: no such model"),
        ("nothing", "rejected", "the command changed nothing: solve.py is as it was"),
        ("only_proposal", "rejected", "the command changed nothing: solve.py is as it was"),
        ("removes_program", "invalid", "the command left no program: solve.py is not there"),
        ("delete", "invalid", "the command left no program: solve.py is not there"),
        (
            "huge",
            "invalid",
            f"the command left no program: solve.py has {2**33} bytes; at most {MAX_PROGRAM} are taken",
        ),
        ("fifo", "invalid", "the command left no program: solve.py is no plain file but a pipe"),
        ("symlink", "invalid", "the command left no program: solve.py is no plain file but a link"),
        ("crash", "error", "the command died of SIGSEGV and printed nothing"),
    ],
)
def test_every_failure_has_its_own_text_and_status(what, status, text):
    failed = failure(what)
    assert (failed.status, failed.text) == (status, text)
    assert failed.metrics["seconds"] > 0 and "output" in failed.metrics


@pytest.mark.parametrize("what", ["hang", "hang_orphan"])
def test_a_command_that_hangs_is_a_timeout_with_what_it_had_proposed(what):
    failed = failure(what, seconds=1.5)
    assert failed.status == "timeout" and failed.text.startswith("the command took longer than its 2 s")
    assert failed.metrics["exitcode"] is None and failed.metrics["proposal"].startswith("# Swap two circles")
    assert failed.tag == "Swap two circles"


def test_a_program_without_a_proposal_counts_with_a_note():
    made = make("only_program")
    assert made.tag is None and made.files["solve.py"] == PROGRAM
    assert made.metrics["note"] == "proposals/002.md was not written" and "proposals/002.md" not in made.files


def test_a_link_to_outside_is_not_followed():
    made = make("linked_folder")
    assert "proposals/002.md" not in made.files and made.tag is None
    assert made.metrics["note"] == "proposals/002.md was not written"
    assert {"added elsewhere/", "added proposals (a link)", "deleted proposals/000.md"} < set(made.metrics["undone"])
    assert made.files["proposals/000.md"] == FILES["proposals/000.md"]


def test_100_mb_of_output_are_a_short_text():
    made = make("flood")
    assert made.metrics["output_bytes"] > 100_000_000 and len(made.metrics["output"]) < 20_000


def test_other_files_can_be_the_ones_to_edit():
    made = make("forbidden", agent_files=["solve.py", "notes.txt"])
    assert made.files["notes.txt"] == b"edited" and "edited notes.txt" not in made.metrics["undone"]
    assert agent("good", files=["a", "b"]).name.endswith(", files a, b")


def test_a_task_without_a_program_is_refused():
    with pytest.raises(UserError, match="task toy: this task has no program for a command to edit"):
        agent("good").attempt(Toy(), {"value": b"1.0"}, Context(0))


def test_a_live_run_with_a_command(tmp_path):
    tree = live_run(
        Sums(), ParallelRefine(bootstrap=1), tmp_path / "run", agent=agent("good"), branches=1, steps=3, timeout=120
    )
    first, second, third = tree.attempts
    assert first.score == 2.0 and first.status == "ok" and first.tag == "Swap two circles"
    assert [second.status, third.status] == ["rejected", "rejected"]  # it writes the same program again
    assert "the command changed nothing" in second.error and second.metrics["agent"]["proposal"].startswith("# Swap")
    files = Workspaces(tmp_path / "run/workspaces.git").load(first.commit)
    assert files["solve.py"] == PROGRAM and set(files) == {
        *Sums().seed_workspace(),
        "solve.py",
        "proposals/000.md",
        "proposals/000-solve.py",
        "proposals/results.md",
    }


def survivors(tmp_path):
    """The processes noted by the stand-in that still run, after a moment for the kill to arrive."""
    pids = [int(path.read_text()) for path in (tmp_path / "notes").glob("pid-*")]
    assert pids
    deadline = time.monotonic() + 5
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


@pytest.mark.parametrize("what", ["hang_orphan", "hang_deaf"])
def test_the_deadline_of_an_attempt_ends_its_command_with_all_it_started(tmp_path, what):
    """In other kits the children of an agent that was timed out survived it."""
    settings = {"agent": agent(what, 300.0), "branches": 1, "steps": 1, "timeout": 5}
    [attempt] = live_run(Sums(), ParallelRefine(bootstrap=1), tmp_path / "run", **settings)
    assert attempt.status == "timeout" and attempt.error == "took longer than 5 s"
    assert survivors(tmp_path) == []


RUN = """
import sys
sys.path.insert(0, {tests!r})
from test_command_agent import Sums, agent
from dreamrsi.live import live_run
from dreamrsi.policies import ParallelRefine
live_run(Sums(), ParallelRefine(bootstrap=1), sys.argv[1], agent=agent("hang_orphan", 300.0), branches=1, steps=1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_does_not_outlive_the_run(tmp_path, number):
    process = start(RUN, tmp_path / "run", tmp_path)
    deadline = time.monotonic() + 30
    while not list((tmp_path / "notes").glob("pid-*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert survivors(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("# Swap two circles\nmore", "Swap two circles"),
        ("\n\n  ## **Grow**  the *gaps* \n", "Grow** the *gaps"),
        ("plain line", "plain line"),
        ("#\n---\n", None),
        ("", None),
        ("# " + "word " * 30, "word " * 11 + "word"),
        ("x" * 200, "x" * 60),
        ("# a\x1b[31m\x07b", "a [31m b"),
    ],
)
def test_the_tag_is_the_first_line_that_says_something(text, tag):
    assert tag_of(text) == tag


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_permissions_do_not_hide_what_was_written():
    """As an ordinary user, whom permissions bind; in a folder that such a user can reach."""
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    shared.chmod(0o777)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            with Checkout(shared / "checkout", {"a/b.txt": b"b", "c.txt": b"c"}) as checkout:
                (checkout.folder / "a/b.txt").chmod(0)
                (checkout.folder / "a").chmod(0)
                checkout.folder.chmod(0)
                assert checkout.read("a/b.txt", 10) == b"b" and checkout.changes(()) == []
                deep = checkout.folder / "x"
                deep.mkdir()
                (deep / "y").touch()
                deep.chmod(0)
            assert not (shared / "checkout").exists()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    shutil.rmtree(shared)
    assert status == 0


def test_a_folder_too_deep_for_recursion_is_removed_and_many_changes_are_counted(tmp_path):
    checkout = Checkout(tmp_path / "checkout", {"a": b"a"})
    for number in range(60):
        (checkout.folder / f"file {number}").touch()
    assert len(checkout.changes(())) == 51 and checkout.changes(())[-1] == "and 10 more"
    with pytest.raises(Unusable, match="is not there"):
        checkout.read("a/b", 10)
    with checkout:
        here = os.open(checkout.folder, os.O_RDONLY)
        for _ in range(2000):
            os.mkdir("d", dir_fd=here)
            lower = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = lower
        os.close(here)
    assert not (tmp_path / "checkout").exists()
    remove(tmp_path / "checkout")


def test_of_very_many_entries_the_first_are_looked_at_and_the_others_not_said_to_be_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, "_MAX_ENTRIES", 80)
    with Checkout(tmp_path / "checkout", {f"kept {number}": b"" for number in range(50)}) as there:
        for number in range(100):
            (there.folder / f"new {number}").touch()
        changes = there.changes(())
        assert changes[-1] == "more than 80 entries; the others were not looked at"
        assert sum(int(c.split()[1]) if c.startswith("and ") else c.startswith("added") for c in changes[:-1]) <= 80
        assert not any(change.startswith("deleted") for change in changes)
        monkeypatch.setattr(checkout, "_MAX_ENTRIES", 150)
        assert there.changes(())[-1] == "and 50 more"
