"""The commands, the report and the lists of docs/importing-a-log.md are true."""

from __future__ import annotations

import contextlib
import io
import re
import shlex

import pytest

from dreamrsi import logs
from dreamrsi.logs.tables import FIELDS
from log_fixtures import ROOT

TEXT = (ROOT / "docs" / "importing-a-log.md").read_text()
COMMANDS = [c for c in re.findall(r"^    dreamrsi ((?:.*\\\n)*.*)$", TEXT, flags=re.M) if "import list" not in c]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)


def test_the_commands_work(dreamrsi, checkout):
    assert len(COMMANDS) == 4
    for command in COMMANDS:
        done = dreamrsi(*shlex.split(command.replace("\\\n", " ")))
        assert done.returncode == 0 and not done.stderr, (command, done)


def test_the_report_is_the_one_that_is_printed(dreamrsi, checkout):
    printed = dreamrsi("import", "openevolve", "tests/fixtures/logs/openevolve", "-o", "t.jsonl").stdout
    shown = re.search(r"^    attempted(?:.*\n    )*.*$", TEXT, flags=re.M).group().splitlines()
    assert len(shown) == 5
    for line in shown:
        assert line.strip() in printed


def test_the_formats_and_fields_are_all_there(dreamrsi):
    formats, tables = TEXT.split("## Tables")[0], TEXT.split("## Tables")[1].split("## The report")[0]
    assert re.findall(r"^\| `(\w+)` \|", formats, flags=re.M) == list(logs.FORMATS)
    named = [name for line in re.findall(r"^\| (`.*?) \|", tables, flags=re.M) for name in re.findall(r"`(\w+)`", line)]
    assert sorted(named) == sorted(FIELDS)
    assert all(name in dreamrsi("import", "list").stdout for name in logs.FORMATS)


def test_the_python_works(checkout):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().strip() == code.rsplit("#", 1)[1].strip()
