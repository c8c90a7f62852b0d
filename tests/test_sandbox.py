"""The sandbox changes nothing for an honest policy, and says clearly what a broken one did.

The attacks are in test_sandbox_attacks.py.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import sandbox, sandbox_server
from dreamrsi.sandbox import Limits, SandboxedPolicy, load_policy, replay_sandboxed
from sandbox_fixtures import FIXED, as_file, no_server_left, nothing_left, policy_source, unguarded  # noqa: F401
from strategies import Wild, builtin_policies, tree_of, trees

WIDTHS = st.integers(1, 5)
ROUNDS = st.one_of(st.none(), st.integers(1, 9))
TREE = tree_of([[1.0, 2.0, 3.0]] * 4, steps=3, branches=4)

WITNESS = '''
import random

class Policy:
    """Its choices depend on all that can be seen, so any difference in what it sees becomes one in its picks."""

    def start(self, width):
        self.width = width

    def choose(self, prefix):
        shown = [
            (b.number, b.attempts, b.ended, b.best, b.last, b.status, b.stalled, b.scores, b.tag, b.origin)
            for b in prefix.branches
        ]
        shown.append((prefix.width, prefix.round, prefix.root, prefix.best, prefix.advice, prefix.can_open))
        shown.append((prefix.attempts, len(prefix.branches)))
        draw = random.Random(repr(shown))
        options = [b.number for b in prefix.branches if not b.ended] + [-1] * 2
        if draw.random() < 0.05:
            return []
        return draw.sample(options, draw.randint(1, min(self.width, len(options))))
'''


@settings(max_examples=60, deadline=None)
@given(builtin_policies(), st.lists(trees(), min_size=1, max_size=4), WIDTHS, ROUNDS)
def test_a_builtin_policy_makes_the_same_choices_as_a_file(policy, worlds, width, max_rounds):
    expected = [d.replay(policy, tree, width, max_rounds) for tree in worlds]
    with SandboxedPolicy(as_file(policy)) as sandboxed:
        assert sandboxed.name == policy.name
        assert sandboxed.replay_all(worlds, width, max_rounds) == expected
        assert [d.replay(sandboxed, tree, width, max_rounds) for tree in worlds] == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=4), WIDTHS, ROUNDS, st.sampled_from([None, 1, 2]))
def test_a_sandboxed_policy_sees_what_it_would_see_in_process(worlds, width, max_rounds, max_opens):
    policy = unguarded(WITNESS)
    with SandboxedPolicy(WITNESS.encode()) as sandboxed:
        for tree in worlds:
            expected = d.replay(policy, tree, width, max_rounds, max_opens_per_round=max_opens)
            assert d.replay(sandboxed, tree, width, max_rounds, max_opens_per_round=max_opens) == expected
        expected = [d.replay(policy, tree, width, max_rounds) for tree in worlds]
        assert sandboxed.replay_all(worlds, width, max_rounds) == expected


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 999), trees(forks=True), WIDTHS)
def test_a_policy_without_sense_is_the_same_too(seed, tree, width):
    head = f"import random\nclass d:\n    OPEN = -1\n{inspect.getsource(Wild)}"
    source = (
        f"{head}\nclass Policy(Wild):\n    name = 'wild:{seed}'\n    def __init__(self):\n        self.seed = {seed}\n"
    )
    expected = d.replay(Wild(seed), tree, width)
    assert replay_sandboxed(source.encode(), [tree] * 2, width) == [expected] * 2
    assert replay_sandboxed(source.encode(), [tree], width, fresh=True) == [expected]


def test_a_policy_file_has_a_name_a_source_and_a_hash(tmp_path):
    path = tmp_path / "mine.py"
    path.write_bytes(FIXED)
    with load_policy(path) as policy:
        assert policy.name == "mine"
        assert policy.source == FIXED
        assert policy.sha256 == hashlib.sha256(FIXED).hexdigest()
        assert d.replay(policy, TREE, 2).policy == "mine"
    with pytest.raises(d.PolicyError, match="policy mine: was closed; load it again"):
        d.replay(policy, TREE, 2)
    assert replay_sandboxed(path, [TREE])[0].policy == "mine"


def test_beta_is_set_before_the_start():
    source = policy_source("raise ValueError(self.started)", start="self.started = self.beta", attributes="beta = 0.5")
    with SandboxedPolicy(source) as policy:
        assert policy.default_beta == 0.5
        with pytest.raises(d.PolicyError, match=r"ValueError: 0\.5 "):
            d.replay(policy, TREE, 2)
        policy.beta = 0.75
        with pytest.raises(d.PolicyError, match=r"ValueError: 0\.75 "):
            d.replay(policy, TREE, 2)
    assert "ValueError: 0.25 " in replay_sandboxed(source, [TREE], beta=0.25)[0].error


def test_a_policy_may_use_numpy_and_lazily_loaded_parts_of_libraries():
    source = policy_source(
        "return [int(np.random.default_rng(0).integers(1)) - 1, int(scipy.special.comb(2, 2)) - 2]",
        head="import numpy as np, scipy",
    )
    assert replay_sandboxed(source, [TREE], 2, max_rounds=1)[0].picks == ((-1, -1),)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", "p.py, line 1: SyntaxError: '(' was never closed"),
        ("x = '\0'", "p.py: SyntaxError: source code string cannot contain null bytes"),
        ("\nimport nothing_here", "p.py, line 2: cannot import nothing_here (ModuleNotFoundError: No module"),
        ("\n\n1 / 0", "p.py, line 3: raised ZeroDivisionError: division by zero while it was loaded"),
        ("Policy = 3", "p.py: defines no class Policy"),
        ("class Policy:\n    def __init__(self, seed): pass", "p.py: Policy() raised TypeError"),
        ("class Policy:\n    def __init__(self):\n        1 / 0", "p.py, line 3: Policy() raised ZeroDivisionError"),
        ("class Policy:\n    def start(self, width): pass", "p.py: class Policy has no method choose()"),
        ("import sys\nsys.exit(3)", "p.py, line 2: raised SystemExit: 3 while it was loaded"),
        ("import os\nos._exit(3)", "p.py: the process ended by itself with exit code 3"),
        ("while True: pass", "p.py: loading took longer than 0.3 s"),
        ("import os\nos.write(3, bytes(4))", "p.py: talked to the sandbox while it was loaded"),
        ("#" * 2**21, "p.py: has 2097152 bytes; a policy may have 1048576"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_file_and_line(source, message):
    assert message in refusal(SandboxedPolicy, source.encode(), "p.py", limits=Limits(seconds=0.3))


def refusal(act, *arguments, **given):
    """What the error says that an act ends with."""
    with pytest.raises(d.PolicyError) as caught:
        act(*arguments, **given)
    return str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(d.PolicyError, match=r"none.py: cannot be read \(No such file or directory\)"):
        load_policy(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / prefix.round", "round 0: raised ZeroDivisionError: division by zero (p.py, line 7)"),
        ("raise KeyboardInterrupt", "round 0: raised KeyboardInterrupt (p.py, line 7)"),
        (r"raise ValueError('\x1b[2J\udc80')", "round 0: raised ValueError:  [2J? (p.py"),
        ("time.sleep(9)", "round 0: choose() took longer than 0.3 s"),
        ("os._exit(5)", "round 0: the process ended by itself with exit code 5"),
        ("os.kill(os.getpid(), 11)", "round 0: the process ended with SIGSEGV"),
        ("os.close(3)", "round 0: the process ended by itself with exit code 1"),
        ("os.write(3, bytes(4))", "round 0: its process gave a malformed answer"),
        (
            "os.write(3, b'\\x04\\0\\0\\0\\x93\\x90\\x90\\x90')",
            "round 0: its process gave a malformed answer: 3 answers to",
        ),
        ("return [0]", "round 0, pick 0: branch 0 is not open"),
        ("if prefix.round: raise ValueError\nreturn [-1]", "round 1: raised ValueError (p.py"),
    ],
)
def test_what_a_policy_did_wrong_is_said_with_its_name_and_the_round(body, message):
    source = policy_source(body, head="import os, time", attributes="name = 'bad'")
    with SandboxedPolicy(source, "p.py", limits=Limits(seconds=0.3)) as policy:
        assert f"policy bad, {message}" in refusal(d.replay, policy, TREE, 2)
        episodes = policy.replay_all([TREE] * 2, 2)  # after the process died, the next episode starts a new one
        assert [e.reason for e in episodes] == ["failed"] * 2
        assert f"policy bad, {message}" in episodes[0].error


def test_a_forged_message_gets_policy_and_round_all_the_same():
    source = policy_source("os.write(3, b'\\x0c\\0\\0\\0\\x91\\x81\\xa7illegal\\xa1x')", head="import os")
    assert replay_sandboxed(source, [TREE])[0].error == "policy policy, round 0: x"


def test_an_illegal_batch_fails_its_own_episode_and_the_others_go_on():
    source = policy_source("return [-1, -1] if prefix.root is None else [7]")
    other = tree_of([[1.0]] * 3, root=0.5)
    episodes = replay_sandboxed(source, [TREE, other, TREE], 2, max_rounds=2)
    assert [e.reason for e in episodes] == ["rounds", "failed", "rounds"]
    assert "policy policy, round 0, pick 0: branch 7 is not open" in episodes[1].error
    assert d.score(episodes[1], beta1=0.1, beta2=0.1) == -float("inf")
    assert episodes[::2] == replay_sandboxed(source, [TREE, other, TREE], 2, max_rounds=2, fresh=True)[::2]


def test_more_episodes_than_fit_in_one_message():
    number = sandbox.MAX_ANSWERS + 7
    error = "x" * 3000
    episodes = replay_sandboxed(policy_source(f"raise ValueError({error!r})"), [TREE] * number)
    assert len(episodes) == number and all(e.reason == "failed" for e in episodes)


def test_no_trees_and_a_width_of_zero():
    assert replay_sandboxed(FIXED, []) == []
    with pytest.raises(d.UserError, match="width is 0"):
        replay_sandboxed(FIXED, [TREE], 0)


def test_after_a_server_was_killed_the_next_episode_gets_a_new_one():
    with SandboxedPolicy(policy_source("return [-1]")) as policy:
        server = sandbox_server.shared()
        os.kill(server.pid, signal.SIGKILL)
        while server.alive:
            time.sleep(0.01)
        assert d.replay(policy, TREE, 2, max_rounds=2).reason == "rounds"


def test_the_server_ends_its_processes_and_leaves_no_folder_when_the_caller_is_gone():
    server = sandbox_server.Server()
    folder = Path(server._folder)
    policy = SandboxedPolicy(policy_source("while True: pass"), _server=server)
    pid = policy._process.pid
    assert folder.exists()
    server._control.close()  # as if the caller had been killed
    server._process.wait(10)
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    policy.close()
    server.close()


def test_a_caller_that_is_killed_while_the_server_starts_leaves_no_folder(tmp_path):
    code = "import sys, dreamrsi.sandbox_server as s\ns.Server._reply = lambda self: s.os.kill(s.os.getpid(), 9)\n"
    killed = subprocess.run([sys.executable, "-c", code + "s.Server(folder=sys.argv[1])", str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_forked_from_the_caller_does_not_end_its_policies():
    with SandboxedPolicy(policy_source("return [-1]")) as policy:
        pid = os.fork()
        if pid == 0:
            policy.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert d.replay(policy, TREE, 2, max_rounds=2).reason == "rounds"


def test_ctrl_c_leaves_nothing_behind(monkeypatch):
    with SandboxedPolicy(policy_source("return [-1]")) as policy:
        with monkeypatch.context() as patch:
            patch.setattr(policy._process, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                d.replay(policy, TREE, 2)
        assert policy._process.ended
        assert d.replay(policy, TREE, 2, max_rounds=2).reason == "rounds"


def interrupted(*_):
    raise KeyboardInterrupt


def test_the_screening_is_fast_enough_for_its_budget():
    """Four times the budget of 300 microseconds: this is a guard against a wrong turn, not the benchmark."""
    shape = [[random.Random(b).random() + a for a in range(11)] for b in range(8)]
    worlds = [tree_of(shape, steps=11, branches=8, width=8)] * 24
    with SandboxedPolicy(as_file(d.policies.ParallelRefine())) as policy:
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            episodes = policy.replay_all(worlds)
            seconds.append(time.perf_counter() - start)
    assert episodes[0] == d.replay(d.policies.ParallelRefine(), worlds[0])
    assert min(seconds) / len(worlds) < 4 * 300e-6


def planner(body, **more):
    return policy_source("return []", **more) + ("\n    def plan_grid(self, summaries):\n        " + body).encode()


def test_a_policy_may_plan_the_next_grid():
    summaries = [{"branches": 8, "best": 2.5, "gains": [0.5, None]}]
    with SandboxedPolicy(
        planner("return {'branches': len(summaries), 'seen': summaries, 'beta': self.beta}")
    ) as policy:
        policy.beta = 0.25
        assert policy.plan_grid(summaries) == {"branches": 1, "seen": summaries, "beta": 0.25}
    dataclass = "from dataclasses import dataclass\n@dataclass\nclass GridPlan:\n    branches: int\n    steps: int\n"
    source = planner("return GridPlan(4, 5)", head=dataclass)
    with SandboxedPolicy(source) as policy:
        assert policy.plan_grid([]) == {"branches": 4, "steps": 5}
    for source in (FIXED, planner("return None")):
        with SandboxedPolicy(source) as policy:
            assert policy.plan_grid(summaries) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "policy bad: plan_grid() raised ZeroDivisionError: division by zero (p.py, line"),
        ("time.sleep(9)", "policy bad: plan_grid() took longer than 0.3 s"),
        ("os._exit(5)", "policy bad: the process ended by itself with exit code 5"),
        ("return [8, 11]", "policy bad: plan_grid() returned a list; it must be a dict"),
        ("return True", "policy bad: plan_grid() returned a bool; it must be a dict"),
        ("return {1: 2}", "policy bad: plan_grid() gave a malformed answer: a dictionary with the key 1"),
        ("return {'branches': np.arange(3)}", "policy bad: plan_grid() gave a malformed answer: it holds arrays"),
        ("return {'branches': (n for n in [1])}", "policy bad: plan_grid() raised TypeError: a generator is neither"),
        ("return {'reason': 'x' * 10**5}", "policy bad: answered with 100"),
        ("os.write(3, bytes(4))", "policy bad: plan_grid() gave a malformed answer"),
    ],
)
def test_a_plan_that_goes_wrong_is_an_error_and_the_policy_goes_on(body, message):
    source = planner(body, head="import os, time\nimport numpy as np", attributes="name = 'bad'")
    with SandboxedPolicy(source, "p.py", limits=Limits(seconds=0.3)) as policy:
        assert refusal(policy.plan_grid, [{}]).startswith(message)
        assert d.replay(policy, TREE).reason == "stopped"


def test_a_plan_leaves_no_trace_in_the_episodes():
    """Else a policy would know a live run, before which it is asked for a plan, from a replay."""
    source = planner("CALLS.append(0)", head="CALLS = []").replace(b"return []", b"return [-1] * len(CALLS)")
    with SandboxedPolicy(source) as policy:
        assert policy.plan_grid([]) is None
        assert d.replay(policy, TREE).attempts == 0
    policy = unguarded(source)
    policy.plan_grid([])
    assert d.replay(policy, TREE, max_rounds=1).attempts == 1
