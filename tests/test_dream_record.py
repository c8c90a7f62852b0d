"""The files of a dream: what is in them, and whose they are."""

from __future__ import annotations

import dataclasses
import json
import math

import msgspec
import pytest

import dreamrsi as d
from dream_fixtures import ALL, BROKEN, HALF, OTHER, TREE, Scripted, files_of, run
from dreamrsi.developers import Draft
from dreamrsi.dream import load_dream
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
