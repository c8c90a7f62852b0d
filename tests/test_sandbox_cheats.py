"""Twin tests of a policy against its scoring: each cheat succeeds in process, and fails or shows in the sandbox."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import numpy as np
import pytest

import dreamrsi as d
from dreamrsi.live import live_run
from dreamrsi.prefix import Prefix
from dreamrsi.replay import reveal
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from dreamrsi.sandbox_server import Server
from sandbox_fixtures import (  # noqa: F401
    TREE,
    attack,
    in_process,
    no_server_left,
    nothing_left,
    policy_source,
    unguarded,
)
from toy_task import Toy

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
    with pytest.raises(d.IllegalBatch) as expected:
        d.replay(unguarded(source), TREE, 3)
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


# A memo keyed by the root's score, as a sweep over beta meets the same tree again and again.
MEMO = b"""
BEST = {}

class Policy:
    beta = 0.5

    def start(self, width):
        pass

    def choose(self, prefix):
        known = BEST.setdefault(prefix.root, {})
        for branch in prefix.branches:
            known[branch.number] = max(branch.best, known.get(branch.number, branch.best))
        if prefix.can_open:
            return [-1]
        best = max(known, key=known.get)
        order = [best] if len(BEST[prefix.root]) == 3 and max(known.values()) > 9 else range(3)
        return [number for number in order if not prefix.branches[number].ended][:1]
"""


def test_a_memo_between_the_betas_of_a_sweep_shows_as_a_difference_to_fresh_processes():
    betas = [0.0, 0.5, 1.0]
    with SandboxedPolicy(MEMO) as policy:
        swept = []
        for policy.beta in betas:
            swept.append(d.replay(policy, TREE, 1))
    fresh = [replay_sandboxed(MEMO, [TREE], 1, beta=beta, fresh=True)[0] for beta in betas]
    assert fresh[0] == fresh[1] == fresh[2] == swept[0]
    assert swept[1].best == fresh[1].best == 9.5
    assert swept[1].attempts < fresh[1].attempts, "what it saw at one beta saves it work at the next"


GARBAGE = """
found = [s for o in gc.get_objects() if type(o).__name__ == 'Chain' for s in getattr(o, 'scores', [])]
if 9.0 in found and not prefix.attempts: return []
return [-1] if prefix.can_open else [b.number for b in prefix.branches if not b.ended][:3]
"""


def test_the_garbage_of_earlier_episodes_shows_as_a_difference_to_fresh_processes():
    keeping = policy_source("KEPT.append(prefix)\n" + GARBAGE, head="import gc\nKEPT = []")
    with SandboxedPolicy(keeping) as policy:
        screened = [d.replay(policy, TREE, 3) for _ in range(2)]
    fresh = replay_sandboxed(keeping, [TREE] * 2, 3, fresh=True)
    assert fresh[0] == fresh[1] == screened[0] and fresh[0].best == 9.5
    assert screened[1].attempts == 0, "it found the scores of the first episode"


def test_a_tree_known_by_its_address():
    code = """
known = PLACES.setdefault(id(prefix._world), [])
known += [b.number for b in prefix.branches if b.best > 9 and b.number not in known]
if prefix.can_open: return [-1]
return [n for n in known or range(3) if not prefix.branches[n].ended][:1]
"""
    source = policy_source(code, head="PLACES = {}")
    policy = unguarded(source)
    first, second = d.replay(policy, TREE, 1), d.replay(policy, TREE, 1)
    assert second.attempts < first.attempts, "in process the same tree has the same address"
    assert replay_sandboxed(source, [TREE] * 2, 1, fresh=True) == [first] * 2


LEAKY = """
class Curious(list):
    def __iter__(self):
        return (pick for pick in self.look())
    def look(self):
        frame = sys._getframe()
        while frame is not None:
            tree = frame.f_locals.get('tree')
            FOUND.extend(a.score for a in getattr(tree, 'attempts', []))
            frame = frame.f_back
        yield -1
if FOUND or prefix.round:
    raise LookupError(sorted(set(map(str, FOUND)))[:3])
return Curious([-1])
"""


def test_a_generator_that_looks_at_the_frames_of_who_asks_it():
    with pytest.raises(d.PolicyError, match="LookupError: .*'1.0'"):
        in_process(LEAKY, "FOUND = []")
    source = policy_source(LEAKY, head="import sys\nFOUND = []")
    assert "raised LookupError: []" in replay_sandboxed(source, [TREE], 3)[0].error


# All that a policy can look at without a clock, as a text; its choices depend on every letter of it.
LOOKS = """
import gc, os, random, sys

MADE = []

class Policy:
    def __init__(self, *arguments, **named):
        MADE.append((arguments, named))
        self.calls = []

    def start(self, width):
        self.calls.append(("start", width))

    def choose(self, prefix):
        self.calls.append(("choose", type(prefix).__name__, prefix.round, prefix.attempts))
        frame, stack = sys._getframe(), []
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_code.co_name, sorted(frame.f_locals)))
            frame = frame.f_back
        kinds = sorted({type(o).__name__ for o in gc.get_objects()})
        header = repr(prefix._world.header)
        seen = [MADE, self.calls, stack, kinds, header, sorted(sys.modules), sorted(os.environ.items()), sys.argv,
                [type(b).__name__ for b in prefix.branches], list({"a", "b", "c"})]
        draw = random.Random(repr(seen))
        options = [b.number for b in prefix.branches if not b.ended] + [-1] * prefix.can_open
        return draw.sample(options, min(len(options), prefix.width))
"""


def test_replay_and_live_look_the_same_from_inside(tmp_path):
    with SandboxedPolicy(LOOKS.encode()) as policy:
        live = live_run(Toy(), policy, tmp_path / "run", seed=3, width=2, branches=3, steps=3, workers=2)
    fresh = replay_sandboxed(LOOKS.encode(), [live], 2, fresh=True)[0]
    assert fresh.picks == tuple(batch.picks for batch in live.batches)
    assert d.replay(unguarded(LOOKS), live, 2).picks != fresh.picks, "in process it sees who asks"


def test_a_clock_tells_slow_questions_from_fast_ones():
    """What the sandbox does not stop: docs/sandbox.md names the live results as what catches it."""
    source = policy_source(
        "now, self.last = time.monotonic(), getattr(self, 'last', None) or time.monotonic()\n"
        "slow, self.last = now - self.last > 0.2, time.monotonic()\n"
        "return [] if slow else [-1]",
        head="import time",
    )
    with SandboxedPolicy(source) as policy:
        assert d.replay(policy, TREE, 1).attempts == 3
        prefix = Prefix(TREE.world, 1)
        policy.start(1)
        assert policy.choose(prefix) == [-1]
        reveal(prefix, (-1,), [])
        time.sleep(0.3)
        assert policy.choose(prefix) == []


def test_a_module_beside_the_policy_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "beside_it.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'trace')!r}).touch()")
    (tmp_path / "mine.py").write_bytes(policy_source("return []", head="import beside_it"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with contextlib.closing(Server()) as server, pytest.raises(d.PolicyError, match="cannot import beside_it"):
        SandboxedPolicy((tmp_path / "mine.py").read_bytes(), _server=server)
    assert not (tmp_path / "trace").exists()
    monkeypatch.syspath_prepend(tmp_path)
    exec((tmp_path / "mine.py").read_bytes(), {})
    assert (tmp_path / "trace").exists()


def test_work_at_import_has_its_limit_and_leaves_nothing_for_the_next_process():
    source = policy_source("return [-1] * len(TABLE)", head="import time\nTABLE = []\nTABLE.append(time.sleep(0.3))")
    with pytest.raises(d.PolicyError, match=r"loading took longer than 0.1 s"):
        SandboxedPolicy(source, limits=Limits(seconds=0.1))
    episodes = replay_sandboxed(source, [TREE] * 2, 3, max_rounds=1, fresh=True)
    assert [episode.attempts for episode in episodes] == [1, 1]
