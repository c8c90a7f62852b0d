"""Twin tests: each attack succeeds while its guard is off, and fails when it is on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest

import dreamrsi as d
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from dreamrsi.sandbox_child import Ask, News
from dreamrsi.sandbox_server import Gone, Server
from sandbox_fixtures import is_alive, no_server_left, nothing_left, policy_source  # noqa: F401
from strategies import tree_of

TREE = tree_of([[1.0, 2.0, 3.0], [0.5, 9.0, 9.5], [2.0, 2.0, 2.0]], steps=3, branches=3)
SECRET = b"an unrevealed score: 9.5"
HEAD = "import ctypes, gc, os, socket, sys, time"


def attack(code, *off, server=None, **limits):
    """Run ``code`` in the first choice of a policy; None if it got through, else what stopped it."""
    source = policy_source(f"{code}\nreturn []", head=HEAD)
    try:
        with SandboxedPolicy(source, limits=Limits(**limits), _off=off, _server=server) as policy:
            d.replay(policy, TREE, 3)
    except d.PolicyError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def hidden():
    """Whether a policy can be kept from the file system and from its user's processes: root, or user namespaces."""
    with contextlib.closing(Server()) as server:
        return attack("assert not os.path.exists('/proc')", server=server) is None


def needs(condition, reason):
    if not condition:
        pytest.skip(reason)


NO_NAMESPACE = "an ordinary user, and this system allows no user namespaces: docs/sandbox.md says what that leaves open"


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
    code = f"os.close(0)\nassert os.open({str(path)!r}, os.O_RDONLY) == 0"
    assert attack(code, "files", "user") is None
    assert "no file or socket can be opened" in attack(code, "user")


def test_removing_a_file_needs_no_descriptor(tmp_path, hidden):
    path = tmp_path / "tree.jsonl"
    path.touch()
    code = f"os.remove({str(path)!r})"
    needs(hidden, NO_NAMESPACE)
    assert attack(code)
    assert path.exists()
    assert attack(code, "user") is None
    assert not path.exists()


@pytest.mark.parametrize("file", ["environ", "mem", "cmdline"])
def test_reading_the_caller_in_proc(file):
    needs(os.path.exists("/proc/self/environ"), "no /proc")
    read = "file.seek(ADDRESS)\n    assert file.read(5) == b'an un'" if file == "mem" else "assert file.read(5)"
    code = f"with open('/proc/{os.getpid()}/{file}', 'rb') as file:\n    {read}".replace("ADDRESS", str(address()))
    got_through = attack(code, "files", "user")
    needs(got_through is None or file != "mem", f"the system forbids it anyway: {got_through}")
    assert got_through is None
    assert attack(code)
    assert attack(code, "user")


def address():
    """Where the bytes of the secret lie."""
    return id(SECRET) + bytes.__basicsize__ - 1


def test_reading_the_memory_of_the_caller_needs_no_descriptor(hidden):
    needs(os.path.exists("/proc/self/mem"), "not Linux")
    code = f"""
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer({len(SECRET)})
local, remote = Piece(ctypes.addressof(buffer), {len(SECRET)}), Piece({address()}, {len(SECRET)})
call = ctypes.CDLL(None, use_errno=True).process_vm_readv
read = call({os.getpid()}, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
assert read == {len(SECRET)}, os.strerror(ctypes.get_errno())
assert buffer.raw == {SECRET!r}
"""
    needs(hidden, NO_NAMESPACE)
    got_through = attack(code, "user")
    needs(got_through is None, f"the system forbids it anyway: {got_through}")
    assert "AssertionError: Operation not permitted" in attack(code)


def test_environment_variables(monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    code = "assert os.environ['API_KEY'] == 'secret'"
    with contextlib.closing(Server(dict(os.environ))) as server:
        assert attack(code, server=server) is None
    with contextlib.closing(Server()) as server:
        assert "raised KeyError: 'API_KEY'" in attack(code, server=server)


def test_sockets():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        code = f"socket.socket().connect((b'127.0.0.1', {listening.getsockname()[1]}))"
        assert attack(code, "files") is None
        assert "no file or socket can be opened" in attack(code)


FORK = """
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    pids.append(pid)
raise ValueError(pids)
"""


def test_a_small_fork_bomb_and_what_is_left_of_it():
    text = attack(FORK, "processes")
    pids = [int(pid) for pid in text.partition("[")[2].partition("]")[0].split(",")]
    assert len(pids) == 3
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids)), "the group was killed with the policy"
    assert "no process be started" in attack(FORK)
    assert "can't start new thread" in attack("import threading\nthreading.Thread(target=print).start()")


def test_a_memory_bomb():
    code = "x = bytearray(256 * 2**20)"
    assert attack(code, "memory", memory=64 * 2**20) is None
    assert attack(code) is None  # the default allows it
    needs(os.path.exists("/proc/self/statm"), "not enforced on macOS")
    assert "raised MemoryError: out of memory (policy.py" in attack(code, memory=64 * 2**20)


def test_an_endless_loop():
    code = "end = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass"  # ends, so that the twin does
    assert attack(code, seconds=30) is None
    assert "round 0: choose() took longer than 0.2 s" in attack(code, seconds=0.2)
    assert "choose() took longer than 0.2 s" in attack(
        "while True:\n    try: time.sleep(1)\n    except BaseException: pass", seconds=0.2
    )


@pytest.mark.slow
def test_an_endless_loop_uses_up_its_cpu_time():
    code = "end = time.process_time() + 1.5\nwhile time.process_time() < end: pass"
    assert attack(code, seconds=30) is None
    assert "round 0: the process ended with SIGXCPU: it used up its CPU time" in attack(code, seconds=30, cpu_seconds=1)


def test_endless_output():
    size = 2 * 2**20
    forged = f"body = b'\\x91\\x81\\xa6raised\\xdb' + ({size}).to_bytes(4, 'big') + b'x' * {size}\n"
    forged += "os.write(3, len(body).to_bytes(4, 'little'))\nview = memoryview(body)\n"
    forged += "while view: view = view[os.write(3, view):]"
    assert "round 0: raised xxx" in attack(forged, "output")  # the caller read it all
    assert f"answered with {size + 14} bytes; at most" in attack(forged)
    assert "answered with 2021161080 bytes" in attack("while True: os.write(3, b'x' * 65536)")
    assert attack("for _ in range(3000): print('x' * 1000)\nprint('y', file=sys.stderr, flush=True)") is None


def test_a_policy_that_does_not_read_its_questions_cannot_hold_up_the_caller():
    question = Ask(0, None, News([(1.0, "ok")] * 100_000, [], -1))  # more than a channel holds
    with SandboxedPolicy(policy_source("return []"), limits=Limits(seconds=0.2)) as policy:
        os.kill(policy._process.pid, signal.SIGSTOP)
        with pytest.raises(Gone, match="took no message for 0.2 s"):
            policy._ask([question])


REMEMBERS = b"""
KNOWN = []  # where the best attempt was, as a sweep over beta on one tree would find it again and again

class Policy:
    def start(self, width):
        self.known = list(KNOWN)

    def choose(self, prefix):
        for branch in prefix.branches:
            if branch.best > 9:
                KNOWN[:] = [branch.number]
        if prefix.can_open:
            return [-1]
        wanted = self.known or range(len(prefix.branches))
        return [number for number in wanted if not prefix.branches[number].ended][:1]
"""


def test_memory_between_episodes_shows_as_a_difference_to_fresh_processes():
    trees = [TREE] * 2
    with SandboxedPolicy(REMEMBERS) as policy:
        screened = [d.replay(policy, tree, 1) for tree in trees]
    fresh = replay_sandboxed(REMEMBERS, trees, 1, fresh=True)
    assert fresh[0] == fresh[1] == screened[0]
    assert screened[1].best == fresh[1].best and screened[1].attempts < fresh[1].attempts, "one process remembers"
    honest = policy_source("return [-1] if prefix.can_open else []")
    assert replay_sandboxed(honest, trees, 1) == replay_sandboxed(honest, trees, 1, fresh=True)


def test_lockstep_remembers_too():
    source = policy_source(
        "SEEN.append(0)\nreturn [-1] * min(3, len(SEEN)) if not prefix.round else []", head="SEEN = []"
    )
    assert [e.attempts for e in replay_sandboxed(source, [TREE] * 3, 3)] == [1, 2, 3]
    assert [e.attempts for e in replay_sandboxed(source, [TREE] * 3, 3, fresh=True)] == [1, 1, 1]


def in_process(code, more=""):
    """The episode of the same code without a sandbox, where nothing is hidden."""
    namespace = {}
    exec(policy_source(code, head=f"{HEAD}\n{more}"), namespace)
    policy = namespace["Policy"]()
    policy.name = "policy"
    return d.replay(policy, TREE, 3)


LOOK = {
    "the prefix's world": "found = [max(chain.scores) for chain in prefix._world.chains]",
    "the caller's frames": """
found, frame = [], sys._getframe()
while frame is not None:
    tree = frame.f_locals.get('tree')
    found += [a.score for a in getattr(tree, 'attempts', [])]
    frame = frame.f_back
""",
    "the garbage collector": """
found = [a.score for o in gc.get_objects() if type(o).__name__ == 'Tree' for a in getattr(o, 'attempts', [])]
found += [s for o in gc.get_objects() if type(o).__name__ == 'Chain' for s in getattr(o, 'scores', [])]
""",
}


@pytest.mark.parametrize("way", LOOK)
def test_looking_for_unrevealed_scores(way):
    code = LOOK[way] + "\nif 9.5 not in found: raise LookupError(found)\nreturn []"
    assert in_process(code).reason == "stopped"
    assert "raised LookupError: []" in attack(code)


# DONE is a list that outlives a reset of the prefix.
@pytest.mark.parametrize(
    ("code", "counted"),
    [
        ("if prefix.round < 3: prefix._best = 1e9; return [-1]\nreturn []", "best"),
        (
            "if len(DONE) < 4:\n    DONE.append(0)\n    prefix.__init__(prefix._world, prefix.width)\n"
            "    return [-1]\nreturn []",
            "reveals",
        ),
        (
            "if prefix.round < 3: prefix._opened.clear(); prefix._next = 0; return [-1]\nreturn []",
            "reveals",
        ),
    ],
    ids=["a better best", "reset in the middle of an episode", "branches forgotten"],
)
def test_a_changed_prefix_changes_nothing_that_counts(code, counted):
    wrong = in_process(code, "DONE = []")
    right = replay_sandboxed(policy_source(code, head="DONE = []"), [TREE], 3)[0]
    honest = in_process(f"return [-1] if prefix.round < {right.rounds} else []")
    assert getattr(wrong, counted) != getattr(honest, counted)
    assert (right.reveals, right.best) == (honest.reveals, honest.best)


def test_patched_functions_do_not_reach_the_caller(monkeypatch):
    for name in ("replay", "sandbox_child"):  # put back what the attack in process changes
        module = sys.modules[f"dreamrsi.{name}"]
        monkeypatch.setattr(module, "check_batch", module.check_batch)
    code = """
for name in ('replay', 'sandbox_child'):
    sys.modules['dreamrsi.' + name].check_batch = lambda name, prefix, batch: tuple(batch)
return [[-1], [0, 0]][prefix.round] if prefix.round < 2 else []
"""
    assert in_process(code).picks[1] == (0, 0)  # two attempts of one branch in one round
    monkeypatch.undo()
    assert "policy policy, round 1, pick 1: branch 0 is picked twice in one batch" in attack(code)


def test_patched_builtins_do_not_reach_the_caller(monkeypatch):
    import builtins

    monkeypatch.setattr(builtins, "max", builtins.max)
    code = "import builtins\nbuiltins.max = lambda *a, **k: 1e9\nreturn []"
    in_process(code)
    assert max(1, 2) == 1e9
    monkeypatch.undo()
    assert attack(code) is None
    assert max(1, 2) == 2


ODD = {
    "a bool": "[True]",
    "a float": "[0.0]",
    "a string": "['0']",
    "a number too big": "[2**70]",
    "a generator": "(-1 for _ in range(2))",
    "nothing": "None",
    "an array": "np.array([-1])",
    "a set": "{-1}",
    "a huge list": "[-1] * 10**7",
    "an endless iterator": "itertools.repeat(-1)",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_return_values_get_the_same_message_as_in_process(kind):
    source = policy_source(f"return {ODD[kind]}", head="import itertools\nimport numpy as np")
    namespace = {}
    exec(source, namespace)
    policy = namespace["Policy"]()
    policy.name = "policy"
    with pytest.raises(d.IllegalBatch) as expected:
        d.replay(policy, TREE, 3)
    assert replay_sandboxed(source, [TREE], 3)[0].error == str(expected.value)


def test_numpy_integers_are_branch_numbers():
    source = policy_source("return (np.int64(-1), np.int8(-1))", head="import numpy as np")
    [episode] = replay_sandboxed(source, [TREE], 3, max_rounds=1)
    assert episode.picks == ((-1, -1),)
    assert not isinstance(episode.picks[0][0], np.integer)


def test_a_list_that_changes_is_read_once():
    lying = """
class Lying(list):
    asked = 0
    def __iter__(self):
        self.asked += 1
        return iter([0] if self.asked == 1 else [0, 0, 0])
return [[-1], Lying([0]), []][prefix.round]
"""
    assert in_process(lying).picks[1] == (0,)
    assert replay_sandboxed(policy_source(lying), [TREE], 3)[0].picks[1] == (0,)


@pytest.mark.slow
def test_the_order_of_a_set_is_the_same_in_every_server():
    code = "raise ValueError(hash('branch'))"

    def hashes(environment):
        found = set()
        for _ in range(3):
            with contextlib.closing(Server(environment)) as server:
                found.add(attack(code, server=server))
        return found

    assert len(hashes(None)) == 1
    assert len(hashes({"PATH": "/usr/bin:/bin"})) > 1


def test_policies_of_several_threads_do_not_disturb_each_other():
    done = []

    def work():
        done.append(replay_sandboxed(policy_source("return [-1] if prefix.can_open else []"), [TREE] * 3, 2))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4 and all(episodes == done[0] for episodes in done)
