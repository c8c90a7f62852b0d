"""Figures: one look, one colour and line a policy, sizes of the venues, and files with the same bytes every time.

A figure is a plain :class:`matplotlib.figure.Figure`, never one of pyplot's: no global state, no backend, and
nothing that a notebook would show a second time.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dreamrsi.errors import UserError
from dreamrsi.files import KINDS, atomic_write, check_name

FORMATS = KINDS["figures"]
GOLDEN = 0.618

# Widths in inches of a text column ("-half") or of the whole text, as the venues' style files set them.
WIDTHS = {
    "text": 6.5,
    "half": 3.25,
    "neurips": 5.5,
    "iclr": 5.5,
    "icml": 6.75,
    "icml-half": 3.25,
    "aistats": 6.75,
    "aistats-half": 3.25,
    "uai": 6.75,
    "uai-half": 3.25,
    "aaai": 6.975,
    "aaai-half": 3.3,
    "cvpr": 6.875,
    "cvpr-half": 3.25,
    "eccv": 4.8,
    "jmlr": 6.0,
    "tmlr": 6.5,
}

# No date, no version, no program: the same data give the same bytes.
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}

# Not ours to set: how the user's program shows windows.
_NOT_STYLE = {"backend", "backend_fallback", "interactive", "toolbar", "timezone"}


@dataclass(frozen=True, slots=True)
class Look:
    """How a policy is drawn everywhere: a colour for the screen, a line and a marker for grey print."""

    color: str
    linestyle: str | tuple[int, tuple[int, ...]]
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Keywords for ``Axes.plot``."""
        return {"color": self.color, "linestyle": self.linestyle, "marker": self.marker}


# Colours: Okabe and Ito, "Color Universal Design" (2008); random, the floor, is grey.
LOOKS = {
    "parallel_refine": Look("#0072B2", "-", "o"),
    "early_stop": Look("#D55E00", "--", "s"),
    "greedy_best": Look("#009E73", "-.", "^"),
    "adaptive": Look("#E69F00", ":", "D"),
    "semantic_guidance": Look("#CC79A7", (0, (5, 1)), "v"),
    "portfolio": Look("#56B4E9", (0, (3, 1, 1, 1)), "P"),
    "random": Look("#7F7F7F", (0, (1, 1)), "x"),
}


def look(policy: str) -> Look:
    """Return the look of a policy by its name; ``early_stop:width=4`` looks like ``early_stop``.

    A policy of the user's own is black, with a line and a marker that depend on its name alone.
    """
    name = policy.partition(":")[0]
    if name in LOOKS:
        return LOOKS[name]
    others = list(LOOKS.values())
    return Look("#000000", "-", others[zlib.crc32(name.encode()) % len(others)].marker)


def label(policy: str) -> str:
    """Return the name as prose: ``early_stop:width=4`` becomes ``early stop (width=4)``."""
    name, _, parameters = policy.partition(":")
    return name.replace("_", " ") + (f" ({parameters.replace(',', ', ')})" if parameters else "")


def size(width: str | float = "text", aspect: float = GOLDEN) -> tuple[float, float]:
    """Return (width, height) in inches; ``width`` is inches or a name in ``WIDTHS``, ``aspect`` is height / width."""
    if isinstance(width, str):
        if width not in WIDTHS:
            raise UserError(f"there is no figure width {width!r}; give inches or one of {', '.join(WIDTHS)}")
        width = WIDTHS[width]
    return (width, width * aspect)


def style(width: str | float = "text", aspect: float = GOLDEN) -> dict[str, Any]:
    """Return the whole style as a plain dict of rcParams, complete, so that a user's matplotlibrc has no say.

    Use it as ``with matplotlib.rc_context(figures.style("neurips")): ...``.
    """
    # Any: matplotlib types its keys as one literal of hundreds of names
    ours: Any = mpl.rc_params_from_file(Path(__file__).with_name("dreamrsi.mplstyle"), use_default_template=False)
    default: Any = mpl.rcParamsDefault
    base = {key: value for key, value in default.items() if key not in _NOT_STYLE}
    return {**base, **ours, "figure.figsize": size(width, aspect)}


def context(width: str | float = "text", aspect: float = GOLDEN) -> AbstractContextManager[None]:
    """Return a context in which everything drawn has the style."""
    settings: Any = style(width, aspect)
    return mpl.rc_context(settings)


def new(
    width: str | float = "text", aspect: float = GOLDEN, rows: int = 1, cols: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """Return ``(figure, axes)`` in the style, as ``pyplot.subplots`` does, without pyplot; ``options`` go to it too.

    Draw inside ``with figures.context():`` where what you add (text, legend, colour bars) takes its look from
    rcParams; sizes and lines of the axes are set here already.
    """
    with context(width, aspect):
        figure = Figure(figsize=size(width, aspect))
        FigureCanvasAgg(figure)
        return figure, figure.subplots(rows, cols, **options)


def render(figure: Figure, format: str) -> bytes:
    """Return the bytes of the figure as ``pdf``, ``svg`` or ``png`` (300 dpi); equal figures give equal bytes."""
    if format not in FORMATS:
        raise UserError(f"there is no figure format {format!r}; choose from {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    with context():
        figure.savefig(buffer, format=format, metadata=_METADATA[format], bbox_inches=None)
    return buffer.getvalue()


def save(figure: Figure, name: str, folder: Path | str, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write ``folder/name.pdf``, ``.svg`` and ``.png`` and return the paths; raises UserError if it cannot."""
    check_name(name)
    return [atomic_write(Path(folder) / f"{name}.{kind}", render(figure, kind)) for kind in formats]
