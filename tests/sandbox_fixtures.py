"""Policies as source text, attacks with and without a guard, and a check that a test leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import dreamrsi as d
from dreamrsi import sandbox_server, worlds
from dreamrsi.sandbox import Limits, SandboxedPolicy
from strategies import tree_of


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


def unguarded(source):
    """The policy of a source without a sandbox, under the name that it has in one."""
    policy = worlds.in_process(source)
    policy.name = "policy"
    return policy


def as_file(policy):
    """A built-in policy as a source file."""
    return policy_source(
        "return self.policy.choose(prefix)",
        head=f"from dreamrsi.policies import make\nNAME = {policy.name!r}",
        start="self.policy = make(NAME)\nself.policy.start(width)",
        attributes="name = NAME",
    )


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


def survivors(pids, seconds=5.0):
    """The processes that still run, after a moment for the kill to arrive."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return alive


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


TREE = tree_of([[1.0, 2.0, 3.0], [0.5, 9.0, 9.5], [2.0, 2.0, 2.0]], steps=3, branches=3)
HEAD = "import ctypes, gc, os, socket, sys, time"

# Bodies of attacks, for a policy and for a candidate program.
STUBBORN = "while True:\n    try: time.sleep(1)\n    except BaseException: pass"
THREAD = "import threading\nthreading.Thread(target=print).start()"
SHOUT = "for _ in range(3000): print('x' * 1000)\nprint('y', file=sys.stderr, flush=True)"
FLOOD = "while True: os.write(3, b'x' * 65536)"
FORK = """
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    pids.append(pid)
"""


def busy(seconds, clock="monotonic"):
    """A loop that ends, so that the twin without a guard does."""
    return f"end = time.{clock}() + {seconds}\nwhile time.{clock}() < end: pass"


def connect(listening):
    """Reach a socket of the caller."""
    return f"socket.socket().connect((b'127.0.0.1', {listening.getsockname()[1]}))"


def reopen(path):
    """Open a file in the place of one that was closed."""
    return f"os.close(0)\nassert os.open({str(path)!r}, os.O_RDONLY) == 0"


def address(secret):
    """Where the bytes lie in the memory of this process."""
    return id(secret) + bytes.__basicsize__ - 1


def read_memory(secret):
    """Read bytes from the memory of this process, by a system call that needs no descriptor."""
    return f"""
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer({len(secret)})
local, remote = Piece(ctypes.addressof(buffer), {len(secret)}), Piece({address(secret)}, {len(secret)})
call = ctypes.CDLL(None, use_errno=True).process_vm_readv
read = call({os.getpid()}, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
assert read == {len(secret)}, os.strerror(ctypes.get_errno())
assert buffer.raw == {secret!r}
"""


def attack(code, *off, server=None, **limits):
    """Run ``code`` in the first choice of a policy; None if it got through, else what stopped it."""
    source = policy_source(f"{code}\nreturn []", head=HEAD)
    try:
        with SandboxedPolicy(source, limits=Limits(**limits), _off=off, _server=server) as policy:
            d.replay(policy, TREE, 3)
    except d.PolicyError as error:
        return str(error)
    return None


ALONE = "import ctypes, os\nassert ctypes.CDLL(None).unshare(0x10000000) == 0\nos.chroot('.')"


@pytest.fixture(name="hidden", scope="module")
def hidden_fixture():
    """Whether a policy can be kept from the file system and from its user's processes: root, or user namespaces."""
    return os.getuid() == 0 or subprocess.run([sys.executable, "-c", ALONE], capture_output=True).returncode == 0


linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no filter of system calls but on Linux")


def needs(condition, reason):
    if not condition:
        pytest.skip(reason)


NO_NAMESPACE = "an ordinary user, and this system allows no user namespaces: docs/sandbox.md says what that leaves open"


def in_process(code, more=""):
    """The episode of the same code without a sandbox, where nothing is hidden."""
    return d.replay(unguarded(policy_source(code, head=f"{HEAD}\n{more}")), TREE, 3)
