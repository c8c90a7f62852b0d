"""What a sandboxed process can do to others or leave behind for the next one: nothing, by its filter of system calls.

Twin tests: each attack succeeds while its guard is off, and fails when it is on. Two of them go through a whole dream.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import types

import pytest

from dream_fixtures import run
from dreamrsi import sandbox, sandbox_calls, sandbox_confine
from dreamrsi.errors import PolicyError
from dreamrsi.sandbox import SandboxedPolicy
from dreamrsi.sandbox_calls import _ARCHITECTURES, _filter, filter_calls
from dreamrsi.sandbox_confine import LoadError, Setup, confine
from dreamrsi.sandbox_server import Server, clean_environment
from sandbox_fixtures import FIXED, attack, linux, needs, no_server_left, nothing_left, policy_source  # noqa: F401
from test_dream_attacks import COSTS, EVERYTHING, HISTORY, HONEST

pytestmark = linux
KEY = 0x44000000 + os.getpid()  # of shared memory, of this test's own

# Reads and writes a small number that outlives the process.
MEMORY = {
    "the descriptors that it is forked with": """
import fcntl
def get(): return fcntl.fcntl(0, 11)  # F_GETSIG
def put(number): fcntl.fcntl(0, 10, number)
""",
    "shared memory": f"""
import ctypes
library = ctypes.CDLL(None, use_errno=True)
library.shmat.restype = ctypes.c_void_p
def place():
    segment = library.shmget({KEY}, 1, 0o1666)
    if segment < 0: raise OSError(ctypes.get_errno(), "no shared memory")
    return ctypes.c_char.from_address(library.shmat(segment, None, 0))
def get(): return place().value[0]
def put(number): place().value = number
""",
}
GUARDS = {"the descriptors that it is forked with": ["calls", "descriptors"], "shared memory": ["calls"]}

SCOUT = """
class Policy:
    def start(self, width): pass
    def choose(self, prefix):
        if prefix.branches and prefix.root == 0.5:
            scores = [branch.best for branch in prefix.branches]
            put(scores.index(max(scores)) + 1)
        return [-1] if prefix.can_open and prefix.attempts < 6 else []
"""
THIEF = """
class Policy:
    def start(self, width): pass
    def choose(self, prefix):
        try: enough = prefix.root == 0.5 and get() or 6
        except OSError: enough = 6
        return [-1] if prefix.can_open and prefix.attempts < enough else []
"""


@pytest.fixture
def no_segment_left():
    yield
    library = ctypes.CDLL(None)
    segment = library.shmget(KEY, 0, 0)
    if segment >= 0:
        library.shmctl(segment, 0, None)


@pytest.mark.parametrize("place", MEMORY)
def test_what_one_version_leaves_behind_for_the_fresh_processes_of_another(
    tmp_path, monkeypatch, place, no_segment_left
):
    """Confirmation starts a process for every episode; a memory that outlives them all would pass it."""
    scout, thief = ((MEMORY[place] + source).encode() for source in (SCOUT, THIEF))
    given = {"current": EVERYTHING, "history": HISTORY, **COSTS}
    guards = GUARDS[place]
    for on in [*([guard] for guard in guards), guards]:  # each guard alone is enough
        off = [guard for guard in guards if guard not in on]
        monkeypatch.setattr(sandbox, "Setup", lambda *a, off=off: Setup(*a[:5], [*a[5], *off], *a[6:]))
        found = run(tmp_path / "-".join(on), scout, thief, HONEST, **given)
        assert found.versions[2].value == found.versions[3].value, f"{on} leaves it nothing to remember with"
    monkeypatch.setattr(sandbox, "Setup", lambda *a: Setup(*a[:5], [*a[5], *guards], *a[6:]))
    found = run(tmp_path / "off", scout, thief, HONEST, **given)
    assert found.selected.source == thief and not found.disqualified, "without its guards the cheat is deployed"
    assert found.versions[2].value > found.versions[3].value


CALL = """
library = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    answer = library.syscall(ctypes.c_long(number), *arguments)
    if answer < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
"""
X86 = os.uname().machine == "x86_64"
OTHERS = "import fcntl, resource, signal\n"
CODES = {
    "a segment of shared memory": f"{CALL}library.shmctl(call({29 if X86 else 194}, 0, 9, 0o600), 0, None)",
    "a semaphore": f"{CALL}library.semctl(call({64 if X86 else 190}, 0, 1, 0o600), 0, 0)",
    "a queue of messages": f"{CALL}library.msgctl(call({68 if X86 else 186}, 0, 0o600), 0, None)",
    "a key": f"{CALL}call({250 if X86 else 219}, 0, ctypes.c_int(-2), 1)",  # the id of the process's own keyring
    "the time of a file that is open": "os.utime(0)",
    "a name of its channel": (
        "channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=3)\n"
        "try: channel.bind(b'\\0%d' % os.getpid())\nfinally: channel.detach()"
    ),
    "taking a guard back": f"{CALL}if library.prctl(4, 1, 0, 0, 0): raise OSError(1, 'no')",  # PR_SET_DUMPABLE
    "another's group": "os.getpgid(VICTIM)",
    "a signal to another process": "os.kill(VICTIM, 0)",
    "a signal through a descriptor": OTHERS + "fcntl.fcntl(3, fcntl.F_SETOWN, VICTIM)",
    "another's priority": "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
    "another's limits": OTHERS + "resource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0))",
    "another's processors": "os.sched_setaffinity(VICTIM, {0})",
}


@pytest.mark.parametrize("what", CODES)
def test_what_reaches_others_or_outlives_the_process(what):
    with SandboxedPolicy(FIXED) as victim:
        code = CODES[what].replace("VICTIM", str(victim._process.pid))
        assert attack(code, "calls", "files") is None
        assert "Errno 1]" in attack(code, "files")
        assert "Errno 1]" in attack(code)


def test_names_in_the_empty_folder():
    for code in (
        "os.mkdir('/memo')",
        "os.symlink('branch 4', '/memo')",
        "os.readlink('/memo')",
        "os.chmod('/', 0o700)",
    ):
        assert "Errno 1]" in attack(code)
    if os.getuid():
        assert attack("os.symlink('branch 4', '/memo')\nos.rename('/memo', '/m')\nos.unlink('/m')", "calls") is None
    else:
        assert "Errno 13]" in attack("os.mkdir('/memo')", "calls"), "nobody may not write there anyway"


def test_what_a_calculation_needs_passes():
    code = """
import resource, signal, tempfile
assert os.getpid() > 1 and os.sched_getaffinity(0) and resource.getrlimit(resource.RLIMIT_AS)
assert len(os.urandom(9)) == 9 and os.uname() and os.times() and time.strftime('%c')
signal.signal(signal.SIGALRM, lambda *_: SEEN.append(1))
SEEN = []
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.05)
signal.signal(signal.SIGUSR1, lambda *_: SEEN.append(2))
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
assert SEEN == [1, 2, 2]
for _ in range(20): bytearray(2**22)
print('x', flush=True)
assert not os.path.exists('/proc')
"""
    assert attack(code) is None


@pytest.fixture(scope="module")
def server_with_modules(tmp_path_factory):
    """A server whose interpreter has two modules more, that do at import what they should not."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    (folder / "opens_a_file.py").write_text("FILE = open(__file__)")
    with contextlib.closing(Server({**clean_environment(), "PYTHONPATH": str(folder)})) as server:
        yield server


def test_a_module_that_starts_a_thread_is_refused(server_with_modules):
    """Its thread would run on without the guards, and no namespace of users can be had beside it."""
    source = policy_source("return []", head="import starts_a_thread")
    with SandboxedPolicy(source, _off=["threads"], _server=server_with_modules) as policy:
        assert policy.name == "policy"
    with pytest.raises(PolicyError, match="policy.py: a module that it imports starts a thread"):
        SandboxedPolicy(source, _server=server_with_modules)


def test_what_a_module_has_opened_is_closed(server_with_modules):
    source = policy_source("raise ValueError(os.read(opens_a_file.FILE.fileno(), 4))", head="import os, opens_a_file")
    for off, told in ((["descriptors"], "ValueError: b'FILE'"), ([], "Bad file descriptor")):
        with SandboxedPolicy(source, _off=off, _server=server_with_modules) as policy:
            [episode] = policy.replay_all(HISTORY[:1])
        assert told in episode.error


STATE = """
import fcntl, resource
library = ctypes.CDLL(None)
signal = ctypes.c_int()
library.prctl(2, ctypes.byref(signal), 0, 0, 0)
def is_open(n):
    try: return fcntl.fcntl(n, fcntl.F_GETFD) >= 0
    except OSError: return False
raise ValueError([
    (os.getresuid(), os.getresgid(), os.getgroups()),
    {"death": signal.value, "dumpable": library.prctl(3, 0, 0, 0, 0), "no_new_privs": library.prctl(39, 0, 0, 0, 0)},
    [resource.getrlimit(n) for n in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE,
                                     resource.RLIMIT_NPROC)],
    [n for n in range(1100) if is_open(n)],
])
"""


def state(*off, server=None):
    told = attack(STATE, *off, server=server).partition("ValueError: ")[2].rpartition(" (policy.py")[0]
    return eval(told)


@pytest.mark.parametrize("off", [[], ["user"]])
def test_the_state_that_a_policy_runs_in(off):
    """Also where the user stays the same: a change of user sets some of it by the way."""
    _, flags, limits, descriptors = state(*off)
    assert flags == {"death": 9, "dumpable": 0, "no_new_privs": 1}
    assert limits == [(0, 0)] * 4
    assert descriptors == [0, 1, 2, 3]


def test_root_becomes_nobody_and_leaves_its_groups():
    needs(os.getuid() == 0, "an ordinary user stays one")
    groups = os.getgroups()
    os.setgroups([0, 5])
    try:
        with contextlib.closing(Server()) as server:
            who, *_ = state(server=server)
    finally:
        os.setgroups(groups)
    user, group = sandbox_confine.nobody()
    assert who == ((user,) * 3, (group,) * 3, [])


# The filter as a program: what it says, on both architectures, whatever this machine is.


def decide(machine, number, *arguments, architecture=None, pid=77):
    """What the filter answers: None, or the number of an error."""
    code = _filter(machine).replace(sandbox_calls._PLACE, struct.pack("<I", pid))
    lines = list(struct.iter_unpack("<HBBI", code))
    seen = {0: number, 4: architecture or _ARCHITECTURES[machine][1]}
    seen |= {16 + 8 * place: argument for place, argument in enumerate(arguments)}
    loaded = at = 0
    while True:
        what, then, otherwise, value = lines[at]
        at += 1
        if what == 0x20:
            loaded = seen[value]
        elif what == 0x06:
            return None if value == 0x7FFF0000 else value & 0xFFFF
        else:
            at += then if (loaded == value if what == 0x15 else loaded >= value) else otherwise


@pytest.mark.parametrize("machine", _ARCHITECTURES)
def test_the_filter_says_yes_to_what_is_listed_alone(machine):
    which = list(_ARCHITECTURES).index(machine)
    passes = {pair[which]: name for name, pair in sandbox_calls._NUMBERS.items() if pair[which] is not None}
    for number in range(600):
        expected = None if number in passes else 38 if number >= 424 else 1
        if passes.get(number) in sandbox_calls._ONLY:
            place, values = sandbox_calls._ONLY[passes[number]]
            for value in (*values, 78, 2**32 - 1):
                given = [5] * place + [77 if value == -1 else value]
                assert decide(machine, number, *given) == (None if value in values else 1)
        else:
            assert decide(machine, number) == expected
    assert decide(machine, 0x40000000) == 38, "the other way of numbering on x86_64"
    [other] = (code for name, (_, code) in _ARCHITECTURES.items() if name != machine)
    assert decide(machine, min(passes), architecture=other) == 1


def test_without_a_filter_nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine="riscv64"))
    assert not filter_calls(ctypes.CDLL(None))
    off = ["files", "user", "memory", "processes", "descriptors", "threads"]
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:  # confinement is for good
        try:
            confine(Setup(b"", "p.py", "p", 2**30, 100, off))
        except LoadError as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(tell)
    with open(told, "rb") as file:
        assert b"p.py: this system lets no filter of system calls be set" in file.read()
    assert sys.platform == "linux"
