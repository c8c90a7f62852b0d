"""The limits of a policy: what has too much of it, what has none of it, and whose doing an end is."""

from __future__ import annotations

import math
import os
import signal
import threading
import time

import pytest

import dreamrsi as d
from dreamrsi import programs, sandbox_server
from dreamrsi.prefix import Prefix
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401
from strategies import tree_of

TREE = tree_of([[1.0, 2.0, 3.0]] * 4, steps=3, branches=4)


def test_slow_choices_of_many_episodes_are_not_taken_for_silence():
    source = policy_source("time.sleep(0.3)\nreturn []", head="import time")
    episodes = replay_sandboxed(source, [TREE] * 5, limits=Limits(seconds=0.9))
    assert [e.reason for e in episodes] == ["stopped"] * 5


def test_a_choice_in_lockstep_has_the_same_time_as_one_alone():
    """Answers that wait for others must not take the time of the choice that follows."""
    limits = Limits(seconds=0.5)
    source = policy_source("time.sleep(0.06)\nreturn [-1] if not prefix.round else []", head="import time")
    for fresh in (False, True):
        episodes = replay_sandboxed(source, [TREE] * 12, limits=limits, fresh=fresh)
        assert [e.reason for e in episodes] == ["stopped"] * 12


def test_all_choices_of_a_replay_have_a_limit_together_and_those_of_a_live_run_have_none():
    source = policy_source("time.sleep(0.1)\nreturn [0] if prefix.branches else [-1]", head="import time")
    limits = Limits(seconds=5, total=0.1)
    small = tree_of([[1.0, 2.0]])  # two attempts: 0.1 s more
    for fresh in (False, True):
        begun = time.monotonic()
        episodes = replay_sandboxed(source, [small] * 2, max_rounds=50, limits=limits, fresh=fresh)
        assert time.monotonic() - begun < 3
        total = "0.2" if fresh else "0.3"
        told = [f"round {n}: all choices of this replay together took longer than {total} s" for n in range(3)]
        assert any(text in episodes[-1].error for text in told)
    with SandboxedPolicy(source, limits=limits) as policy:
        policy.replay_all([small])
        policy.start(1)
        prefix = Prefix(small.world, 1)
        assert [policy.choose(prefix) for _ in range(5)] == [[-1]] * 5, "the pauses of a live run are its attempts'"


@pytest.mark.parametrize("kind", [Limits, programs.Limits])
@pytest.mark.parametrize(
    ("name", "value"),
    [("seconds", math.nan), ("seconds", -1), ("seconds", math.inf), ("seconds", "5"), ("memory", 0), ("memory", 1.5)]
    + [("cpu_seconds", True), ("memory", 2**60)],
)
def test_a_limit_that_is_none(kind, name, value):
    with pytest.raises(d.UserError, match=f"Limits: {name} is {value!r}; give a (whole )?number above 0"):
        kind(**{name: value})


def test_a_server_that_is_killed_is_not_the_policys_doing():
    server = sandbox_server.Server()
    source = policy_source("time.sleep(0.3)\nreturn [-1]", head="import time")
    with SandboxedPolicy(source, _server=server) as policy:
        killer = threading.Timer(0.1, os.kill, (server.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(d.PolicyError, match="the sandbox's server was ended from outside, or for want of memory"):
            d.replay(policy, TREE)
        killer.join()
    server.close()


def test_a_wide_batch_has_room_and_a_text_has_not():
    source = policy_source("return [-1] * prefix.width if not prefix.round else []")
    width = 1_200_000  # more bytes than a message of a narrow policy may have
    tree = tree_of([[1.0]], width=width)
    assert replay_sandboxed(source, [tree], width, max_rounds=1)[0].picks == ((-1,) * width,)
    assert sandbox_server.printable("ab\x1b\ncd", 5) == "ab  c"
