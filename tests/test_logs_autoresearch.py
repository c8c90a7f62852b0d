"""autoresearch's results.tsv."""

from __future__ import annotations

import pytest

import dreamrsi as d
from dreamrsi import logs
from log_fixtures import check_import
from log_writers import FIXTURES, RESULTS

RUN = FIXTURES / "autoresearch"


def results(tmp_path, text):
    (tmp_path / "results.tsv").write_text(text)
    return tmp_path


def test_a_run_with_every_trap(tmp_path):
    tree, report = check_import(lambda: logs.read("autoresearch", RUN), RUN, tmp_path)
    assert (report.attempted, report.kept, report.scored, report.failed) == (4, 4, 3, 1)
    assert (report.direction, report.direction_from) == ("min", "autoresearch minimises val_bpb")
    assert tree.root == -1.0 and tree.best == -0.99  # and not the crash's 0
    assert [(a.branch, a.attempt, a.score, a.status) for a in tree] == [
        (0, 0, -1.01, "ok"),
        (1, 0, None, "error"),
        (2, 0, -0.99, "ok"),
        (2, 1, -0.995, "ok"),
    ]
    crash = tree.attempts[1]
    assert crash.commit == "a000003" and "commit" not in crash.metrics
    assert crash.error == "out of memory" and crash.metrics["logged_score"] == 0.0
    assert crash.metrics["kind"] == "width" and tree.attempts[0].metrics["decision"] == "discard"
    assert tree.attempts[0].metrics["description"] == '"wider", and a quote that opens'


def test_a_first_line_that_was_not_kept_is_an_attempt(tmp_path):
    lines = RESULTS.splitlines(keepends=True)
    tree, report = logs.read("autoresearch", results(tmp_path, "".join([lines[0], *lines[3:]])))
    assert tree.root is None and len(tree) == 3 and "baseline is not in the log" in " ".join(report.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("val_bpb", "loss", "has no column `val_bpb`"),
        ("1.010000", "low", "line 3: val_bpb is 'low', not a number"),
        ("crash", "burnt", "line 4: status is 'burnt', not keep, discard or crash"),
        ("\tstill lower\trate", "", "line 6: has 4 cells, the header line 6"),
    ],
)
def test_a_flaw_names_file_line_and_field(old, new, message, tmp_path):
    with pytest.raises(d.UserError) as caught:
        logs.read("autoresearch", results(tmp_path, RESULTS.replace(old, new)))
    assert message in str(caught.value) and "results.tsv" in str(caught.value)


def test_other_directions_and_folders_are_errors(tmp_path):
    with pytest.raises(d.UserError, match="contradicts the log"):
        logs.read("autoresearch", RUN, direction="max")
    with pytest.raises(d.UserError, match=r"holds no results\.tsv"):
        logs.read("autoresearch", tmp_path)
