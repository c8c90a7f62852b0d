"""Finds scores and cell numbers of recorded runs that were copied into the source of a policy.

A policy that knows a tree's scores, or which branch and attempt was the best, needs no exploration, and its value on
the history says nothing. This is a screen against copying, not against disguise: a number taken apart passes.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

DIGITS = 4
"""Significant digits from which a number counts as that of a score: thresholds of fewer are round, or chance."""

PAIRS = 3
"""Pairs of whole numbers that make a table of cells."""

ROW = 8
"""Whole numbers that make a row of cells, unless they rise steadily, as steps of a schedule do."""

_LONG = 80  # characters without a space that make a text a container
_EXACT = 12  # digits to which constant arithmetic is taken
_UP = 1 + 1e-13  # brings a tie up, however it is stored, in numbers of up to so many digits
# No pattern may begin inside a run of digits: a text of a million of them would be walked once from each.
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)")
_CELL = re.compile(r"(?<!\d)\d+\.\d+(?==)|from \d+\.\d+")  # names of cells in a trace: 3.0=..., from 3.0
_LIST_OF_NUMBERS = re.compile(rf"(?<!\d)(?:\d+[\s,;:.()\[\]-]+){{{ROW - 1},}}\d+")
_FOLDS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def copied(source: bytes, traces: Iterable[str]) -> list[str]:
    """What in a policy's source looks copied from the traces of replays, one line each.

    A number counts as copied if it has at least four significant digits and equals one of the traces' numbers of at
    least four, to as many digits as both have, rounded or cut off, whatever its sign. Numbers are those of the source,
    of its texts, and the values of arithmetic on numbers alone (``2.5 + 0.0312``). Tables of cells are containers with
    three or more pairs of whole numbers, or with eight or more whole numbers that do not rise steadily, and texts with
    such a list or with 80 characters in one word; also whole numbers beyond 64 bits. Comments are not looked at.

    Parameters
    ----------
    source : nothing is found in what is no Python; one nested too deeply to be looked at is a finding.
    traces : texts of replays; their numbers are taken, but not the names of cells.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # turned into errors they would pass for bad syntax
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):  # loading it says more
        return []
    except (RecursionError, MemoryError):  # it may load all the same, where the stack is less full
        return ["line 1: it is nested too deeply to be looked at"]
    scores, values = _Scores(traces), _folded(nodes)
    found = []
    for node in nodes:
        texts = [*_copied_numbers(node, values[id(node)], scores), *_cells(node)]
        found += [(getattr(node, "lineno", 0), text) for text in texts]
    return [f"line {line}: {text}" for line, text in dict.fromkeys(sorted(found))]


def number_texts(text: str) -> list[str]:
    """The numbers of four or more significant digits in a trace, as they are written there."""
    return [n for n in _NUMBER.findall(_CELL.sub(" ", text)) if len(_digits(n)) >= DIGITS]


class _Scores:
    """The numbers of the traces, by how many of their digits are compared."""

    def __init__(self, traces: Iterable[str]) -> None:
        self._first: dict[int, set[str]] = {}  # of numbers with at least so many digits
        self._all: dict[int, set[str]] = {}  # of numbers with exactly so many
        for text in {number for trace in traces for number in number_texts(trace)}:
            value, size = float(text), len(_digits(text))
            for digits in range(DIGITS, size + 1):
                self._first.setdefault(digits, set()).update(_forms(value, digits))
            self._all.setdefault(size, set()).update(_forms(value, size))

    def holds(self, value: float, size: int) -> bool:
        """Whether a number of ``size`` significant digits is one of them."""
        if size < DIGITS:
            return False
        shorter = (_forms(value, n) & self._all[n] for n in self._all if n < size)
        return bool(_forms(value, size) & self._first.get(size, set())) or any(shorter)


def _digits(text: str) -> str:
    """The significant digits of a number: without leading zeros, and without closing ones, which may be rounding."""
    return re.split("[eE]", text)[0].replace(".", "").replace("_", "").lstrip("0").rstrip("0")


def _forms(value: float, digits: int) -> set[str]:
    """A number to so many digits, cut off and rounded, a tie up: with the first that is down as well.

    Whether a tie in decimal digits is one in binary is chance, as is the side on which it lies.
    """
    mantissa, _, exponent = f"{abs(value):.{_EXACT + 1}e}".partition("e")
    return {f"{mantissa[: digits + 1]}e{exponent}", f"{abs(value) * _UP:.{digits - 1}e}"}


def _copied_numbers(node: ast.AST, folded: float | None, scores: _Scores) -> Iterator[str]:
    value: object = None
    if isinstance(node, ast.BinOp):
        value = folded
    elif isinstance(node, ast.Constant):
        value = node.value
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode("latin-1")
        for number in number_texts(text):
            if scores.holds(float(number), len(_digits(number))):
                yield f"a text holds {number[:30]}, a number of the traces"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) >= 2**64:
            yield "a whole number beyond 64 bits can hold a table"
            return
        text = f"{value:.{_EXACT}g}"
        if scores.holds(float(value), len(_digits(text.lstrip("-")))):
            yield f"{text} is a number of the traces"


def _folded(nodes: Sequence[ast.AST]) -> dict[int, float | None]:
    """The values of arithmetic on numbers alone, by the nodes' ``id``, each computed once; parents come first."""
    values: dict[int, float | None] = {}
    for node in reversed(nodes):
        values[id(node)] = _fold(node, values)
    return values


def _fold(node: ast.AST, values: Mapping[int, float | None]) -> float | None:
    """The value of a node from those of its children."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value) if abs(node.value) < 2**64 else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = values[id(node.operand)]
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _FOLDS:
        left, right = values[id(node.left)], values[id(node.right)]
        if left is not None and right is not None:
            try:
                return _FOLDS[type(node.op)](left, right)
            except (ZeroDivisionError, OverflowError):
                return None
    return None


def _cells(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        if _LIST_OF_NUMBERS.search(text):
            yield f"a text holds a list of {ROW} or more whole numbers, as a table of branches and attempts would"
        elif any(len(word) >= _LONG for word in text.split()):
            yield f"a text has a word of {_LONG} or more characters, which can hold a table"
        return
    rows = _rows(node)
    if rows is None:
        return
    if sum(len(row) == 2 for row in rows) >= PAIRS:
        yield f"a table of {PAIRS} or more pairs of whole numbers, as of branches and attempts"
        return
    numbers = [number for row in rows for number in row]
    if len(numbers) >= ROW and not all(left < right for left, right in pairwise(numbers)):
        yield f"a table of {ROW} or more whole numbers, as of branches to pick"


def _rows(node: ast.AST) -> list[tuple[int, ...]] | None:
    """The whole numbers of a container: a row for each element that is one or holds only such; None if it is none."""
    if isinstance(node, ast.Dict):
        elements: Sequence[ast.AST | None] = [
            key if value is None or _whole(key) is None or _whole(value) is None else ast.Tuple([key, value])
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        ]
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        elements = node.elts
    else:
        return None
    found = []
    for element in elements:
        inner = element.elts if isinstance(element, (ast.List, ast.Tuple, ast.Set)) else [element]
        row = [_whole(one) for one in inner]
        whole = tuple(number for number in row if number is not None)
        if whole and len(whole) == len(row):
            found.append(whole)
    return found


def _whole(node: ast.AST | None) -> int | None:
    """A whole number of at least -1, which is OPEN."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(inner, ast.Constant) and type(inner.value) is int:
        return -inner.value if negative else inner.value
    return None
