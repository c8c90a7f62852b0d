"""What holds for all tests, and what many of them need."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import pytest
from hypothesis import settings

from dreamrsi import cli

# No test fails because a machine is slow: examples have no deadline. Speed is judged in benchmarks.
settings.register_profile("dreamrsi", deadline=None)
settings.load_profile("dreamrsi")


@pytest.fixture(name="dreamrsi")
def command(capsys, monkeypatch):
    """Run a command as a user types it, in this process, which spares seconds of imports."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dreamrsi", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run
