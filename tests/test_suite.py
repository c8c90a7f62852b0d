"""A frozen suite: what goes in, what it says, and that a changed byte makes it none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import suite as suite_module
from dreamrsi.freeze import freeze, multiples
from dreamrsi.gate import reproduces
from dreamrsi.suite import SUMS, Suite, seal
from gate_fixtures import REFINE, STOP, World, failures, usual, world_tree
from sandbox_fixtures import no_server_left, nothing_left  # noqa: F401 - fixtures
from strategies import recording, tree_of


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    return World(tmp_path_factory.mktemp("frozen") / "world").suite


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_suite_holds_the_bytes_that_were_given(tmp_path):
    world = World(tmp_path / "w")
    suite = Suite.load(world.suite)
    assert [path.read_bytes() for path in sorted((world.suite / "trees").iterdir())] == [
        path.read_bytes() for path in world.trees
    ]
    assert suite.current == REFINE and suite.manifest.policy == "refine"
    assert [tree.name for tree in suite.trees] == ["tree-0", "tree-1", "tree-2"]
    said = msgspec.structs.asdict(suite.manifest.settings)
    assert said == {"width": 4, "steps": 6, "branches": 4, "beta1": 0.02, "beta2": 0.01, "beta": None}
    assert suite.manifest.beta1s == pytest.approx((0.01, 0.015, 0.02, 0.03, 0.04))
    assert suite.manifest.margin == 0.02 and suite.manifest.last == 3


def test_the_same_input_gives_the_same_bytes_and_no_path_of_the_machine(tmp_path):
    one, two = World(tmp_path / "one"), World(tmp_path / "two")
    assert list(contents(one.suite).values()) == list(contents(two.suite).values())
    assert Suite.load(one.suite).sha256 == Suite.load(two.suite).sha256
    assert str(tmp_path).encode() not in b"".join(contents(one.suite).values())


def test_sha256sum_reads_the_sums(frozen):
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("no sha256sum here")
    done = subprocess.run([tool, "-c", SUMS], cwd=frozen, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count(": OK") == 5


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_any_changed_byte_makes_it_none(frozen, data):
    files = contents(frozen)
    path = data.draw(st.sampled_from(list(files)), label="file")
    content = bytearray(files[path])
    place = data.draw(st.integers(0, len(content) - 1), label="place")
    content[place] ^= data.draw(st.integers(1, 255), label="bits")
    try:
        path.write_bytes(content)
        with pytest.raises(d.UserError, match="changed|is no"):
            Suite.load(frozen)
    finally:
        path.write_bytes(files[path])
    Suite.load(frozen)


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_a_file_that_is_cut_grown_or_lost_makes_it_none(frozen, data):
    files = contents(frozen)
    path = data.draw(st.sampled_from(list(files)), label="file")
    cut = data.draw(st.integers(0, len(files[path]) - 1), label="bytes kept")
    change = data.draw(st.sampled_from([files[path][:cut], files[path] + b"\n", None]), label="becomes")
    try:
        path.unlink() if change is None else path.write_bytes(change)
        with pytest.raises(d.UserError):
            Suite.load(frozen)
    finally:
        path.write_bytes(files[path])


def test_a_file_more_a_link_and_a_pipe_are_refused(tmp_path):
    world = World(tmp_path / "w")
    extra = world.suite / "trees" / "more.jsonl"
    extra.write_text("{}")
    with pytest.raises(d.UserError, match="more.jsonl is no part of the suite"):
        Suite.load(world.suite)
    seal(world.suite)
    with pytest.raises(d.UserError, match="name different files"):
        Suite.load(world.suite)
    extra.unlink()
    seal(world.suite)
    Suite.load(world.suite)
    for make in (lambda: extra.symlink_to(world.trees[0]), lambda: os.mkfifo(extra)):
        make()
        with pytest.raises(d.UserError, match="link or a device"):
            Suite.load(world.suite)
        extra.unlink()


@pytest.mark.parametrize("file", ["current.py", "trees/000-tree-0.jsonl"])
def test_a_suite_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, file):
    world = World(tmp_path / "w")
    real = suite_module.load_closed

    def meanwhile(path, name):
        (world.suite / file).write_bytes((world.suite / file).read_bytes() + b"\n")
        return real(path, name)

    monkeypatch.setattr(suite_module, "load_closed", meanwhile)
    with pytest.raises(d.UserError, match=f"{file} was changed"):
        Suite.load(world.suite)
    seal(world.suite)
    with pytest.raises(d.UserError, match=f"{file} was changed"):
        Suite.load(world.suite)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "[" * 5000, "\x00"])
def test_a_sealed_suite_without_sense_is_refused(tmp_path, text):
    world = World(tmp_path / "w")
    (world.suite / "suite.json").write_text(text)
    seal(world.suite)
    with pytest.raises(d.UserError, match="is no suite"):
        Suite.load(world.suite)
    assert "frozen" in failures(world.gate())


def test_a_manifest_of_another_format_or_with_a_field_more_is_refused(tmp_path):
    world = World(tmp_path / "w")
    path = world.suite / "suite.json"
    said = json.loads(path.read_text())
    for changed in ({**said, "format": "dreamrsi.suite/9"}, {**said, "more": 1}, {**said, "trees": []}):
        path.write_text(json.dumps(changed))
        seal(world.suite)
        with pytest.raises(d.UserError):
            Suite.load(world.suite)


# freezing


def refused(tmp_path, match, trees=None, policy=REFINE, **given_):
    """Freezing refuses, and leaves nothing behind."""
    some, _ = usual()
    paths = []
    for number, tree in enumerate(some if trees is None else trees):
        paths.append(tmp_path / f"t{number}.jsonl")
        tree.save(paths[-1])
    (tmp_path / "policy.txt").write_bytes(policy)
    before = contents(tmp_path)
    with pytest.raises(d.UserError, match=match):
        freeze(given_.pop("paths", paths), tmp_path / "policy.txt", tmp_path / "out" / "suite", **given_)
    assert contents(tmp_path) == before


def test_what_cannot_be_frozen_is_said(tmp_path):
    some, _ = usual()
    refused(tmp_path, "give the trees", paths=[])
    refused(tmp_path, "there twice", trees=[some[0], some[1], some[0]])
    refused(tmp_path, "no attempt has a score", trees=[*some, tree_of([[None]])])
    refused(tmp_path, "last 3 trees, and there are 2", trees=some[:2])
    refused(tmp_path, "at least 1", last=0)
    refused(tmp_path, "width is 0", width=0)
    refused(tmp_path, "stricter", max_drop=0.1)
    refused(tmp_path, "single setting", beta1=0.0)
    refused(tmp_path, "neighbourhood", around=(2.0, 3.0))
    refused(tmp_path, "not among the trees", others=["elsewhere.jsonl"])
    refused(tmp_path, "line 1", policy=b"class Policy")
    refused(tmp_path, "cannot be read", paths=[tmp_path / "nothing.jsonl"])


def test_a_suite_is_never_written_over(tmp_path):
    world = World(tmp_path / "w")
    with pytest.raises(d.UserError, match="exists already"):
        freeze(world.trees, world.current, world.suite)


def test_a_width_that_no_tree_says_has_to_be_given(tmp_path):
    some, _ = usual()
    bare = [d.Tree(msgspec.structs.replace(tree.header, width=None), tree.attempts) for tree in some]
    refused(tmp_path, "give the width", trees=bare)
    assert World(tmp_path / "w", trees=bare, width=4).gate().promoted


def test_a_tree_that_was_cut_off_is_not_frozen(tmp_path):
    world = World(tmp_path / "w")
    tree = world_tree(1)
    recording(tree, d.replay(d.policies.ParallelRefine(), tree, 4)).save(tmp_path / "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:-1]))  # the last round lacks an attempt
    settings = {"last": 1, "beta1": 0.02, "beta2": 0.01}
    freeze([tmp_path / "whole.jsonl"], world.current, tmp_path / "s", **settings)
    with pytest.raises(d.UserError, match="cut off.*not closed"):
        freeze([tmp_path / "cut.jsonl"], world.current, tmp_path / "s2", **settings)


def test_the_policy_beside_a_tree_says_who_recorded_it(tmp_path):
    some, _ = usual()
    world = World(tmp_path / "w")
    paths = []
    for number, (tree, source) in enumerate(zip(some, (STOP, REFINE, None), strict=True), 1):
        paths.append(tmp_path / "run" / f"round-{number:02d}" / "tree.jsonl")
        tree.save(paths[-1])
        if source:
            (paths[-1].parent / "policy.py").write_bytes(source)
    suite = freeze(paths, world.current, tmp_path / "s", beta1=0.02, beta2=0.01)
    entries = suite.manifest.trees
    assert [entry.own for entry in entries] == [False, True, True]
    assert [(entry.round, entry.name) for entry in entries] == [(n, f"round-0{n}") for n in (1, 2, 3)]
    assert reproduces(suite).passed
    assert "2 of them its own log" in reproduces(suite).reason


KNOB = b"""
from dreamrsi.policies import EarlyStop


class Policy(EarlyStop):
    name = "knob"
    beta = 0.2

    def start(self, width):
        super().start(width)
        self.strikes = round(10 * self.beta)
"""


def test_a_log_is_replayed_with_the_knob_that_its_round_says(tmp_path):
    some, since = usual()
    world = World(tmp_path / "w")
    policy = world.write("knob.py", KNOB)
    paths = []
    for number, (tree, strikes) in enumerate(zip([*some, *since], (3, 2, 3, 3, 3), strict=True), 1):
        paths.append(tmp_path / "run" / f"round-{number:02d}" / "tree.jsonl")
        recording(tree, d.replay(d.policies.EarlyStop(strikes), tree, 4)).save(paths[-1])
        beta = None if strikes == 2 else [strikes / 10, "why"]  # 0.2 is the policy's own
        (paths[-1].parent / "round.json").write_text(json.dumps({"plan": {}, "beta": beta}))
    suite = freeze(paths[:3], policy, tmp_path / "s", beta1=0.02, beta2=0.01)
    assert [entry.beta for entry in suite.manifest.trees] == [0.3, None, 0.3]
    assert suite.manifest.settings.beta == 0.3
    assert reproduces(suite).passed
    (paths[0].parent / "round.json").write_text('{"beta": null}')
    assert not reproduces(freeze(paths[:3], policy, tmp_path / "s2", beta1=0.02, beta2=0.01)).passed
    files = {"policy": policy, "current": policy, "suite": tmp_path / "s", "shadow": paths[3:]}
    decision = world.gate(**files, beta=0.2)
    rows = decision.check("gain").evidence["means"]
    assert [row["attempts"] for row in rows] == [15, pytest.approx((18 + 15 + 18) / 3)]
    assert "beta: 0.3 -> 0.2" in decision.check("review").reason
    (paths[0].parent / "round.json").write_text('{"beta": "high"}')
    with pytest.raises(d.UserError, match="round.json: cannot be read"):
        freeze(paths[:3], policy, tmp_path / "s3")


def test_multiples_lie_around_one():
    assert multiples(0.5, 3) == (0.5, 0.75, 1, 2, 3)
    for low, high in ((1, 2), (0.5, 1), (-1, 2), (0.5, float("inf"))):
        with pytest.raises(d.UserError):
            multiples(low, high)
