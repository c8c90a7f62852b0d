"""The record on disk: what is read, what is refused, and what a crash may do to it."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.record import Batch, RecordWriter, TornRecordWarning, read_record
from strategies import recording, tree_of, trees, universes

HEADER = {"format": "dreamrsi.tree/1", "task": "toy", "width": 2, "branches": 2, "steps": 2}


def line(branch, attempt, seq, score=1.0, **more):
    row = {
        "branch": branch,
        "attempt": attempt,
        "seq": seq,
        "score": score,
        "status": "ok" if score is not None else "error",
    }
    return json.dumps(row | more)


def write(tmp_path, *lines, header=HEADER, end="\n"):
    path = tmp_path / "tree.jsonl"
    path.write_text("\n".join([json.dumps(header), *lines]) + end)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees(), st.randoms(use_true_random=False))
def test_a_tree_survives_the_disk_in_any_order_of_lines(tmp_path, tree, random):
    path = tmp_path / "tree.jsonl"
    tree.save(path)
    again = d.Tree.load(path)
    assert (again.header, again.attempts, again.batches) == (tree.header, tree.attempts, tree.batches)
    head, *rest = path.read_bytes().splitlines(keepends=True)
    random.shuffle(rest)
    path.write_bytes(head + b"".join(rest))
    assert d.Tree.load(path).attempts == tree.attempts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(universes(), st.data())
def test_a_record_cut_anywhere_is_the_tree_of_its_whole_rounds(tmp_path, universe, data):
    tree = recording(universe, d.replay(d.policies.ParallelRefine(), universe, 3))
    path = tmp_path / "tree.jsonl"
    tree.save(path)
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    path.write_bytes(whole[: data.draw(st.integers(start, len(whole)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornRecordWarning)
        cut = d.Tree.load(path)
    assert cut.attempts == tree.attempts[: len(cut)]
    assert cut.batches == tree.batches[: len(cut.batches)]
    assert len(cut) == sum(batch.attempts for batch in cut.batches)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(0, 0, 0).replace("1.0", "NaN"), "line 2: .*JSON has no NaN or Infinity"),
        (line(0, 0, 0).replace("1.0", "1e999"), "line 2"),
        (line(0, 0, 0).replace("1.0", '"high"'), r"line 2: Expected `float \| null`, got `str` - at `\$.score`"),
        (
            line(0, 0, 0, note="hm"),
            "line 2: .*unknown field `note`; what has no field of its own belongs into `metrics`",
        ),
        (line(0, 0, 0).replace("score", "scroe"), "unknown field `scroe`; did you mean `score`"),
        (line(-1, 0, 0), r"line 2: .* - at `\$.branch`"),
        (line(0, 0, 0).replace('"seq": 0, ', ""), "line 2: .*missing required field `seq`"),
        (line(0, 0, 0, None, status="ok"), r"line 2: an attempt that is ok needs a score.* - at `\$.score`"),
        (line(0, 0, 0, 0.0, status="error"), r"line 2: only an attempt that is ok has a score.* - at `\$.score`"),
        (
            line(0, 0, 0, status="fine"),
            r"line 2: Invalid enum value 'fine' - at `\$.status`; a status is one of ok, invalid",
        ),
        ("[1, 2]", "line 2: Expected `object`, got `array`"),
        ("{", "line 2: "),
        ('{"picks": [0], "round": -1, "attempts": 1}', r"line 2: .* - at `\$.round`"),
        (line(1, 0, 0), r"line 2, branch 1, attempt 0: branches are numbered .* - at `\$.branch`"),
        (
            line(0, 1, 0),
            r"line 2, branch 0, attempt 1: its parent, attempt 0, is missing or has a later seq - at `\$.attempt`",
        ),
        (line(0, 0, 0) + "\n" + line(0, 0, 1), r"line 3, branch 0, attempt 0: is recorded twice - at `\$.attempt`"),
        (line(0, 0, 0) + "\n" + line(0, 1, 0), r"seq 0 is used twice - at `\$.seq`"),
        (line(0, 0, 0, origin=[0, 0]), r"the origin, branch 0 attempt 0, is not recorded before it - at `\$.origin`"),
        (line(0, 0, 0) + "\n" + line(0, 1, 1, origin=[0, 0]), r"only the first attempt of a branch has an origin"),
        ("\n".join(line(0, i, i) for i in range(3)), r"branch 0 has 3 attempts; the header caps them at 2"),
        ("\n".join(line(i, 0, i) for i in range(3)), r"has 3 branches; the header caps them at 2"),
    ],
)
def test_a_flaw_names_file_line_and_field_and_changes_nothing(tmp_path, text, message):
    path = write(tmp_path, text)
    before = path.read_bytes()
    with pytest.raises(d.RecordError, match=message) as caught:
        d.Tree.load(path)
    assert "tree.jsonl" in str(caught.value)
    assert path.read_bytes() == before


def test_bytes_that_are_no_text_are_a_flaw(tmp_path):
    path = write(tmp_path, line(0, 0, 0))
    path.write_bytes(path.read_bytes() + b'{"branch": 0, "error": "\xff\xfe"}\n')
    with pytest.raises(d.RecordError, match="line 3"):
        d.Tree.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER | {"format": "dreamrsi.tree/9"}, r"line 1: format 'dreamrsi.tree/9' is not .* - at `\$.format`"),
        (HEADER | {"steps": 0}, r"line 1: .* - at `\$.steps`"),
        (HEADER | {"root": {"score": "high"}}, r"line 1: .* - at `\$.root.score`"),
        ({"branch": 0}, "line 1: .*missing required field `format`.* The first line must be the header"),
        ({"task": "toy"}, "line 1: .*missing required field `format`"),
    ],
)
def test_a_bad_header_is_refused(tmp_path, header, message):
    with pytest.raises(d.RecordError, match=message):
        d.Tree.load(write(tmp_path, line(0, 0, 0), header=header))


def test_files_that_are_not_there_or_empty(tmp_path):
    with pytest.raises(d.UserError, match="cannot be read"):
        d.Tree.load(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(d.RecordError, match="is empty"):
        d.Tree.load(tmp_path / "empty.jsonl")


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = write(tmp_path, line(0, 0, 0), line(0, 1, 1))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert len(d.Tree.load(path)) == 2


@pytest.mark.parametrize("change", [("score", "scroe"), ("1.0", '"high"'), ('"ok"', '"error"')])
def test_a_wrong_last_line_without_its_end_is_no_torn_one(tmp_path, change):
    path = write(tmp_path, line(0, 0, 0), line(0, 1, 1).replace(*change), end="")
    with pytest.raises(d.RecordError, match="line 3"):
        d.Tree.load(path)


BATCHES = ['{"picks": [-1, -1], "round": 0, "attempts": 2}', '{"picks": [0], "round": 1, "attempts": 1}']
MADE = [line(0, 0, 0, round=0), line(1, 0, 1, round=0), line(0, 1, 2, round=1)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([BATCHES[0], BATCHES[0], *MADE[:2]], "the batch of round 1 is missing or there twice"),
        ([BATCHES[1], *MADE], "the batch of round 0 is missing or there twice"),
        ([BATCHES[0], *MADE], "attempts of round 1 have no batch"),
        ([BATCHES[0].replace("-1, -1", "-1, 5"), *MADE[:2]], "round 0 contradicts its batch"),
        ([BATCHES[0], BATCHES[1].replace("[0]", "[1]"), *MADE], "round 1 contradicts its batch"),
        ([BATCHES[0].replace('"attempts": 2', '"attempts": 1'), *MADE[:2]], "round 0 contradicts its batch"),
    ],
)
def test_batches_that_contradict_the_attempts_are_refused(tmp_path, lines, message):
    with pytest.raises(d.RecordError, match=message):
        d.Tree.load(write(tmp_path, *lines))


def test_a_flaw_in_an_attempt_is_not_blamed_on_a_batch(tmp_path):
    with pytest.raises(d.RecordError, match="unknown field `brnch`; did you mean `branch`"):
        d.Tree.load(write(tmp_path, line(0, 0, 0, metrics={"picks": 1}).replace('"branch"', '"brnch"')))


def test_nesting_without_end_is_a_flaw(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(d.RecordError, match="line 2"):
        d.Tree.load(write(tmp_path, line(0, 0, 0).replace("}", f', "metrics": {{"a": {deep}}}}}')))


@pytest.mark.parametrize(
    "wrong", [{"score": float("nan")}, {"score": float("inf")}, {"score": None}, {"status": "error"}, {"branch": -1}]
)
def test_a_tree_made_in_memory_is_checked_too(wrong):
    good = {"branch": 0, "attempt": 0, "seq": 0, "score": 1.0, "status": "ok"}
    with pytest.raises(d.RecordError):
        d.Tree(d.Header(task="toy"), [d.Attempt(**(good | wrong))])
    with pytest.raises(d.RecordError, match="root"):
        d.Tree(d.Header(task="toy", root=d.Root(float("inf"))), [d.Attempt(**good)])


def test_a_full_disk_is_one_error_and_the_record_stays(tmp_path, monkeypatch):
    path = tmp_path / "tree.jsonl"
    attempts = [d.Attempt(branch=0, attempt=i, seq=i, score=float(i), status="ok") for i in range(2)]
    with RecordWriter(path, d.Header(task="toy")) as writer:
        writer.append(attempts[0])

        def full(_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("dreamrsi.record.os.fsync", full)
            with pytest.raises(d.UserError, match="tree.jsonl: cannot be written .No space left on device.; make room"):
                writer.append(attempts[1])
    assert read_record(path).attempts[0] == attempts[0]


def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path):
    path = write(tmp_path, line(0, 0, 0), line(0, 1, 1)[:-7], end="")
    with pytest.warns(TornRecordWarning, match="line 3: the last line is torn"):
        assert len(d.Tree.load(path)) == 1


def test_a_whole_last_line_may_lack_its_end(tmp_path):
    assert len(d.Tree.load(write(tmp_path, line(0, 0, 0), line(0, 1, 1), end=""))) == 2


def test_the_attempts_of_a_batch_that_was_cut_off_are_left_out(tmp_path):
    first, second = '{"picks": [-1], "round": 0, "attempts": 1}', '{"picks": [0, -1], "round": 1, "attempts": 2}'
    path = write(tmp_path, first, line(0, 0, 0, round=0), second, line(1, 0, 2, round=1))
    with pytest.warns(TornRecordWarning, match="round 1 was cut off with 1 of 2 attempts"):
        tree = d.Tree.load(path)
    assert [(a.branch, a.attempt) for a in tree] == [(0, 0)] and tree.picks == ((-1,),)


def test_writer_resumes_behind_the_last_whole_line(tmp_path):
    path = tmp_path / "tree.jsonl"
    header = d.Header(task="toy")
    attempts = [d.Attempt(branch=0, attempt=i, seq=i, score=float(i), status="ok") for i in range(3)]
    with RecordWriter(path, header) as writer:
        writer.append(Batch((-1,), 0, 1))
        writer.append(attempts[0])
        writer.append(attempts[1])
    with pytest.raises(d.UserError, match="exists already"):
        RecordWriter(path, header)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.warns(TornRecordWarning):
        record = read_record(path)
    with RecordWriter.resume(path, record) as writer:
        writer.append(attempts[1])
        writer.append(attempts[2])
    assert read_record(path).attempts == attempts
    path.write_bytes(path.read_bytes()[:-1])  # only the line end is lost
    with RecordWriter.resume(path, read_record(path)) as writer:
        writer.append(d.Attempt(branch=0, attempt=3, seq=3, score=None, status="timeout"))
    assert len(read_record(path).attempts) == 4


def test_saving_is_all_or_nothing(tmp_path):
    tree = tree_of([[1.0, 2.0]])
    path = tmp_path / "tree.jsonl"
    path.mkdir()  # something is in the way of the rename
    with pytest.raises(d.UserError, match="cannot write .*tree.jsonl"):
        tree.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["tree.jsonl"]


def test_best_and_views(tmp_path):
    tree = tree_of([[1.0, None, 3.0], [3.0]], root=0.5)
    assert tree.best == 3.0 and tree.best_attempt is tree.branches[1][0]
    assert len(tree) == 4 and "2 branches" in repr(tree)
    assert tree_of([[None]], root=0.5).best == 0.5
    assert tree_of([[None]]).best_attempt is None
