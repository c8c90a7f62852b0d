"""Twin tests of a policy against the machine: each attack succeeds while its guard is off, and fails when it is on.

Those against the scoring are in test_sandbox_cheats.py, those of candidate programs in test_sandbox_programs.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket

import pytest

import dreamrsi as d
from dreamrsi.sandbox import Limits, SandboxedPolicy
from dreamrsi.sandbox_child import Ask, News
from dreamrsi.sandbox_server import Gone, Server
from sandbox_fixtures import (  # noqa: F401
    FLOOD,
    FORK,
    NO_NAMESPACE,
    SHOUT,
    STUBBORN,
    THREAD,
    TREE,
    address,
    attack,
    busy,
    connect,
    hidden_fixture,
    needs,
    no_server_left,
    nothing_left,
    policy_source,
    read_memory,
    reopen,
    survivors,
)

SECRET = b"an unrevealed score: 9.5"


def test_reading_the_tree_file(tmp_path, hidden):
    path = tmp_path / "tree.jsonl"
    TREE.save(path)
    code = f"assert '9.5' in open({str(path)!r}).read()"
    assert attack(code, "files", "user") is None
    assert "no file or socket can be opened" in attack(code, "user")
    assert attack(code)
    needs(hidden, NO_NAMESPACE)
    assert "FileNotFoundError" in attack(code, "files")  # either guard is enough


def test_reading_the_tree_file_while_the_policy_is_loaded(tmp_path):
    path = tmp_path / "tree.jsonl"
    TREE.save(path)
    source = policy_source("return []", head=f"LEAK = open({str(path)!r}).read()")
    with SandboxedPolicy(source, _off=["files", "user"]) as policy:
        assert d.replay(policy, TREE).reason == "stopped"
    with pytest.raises(d.PolicyError, match="policy.py, line 1: raised .*Error"):
        SandboxedPolicy(source)


def test_opening_a_file_in_the_place_of_one_that_was_closed(tmp_path):
    path = tmp_path / "tree.jsonl"
    TREE.save(path)
    code = reopen(path)
    assert attack(code, "files", "user") is None
    assert "no file or socket can be opened" in attack(code, "user")


def test_removing_a_file_needs_no_descriptor(tmp_path, hidden):
    path = tmp_path / "tree.jsonl"
    path.touch()
    code = f"os.remove({str(path)!r})"
    needs(hidden, NO_NAMESPACE)
    for off in ([], ["user"], ["calls"]):  # either guard is enough
        assert attack(code, *off) and path.exists()
    assert attack(code, "user", "calls") is None
    assert not path.exists()


@pytest.mark.parametrize("file", ["environ", "mem", "cmdline"])
def test_reading_the_caller_in_proc(file):
    needs(os.path.exists("/proc/self/environ"), "no /proc")
    seek = f"file.seek({address(SECRET)})\n    assert file.read(5) == b'an un'"
    read = seek if file == "mem" else "assert file.read(5)"
    code = f"with open('/proc/{os.getpid()}/{file}', 'rb') as file:\n    {read}"
    got_through = attack(code, "files", "user")
    needs(got_through is None or file != "mem", f"the system forbids it anyway: {got_through}")
    assert got_through is None
    assert attack(code)
    assert attack(code, "user")


def test_reading_the_memory_of_the_caller_needs_no_descriptor(hidden):
    needs(os.path.exists("/proc/self/mem"), "not Linux")
    code = read_memory(SECRET)
    needs(hidden, NO_NAMESPACE)
    got_through = attack(code, "user", "calls")
    needs(got_through is None, f"the system forbids it anyway: {got_through}")
    for off in ([], ["user"], ["calls"]):
        assert "AssertionError: Operation not permitted" in attack(code, *off)


def test_environment_variables(monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    code = "assert os.environ['API_KEY'] == 'secret'"
    with contextlib.closing(Server(dict(os.environ))) as server:
        assert attack(code, server=server) is None
    with contextlib.closing(Server()) as server:
        assert "raised KeyError: 'API_KEY'" in attack(code, server=server)


def test_sockets():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        code = connect(listening)
        assert attack(code, "files", "calls") is None
        for off in ([], ["calls"]):
            assert "no file or socket can be opened" in attack(code, *off)
        assert "only system calls that a calculation needs" in attack(code, "files")


def test_a_small_fork_bomb_and_what_is_left_of_it():
    text = attack(FORK + "raise ValueError(pids)", "processes")
    pids = [int(pid) for pid in text.partition("[")[2].partition("]")[0].split(",")]
    assert len(pids) == 3
    assert survivors(pids) == [], "the group was killed with the policy"
    assert "no process be started" in attack(FORK)
    assert "can't start new thread" in attack(THREAD)


def test_a_memory_bomb():
    code = "x = bytearray(256 * 2**20)"
    assert attack(code, "memory", memory=64 * 2**20) is None
    assert attack(code) is None  # the default allows it
    needs(os.path.exists("/proc/self/statm"), "not enforced on macOS")
    assert "raised MemoryError: out of memory (policy.py" in attack(code, memory=64 * 2**20)


def test_an_endless_loop():
    code = busy(0.6)
    assert attack(code, seconds=30) is None
    assert "round 0: choose() took longer than 0.2 s" in attack(code, seconds=0.2)
    assert "choose() took longer than 0.2 s" in attack(STUBBORN, seconds=0.2)


@pytest.mark.slow
def test_an_endless_loop_uses_up_its_cpu_time():
    code = busy(1.5, "process_time")
    assert attack(code, seconds=30) is None
    assert "round 0: the process ended with SIGXCPU: it used up its CPU time" in attack(code, seconds=30, cpu_seconds=1)


def test_endless_output():
    size = 2 * 2**20
    forged = f"body = b'\\x91\\x81\\xa6raised\\xdb' + ({size}).to_bytes(4, 'big') + b'x' * {size}\n"
    forged += "os.write(3, len(body).to_bytes(4, 'little'))\nview = memoryview(body)\n"
    forged += "while view: view = view[os.write(3, view):]"
    assert "round 0: raised xxx" in attack(forged, "output")  # the caller read it all
    assert f"answered with {size + 14} bytes; at most" in attack(forged)
    assert "answered with 2021161080 bytes" in attack(FLOOD)
    assert attack(SHOUT) is None


def test_a_policy_that_does_not_read_its_questions_cannot_hold_up_the_caller():
    question = Ask(0, None, News([(1.0, "ok")] * 100_000, [], -1))  # more than a channel holds
    with SandboxedPolicy(policy_source("return []"), limits=Limits(seconds=0.2)) as policy:
        os.kill(policy._process.pid, signal.SIGSTOP)
        with pytest.raises(Gone, match="took no message for 0.2 s"):
            policy._ask([question])
