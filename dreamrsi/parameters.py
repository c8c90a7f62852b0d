"""A notebook's parameters: read from its ``parameters`` cell and checked before a kernel starts.

papermill itself only logs an unknown name and runs the defaults, passes tuples as strings, and writes NaN into a
file that then is no JSON.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamrsi.errors import UserError

TAG = "parameters"


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter as its cell declares it: the default, and whether the annotation allows None."""

    default: Any
    optional: bool


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there is {', '.join(names) or 'none'}"


def declared(notebook: Path) -> dict[str, Declared]:
    """Return the parameters that a notebook declares in its cell tagged ``parameters``, by name.

    Raises
    ------
    UserError
        The file is no notebook, has not exactly one such cell, or the cell holds more than assignments of literals:
        a value derived there would keep its default when the parameter it derives from is changed.
    """
    where = notebook.name
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    tagged = [cell for cell in code if TAG in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise UserError(f"{where}: {len(tagged)} code cells are tagged {TAG!r}; a notebook of the study needs one")
    source = "".join(tagged[0]["source"])
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise UserError(f"{where}: the parameters cell is no Python: {error.msg}, line {error.lineno}") from None
    return dict(_declaration(statement, where) for statement in statements)


def cells(notebook: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook as its file has them; UserError if the file cannot be read or is no notebook."""
    try:
        found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return [cell for cell in found if cell["cell_type"] and "source" in cell]
    except OSError as error:
        raise UserError(f"cannot read the notebook {notebook}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{notebook} is not a notebook (nbformat 4)") from None


def checked(notebook: str, known: Mapping[str, Declared], given: Mapping[str, object]) -> dict[str, Any]:
    """Return ``given`` as plain JSON values of the declared types.

    Tuples become lists, numpy scalars Python's, and an int a float where the default is one. A default of None
    takes anything that JSON can hold.

    Raises
    ------
    UserError
        An unknown name, a value of another type, or one that is not finite.
    """
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(f"notebook {notebook} has no parameter {name!r}; {nearest(name, known)}")
        values[name] = _typed(_plain(value, f"notebook {notebook}, parameter {name}"), known[name], notebook, name)
    return values


def _declaration(statement: ast.stmt, where: str) -> tuple[str, Declared]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            annotation = ""
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            annotation = ast.unparse(statement.annotation)
        case _:
            raise UserError(
                f"{where}: the parameters cell may hold only `name = literal`; line {statement.lineno} is not"
            )
    try:
        default = _plain(ast.literal_eval(value), f"{where}, parameter {name}")
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{where}: {name} = {ast.unparse(value)} is not a literal; derive values in the cell after the parameters"
        ) from None
    return name, Declared(default, "None" in annotation)


def _plain(value: object, where: str) -> Any:
    """Return ``value`` as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} is {value}, which a notebook file cannot hold; use None")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, where) for key, item in value.items()}
    raise UserError(f"{where} is of type {type(value).__name__}; it can be a str, int, float, bool, None, list or dict")


def _typed(value: Any, known: Declared, notebook: str, name: str) -> Any:
    wanted = type(known.default)
    if known.default is None or type(value) is wanted or (value is None and known.optional):
        return value
    if wanted is float and type(value) is int:
        return float(value)
    raise UserError(
        f"notebook {notebook}: parameter {name} is {value!r} ({type(value).__name__}); "
        f"it must be {wanted.__name__}, as its default {known.default!r}"
    )
