"""Where a study tells its progress: lines that stay and, on a terminal, one line that is written over."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
COLOURS = {"ok": "32", "cached": "36", "failed": "31;1", "skipped": "33"}  # green, cyan, bold red, yellow


class Console:
    """Takes the lines of a study.

    Parameters
    ----------
    echo
        Called with each line that stays; None says nothing.
    live
        Called with text that is to be written over by what follows; None where that cannot be, as in a file.
    colour
        Whether to colour the status words.
    width
        Columns to fold long sentences at; None folds nothing.
    """

    def __init__(
        self,
        echo: Callable[[str], object] | None = None,
        *,
        live: Callable[[str], object] | None = None,
        colour: bool = False,
        width: int | None = None,
    ) -> None:
        self._echo = echo
        self._live = live
        self._colour = colour
        self._width = width
        self._pending = False

    @classmethod
    def of_stdout(cls) -> Console:
        """Return the console of standard output: live and coloured on a terminal, plain lines elsewhere."""

        def write(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        def echo(line: str) -> None:
            write(line + "\n")

        if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            return cls(echo)
        colour = not os.environ.get("NO_COLOR")
        return cls(echo, live=write, colour=colour, width=shutil.get_terminal_size().columns)

    @property
    def is_live(self) -> bool:
        """Whether :meth:`running` shows anything."""
        return self._live is not None

    def line(self, text: str = "") -> None:
        """Say a line that stays."""
        self.clear()
        if self._echo is not None:
            self._echo(text)

    def sentence(self, start: str, text: str) -> None:
        """Say a long sentence, folded under its ``start``."""
        if self._width is None:
            return self.line(start + text)
        seen = _COLOUR.sub("", start)  # what takes room on the terminal
        folded = textwrap.fill(seen + text, max(40, self._width), subsequent_indent=" " * len(seen))
        self.line(start + folded[len(seen) :])

    def running(self, text: str) -> None:
        """Show what is going on, until the next line or the next of these."""
        if self._live is not None:
            self._live("\r\x1b[K" + text[: (self._width or 80) - 1])
            self._pending = True

    def clear(self) -> None:
        """Take away what :meth:`running` shows."""
        if self._pending and self._live is not None:
            self._live("\r\x1b[K")
        self._pending = False

    def status(self, word: str, wide: int = 0) -> str:
        """Return a status word, padded, in its colour."""
        padded = f"{word:<{wide}}"
        return f"\x1b[{COLOURS[word]}m{padded}\x1b[0m" if self._colour and word in COLOURS else padded


def counted(number: int, what: str) -> str:
    """Return ``1 attempt``, ``2 attempts``, ``3 branches``."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def duration(seconds: float) -> str:
    """Return seconds as a person reads them: 8 s, 95 s, 12 min, 1 h 40 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
