"""What a study says: one line a step, nothing twice, for people on a terminal, for files, and for machines."""

import json
import sys
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

from dreamrsi import receipts, study
from dreamrsi.cli import app
from dreamrsi.console import Console, duration
from dreamrsi.study import run_study
from notebook_fixtures import fake_study, write_notebook


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "repository_root", lambda: tmp_path)
    return fake_study(tmp_path, monkeypatch)


def lines(fake, **options):
    said = []
    run_study(root=fake.root, console=Console(said.append), **options)
    return said


def test_one_line_a_step_and_none_twice(fake):
    fake.behaviour["03_c"] = lambda out: "cell 1: no"
    said = lines(fake)
    assert [line.split()[:3] for line in said[:3]] == [
        ["[1/3]", "01_a", "ok"],
        ["[2/3]", "02_b", "ok"],
        ["[3/3]", "03_c", "failed"],
    ]
    assert said[3:6] == ["", "Found:", "  01  one is one"]
    assert said[6:] == ["", ANY, "Figures, tables and executed notebooks: runs/quick"]
    assert said[7].endswith(" s: 2 ran, 1 failed (03_c)")
    assert len([line for line in said if line]) == len({line for line in said if line})


def test_nothing_found_is_no_heading(fake):
    assert lines(fake, only=["02"])[1:] == ["", ANY, "Figures, tables and executed notebooks: runs/quick"]


def test_time_left_is_what_earlier_runs_took(fake):
    said = lines(fake)
    assert not any("left" in line for line in said)  # nothing is known yet
    out = fake.root / "runs" / "quick"
    for name, seconds in {"01_a": 10.0, "02_b": 30.0, "03_c": 200.0}.items():
        receipt = receipts.read(out, name)
        receipts.write(out, name, receipts.msgspec.structs.replace(receipt, seconds=seconds))
    write_notebook(fake.root / "notebooks" / "01_a.ipynb", "x = 1", parameters="out = None\nn = 1")
    live = []
    run_study(root=fake.root, console=Console(live=live.append, width=200))
    assert live[0] == (
        "\r\x1b[K[1/3] 01_a  running 0 s of about 10 s; about 40 s left; runs: its source changed"
    )  # 02 may have to run, since it needs 01; 03 has not
    assert live[-1] == "\r\x1b[K"
    for name, seconds in {"01_a": 10.0, "02_b": 30.0, "03_c": 200.0}.items():
        receipt = receipts.read(out, name)
        receipts.write(out, name, receipts.msgspec.structs.replace(receipt, seconds=seconds))
    said = lines(fake, force=True)
    assert [line.rpartition("; ")[2] for line in said[:2]] == ["about 4 min left", "about 3 min left"]
    assert "left" not in said[2]


def test_on_a_terminal_the_running_line_is_written_over(fake, monkeypatch):
    class Terminal:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

        def isatty(self):
            return True

    def seen(**environment):
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("COLUMNS", "60")
        terminal = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            run_study(root=fake.root, force=True, console=Console.of_stdout())
        return terminal.text

    text = seen(TERM="xterm")
    assert "\x1b[32mok     \x1b[0m" in text
    running, _, rest = text.partition("\r\x1b[K[1/3] 01_a  running ")[2].partition("\r\x1b[K")
    assert len("[1/3] 01_a  running " + running) < 60 and "\n" not in running
    assert rest.startswith("[1/3] 01_a  \x1b[32mok")
    assert "\x1b[32m" not in seen(TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in seen(TERM="dumb") and "\r" not in seen(TERM="dumb")


def test_long_sentences_are_folded_on_a_terminal_only(capsys):
    words = "word " * 30
    Console(print, width=60).sentence("  01  ", words)
    folded = capsys.readouterr().out.splitlines()
    assert len(folded) == 3 and all(line.startswith("      ") for line in folded[1:])
    Console(print).sentence("  01  ", words)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_nothing_is_said_unless_asked_for(fake, capfd):
    run_study(root=fake.root)  # as under papermill, where a notebook calls it
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_there_is_no_escape(fake):
    done = CliRunner().invoke(app, ["study"])
    assert done.exit_code == 0 and done.stdout.startswith("[1/3] 01_a  ok") and "\x1b" not in done.stdout
    assert CliRunner().invoke(app, ["study"]).stdout.startswith("[1/3] 01_a  cached")
    assert "runs: --force" in CliRunner().invoke(app, ["study", "--force", "--only", "3"]).stdout


def test_one_json_object_for_machines(fake):
    fake.behaviour["03_c"] = lambda out: "cell 1: no"
    done = CliRunner().invoke(app, ["study", "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["exit_code"], said["profile"], said["out"]) == (
        1,
        1,
        "quick",
        str(fake.root / "runs" / "quick"),
    )
    assert said["notebooks"][0] == {
        "name": "01_a",
        "status": "ok",
        "why": "the first time",
        "reason": "",
        "seconds": said["notebooks"][0]["seconds"],
        "findings": ["one is one"],
    }
    assert said["notebooks"][2]["reason"].startswith("cell 1: no")
    again = json.loads(CliRunner().invoke(app, ["study", "--json"]).stdout)["notebooks"]
    assert [done["status"] for done in again] == ["cached", "cached", "failed"]
    assert again[0]["findings"] == ["one is one"] and again[2]["why"] == "it failed last time"


@pytest.mark.parametrize(
    "seconds, text", [(0.4, "0 s"), (99.4, "99 s"), (100, "2 min"), (5900, "98 min"), (6000, "1 h 40 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
