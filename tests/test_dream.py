"""Dreaming: what is selected, what is told to the developer, what is written, and what goes wrong without harm.

Versions that cheat are in test_dream_attacks.py.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import tempfile
import warnings
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dream_fixtures import ALL, BROKEN, FIRST, HALF, NOWHERE, OTHER, TREE, Scripted, files_of, run
from dreamrsi import judge, schedule, synthetic
from dreamrsi.developers import DeveloperFailure, Draft
from dreamrsi.dream import load_dream
from dreamrsi.record import Batch
from dreamrsi.sandbox import Limits
from dreamrsi.schedule_search import ScheduleSearch
from dreamrsi.sweep_score import replay_betas, sweep_score
from sandbox_fixtures import as_file, no_server_left, nothing_left, policy_source  # noqa: F401
from strategies import builtin_policies, tree_of, trees

# What is selected


def test_the_best_version_is_selected_and_it_is_the_bytes_that_were_scored(tmp_path):
    found = run(tmp_path, HALF, ALL, NOWHERE)
    assert [version.number for version in found.versions] == [0, 1, 2, 3]
    assert found.selected is found.versions[2]
    assert found.selected.source == ALL and found.selected.sha256 == sha256(ALL).hexdigest()
    assert (tmp_path / "developer/version-02/policy.py").read_bytes() == ALL
    assert found.confirmed == (0, 2) and found.disqualified == {} and found.current_differs is None
    by_hand = [d.score(e, beta1=0.02, beta2=0.05) for e in found.selected.episodes]
    assert found.selected.value == math.fsum(by_hand) / 2
    assert [(e.best, e.attempts) for e in found.selected.episodes] == [(9.0, 12), (7.5, 6)]


def test_a_replay_is_that_of_the_library(tmp_path):
    names = ["parallel_refine", "early_stop", "greedy_best", "adaptive", "portfolio"]
    chosen = [d.policies.make(name) for name in names]
    found = run(tmp_path, *map(as_file, chosen[1:]), current=as_file(chosen[0]))
    for policy, version in zip(chosen, found.versions, strict=True):
        expected = [d.replay(policy, tree, 3) for tree in (TREE, OTHER)]
        assert version.value == d.value(expected, beta1=0.02, beta2=0.05)
        assert [e.picks for e in version.episodes] == [e.picks for e in expected]


def test_a_record_with_more_rounds_than_attempts_is_no_reason_to_doubt_a_version(tmp_path):
    """The limit of rounds is the same for one process and for fresh ones."""
    empty = [Batch((-1,), number, 0) for number in range(1, 6)]
    attempts = [d.Attempt(branch=0, attempt=n, seq=n, round=6 * n, score=1.0 + n, status="ok") for n in range(2)]
    tree = d.Tree(d.Header(task="toy", width=1, branches=1), attempts, [Batch((-1,), 0, 1), *empty, Batch((0,), 6, 1)])
    patient = policy_source("return [-1] if prefix.round < 6 else [0]")
    found = run(tmp_path, patient, current=FIRST, history=[tree])
    assert found.selected.number == 1 and found.selected.episodes[0].rounds == 7


def test_the_current_policy_stays_on_a_tie_and_among_others_the_earlier_version_wins(tmp_path):
    same = FIRST + b"# another hash\n"
    assert run(tmp_path / "a", same, NOWHERE).selected.number == 0
    assert run(tmp_path / "b", ALL, ALL + b"#\n").selected.number == 1


def test_where_every_candidate_fails_the_current_policy_stays(tmp_path):
    """As a peer had it, the first of all values that are -inf was deployed."""
    found = run(tmp_path / "a", BROKEN, b"not python", current=FIRST)
    assert [v.value for v in found.versions[1:]] == [-math.inf] * 2 and found.selected.number == 0
    found = run(tmp_path / "b", BROKEN, b"not python", current=BROKEN + b"#\n")
    assert [v.value for v in found.versions] == [-math.inf] * 3 and found.selected.number == 0


def test_where_the_current_policy_fails_the_best_other_wins(tmp_path):
    for number, current in enumerate((BROKEN, b"not python")):
        found = run(tmp_path / str(number), BROKEN + b"#\n", NOWHERE, HALF, current=current)
        assert found.selected.number == 3 and found.current.value == -math.inf


def test_one_version_is_the_current_policy(tmp_path):
    found = run(tmp_path)
    assert found.selected is found.current and found.confirmed == (0,)


def test_normalised_scores_and_other_betas(tmp_path):
    found = run(tmp_path, ALL, HALF, normalise="range", beta1=0.001, beta2=0.0)
    for version in found.versions:
        assert version.value == d.value(
            version.episodes, beta1=0.001, beta2=0.0, trees=[TREE, OTHER], normalise="range"
        )
    assert "best/(best recorded - root) - 0.001*N" in found.objective
    trace = (tmp_path / "developer/version-01/trace-00.txt").read_text()
    assert "V = best/(best recorded - root)" in trace


BUILTIN = st.lists(builtin_policies().map(as_file), min_size=1, max_size=3, unique=True)
HISTORIES = st.lists(trees().filter(lambda tree: tree.best_attempt is not None), min_size=1, max_size=3)


@settings(max_examples=15, deadline=None)
@given(st.data(), BUILTIN, builtin_policies(), HISTORIES, st.sampled_from(["best", "latest"]))
def test_the_selected_is_never_worse_than_the_current_and_the_order_does_not_matter(
    data, sources, current, worlds, revise
):
    order = data.draw(st.permutations(sources))
    with tempfile.TemporaryDirectory() as folder:
        given = {"current": as_file(current), "history": worlds, "revise": revise}
        one = run(f"{folder}/a", *sources, **given)
        two = run(f"{folder}/b", *order, **given)
        assert run(f"{folder}/c", *sources, **given) == one
        assert files_of(f"{folder}/c") == files_of(f"{folder}/a")
    values = [version.value for version in one.versions]
    assert one.selected.value == max(values) >= one.current.value
    assert one.selected.number == values.index(max(values))
    assert two.selected.value == one.selected.value
    if values.count(max(values)) == 1:
        assert two.selected.source == one.selected.source
    assert {v.sha256: v.value for v in one.versions} == {v.sha256: v.value for v in two.versions}


# What the developer is told


def test_what_a_developer_is_given(tmp_path):
    developer = Scripted(HALF, DeveloperFailure("no idea"), ALL)
    found = run(tmp_path, *developer.script, developer=developer)
    first, second, third = developer.requests
    assert first.base == found.current and second.base == third.base == found.versions[1]
    assert [len(request.versions) for request in developer.requests] == [1, 2, 3]
    assert third.versions == found.versions[:3]
    assert len({request.seed for request in developer.requests}) == 3
    assert first.width == 3 and "V = best - 0.02*N + 0.05*N/max(1, k)" in first.objective
    assert {number: len(texts) for number, texts in third.traces.items()} == {0: 2, 1: 2, 2: 0}
    assert "round 0: picks open open -> 0.0=1  1.0=2 |" in third.traces[1][0]
    assert (tmp_path / "developer/version-01/trace-00.txt").read_text() == third.traces[1][0]


def test_the_latest_version_is_revised_if_wanted(tmp_path):
    found = run(tmp_path, NOWHERE, DeveloperFailure("none"), ALL, revise="latest")
    assert [version.base for version in found.versions] == [None, 0, 1, 1], "what has no source cannot be revised"
    patch = (tmp_path / "developer/version-03/diff.patch").read_bytes()
    assert patch.startswith(b"--- a/policy.py\tversion-01\n+++ b/policy.py\tversion-03\n")


def test_nobody_is_told_where_the_history_lies(tmp_path):
    """The file of a tree holds what was not revealed."""
    path = tmp_path / "hidden" / "tree.jsonl"
    TREE.save(path)
    seen = []

    def look(request):
        seen.append(repr(request))
        return Draft(HALF)

    run(tmp_path / "dream", look, BROKEN, look, history=[d.Tree.load(path)])
    assert seen and not any("hidden" in text for text in seen)


def test_a_developer_is_told_nothing_that_was_not_revealed(tmp_path):
    """Whatever stands where no version has looked, requests and values are the same."""
    told = []
    for place, hidden in enumerate((9.0, -50.0, None)):
        tree = tree_of([[1.0, hidden, hidden], [2.0, hidden, 1.5], [hidden, hidden]], steps=3, branches=4, root=0.0)
        developer = Scripted(HALF, BROKEN, HALF)
        run(tmp_path / str(place), *developer.script, developer=developer, history=[tree])
        told.append([dataclasses.replace(request, folder=None) for request in developer.requests])
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("given", [{"normalise": "range"}, {"objective": "sweep"}], ids=["range", "sweep"])
def test_where_values_depend_on_what_was_not_revealed_a_developer_is_told_ranks(tmp_path, given):
    """With the value itself, best/(value + cost) is the range of the tree, and with it the best recorded score."""
    told, values = [], []
    for place, hidden in enumerate((9.0, 7.3, None)):
        tree = tree_of([[1.0, hidden, hidden], [2.0, hidden, 1.5], [hidden, hidden]], steps=3, branches=4, root=0.0)
        developer = Scripted(HALF, BROKEN, FIRST + b"#\n", HALF)
        found = run(tmp_path / str(place), *developer.script, developer=developer, history=[tree], **given)
        told.append([dataclasses.replace(request, folder=None) for request in developer.requests])
        values.append([version.value for version in found.versions])
    assert told[0] == told[1] == told[2]
    assert values[0] != values[1] != values[2] != values[0], "what is hidden moves the values themselves"
    last = told[0][-1]
    assert [version.value for version in last.versions] == [1.0, 2.0, -math.inf, 1.0]
    assert last.base == last.versions[1] and "rank among the versions so far" in last.objective
    assert [request.base.number for request in told[0]] == [0, 1, 1, 1]


def test_a_developer_leaves_what_it_wants_in_its_folder(tmp_path):
    def writes(request):
        assert request.folder.is_dir() and not any(request.folder.iterdir())
        (request.folder / "policy.py").mkdir()  # the name of a file of ours
        (request.folder / "log.txt").write_text("thoughts")
        return Draft(ALL, {"mood": ["good", 1]})

    found = run(tmp_path, writes, HALF)
    assert (tmp_path / "developer" / "version-01" / "work" / "log.txt").read_text() == "thoughts"
    assert (tmp_path / "developer/version-01/policy.py").read_bytes() == ALL
    assert not (tmp_path / "developer/version-02/work").exists()
    assert found.versions[1].notes == {"mood": ["good", 1]}


def test_a_patch_makes_a_version_from_its_base(tmp_path):
    sources = [HALF, HALF + b"# no end of line", FIRST.replace(b"\n", b"\r\n"), ALL]
    run(tmp_path, *sources, current=FIRST)
    for number in range(1, 5):
        place = tmp_path / f"developer/version-{number:02d}"
        base = json.loads((place / "version.json").read_text())["base"]
        copy = tmp_path / f"copy-{number}" / "policy.py"
        copy.parent.mkdir()
        copy.write_bytes((tmp_path / f"developer/version-{base:02d}/policy.py").read_bytes())
        subprocess.run(["git", "apply", place / "diff.patch"], cwd=copy.parent, check=True)
        assert copy.read_bytes() == (place / "policy.py").read_bytes()


def test_on_a_tie_the_earlier_version_is_revised(tmp_path):
    found = run(tmp_path, HALF, HALF + b"# as good\n", NOWHERE)
    assert found.versions[1].value == found.versions[2].value > found.current.value
    assert [version.base for version in found.versions] == [None, 0, 1, 1]


# What goes wrong without harm


def test_a_failing_developer_or_version_is_recorded_and_the_dream_goes_on(tmp_path):
    class Odd(Exception):
        def __str__(self):
            return "\ud800" * 10_000

    script = [
        DeveloperFailure("the agent gave up"),
        ZeroDivisionError("division by zero"),
        Odd(),
        lambda request: "not a draft",
        Draft("text"),
        Draft(HALF, {"x": object()}),
        Draft(None),
        SystemError(),
        b"def",
        b"x = 1",
        b"#" * 2**21,
        BROKEN,
        policy_source("1 / 0"),
        policy_source("return [0.5]"),
        policy_source("import os; os._exit(3)"),
        policy_source("return [-1] * 9"),
        ALL,
    ]
    found = run(tmp_path, *script)
    assert found.selected.number == len(script)
    for version, text in zip(
        found.versions[1:],
        [
            "scripted wrote no version: the agent gave up",
            "scripted wrote no version: ZeroDivisionError: division by zero",
            "Odd: ???",
            "it returned str and not a Draft",
            "a Draft with bytes",
            "must be JSON values",
            "a Draft with bytes",
            "SystemError",
            "policy.py, line 1: SyntaxError",
            "defines no class Policy",
            "has 2097152 bytes",
            "branch 99 is not open",
            "ZeroDivisionError",
            "0.5 is not a branch number",
            "exit code 3",
            "9 picks; the width allows 3",
        ],
        strict=False,
    ):
        assert version.value == -math.inf and text in version.error, (version.number, version.error)
        assert len(version.error) < 2_100
    assert load_dream(tmp_path) == found


def test_a_version_that_runs_out_of_limits(tmp_path):
    endless = policy_source("while True: pass")
    found = run(tmp_path, endless, ALL, limits=Limits(seconds=0.3), history=[OTHER])
    assert "longer than 0.3 s" in found.versions[1].error and found.selected.number == 2


def test_ctrl_c_is_not_swallowed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, HALF, KeyboardInterrupt())
    developer = Scripted(HALF, ALL)
    assert run(tmp_path, *developer.script, developer=developer).selected.number == 2
    assert [request.number for request in developer.requests] == [2]


def test_the_same_bytes_are_not_replayed_again(tmp_path, monkeypatch):
    screened = []
    screen = judge.Judge._screen
    monkeypatch.setattr(judge.Judge, "_screen", lambda judge, source: screened.append(source) or screen(judge, source))
    found = run(tmp_path, HALF, FIRST, HALF, BROKEN, BROKEN)
    assert screened == [FIRST, HALF, BROKEN]
    assert [v.value for v in found.versions] == [found.current.value, found.versions[1].value] * 2 + [-math.inf] * 2
    entries = json.loads((tmp_path / "dream.json").read_text())["versions"]
    assert [entry["same_as"] for entry in entries] == [None, None, 0, 1, None, 4]


def test_trees_that_judge_nothing_are_left_out(tmp_path):
    blank = tree_of([[None, None]])
    with pytest.warns(UserWarning, match="no attempt has a score"):
        found = run(tmp_path / "a", ALL, history=[TREE, blank, OTHER])
    assert len(found.selected.episodes) == 2
    assert run(tmp_path / "b", ALL) == found and files_of(tmp_path / "a") == files_of(tmp_path / "b")
    with pytest.raises(d.UserError, match="the history is empty"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(tmp_path / "c", ALL, history=[blank])
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"versions": 0}, "versions is 0"),
        ({"versions": True}, "versions is True"),
        ({"width": 0}, "width is 0"),
        ({"max_rounds": -1}, "max_rounds is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"beta1": math.nan}, "beta1 and beta2 must be finite"),
        ({"objective": "eq2"}, "objective is 'eq2'"),
        ({"revise": "first"}, "revise is 'first'"),
        ({"normalise": "log"}, "normalise is 'log'"),
        ({"normalise": "range", "objective": "sweep"}, "normalise belongs to Eq. 1"),
        ({"current": "text"}, "current is str"),
        ({"developer": object()}, "the developer object has no name"),
        ({"developer": Scripted(name=7)}, "the developer Scripted has no name"),
        ({"current_notes": {"x": object()}}, "notes of a version must be JSON"),
        ({"history": [tree_of([[1.0]], root=2.0)], "normalise": "range"}, "no better than the root"),
    ],
)
def test_what_is_wrong_is_said_before_anything_happens(tmp_path, given, text):
    with pytest.raises(d.UserError, match=text):
        run(tmp_path / "x", ALL, **given)
    assert not (tmp_path / "x").exists()


def test_a_machine_where_no_policy_runs_is_an_error_and_no_verdict(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise d.PolicyError("policy.py: the sandbox needs another user")

    monkeypatch.setattr("dreamrsi.judge.SandboxedPolicy", refuse)
    with pytest.raises(d.UserError, match="no policy can be run here: policy.py: the sandbox needs"):
        run(tmp_path, ALL)


# With the developer that works offline


def test_only_the_current_policy_puts_the_machine_to_the_test(tmp_path, monkeypatch):
    """A version that cannot be loaded is a failed version, whatever the machine does by then."""
    probes = []
    monkeypatch.setattr(judge, "_probe", probes.append)
    run(tmp_path / "a", b"not python", current=FIRST)
    assert probes == []
    run(tmp_path / "b", b"not python#", current=b"not python")
    assert len(probes) == 1 and "NameError" in str(probes[0])


def test_schedule_search_on_the_synthetic_worlds(tmp_path):
    worlds = synthetic.corpus(3)
    current = schedule.source(schedule.PARALLEL_REFINE, "parallel_refine")
    given = {"current": current, "history": worlds, "versions": 8, "width": synthetic.WIDTH, "max_rounds": 80}
    found = run(tmp_path / "a", developer=ScheduleSearch(), **given)
    assert all(version.error is None for version in found.versions) and len(found.versions) == 8
    assert found.selected.value > found.current.value and not found.disqualified
    expected = [d.replay(d.policies.ParallelRefine(), tree, synthetic.WIDTH, 80) for tree in worlds]
    assert found.current.value == d.value(expected, beta1=0.02, beta2=0.05)
    assert run(tmp_path / "b", developer=ScheduleSearch(), **given) == found
    assert files_of(tmp_path / "b") == files_of(tmp_path / "a")


def test_the_sweep_score_as_the_objective(tmp_path):
    worlds = synthetic.corpus(3)[:3]
    current = schedule.source(schedule.PARALLEL_REFINE, "parallel_refine")
    given = {"current": current, "history": worlds, "versions": 5, "objective": "sweep", "width": 8}
    found = run(tmp_path / "a", developer=ScheduleSearch(), **given)
    assert found.selected.value == max(version.value for version in found.versions) > found.current.value
    assert found.objective.startswith("sweep score")
    for version, grid in zip(found.versions, found.grids, strict=True):
        expected = sweep_score(replay_betas(version.source, worlds, 8), worlds, 8)
        assert version.value == expected.reward and tuple(grid) == expected.betas
        assert version.value == sweep_score(grid, worlds, 8).reward
        own = judge.replay_sandboxed(version.source, worlds, 8)
        assert [e.picks for e in version.episodes] == [e.picks for e in own], "at the policy's own beta"
    trace = (tmp_path / "a/developer/version-01/trace-02.txt").read_text()
    assert len([line for line in trace.splitlines() if line.startswith("with beta ")]) == 11
    assert load_dream(tmp_path / "a") == found == run(tmp_path / "b", developer=ScheduleSearch(), **given)
    failing = policy_source("return [-1] if self.beta < 0.95 else [99]", attributes="beta = 0.5")
    found = run(tmp_path / "c", failing, **{**given, "versions": 2})
    assert found.versions[1].value == -math.inf and "branch 99" in found.versions[1].error
