"""The files of a dream: what is in them, and whose they are."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from hashlib import sha256

import msgspec
import pytest

import dreamrsi as d
from dream_fixtures import ALL, BROKEN, HALF, NOWHERE, OTHER, TREE, Scripted, files_of, run
from dreamrsi import selection
from dreamrsi.developers import Draft
from dreamrsi.dream import load_dream
from dreamrsi.dream_files import digest
from dreamrsi.record import Batch
from dreamrsi.sandbox import Limits
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401


def test_the_record_of_a_dream(tmp_path):
    found = run(tmp_path, HALF, ALL, BROKEN, current_notes={"a": 1})
    record = json.loads((tmp_path / "dream.json").read_text())
    assert record["settings"]["versions"] == 4 and record["settings"]["current_notes"] == {"a": 1}
    assert record["selected"] == 2 and record["selected_sha256"] == found.selected.sha256
    entry = record["versions"][2]
    assert entry["value"] == found.selected.value and entry["confirmation"] == "confirmed" and entry["base"] == 1
    assert [(row["quality"], row["attempts"], row["rounds"]) for row in entry["trees"]] == [(9.0, 12, 6), (7.5, 6, 3)]
    assert math.fsum(row["V"] for row in entry["trees"]) / 2 == found.selected.value
    assert record["versions"][3]["value"] is None and "branch 99" in record["versions"][3]["error"]
    assert load_dream(tmp_path) == found
    assert found.seconds > 0 and dataclasses.replace(found, seconds=0.0) == found
    names = {path.name for path in (tmp_path / "developer/version-01").iterdir()}
    assert names == {"policy.py", "version.json", "diff.patch", "trace-00.txt", "trace-01.txt"}


def test_progress(tmp_path):
    seen = []
    run(tmp_path, HALF, ALL, progress=lambda version: seen.append(version.number))
    assert seen == [0, 1, 2]


def test_a_finished_dream_is_read_and_not_dreamt_again(tmp_path):
    found = run(tmp_path, HALF, ALL)
    developer = Scripted(HALF, ALL)
    assert run(tmp_path, HALF, ALL, developer=developer) == found
    assert developer.requests == []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"versions": 2}, "versions was 3, now 2"),
        ({"beta1": 0.5}, "beta1 was 0.02, now 0.5"),
        ({"width": 2}, "width was 3, now 2"),
        ({"seed": 1}, "seed was 7, now 1"),
        ({"revise": "latest"}, 'revise was "best", now "latest"'),
        ({"confirm": False}, "confirm was true, now false"),
        ({"max_rounds": 3}, "max_rounds was null, now 3"),
        ({"limits": Limits(seconds=1.0)}, "limits was"),
        ({"current": HALF}, "current was"),
        ({"history": [OTHER, TREE]}, "trees was"),
        ({"current_notes": {"a": 1}}, "current_notes was {}, now"),
        ({"developer": Scripted(name="another")}, 'developer was "scripted", now "another"'),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(tmp_path, given, what):
    run(tmp_path, HALF, ALL)
    before = files_of(tmp_path)
    with pytest.raises(d.UserError, match=what):
        run(tmp_path, HALF, ALL, **given)
    assert files_of(tmp_path) == before


def test_the_same_history_by_other_paths_and_with_other_times_is_the_same(tmp_path):
    found = run(tmp_path / "a", ALL)
    slower = d.Tree(
        msgspec.structs.replace(TREE.header, provenance={"when": "later"}),
        [msgspec.structs.replace(attempt, seconds=3.5, commit="abc") for attempt in TREE],
        name="elsewhere",
    )
    again = run(tmp_path / "b", ALL, history=[slower, OTHER])
    assert again == found and files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_files_that_were_changed_are_noticed(tmp_path):
    run(tmp_path, HALF, ALL)
    place = tmp_path / "developer/version-02"
    (place / "policy.py").write_bytes(HALF)
    with pytest.raises(d.UserError, match="version-02/policy.py: is not what version.json speaks of"):
        load_dream(tmp_path)
    (place / "policy.py").write_bytes(ALL)
    (place / "version.json").write_text("{}")
    with pytest.raises(d.UserError, match="version-02: the version cannot be read"):
        load_dream(tmp_path)
    (place / "version.json").unlink()
    with pytest.raises(d.UserError, match="version 2 is not the one in dream.json"):
        load_dream(tmp_path)
    (tmp_path / "dream.json").write_text("[1]")
    with pytest.raises(d.UserError, match="dream.json: is not the record of a dream"):
        load_dream(tmp_path)


def test_a_version_that_was_exchanged_with_its_record_is_noticed(tmp_path):
    """version.json and policy.py agree; dream.json knows better."""
    run(tmp_path, HALF, ALL)
    place = tmp_path / "developer/version-02"
    (place / "policy.py").write_bytes(BROKEN)
    saved = json.loads((place / "version.json").read_text())
    (place / "version.json").write_text(json.dumps(saved | {"sha256": sha256(BROKEN).hexdigest()}))
    with pytest.raises(d.UserError, match="version 2 is not the one in dream.json"):
        load_dream(tmp_path)


def test_the_record_of_another_version_with_the_same_bytes_is_noticed(tmp_path):
    run(tmp_path, HALF, HALF)
    one, two = (tmp_path / f"developer/version-0{number}/version.json" for number in (1, 2))
    two.write_bytes(one.read_bytes())
    with pytest.raises(d.UserError, match=r"version-02/policy.py: is not what version.json speaks of"):
        load_dream(tmp_path)


GONE = object()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"selected": 99}, "a version that is not among the 4"),
        ({"selected": -1}, "a version that is not among the 4"),
        ({"selected": 1}, "version 1 is not the one that was selected"),
        ({"selected": 1, "selected_sha256": sha256(HALF).hexdigest()}, "version 1 is not the one that was selected"),
        ({"selected": 1, "selected_sha256": sha256(HALF).hexdigest(), "disqualified": {"2": "no"}}, None),
        ({"selected_sha256": sha256(HALF).hexdigest()}, "version 2 is not the one that was selected"),
        ({"selected": "2"}, "was changed (Expected `int`, got `str`"),
        ({"selected": None}, "was changed (Expected `int`, got `null`"),
        ({"versions": GONE}, "was changed (Object missing required field `versions`"),
        ({"versions": []}, "its versions are not those from 0 to 3"),
        ({"versions": [1]}, "was changed (Expected `object`, got `int`"),
        ({"settings": {}}, "was changed (Object missing required field `versions`"),
        ({"settings": {"versions": 0, "beta1": 0, "beta2": 0}, "versions": []}, "its versions are not those"),
        ({"confirmed": [0, 7]}, "a version that is not among the 4"),
        ({"disqualified": {"x": "no"}}, "was changed (Expected `int`, got `str`"),
        ({"disqualified": {"2": "no"}}, "version 2 is not the one that was selected"),
        ({"disqualified": {"0": "", "1": "", "2": "", "3": ""}}, "version 2 is not the one that was selected"),
        ({"fresh": 1}, "was changed (Expected `array | null`"),
        ({"format": "x"}, "is not the record of a dream"),
    ],
)
def test_a_dream_json_that_was_edited_is_one_clear_error(tmp_path, change, text):
    run(tmp_path, HALF, ALL, NOWHERE)
    path = tmp_path / "dream.json"
    edited = {key: value for key, value in (json.loads(path.read_text()) | change).items() if value is not GONE}
    path.write_text(json.dumps(edited))
    if text is None:  # every word of it agrees: only a replay could tell
        assert load_dream(tmp_path).selected.number == 1
        return
    with pytest.raises(d.UserError, match=rf"dream\.json: .*{re.escape(text)}"):
        load_dream(tmp_path)


def test_a_value_that_was_edited_is_noticed(tmp_path):
    run(tmp_path, HALF, ALL, NOWHERE)
    path = tmp_path / "dream.json"
    content = json.loads(path.read_text())
    content["versions"][2]["value"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(d.UserError, match="version 2 has another value in dream.json"):
        load_dream(tmp_path)


@pytest.mark.parametrize("change", [{"width": 9}, {"branches": 9}, {"steps": 9}, {"recommended": "b"}, {"task": "x"}])
def test_what_a_replay_depends_on_is_in_the_hash_of_a_tree(change):
    other = d.Tree(msgspec.structs.replace(TREE.header, **change), list(TREE))
    assert digest(other)["sha256"] != digest(TREE)["sha256"]
    assert digest(d.Tree(TREE.header, list(TREE), name="elsewhere")) == digest(TREE)


def test_the_batches_are_in_the_hash_of_a_tree():
    one, other = (
        [d.Attempt(branch=n, attempt=0, seq=n, round=r, score=1.0, status="ok") for n, r in rounds]
        for rounds in (((0, 0), (1, 0)), ((0, 0), (1, 1)))
    )
    header = msgspec.structs.replace(TREE.header, branches=2)
    trees = [
        d.Tree(header, one),
        d.Tree(header, one, [Batch((-1, -1), 0, 2)]),
        d.Tree(header, other, [Batch((-1,), 0, 1), Batch((-1,), 1, 1)]),
        d.Tree(header, other, [Batch((-1,), 0, 1), Batch((-1, -1), 1, 1)]),  # the second finds nothing to open
    ]
    assert len({digest(tree)["sha256"] for tree in trees}) == 4


@pytest.mark.parametrize("change", [{"reason": "rounds"}, {"picks": ((0,),)}, {"picks": ((-1,), (0,))}])
def test_an_episode_that_differs_in_picks_or_in_its_end_is_another(change):
    one = d.Episode("p", "tree 0", ((-1,),), (0,), 1.0, "stopped")
    other = dataclasses.replace(one, **change)
    assert list(selection._differences({None: (one,)}, {None: (one,)})) == []
    (text,) = selection._differences({None: (one,)}, {None: (other,)})
    assert text.startswith("tree 0, round ") and "in a fresh process" in text


def test_a_dream_that_is_not_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, HALF, KeyboardInterrupt())
    with pytest.raises(d.UserError, match="this dream is not finished"):
        load_dream(tmp_path)


def test_two_dreams_in_one_folder_are_refused(tmp_path):
    def again(request):
        with pytest.raises(d.UserError, match="another dream is running in"):
            run(tmp_path, ALL)
        return Draft(ALL)

    assert run(tmp_path, again).selected.number == 1
