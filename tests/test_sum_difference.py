import importlib
import json
import math
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dreamrsi import tasks
from dreamrsi.programs import make_artifact
from dreamrsi.tasks.sum_difference import START, SumDifference, write_set
from dreamrsi.tasks.sum_difference.evaluate import count, evaluate, read_set

judge = importlib.import_module("dreamrsi.tasks.sum_difference.evaluate")  # the package has a function of this name
LIMIT = judge.LIMIT
SETS = st.sets(st.integers(-60, 60), min_size=2, max_size=14).map(sorted)


def score(elements):
    return evaluate(json.dumps(list(elements)).encode())


def brute_force(elements):
    """The definition, all ordered pairs, written without the judge's code."""
    sums = {a + b for a, b in product(elements, repeat=2)}
    differences = {a - b for a, b in product(elements, repeat=2)}
    return math.log(len(sums) / len(elements)) / math.log(len(differences) / len(elements))


def test_golden_scores():
    # 1, 2, 3, ... n: 2n - 1 sums and as many differences.
    assert score(range(5)).score == 1.0
    # Conway's set has 26 sums and 25 differences.
    conway = score([0, 2, 3, 4, 7, 11, 12, 14])
    assert conway.metrics == {"set_size": 8, "sumset_size": 26, "diffset_size": 25}
    assert conway.score == math.log(26 / 8) / math.log(25 / 8)
    # 0, 1, 3: sums 0, 1, 2, 3, 4, 6 and differences -3 to 3.
    assert score([0, 1, 3]).score == math.log(6 / 3) / math.log(7 / 3)


def test_the_seed_workspace():
    result = SumDifference().evaluate(SumDifference().seed_workspace())
    assert result.metrics == {"set_size": 17, "sumset_size": 59, "diffset_size": 55}
    assert result.score == pytest.approx(1.0597930945472454, abs=1e-14)


@settings(max_examples=200, deadline=None)
@given(SETS)
def test_the_score_is_that_of_the_definition(elements):
    assert score(elements).score == brute_force(elements)


@settings(max_examples=200, deadline=None)
@given(SETS, st.randoms(use_true_random=False), st.integers(-1000, 1000), st.integers(1, 1000))
def test_order_shift_reflection_and_scale_change_nothing(elements, random, shift, scale):
    shuffled = elements[:]
    random.shuffle(shuffled)
    moved = [a * scale + shift for a in shuffled]
    expected = score(elements)
    for image in (shuffled, moved, [-a for a in moved], [float(a) for a in moved]):
        assert score(image) == expected


@settings(max_examples=100, deadline=None)
@given(SETS, st.integers(1, 60), st.integers(-LIMIT, LIMIT))
def test_one_element_off_is_another_set(elements, step, shift):
    """An off-by-one set gets the score of what it is, not of what it was made from."""
    moved = [*elements[:-1], elements[-1] + step]
    assume(max(abs(a + shift) for a in moved) <= LIMIT)
    assert score(a + shift for a in moved).score == brute_force(moved)


MALFORMED = {
    "missing": (None, "missing"),
    "empty": (b"", "not JSON"),
    "not json": (b"[1, 2", "not JSON"),
    "not utf-8": (b"\xff\xfe", "not JSON"),
    "deep": (b"[" * 90_000, "not JSON"),
    "object": (b'{"set": [1, 2, 4]}', "holds dict"),
    "number": (b"17", "holds int"),
    "one element": (b"[5]", "holds 1 elements"),
    "none": (b"[]", "holds 0 elements"),
    "too many": (json.dumps(list(range(513))).encode(), "holds 513 elements"),
    "huge file": (b"[" + b"1," * 60_000 + b"1]", "bytes"),
    "nested": (b"[1, [2], 3]", "element 1 is list"),
    "claimed beside": (b"[[1, 2, 4], 1.5]", "element 0 is list"),
    "bool": (b"[0, true, 3]", "element 1 is bool"),
    "null": (b"[0, null, 3]", "element 1 is NoneType"),
    "text": (b'[0, "1", 3]', "element 1 is str"),
    "nan": (b"[0, NaN, 3]", "element 1 is nan"),
    "inf": (b"[0, 1, -Infinity]", "element 2 is -inf"),
    "1e999": (b"[0, 1, 1e999]", "element 2 is inf"),
    "half": (b"[0, 0.5, 3]", "element 1 is 0.5"),
    "nearly whole": (b"[0, 1.0000000001, 3]", "element 1 is 1.0000000001"),
    "subnormal": (b"[1, 1e-320, 3]", "element 1 is 1e-320"),
    "above": (b"[0, 1, 1000001]", "element 2 is 1000001"),
    "below": (b"[-1000001, 1]", "element 0 is -1000001"),
    "1e300": (b"[0, 1e300]", "element 1 is a number of 997 bits"),
    "huge integer": (b"[0, 1" + b"0" * 400 + b"]", "element 1 is a number of 1329 bits"),
    "endless integer": (b"[0, 1" + b"0" * 10_000 + b"]", "not JSON"),
    "duplicate": (b"[3, 1, 2, 1]", "elements 1 and 3 are both 1"),
    "duplicate by float": (b"[3, 1, 2, 3.0]", "elements 0 and 3 are both 3"),
    "duplicate zero": (b"[0, 1, -0.0]", "elements 0 and 2 are both 0"),
}


@pytest.mark.parametrize(("artifact", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_artifacts_are_invalid_with_a_reason(artifact, reason):
    result = evaluate(artifact)
    assert result.status == "invalid" and result.score is None
    assert reason in result.error
    assert len(result.error) < 200


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='[],.0123456789eE-+{}": nulNaInfty', max_size=60).map(str.encode))
def test_no_bytes_raise(artifact):
    assert evaluate(artifact).status in ("ok", "invalid")


def test_the_limits_themselves_are_allowed():
    assert score([-LIMIT, LIMIT]).score == 1.0
    assert score(range(512)).status == "ok"
    assert score([*range(511), LIMIT]).status == "ok"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(START), min_size=1, max_size=30))
def test_duplicates_buy_nothing(copies):
    """Twin test: a judge that counts the elements written down pays for duplicates wherever the score exceeds 1."""
    cheat = [*START, *copies]
    paid = judge.value(len(cheat), *count(set(cheat)))
    assert paid > score(START).score
    assert score(cheat).status == "invalid"


def test_almost_whole_numbers_buy_nothing():
    """Twin test: a judge that counts floats and takes 1e-9 for rounding sees new sums in the digits it forgives."""
    cheat = [a + 2.0**-41 * a * a for a in START]
    assert all(abs(a - round(a)) <= 1e-9 for a in cheat) and cheat != list(START)
    sums = len({a + b for a, b in product(cheat, repeat=2)})
    assert sums > score(START).metrics["sumset_size"]
    assert score(cheat).status == "invalid"


@pytest.mark.parametrize("elements", [[0, LIMIT + 1], [0, 10**9], [-(10**9), 0], [0, 1, 10**300]])
def test_the_range_is_checked(elements, monkeypatch):
    """Twin test: without the limit the same set is scored."""
    assert score(elements).status == "invalid"
    monkeypatch.setattr(judge, "LIMIT", 10**301)
    assert score(elements).status == "ok"


def test_the_number_of_elements_is_checked(monkeypatch):
    """Twin test, and a billion elements are refused by their bytes, before they are parsed."""
    elements = range(600)
    assert "holds 600 elements" in score(elements).error
    monkeypatch.setattr(judge, "LARGEST_SET", 600)
    assert score(elements).status == "ok"

    class Billion(bytes):
        """Stands for an artifact of 10^9 elements, which would not fit into this test."""

        def __len__(self):
            return 2 * 10**9

    def never(text):
        raise AssertionError("it was parsed")

    monkeypatch.setattr(json, "loads", never)
    assert "are not read" in evaluate(Billion(b"[1, 2]")).error
    monkeypatch.setattr(judge, "MAX_BYTES", 10**10)
    with pytest.raises(AssertionError, match="it was parsed"):
        evaluate(Billion(b"[1, 2]"))


@settings(max_examples=50, deadline=None)
@given(st.floats(-10, 10), SETS)
def test_claims_change_nothing(claim, elements):
    """Twin test: a judge that believes what stands in the workspace gives what is claimed."""

    def credulous(files):
        return json.loads(files["score.json"])

    honest = {"set.json": write_set(elements)}
    claiming = {**honest, "score.json": json.dumps(claim).encode()}
    task = SumDifference()
    assume(claim != task.evaluate(honest).score)
    assert credulous(claiming) == claim
    assert task.evaluate(claiming) == task.evaluate(honest)
    for written in ([elements, claim], {"set": elements, "score": claim}):
        assert evaluate(json.dumps(written).encode()).status == "invalid"


def test_numbers_survive_the_artifact():
    elements = [-LIMIT, -3, 0, 7, LIMIT]
    assert read_set(write_set(reversed(elements))) == elements


def test_the_registry():
    task = tasks.make("sum_difference")
    assert isinstance(task, SumDifference) and tasks.make(task.name).name == task.name


@pytest.mark.parametrize(
    "source",
    [None, b"import numpy as np\n\n\ndef solve(seed):\n    return np.array([0.0, 1.0, 3.0]) + seed\n"],
    ids=["its seed", "an array of floats"],
)
def test_a_program_makes_the_artifact(source, tmp_path):
    task = SumDifference()
    program = task.program
    made = make_artifact(program, source or program.seed, 4, scratch=tmp_path)
    assert made.status == "ok", made.error
    result = task.evaluate({program.artifact: made.value})
    expected = task.evaluate(task.seed_workspace()) if source is None else score([0, 1, 3])
    assert result == expected and result.status == "ok"
    for fact in ("2 to 512", "1000000", "60 seconds"):
        assert fact in program.statement
