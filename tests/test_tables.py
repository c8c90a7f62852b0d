"""Tables: every digit in csv, everything escaped in LaTeX, one line a row in Markdown."""

import re

import numpy as np
import pandas as pd
import pytest

from dreamrsi import tables
from dreamrsi.errors import UserError

NASTY = pd.DataFrame(
    {
        "policy_name & co": ["early_stop", "a%b#c", "x|y{z}~^\\$", "β ≥ 1 <b>"],
        "hit %": [1 / 3, np.nan, -0.00001, np.inf],
        "n": pd.array([1, 2, None, 4], dtype="Int64"),
        "won": [True, False, None, np.bool_(True)],
    }
)


def test_nothing_unescaped_is_left_in_latex():
    tex = tables.to_tex(NASTY, name="t", caption="50 % of a_b & c #1", best={"hit %": "min"}, digits={"hit %": 2})
    body = tex.replace(r"\\", "").replace("% needs", "").replace("tab:t", "")
    table = [line for line in body.splitlines() if line.count(" & ") == 3]
    assert len(table) == 5
    for line in body.splitlines():
        bare = re.sub(r"\\[&%$#_{}]", "", line)  # what is escaped
        assert not re.search(r"[%$#_~^<>|]", bare), line
        assert bare.count("&") in (0, 3), line
        assert bare.isascii(), line
    assert r"\toprule" in tex and r"\label{tab:t}" in tex and r"\textbf{0.00}" in tex


def test_missing_is_two_dashes_and_never_nan():
    for content in (tables.to_tex(NASTY), tables.to_md(NASTY), tables.to_html(NASTY)):
        assert "--" in content and not re.search(r"nan|NaN|None|<NA>", content)


def test_csv_keeps_every_digit(tmp_path):
    frame = pd.DataFrame({"x": [1 / 3, 0.1 + 0.2, np.nan], "name": ["a", 'b,"c"', "d"]})
    tables.save(frame, "t", tmp_path)
    read = pd.read_csv(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(read, frame, check_exact=True)
    assert b"\r" not in (tmp_path / "t.csv").read_bytes()


def test_markdown_is_a_pipe_table():
    lines = tables.to_md(NASTY, best={"n": "max"}).splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert lines[0].startswith("| policy_name & co") and re.match(r"\|:-+\|-+:\|-+:\|:-+\|$", lines[1])
    assert "**4**" in lines[5] and "0.333" in lines[2] and "∞" in lines[5]
    assert "0.000" in lines[4] and "-0.000" not in lines[4]
    assert "| 1.50 |" in re.sub(" +", " ", tables.to_md(pd.DataFrame({"x": [1.5]}), digits=2))  # zeros stay


def test_an_index_becomes_columns():
    pivot = pd.DataFrame({1: [0.5], 2: [1.0]}, index=pd.Index(["early_stop"], name="policy"))
    assert tables.to_csv(pivot) == "policy,1,2\nearly_stop,0.5,1.0\n"


def test_the_best_of_a_tie_are_all_bold():
    assert tables.winners(pd.DataFrame({"x": [1.0, 2.0, 2.0]}), {"x": "max"}) == {(1, "x"), (2, "x")}


@pytest.mark.parametrize(
    "frame, options, message",
    [
        (pd.DataFrame({("a", "b"): [1]}), {}, "one header row"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "different names"),
        (pd.DataFrame({"a": [1]}), {"best": {"b": "max"}}, "best names the column 'b'; the table has a"),
        (pd.DataFrame({"a": [1]}), {"digits": {"b": 1}}, "digits names the column 'b'"),
    ],
)
def test_what_cannot_be_a_table(tmp_path, frame, options, message):
    with pytest.raises(UserError, match=message):
        tables.save(frame, "t", tmp_path, **options)


def test_two_saves_are_equal_and_the_frame_is_left_alone(tmp_path):
    copy = NASTY.copy(deep=True)
    for folder in ("a", "b"):
        tables.save(NASTY, "t", tmp_path / folder, caption="c", best={"n": "max"})
    pd.testing.assert_frame_equal(NASTY, copy)
    for kind in tables.FORMATS:
        assert (tmp_path / "a" / f"t.{kind}").read_bytes() == (tmp_path / "b" / f"t.{kind}").read_bytes()
    assert tables.to_html(NASTY) == tables.to_html(NASTY)
