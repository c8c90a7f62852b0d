"""The paper's curves are the paper's: golden numbers, provenance in every row, and a wheel holds them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import dreamrsi as d
from dreamrsi import published


@pytest.mark.parametrize(("number", "rows"), [("3b", 20), ("4", 71), ("5", 37), ("6", 18)])
def test_every_number_says_where_it_is_from_and_how_it_was_read(number, rows):
    found = published.figure(number)
    assert len(found) == rows
    assert set(found.how) <= {"printed", "digitised"}
    assert (found.source == f"arXiv 2609.14858, figure {number}").all()
    assert found.y.notna().all() and found.x.notna().all()


def test_golden_numbers():
    dream = published.figure("4", "ConvDiv").query("series == 'dream'").iloc[-1]
    assert (dream.x, dream.y, dream.how) == (786, 1.898, "printed")
    fixed = published.figure("4", "VGG16").query("series == 'fixed'").iloc[-1]
    assert (fixed.x, fixed.y, fixed.how) == (990, 0.538, "digitised")
    guided = published.figure("5").query("series == 'fixed+guidance'").iloc[-1]
    assert (guided["round"], guided.x, guided.y) == (8, 880, 0.634)


def test_figure_6_is_the_round_by_round_view_of_figure_4():
    six = published.figure("6")
    attempts = six[six.panel == "attempts"].y
    curve = published.figure("4", "ConvDiv").query("series == 'dream'")
    assert attempts.cumsum().tolist() == curve.x.tolist()
    assert six[six.panel == "round best"].y.tolist() == curve.y.tolist()


@pytest.mark.parametrize("number", ["4", "5"])
def test_calls_grow_from_round_to_round(number):
    for _, curve in published.figure(number).groupby(["panel", "series"]):
        assert curve["round"].tolist() == list(range(1, len(curve) + 1))
        assert (curve.x.diff().dropna() > 0).all()


def test_what_is_not_there_is_refused():
    with pytest.raises(d.UserError, match="no figure '9' here; choose one of 3b, 4, 5, 6"):
        published.figure("9")
    with pytest.raises(d.UserError, match="no panel 'Lasso'; it has VGG16, LayerNorm"):
        published.figure("4", "Lasso")


def test_a_wheel_holds_the_numbers():
    root = Path(__file__).parent.parent
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["dreamrsi"]
    package = root / "dreamrsi"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert {path for path in published.DATA.iterdir() if path.is_file()} <= packed
