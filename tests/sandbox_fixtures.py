"""Policies as source text, and a check that a test leaves no process behind."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from dreamrsi import sandbox_server


def policy_source(body, head="", start="pass", attributes="pass"):
    """The source of a policy; ``body``, that of ``choose``, begins on line 7 if the other parts have a line each."""
    parts = [
        head,
        "class Policy:",
        textwrap.indent(attributes, "    "),
        "    def start(self, width):",
        textwrap.indent(start, "        "),
        "    def choose(self, prefix):",
        textwrap.indent(body, "        "),
    ]
    return "\n".join(parts).encode()


FIXED = policy_source("return [-1] if prefix.round < 2 else []")


def children(pid):
    """The processes that a process has started and that are not reaped; none where the system does not say."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_alive(pid):
    """Whether a process runs; one that is only waiting to be reaped does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture(autouse=True)
def nothing_left():
    """After a test the server has no process left; after the module there is no server."""
    yield
    server = sandbox_server._servers.get(os.getpid())
    assert server is None or children(server.pid) == []


@pytest.fixture(autouse=True, scope="module")
def no_server_left():
    yield
    server = sandbox_server._servers.get(os.getpid())
    sandbox_server.shutdown()
    assert server is None or not is_alive(server.pid)
