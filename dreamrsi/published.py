"""What the paper printed, as data: every number with its source and whether it was printed or read off a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dreamrsi.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

DATA = Path(__file__).with_name("data")


def figure(number: str, panel: str | None = None) -> pd.DataFrame:
    """The curves of one figure of the paper (arXiv 2609.14858).

    Parameters
    ----------
    number : such as ``"4"`` or ``"3b"``.
    panel : one of the figure's panels; all if None.

    Returns
    -------
    DataFrame
        ``figure, panel, series, round, x, y, how, source``. In figures 3b to 5, x counts the calls up to the end of
        the round and y is what was reached; in figure 6, x is the round's name. ``how`` is ``printed`` for a number
        in the paper's text or figure, ``digitised`` for one that was read off a curve.

    Raises
    ------
    UserError
        There is no such figure or panel here.
    """
    import pandas as pd

    rows = pd.read_csv(DATA / "figures.csv", dtype={"figure": str})
    found = rows[rows.figure == number]
    if found.empty:
        raise UserError(f"there is no figure {number!r} here; choose one of {', '.join(rows.figure.unique())}")
    if panel is not None:
        panels = found.panel.unique()
        found = found[found.panel == panel]
        if found.empty:
            raise UserError(f"figure {number} has no panel {panel!r}; it has {', '.join(panels)}")
    found = found.reset_index(drop=True)
    return found if number == "6" else found.astype({"x": float})
