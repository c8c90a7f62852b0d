"""Tables: one frame to csv (every digit), LaTeX (booktabs) and GitHub Markdown, ready to paste into a write-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dreamrsi.errors import UserError
from dreamrsi.files import KINDS, atomic_write, check_name

if TYPE_CHECKING:
    import pandas as pd

FORMATS = KINDS["tables"]
MISSING = "--"
Digits = int | Mapping[str, int]
Best = Mapping[str, Literal["max", "min"]]

# pandas escapes neither headers nor what a formatter returns, so everything passes through here once.
# The second half is what pdflatex's default font encoding cannot set.
_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\n": " ",
        "α": r"\ensuremath{\alpha}",
        "β": r"\ensuremath{\beta}",
        "Δ": r"\ensuremath{\Delta}",
        "σ": r"\ensuremath{\sigma}",
        "≥": r"\ensuremath{\geq}",
        "≤": r"\ensuremath{\leq}",
        "×": r"\ensuremath{\times}",
        "±": r"\ensuremath{\pm}",
        "−": r"\ensuremath{-}",
        "∞": r"\ensuremath{\infty}",
        "→": r"\ensuremath{\rightarrow}",
        "–": "--",
    }
)


def escape_tex(text: str) -> str:
    """Return ``text`` so that LaTeX sets it as it stands."""
    return text.translate(_TEX)


def escape_md(text: str) -> str:
    """Return ``text`` so that it stays one cell of a Markdown table and starts no emphasis or tag."""
    for special in "\\|*`<":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with an index that says something as its first columns; raises UserError on nested headers."""
    import pandas as pd

    if frame.columns.nlevels > 1:
        raise UserError("a table needs one header row; flatten the columns first")
    plain = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    flattened = frame if plain else frame.reset_index()
    flattened = flattened.set_axis([str(column) for column in flattened.columns], axis=1)
    if not flattened.columns.is_unique:
        raise UserError(f"a table needs different names for its columns; got {', '.join(flattened.columns)}")
    return flattened.reset_index(drop=True)


def text(value: Any, digits: int) -> str:
    """Return one value as a cell: ``digits`` decimals for a float, yes/no, and ``--`` for what is missing."""
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return MISSING
    if isinstance(value, bool) or type(value).__name__ == "bool":  # numpy's bool is no bool
        return "yes" if value else "no"
    if isinstance(value, float) or type(value).__name__.startswith("float"):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        rounded = f"{value:.{digits}f}"
        return rounded.lstrip("-") if float(rounded) == 0 else rounded  # never -0.00
    return str(value)


def cells(frame: pd.DataFrame, digits: Digits = 3) -> pd.DataFrame:
    """Return the flat frame with every cell as the text that is shown."""
    frame = flat(frame)
    _check_columns(frame, digits if isinstance(digits, Mapping) else {}, "digits")
    shown = {}
    for column in frame.columns:
        places = digits.get(column, 3) if isinstance(digits, Mapping) else digits
        shown[column] = [text(value, places) for value in frame[column].astype(object)]
    return type(frame)(shown, dtype=object)


def winners(frame: pd.DataFrame, best: Best | None) -> set[tuple[int, str]]:
    """Return the cells (row, column) that hold the best value of their column; all of them on a tie."""
    frame = flat(frame)
    _check_columns(frame, best or {}, "best")
    found = set()
    for column, kind in (best or {}).items():
        top = frame[column].max() if kind == "max" else frame[column].min()
        wins = (frame[column] == top).fillna(False)
        found |= {(row, column) for row in range(len(frame)) if wins.iloc[row]}
    return found


def to_csv(frame: pd.DataFrame) -> str:
    """Return csv: every digit of a float, an empty field for what is missing, Unix line ends."""
    return str(flat(frame).to_csv(index=False, lineterminator="\n"))


def to_tex(
    frame: pd.DataFrame, *, name: str = "", caption: str = "", digits: Digits = 3, best: Best | None = None
) -> str:
    """Return a booktabs ``tabular``, inside a ``table`` with a label if there is a caption; everything is escaped."""
    shown, bold = cells(frame, digits), winners(frame, best)
    for row, column in ((row, column) for row in range(len(shown)) for column in shown.columns):
        cell = escape_tex(shown.loc[row, column])
        shown.loc[row, column] = rf"\textbf{{{cell}}}" if (row, column) in bold else cell
    align = "".join("r" if numeric else "l" for numeric in _numeric(frame))
    shown.columns = [escape_tex(column) for column in shown.columns]
    float_options = {"caption": escape_tex(caption), "label": f"tab:{name}", "position_float": "centering"}
    styler = shown.style.hide(axis="index")
    table = styler.to_latex(hrules=True, column_format=align, **(float_options if caption else {}))
    return "% needs \\usepackage{booktabs}\n" + str(table)


def to_md(frame: pd.DataFrame, *, caption: str = "", digits: Digits = 3, best: Best | None = None) -> str:
    """Return a GitHub pipe table, with the caption as a line above it."""
    shown, bold = cells(frame, digits), winners(frame, best)
    for row, column in ((row, column) for row in range(len(shown)) for column in shown.columns):
        cell = escape_md(shown.loc[row, column])
        shown.loc[row, column] = f"**{cell}**" if (row, column) in bold else cell
    align = ["right" if numeric else "left" for numeric in _numeric(frame)]
    headers = [escape_md(column) for column in shown.columns]
    # numbers are text by now: tabulate must not parse them again and drop their zeros
    table = shown.to_markdown(index=False, tablefmt="pipe", disable_numparse=True, colalign=align, headers=headers)
    return (f"{caption}\n\n" if caption else "") + str(table) + "\n"


def to_html(
    frame: pd.DataFrame, *, name: str = "dreamrsi", caption: str = "", digits: Digits = 3, best: Best | None = None
) -> str:
    """Return the table as a notebook shows it; tables on one page need different names."""
    from html import escape

    bold = winners(frame, best)
    styler = cells(frame, digits).style.hide(axis="index").format(escape="html").format_index(escape="html", axis=1)
    styler = styler.apply(
        lambda column: ["font-weight: bold" if (row, column.name) in bold else "" for row in column.index], axis=0
    )
    if caption:
        styler = styler.set_caption(escape(caption))
    # fixed ids: pandas would draw random ones
    return str(styler.set_uuid(name).to_html())


def save(
    frame: pd.DataFrame,
    name: str,
    folder: Path | str,
    *,
    caption: str = "",
    digits: Digits = 3,
    best: Best | None = None,
) -> list[Path]:
    """Write ``folder/name.csv``, ``.tex`` and ``.md`` and return the paths.

    Parameters
    ----------
    frame
        One row a record. An index other than 0, 1, 2, ... becomes the first columns.
    digits
        Decimals of floats in tex and md, for all columns or by column (the others get 3). The csv keeps them all.
    best
        Columns whose ``"max"`` or ``"min"`` is set in bold.

    Raises
    ------
    UserError
        Nested or repeated headers, a column in ``digits`` or ``best`` that is not there, or an unwritable folder.
    """
    target = Path(folder) / check_name(name)
    written = {
        "csv": to_csv(frame),
        "tex": to_tex(frame, name=name, caption=caption, digits=digits, best=best),
        "md": to_md(frame, caption=caption, digits=digits, best=best),
    }
    return [atomic_write(target.with_suffix(f".{kind}"), content) for kind, content in written.items()]


def _numeric(frame: pd.DataFrame) -> list[bool]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return [is_numeric_dtype(dtype) and not is_bool_dtype(dtype) for dtype in flat(frame).dtypes]


def _check_columns(frame: pd.DataFrame, named: Mapping[str, object], what: str) -> None:
    for column in named:
        if column not in frame.columns:
            raise UserError(f"{what} names the column {column!r}; the table has {', '.join(frame.columns)}")
