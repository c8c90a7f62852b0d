"""A parameter that is misspelt, of a wrong type or not JSON is refused before a kernel starts."""

import json

import numpy as np
import pytest

from dreamrsi.errors import UserError
from dreamrsi.parameters import Declared, checked, declared
from notebook_fixtures import write_notebook

CELL = """
# what to run
out: str | None = None  # export folder
trials = 20
noise: float = 0.05
names = ["a", "b"]
draw = True
label = "x"
limits = {"low": -1}
maximum: int | None = 5
"""


@pytest.fixture
def known(tmp_path):
    return declared(write_notebook(tmp_path / "01_a.ipynb", "x = trials", parameters=CELL))


def test_the_cell_is_read(known):
    assert {name: declaration.default for name, declaration in known.items()} == {
        "out": None,
        "trials": 20,
        "noise": 0.05,
        "names": ["a", "b"],
        "draw": True,
        "label": "x",
        "limits": {"low": -1},
        "maximum": 5,
    }


@pytest.mark.parametrize(
    "cell, message",
    [
        ("a = 1\nb = a * 10", "b = a \\* 10 is not a literal; derive values in the cell after"),
        ("import os", "may hold only `name = literal`; line 1"),
        ("a = b = 1", "may hold only"),
        ("a: int", "may hold only"),
        ("a = 1e999", "parameter a is inf"),
        ("a = {1, 2}", "parameter a is of type set"),
        ("a = (", "is no Python"),
    ],
)
def test_the_cell_holds_literals_only(tmp_path, cell, message):
    notebook = write_notebook(tmp_path / "01_a.ipynb", parameters=cell)
    with pytest.raises(UserError, match=f"01_a.ipynb.*{message}"):
        declared(notebook)


def test_a_notebook_has_one_such_cell(tmp_path):
    with pytest.raises(UserError, match="0 code cells are tagged 'parameters'"):
        declared(write_notebook(tmp_path / "01_a.ipynb", "x = 1", parameters=None))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cells": [1]}'])
def test_a_file_that_is_no_notebook(tmp_path, content):
    (tmp_path / "01_a.ipynb").write_text(content)
    with pytest.raises(UserError, match="not a notebook"):
        declared(tmp_path / "01_a.ipynb")
    with pytest.raises(UserError, match="cannot read the notebook"):
        declared(tmp_path / "02_b.ipynb")


@pytest.mark.parametrize(
    "name, value, seen",
    [
        ("trials", np.int64(7), 7),
        ("noise", 1, 1.0),
        ("noise", np.float32(0.5), 0.5),
        ("names", ("c", "d"), ["c", "d"]),
        ("names", [np.float64(1.5), (1, 2)], [1.5, [1, 2]]),
        ("draw", np.bool_(False), False),
        ("out", {"any": ("thing",)}, {"any": ["thing"]}),
        ("maximum", None, None),
    ],
)
def test_values_arrive_as_plain_json_of_the_declared_type(known, name, value, seen):
    got = checked("01_a", known, {name: value})[name]
    assert (got, type(got)) == (seen, type(seen))
    assert json.loads(json.dumps(got, allow_nan=False)) == got


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("trails", 5, "notebook 01_a has no parameter 'trails'; did you mean 'trials'"),
        ("zzz", 5, "has no parameter 'zzz'; there is out, trials"),
        ("trials", 5.0, "parameter trials is 5.0 \\(float\\); it must be int, as its default 20"),
        ("trials", True, "parameter trials is True \\(bool\\); it must be int"),
        ("draw", 1, "must be bool"),
        ("noise", "0.1", "must be float"),
        ("label", None, "must be str"),
        ("noise", float("nan"), "noise is nan, which a notebook file cannot hold"),
        ("names", [float("inf")], "is inf"),
        ("names", np.zeros(3), "is of type ndarray"),
        ("limits", {1: 2}, "is of type dict"),
    ],
)
def test_what_is_wrong_is_refused_by_name(known, name, value, message):
    with pytest.raises(UserError, match=message):
        checked("01_a", known, {name: value})


def test_a_default_of_none_takes_anything():
    anything = {"x": Declared(None, False)}
    assert [checked("n", anything, {"x": value})["x"] for value in (1, "a", [1], None, True)] == [
        1,
        "a",
        [1],
        None,
        True,
    ]
