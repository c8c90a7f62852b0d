"""Twin tests of candidate programs: each attack succeeds while its guard is off, and fails when it is on."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import sys

import msgspec
import numpy as np
import pytest

from dreamrsi.programs import Candidate, Limits
from dreamrsi.sandbox_server import Server
from dreamrsi.sandbox_values import MAX_ARRAYS, MAX_PLAIN, pack, unpack
from sandbox_fixtures import (  # noqa: F401
    FLOOD,
    FORK,
    NO_NAMESPACE,
    SHOUT,
    STUBBORN,
    THREAD,
    busy,
    connect,
    hidden_fixture,
    needs,
    no_server_left,
    nothing_left,
    read_memory,
    reopen,
    survivors,
)

HEAD = "import ctypes, gc, os, pickle, socket, sys, time\nimport numpy as np\n"
SECRET = b"the answer that a judge keeps"


def run(body, *off, server=None, arguments=(), head="", **limits):
    """The result of a program whose solve() has this body."""
    lines = "\n".join("    " + line for line in body.splitlines())
    source = f"{HEAD}{head}\ndef solve(*arguments):\n{lines}\n"
    with Candidate(source.encode(), limits=Limits(**limits), _off=off, _server=server) as candidate:
        return candidate.call("solve", *arguments)


def attack(body, *off, **more):
    """None if the body got through, else what stopped it."""
    result = run(body, *off, **more)
    assert (result.reason is None) == (result.status == "ok")
    return result.reason


def test_reading_and_writing_files(tmp_path, hidden):
    path = tmp_path / "answer"
    path.write_bytes(SECRET)
    read, write = f"assert open({str(path)!r}, 'rb').read() == {SECRET!r}", f"open({str(path) + '2'!r}, 'wb')"
    for body in (read, write, reopen(path)):
        assert attack(body, "files", "user") is None
        assert "no file or socket can be opened" in attack(body, "user")
        assert attack(body)
    remove = f"os.remove({str(path)!r})"
    needs(hidden, NO_NAMESPACE)
    for off in ([], ["user"], ["calls"]):  # either guard is enough
        assert attack(remove, *off) and path.exists()
    assert attack(remove, "user", "calls") is None and not path.exists()


def test_reading_a_file_while_it_is_loaded(tmp_path):
    path = tmp_path / "answer"
    path.write_bytes(SECRET)
    head = f"LEAK = open({str(path)!r}).read()"
    assert run("return LEAK", "files", "user", head=head).value == SECRET.decode()
    assert "while it was loaded" in attack("return LEAK", head=head)


@pytest.mark.parametrize("file", ["environ", "cmdline"])
def test_reading_the_caller_in_proc(file):
    needs(os.path.exists("/proc/self/environ"), "no /proc")
    body = f"with open('/proc/{os.getpid()}/{file}', 'rb') as file:\n    assert file.read(5)"
    assert attack(body, "files", "user") is None
    assert attack(body, "user")
    assert attack(body)


def test_reading_the_memory_of_the_caller(hidden):
    needs(os.path.exists("/proc/self/mem"), "not Linux")
    body = read_memory(SECRET)
    needs(hidden, NO_NAMESPACE)
    got_through = attack(body, "user", "calls")
    needs(got_through is None, f"the system forbids it anyway: {got_through}")
    for off in ([], ["user"], ["calls"]):
        assert "Operation not permitted" in attack(body, *off)


def test_environment_and_sockets(monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    body = "return os.environ['API_KEY']"
    for environment, value in ((dict(os.environ), "secret"), (None, None)):
        with contextlib.closing(Server(environment)) as server:
            assert run(body, server=server).value == value
    with socket.create_server(("127.0.0.1", 0)) as listening:
        body = connect(listening)
        assert attack(body, "files", "calls") is None
        for off in ([], ["calls"]):
            assert "no file or socket can be opened" in attack(body, *off)


def test_a_small_fork_bomb_and_what_is_left_of_it():
    pids = run(FORK + "return pids", "processes").value
    assert len(pids) == 3
    assert survivors(pids) == [], "the group was killed with the program"
    assert "no process be started" in attack(FORK)
    assert "can't start new thread" in attack(THREAD)


def test_a_memory_bomb():
    body = "return len(np.ones(32 * 2**20))"
    assert attack(body, "memory", memory=64 * 2**20) is None
    assert attack(body) is None  # the default allows it
    needs(os.path.exists("/proc/self/statm"), "not enforced on macOS")
    assert "out of memory" in attack(body, memory=64 * 2**20)


def test_endless_loops_while_loading_and_in_a_call():
    loop = busy(0.6)
    assert attack(loop) is None and attack("pass", head=loop) is None
    assert "its call took longer than 0.2 s" in attack(loop, seconds=0.2)
    assert "loading took longer than 0.2 s" in attack("pass", head=loop, seconds=0.2)
    assert "its call took longer than 0.2 s" in attack(STUBBORN, seconds=0.2)


@pytest.mark.slow
def test_an_endless_loop_uses_up_its_cpu_time():
    body = busy(2.5, "process_time")
    assert attack(body) is None
    result = run(body, cpu_seconds=2)
    assert result.status == "timeout" and "SIGXCPU" in result.reason


def test_endless_output():
    body = "return [0] * 10**6"
    assert attack(body) is None
    assert "at most 65600 are read" in attack(body, output=2**16)
    assert attack(body, "output", output=2**16) is None
    assert "bytes without its arrays; at most" in attack(f"return 'x' * {MAX_PLAIN + 1}")
    assert run(f"return np.zeros({MAX_PLAIN}, np.int8)").value.nbytes == MAX_PLAIN
    assert attack(SHOUT) is None
    assert "answered with 2021161080 bytes" in attack(FLOOD)
    raised = run("raise ValueError('x' * 10**7)").reason
    assert len(raised) == 2000


def test_an_answer_written_ahead_of_the_question():
    """So that work is done while nothing is timed: the answer is there before the clock starts."""
    head = "import msgspec\nfrom dreamrsi import sandbox_program\nfrom dreamrsi.sandbox_values import pack\n"
    head += """
def unpack(packed):
    for message in (b"", msgspec.msgpack.encode([b"", None]), msgspec.msgpack.encode([pack(7), None])):
        os.write(3, len(message).to_bytes(4, 'little') + message)
    time.sleep(0.5)
    return [0]
sandbox_program.unpack = unpack
"""
    fast = run("return 1", "token", head=head)
    assert fast.value == 7 and fast.seconds < 0.1
    assert "gave a malformed answer: it answered before it was asked" in attack("return 1", head=head)


def test_work_that_hides_while_nothing_is_timed_shows_in_untimed():
    """It cannot be stopped: the program can change what its own process does. A timed task looks at both numbers."""
    honest = run("time.sleep(0.3)\nreturn 7")
    assert honest.seconds > 0.3 > 0.2 > max(honest.untimed)
    head = "from dreamrsi import sandbox_program\npack = sandbox_program.pack\n"
    late = run("return 7", head=head + "sandbox_program.pack = lambda value: time.sleep(0.3) or pack(value)")
    assert late.value == 7 and late.seconds < 0.2 and late.untimed[1] > 0.3
    head = "from dreamrsi import sandbox_program\nunpack = sandbox_program.unpack\n"
    early = run("return 7", head=head + "sandbox_program.unpack = lambda body: time.sleep(0.3) or unpack(body)")
    assert early.value == 7 and early.seconds < 0.2 and early.untimed[0] > 0.3


def test_memory_between_calls_of_one_process_and_none_between_two():
    source = b"CALLS = []\ndef solve():\n    CALLS.append(0)\n    return len(CALLS)"
    with Candidate(source) as candidate:
        assert [candidate.call("solve").value for _ in range(3)] == [1, 2, 3]
    fresh = []
    for _ in range(3):
        with Candidate(source) as candidate:
            fresh.append(candidate.call("solve").value)
    assert fresh == [1, 1, 1]


LOOK = """
found = [o for o in gc.get_objects() if type(o) is dict and 'judge' in o]
frame = sys._getframe()
while frame is not None:
    if 'kept' in frame.f_locals: found.append(frame.f_locals['kept'])
    frame = frame.f_back
"""


def test_looking_for_what_the_judge_knows():
    kept = {"judge": [2.5]}
    namespace = {"gc": gc, "sys": sys}
    exec(f"def look():\n    kept = None\n{indented(LOOK)}\n    return found", namespace)
    assert kept in namespace["look"](), "in process it is there"
    assert run(f"{LOOK}return [list(map(str, o)) for o in found]").value == []
    assert kept == {"judge": [2.5]}


def indented(text):
    return "\n".join("    " + line for line in text.splitlines())


def test_patched_builtins_and_libraries_do_not_reach_the_caller():
    body = (
        "import builtins, math\nbuiltins.max = math.fsum = np.sum = lambda *a: 1e9\nreturn max(1, 2) + math.fsum([1])"
    )
    assert run(body).value == 2e9
    assert max(1, 2) == 2 and np.sum([1, 2]) == 3


def test_the_order_of_a_set_is_the_same_in_every_process():
    orders = []
    for _ in range(2):
        with contextlib.closing(Server()) as server:
            orders.append(run("return list({str(n) for n in range(50)})", server=server).value)
    assert orders[0] == orders[1]


ODD = {
    "True": True,
    "np.True_": True,
    "np.int8(3)": 3,
    "np.float64(0.5)": 0.5,
    "np.float32('nan')": float("nan"),
    "(1, 2)": [1, 2],
    "type('Lying', (list,), {'__len__': lambda s: 10**9})([1])": [1],
    "(n for n in range(3))": "TypeError: a generator is neither",
    "lambda: 1": "TypeError: a function is neither",
    "3j": "TypeError: a complex is neither",
    "2**70": "OverflowError",
    "{1: 2}": "a dictionary with the key 1; keys must be texts",
    "b'bytes'": "a bytes is neither a JSON value nor an array",
    "np.array([object()])": "TypeError: an array of object holds no numbers",
    "np.array(['text'])": "TypeError: an array of <U4 holds no numbers",
    "[np.zeros(0)] * 1001": "ValueError: it holds 1001 arrays",
}


@pytest.mark.parametrize("value", ODD)
def test_odd_values(value):
    result = run(f"return {value}")
    expected = ODD[value]
    if isinstance(expected, str):
        assert (result.status, result.value) == ("error", None)
        assert expected in result.reason
    else:
        assert type(result.value) is type(expected) and (result.value == expected or expected != expected)


@pytest.mark.parametrize("shape", ["x = [x]", "x = {'a': x}", "x = (x,)"])
def test_deep_values_are_refused_and_crash_nobody(shape):
    assert "RecursionError" in attack(f"x = 0\nfor _ in range(10**5): {shape}\nreturn x")


def test_a_pickle_is_only_bytes():
    body = "class Evil:\n    def __reduce__(self): return (os.abort, ())\n"
    assert "a bytes is neither" in attack(body + "return pickle.dumps(Evil())")
    assert "TypeError: a Evil is neither" in attack(body + "return Evil()")


def raw(plain, arrays):
    return msgspec.msgpack.encode([plain, arrays])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        raw(b"\x91" * 10**5 + b"\x90", []),
        raw(b"\xd4\x01\x00", []),  # an array that is not there
        raw(b"\xd4\x05\x00", []),
        raw(b"\xc0", [["<f8", [2], b"x" * 8]]),
        raw(b"\xc0", [["<f8", [-1], b"x" * 8]]),
        raw(b"\xc0", [["<f8", [2**62, 4], b""]]),
        raw(b"\xc0", [["O", [1], b"x" * 8]]),
        raw(b"\xc0", [["f8,f8", [1], b"x" * 16]]),
        raw(b"\xc0", [["nonsense", [1], b"x" * 8]]),
        raw(b"\xc0", [["f8", [1], b"x" * 8]]),  # another way to write <f8
        raw(b"\xc0", [["(2,)<f4", [1], b"x" * 8]]),
        raw(b"\xc0", [["<f16", [1], b"x" * 16]]),
        raw(b"\xc0", [["<i8", [0], b""]] * (MAX_ARRAYS + 1)),
        raw(b"\xdd" + struct.pack(">I", 2**32 - 1), []),  # a list that says it is long
        raw(b"x" * (MAX_PLAIN + 1), []),
    ],
    ids=range(17),
)
def test_forged_bytes_are_refused(body):
    with pytest.raises(ValueError):
        unpack(body)
    assert unpack(pack([1])) == [1]
