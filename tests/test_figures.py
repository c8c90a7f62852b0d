"""Figures have a venue's size, one look a policy, and the same bytes in every process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.font_manager import findfont

from dreamrsi import figures
from dreamrsi.errors import UserError
from dreamrsi.policies import BUILTIN

DRAW = """
import sys
from dreamrsi import figures
figure, axes = figures.new("neurips", rows=1, cols=2)
with figures.context("neurips"):
    for policy in figures.LOOKS:
        axes[0].plot([1, 2, 3], [1, len(policy), 2], label=figures.label(policy), **figures.look(policy).line)
    axes[0].legend()
    axes[0].set_title("hits, $\\\\beta_1$ β")
    axes[1].scatter([1, 2], [3, 4])
    axes[1].imshow([[1, 2], [3, 4]])
figures.save(figure, "x", sys.argv[1])
"""


def test_two_processes_save_the_same_bytes_whatever_the_users_settings(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nbackend: svg\nsavefig.bbox: tight\nlines.linewidth: 9\n")
    for name, extra in [
        ("one", {}),
        ("two", {"MATPLOTLIBRC": str(tmp_path), "MPLBACKEND": "pdf", "PYTHONHASHSEED": "7"}),
    ]:
        subprocess.run([sys.executable, "-c", DRAW, str(tmp_path / name)], check=True, env=os.environ | extra)
    for kind in figures.FORMATS:
        one, two = ((tmp_path / name / f"x.{kind}").read_bytes() for name in ("one", "two"))
        assert one == two, kind
        assert not re.search(rb"[Mm]atplotlib v|20\d\d-\d\d-\d\d|D:20\d\d", one), kind


def test_fonts_are_embedded_as_truetype_and_come_with_matplotlib(tmp_path):
    figure, axes = figures.new()
    axes.set_title("title")
    pdf = figures.render(figure, "pdf")
    assert b"/Type3" not in pdf and b"/Subtype /Type0" in pdf
    with figures.context():
        path = findfont(mpl.rcParams["font.family"][0], fallback_to_default=False)
    assert Path(path).is_relative_to(mpl.get_data_path())


@pytest.mark.parametrize("width", figures.WIDTHS)
def test_a_figure_is_as_wide_as_its_venue_asks(width):
    with mpl.rc_context(figures.style(width)):
        assert mpl.rcParams["figure.figsize"][0] == figures.WIDTHS[width]
    figure, _ = figures.new(width, aspect=0.5)
    assert tuple(figure.get_size_inches()) == pytest.approx((figures.WIDTHS[width], figures.WIDTHS[width] / 2))


def test_the_png_has_300_dots_an_inch_and_is_not_cropped():
    figure, _ = figures.new(2.0, aspect=0.5)
    png = figures.render(figure, "png")
    assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (600, 300)


def test_the_style_leaves_the_users_settings_alone():
    before = dict(mpl.rcParams)
    with figures.context():
        figures.new()
    assert dict(mpl.rcParams) == before


def test_every_policy_has_a_look_of_its_own():
    assert set(figures.LOOKS) == set(BUILTIN)
    for part in ("color", "marker"):
        assert len({getattr(look, part) for look in figures.LOOKS.values()}) == len(figures.LOOKS)
    assert len({str(look.linestyle) for look in figures.LOOKS.values()}) == len(figures.LOOKS)
    assert figures.look("early_stop:width=4,bootstrap=4") == figures.LOOKS["early_stop"]
    assert figures.look("mine") == figures.look("mine:x=1") and figures.look("mine").color == "#000000"
    assert figures.label("early_stop:width=4,bootstrap=4") == "early stop (width=4, bootstrap=4)"


def test_every_line_of_the_style_is_explained():
    lines = Path(figures.__file__).with_name("dreamrsi.mplstyle").read_text().splitlines()
    blocks = "\n".join(lines).split("\n\n")
    assert all(block.startswith("#") for block in blocks)


def test_what_is_not_there():
    with pytest.raises(UserError, match="no figure width 'nips'"):
        figures.size("nips")
    with pytest.raises(UserError, match="no figure format 'gif'"):
        figures.render(figures.new()[0], "gif")
