"""The developer that is a command: what it is given, what is refused, and the one repair."""

import hashlib
import sys
from pathlib import Path

import pytest

from dreamrsi import policies
from dreamrsi.command_developer import POLICY, CommandDeveloper, made_up_trees, rehearse
from dreamrsi.commands import Command
from dreamrsi.developers import DeveloperFailure, Request, Version
from dreamrsi.errors import PolicyError
from dreamrsi.replay import replay
from dreamrsi.sandbox import MAX_SOURCE, Limits
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401
from stand_in_developer import GOOD, POLICIES

BASE = b"from dreamrsi.policies import ParallelRefine as Policy\n"
OTHER = b"from dreamrsi.policies import EarlyStop as Policy\n"
STAND_IN = f"{sys.executable} {Path(__file__).parent / 'stand_in_developer.py'}"


def version(number, source, value, base=None):
    return Version(number, base, source, hashlib.sha256(source).hexdigest(), value)


@pytest.fixture(name="develop")
def developing(tmp_path, monkeypatch):
    (tmp_path / "notes").mkdir()
    (tmp_path / "version").mkdir()
    monkeypatch.setenv("STAND_IN_NOTES", str(tmp_path / "notes"))

    def develop(*calls, seconds=60.0):
        command = Command(" ".join([STAND_IN, *calls]), seconds, ["STAND_IN_NOTES"])
        versions = (version(0, BASE, 1.25), version(1, OTHER, 2.5, 0))
        traces = {0: ["tree 1: 0.0=1.5  1.0=2.7182\n"], 1: ["tree 1: 0.0=1.5\n"]}
        request = Request(2, versions[0], versions, traces, "V = best - costs", 4, 7, tmp_path / "version")
        return CommandDeveloper(command, Limits(seconds=1.0)).develop(request)

    return develop


@pytest.fixture(name="prompts")
def prompts_of_the_calls(tmp_path):
    return lambda: [p.read_text() for p in sorted((tmp_path / "notes").iterdir()) if p.name != "files"]


def test_a_good_policy_is_taken_at_the_first_call(develop, prompts, tmp_path):
    draft = develop("good")
    assert draft.source == GOOD.encode()
    assert draft.notes["repaired"] is None and len(draft.notes["calls"]) == 1
    [prompt] = prompts()
    assert "version 2" in prompt and "holds version 0" in prompt and "You have 60 seconds" in prompt
    files = (tmp_path / "notes/files").read_text().split()
    assert files == [
        "RULES.md", "policy.py", "traces/000/run-00.txt", "traces/001/run-00.txt",
        "versions.md", "versions/000.py", "versions/001.py",
    ]  # fmt: skip
    left = {path.name for path in (tmp_path / "version").iterdir()}
    assert left == {"prompt-1.md", "output-1.txt", "policy-1.py"}


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("broken", "policy.py, line 4: "),
        ("absent", "policy.py is not there"),
        ("unchanged", "policy.py is identical to version 0; write one that differs"),
        ("huge", f"at most {MAX_SOURCE} are taken"),
        ("loops", "took longer than 1 s"),
        ("raises", "ZeroDivisionError"),
        ("illegal", "round 0"),
        ("random", "it must be deterministic"),
        ("impatient", "beta is 1.5; it must be a number from 0 to 1"),
        ("plans", "plan_grid() raised ZeroDivisionError"),
        ("score", "line 11: 2.7182 is a number of the traces"),
        ("sum", "line 11: 2.7182 is a number of the traces"),
        ("text", "line 11: a text holds 2.7182, a number of the traces"),
        ("cells", "line 6: a table of 3 or more pairs of whole numbers"),
    ],
)
def test_a_bad_policy_is_repaired_once_with_the_reason(develop, prompts, what, problem):
    draft = develop(what, "good")
    assert draft.source == GOOD.encode()
    assert problem in draft.notes["repaired"] and len(draft.notes["calls"]) == 2
    assert problem in prompts()[1] and "only repair" in prompts()[1]


def test_bad_twice_is_a_failure_and_there_is_no_third_call(develop, prompts, tmp_path):
    with pytest.raises(DeveloperFailure, match="refused, also after one repair: .*it must be deterministic"):
        develop("broken", "random", "good")
    assert len(prompts()) == 2
    assert (tmp_path / "version/policy-2.py").read_text() == POLICIES["random"]


@pytest.mark.parametrize(
    ("what", "seconds", "message"),
    [("fails", 60, "ended with exit code 3 and printed nothing"), ("hangs", 1, "took longer than its 1 s")],
)
def test_a_command_that_fails_is_not_asked_again(develop, prompts, what, seconds, message):
    with pytest.raises(DeveloperFailure, match=f"the command {message}"):
        develop(what, "good", seconds=seconds)
    assert len(prompts()) == 1


def test_the_first_line_of_its_name_is_the_template():
    assert CommandDeveloper(Command("true --flag", 5)).name == "command:true --flag (5 s)"


@pytest.mark.parametrize(
    "name", ["ParallelRefine", "EarlyStop", "GreedyBest", "Adaptive", "SemanticGuidance", "Portfolio"]
)
def test_the_built_in_policies_pass_the_rehearsal(name):
    rehearse(f"from dreamrsi.policies import {name} as Policy\n".encode(), 4)


@pytest.mark.parametrize(
    "fails_if",
    [
        "prefix.round == 1 and prefix.best == float('-inf')",
        "any(branch.origin for branch in prefix.branches)",
        "prefix.round == 1 and prefix.best > 0 and self.beta == 0",
        "prefix.round == 1 and prefix.best > 0 and self.beta == 1",
    ],
)
def test_the_rehearsal_takes_every_tree_and_beta(fails_if):
    later = "        return [OPEN] * (prefix.can_open and len(live) < self.width) + "
    source = GOOD.replace("        return [b.number", later + "[b.number").replace("live[: self.width]", "live[:3]")
    rehearse(source.encode(), 4)
    source = source.replace("if prefix.round == 0:", f"assert not ({fails_if})\n        if prefix.round == 0:")
    with pytest.raises(PolicyError, match="AssertionError"):
        rehearse(source.encode(), 4)


def test_the_rehearsal_has_what_a_policy_must_cope_with():
    usual, nothing, forked = made_up_trees()
    assert any(a.status == "error" for a in usual) and nothing.best == float("-inf")
    assert any(a.origin for a in forked.attempts)
    assert replay(policies.ParallelRefine(bootstrap=4), usual, 4).attempts > 8
    assert POLICY == "policy.py"
