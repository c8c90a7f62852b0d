"""Commands of coding agents: what they are given, how they end, and that nothing that they started survives."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from dreamrsi import keeper
from dreamrsi.commands import PRESETS, Command
from dreamrsi.errors import UserError
from sandbox_fixtures import is_alive

STAND_IN = f"{sys.executable} {Path(__file__).parent / 'stand_in_agent.py'}"


@pytest.fixture(name="notes")
def folder_of_notes(tmp_path, monkeypatch):
    """Where the stand-in leaves what the test has to know."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("STAND_IN_NOTES", str(notes))
    return notes


@pytest.fixture(name="folder")
def folder_to_run_in(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def command(what, seconds=60.0, words=""):
    return Command(f"{STAND_IN} {what} {words}", seconds, ["STAND_IN_NOTES"])


def survivors(notes, count):
    """The processes noted that still run, after a moment for the kill to arrive."""
    pids = [int(path.read_text()) for path in notes.glob("pid-*")]
    assert len(pids) == count
    deadline = time.monotonic() + 5
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def test_what_it_printed_and_how_it_ended(folder, notes):
    ran = command("good").run("p", folder)
    assert (ran.exitcode, ran.timed_out, ran.problem) == (0, False, None)
    assert ran.output == "done  [31mred\n" and ran.output_bytes == 14  # no escape reaches a terminal
    assert 0 < ran.seconds < 30
    failed = command("fail").run("p", folder)
    assert failed.exitcode == 1 and failed.problem == "ended with exit code 1; its last line was: no such model"
    assert command("crash").run("p", folder).problem.startswith("died of SIGSEGV")
    assert command("nothing").run("p", folder).output == ""


def test_the_prompt_as_the_template_wants_it(folder, notes, monkeypatch):
    text = 'say "héllo" {prompt_file} $HOME\n'

    def given(words):
        command("tell", words=words).run(text, folder)
        return json.loads((notes / "given").read_text())

    by_stdin = given("")
    assert by_stdin["stdin"] == text and by_stdin["arguments"] == [] and by_stdin["cwd"] == str(folder)
    as_argument = given("-p '{prompt}' --end")
    assert as_argument["arguments"] == ["-p", text, "--end"] and as_argument["stdin"] == ""
    [path] = (by_file := given("--read={prompt_file}"))["arguments"]
    name = Path(path.removeprefix("--read=")).relative_to(folder)
    assert by_file["files"][str(name)] == text and by_file["stdin"] == ""
    assert not (folder / name).exists()


def test_only_allowed_variables_are_passed(folder, notes, monkeypatch):
    for name in ("LC_ALL", "HTTPS_PROXY", "no_proxy", "TZ", "API_KEY", "OTHER_KEY", "PYTHONPATH", "LANG"):
        monkeypatch.setenv(name, f"value of {name}")
    agent = Command(f"{STAND_IN} tell", 60, ["STAND_IN_NOTES", "API_KEY"])
    monkeypatch.delenv("API_KEY")  # as in a child process whose parent started before the variable was set
    agent.run("p", folder)
    environment = json.loads((notes / "given").read_text())["environment"]
    environment.pop("LC_CTYPE", None)
    expected = {"LC_ALL", "HTTPS_PROXY", "no_proxy", "TZ", "API_KEY", "LANG", "STAND_IN_NOTES"}
    kept = {name for name in ("PATH", "HOME", "TERM", "TMPDIR", "https_proxy", "http_proxy") if name in os.environ}
    assert expected <= set(environment) and not {"OTHER_KEY", "PYTHONPATH"} & set(environment)
    assert kept <= set(environment)
    assert environment["API_KEY"] == "value of API_KEY"
    assert "value of" not in agent.name + repr(agent)
    assert b"value of API_KEY" in pickle.dumps(agent)  # so it reaches the workers of a cluster, as docs/agents.md says


@pytest.mark.parametrize("kind", ["hang", "hang_session", "hang_orphan", "hang_deaf"])
def test_the_time_limit_ends_all(folder, notes, kind):
    ran = command(kind, 1.5).run("p", folder)
    assert ran.timed_out and ran.exitcode is None and "waiting" in ran.output
    assert ran.problem == "took longer than its 2 s; its last line was: waiting"
    assert ran.seconds < 10
    assert survivors(notes, 1) == []


def test_what_is_left_behind_after_the_end_goes_too(folder, notes):
    ran = command("leave").run("p", folder)
    assert ran.exitcode == 0 and ran.seconds < 20
    assert survivors(notes, 3) == []


def test_without_the_guard_an_orphan_survives(folder, notes):
    """The twin: killing the process group, as was usual, does not reach it."""
    process = subprocess.Popen([*STAND_IN.split(), "hang_orphan"], cwd=folder, start_new_session=True, stdout=-3)
    while not list(notes.glob("pid-*")):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    [pid] = [int(path.read_text()) for path in notes.glob("pid-*")]
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_100_mb_of_output_fill_neither_memory_nor_disk(folder, notes):
    tracemalloc.start()
    ran = command("flood").run("p", folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ran.exitcode == 0 and ran.output_bytes > 100_000_000
    assert ran.output.startswith("the beginning\n") and "the end\n" in ran.output
    assert "bytes left out" in ran.output and len(ran.output) < 20_000
    assert peak < 5_000_000
    assert {path.name for path in folder.iterdir()} == {"solve.py", "proposals"}


def test_it_may_signal_its_own_group(folder, notes):
    ran = command("kill_group").run("p", folder)
    assert ran.exitcode == 0 and "done" in ran.output


KILLED = """
import sys
from dreamrsi.commands import Command
print("begun", flush=True)
Command(sys.argv[1], 600, ["STAND_IN_NOTES"]).run("p", sys.argv[2])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_does_not_outlive_its_caller(folder, notes, number):
    caller = subprocess.Popen(
        [sys.executable, "-c", KILLED, f"{STAND_IN} hang_orphan", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with caller:
        while not list(notes.glob("pid-*")):
            time.sleep(0.05)
        caller.send_signal(number)
        caller.wait(20)
    assert survivors(notes, 1) == []


@pytest.mark.parametrize(
    ("template", "seconds", "names", "message"),
    [
        ("", 1, [], "the command is empty; give a command line, or one of claude, codex, gemini"),
        ("  ", 1, [], "the command is empty"),
        ("no-such-agent -p", 1, [], "the program 'no-such-agent' was not found; install it"),
        ("sh -c 'x", 1, [], "No closing quotation; quote its parts"),
        ("sh", 0, [], "seconds is 0; give a positive number"),
        ("sh", float("nan"), [], "seconds is nan"),
        ("sh", 1, ["NOT_SET_HERE"], "variable 'NOT_SET_HERE' is not set"),
    ],
)
def test_bad_commands_are_one_error_before_anything_starts(template, seconds, names, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        Command(template, seconds, names)


def test_presets_are_found_by_their_short_names(tmp_path, monkeypatch):
    for name in PRESETS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, template in PRESETS.items():
        agent = Command(name, 30)
        assert agent.template == template and agent.program == str(tmp_path / name)
        assert agent.name == f"command:{template} (30 s)"
        assert agent.run("p", tmp_path).exitcode == 0


def test_a_program_that_cannot_run_says_so(folder):
    program = folder / "broken"
    program.write_text("no program\n")
    program.chmod(0o755)
    ran = Command(str(program), 10).run("p", folder)
    assert ran.exitcode == 127 and "broken: cannot be started (Exec format error)" in ran.output
    with pytest.raises(UserError, match="cannot be started"):
        Command("true", 10).run("p", folder / "not there")


def test_descendants_are_found_and_ended(folder):
    script = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True).wait()"
    process = subprocess.Popen([sys.executable, "-c", script])
    while not (found := keeper.descendants(process.pid)):
        time.sleep(0.02)
    assert process.pid not in found and process.pid in keeper.descendants(os.getpid())
    keeper.end_tree(process.pid)
    assert process.wait() == -signal.SIGKILL
    assert not any(map(is_alive, found)) and not set(found) & set(keeper.descendants(os.getpid()))


def test_what_starts_a_new_process_for_every_one_that_ends_is_ended_too(tmp_path, monkeypatch):
    """It has time for that before each look, and would be ended last, with a new process left."""
    look, pids = keeper.descendants, tmp_path / "pids"

    def look_later(pid):
        time.sleep(0.3)
        return look(pid)

    monkeypatch.setattr(keeper, "descendants", look_later)
    process = subprocess.Popen(["/bin/sh", "-c", 'while :; do sleep 60 & echo $! >> "$0"; wait; done', pids])
    while not pids.exists():
        time.sleep(0.02)
    keeper.end_tree(process.pid)
    process.wait()
    left = [pid for pid in map(int, pids.read_text().split()) if is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_a_misspelt_place_for_the_prompt_is_refused():
    with pytest.raises(UserError, match=r"\{promt\} stands for nothing; did you mean \{prompt\}\?"):
        Command("sh {promt}", 1.0)
    Command("sh -c 'awk {print}'", 1.0)  # a shell's own
