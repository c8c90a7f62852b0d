"""Values that go into a sandbox and come out of it: JSON values and NumPy arrays of numbers. Nothing is unpickled."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import msgspec

MAX_PLAIN = 4 * 2**20
"""Bytes that a value may have without its arrays: an empty list takes one here, and some sixty once it is read."""
MAX_ARRAYS = 1000

_KINDS = "biufc"  # kinds of numbers; no objects, no texts, no records
_WIDEST = {"f": 8, "c": 16}  # bytes; wider floats differ between machines, and Python has none
_REFERENCE = 1  # code of the extension that stands for an array: its number


class _Array(msgspec.Struct, array_like=True, frozen=True):
    dtype: str
    shape: list[int]
    data: bytearray


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    plain: bytes
    arrays: Annotated[list[_Array], msgspec.Meta(max_length=MAX_ARRAYS)]


def pack(value: Any) -> bytes:
    """Write a value as bytes: numbers, texts, lists, dictionaries, arrays.

    Tuples become lists, NumPy numbers become Python's.

    Raises
    ------
    TypeError, ValueError, OverflowError, RecursionError
        It holds something else, too deep a nesting, or more than ``MAX_ARRAYS`` arrays.
    """
    arrays: list[_Array] = []

    def hook(part: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(part, numpy.ndarray):
            arrays.append(_pack_array(numpy, part))
            return msgspec.msgpack.Ext(_REFERENCE, (len(arrays) - 1).to_bytes(4, "little"))
        if numpy is not None and isinstance(part, (numpy.bool_, numpy.integer, numpy.floating)):
            plain = part.item()
            if not isinstance(plain, numpy.generic):  # an extended float has nothing plainer
                return plain
        raise TypeError(f"a {type(part).__name__} is neither a JSON value nor an array")

    plain = msgspec.msgpack.encode(value, enc_hook=hook)
    if len(arrays) > MAX_ARRAYS:
        raise ValueError(f"it holds {len(arrays)} arrays; at most {MAX_ARRAYS} are taken")
    return msgspec.msgpack.encode(_Packed(plain, arrays))


def _pack_array(numpy: Any, array: Any) -> _Array:
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"an array of {array.dtype} holds no numbers")
    if array.dtype.itemsize > _WIDEST.get(array.dtype.kind, 8):
        raise TypeError(f"an array of {array.dtype} has numbers that are too wide; make it one of float64")
    return _Array(array.dtype.str, list(array.shape), bytearray(numpy.ascontiguousarray(array).tobytes()))


def unpack(body: bytes, arrays: bool = True) -> Any:
    """Read a value that :func:`pack` wrote, or whatever a hostile process wrote in its place.

    ``arrays`` says whether it may hold any.

    Raises
    ------
    ValueError
        Not such a value.
    """
    try:
        packed = msgspec.msgpack.decode(body, type=_Packed)
        if len(packed.plain) > MAX_PLAIN:
            raise ValueError(f"{len(packed.plain)} bytes without its arrays; at most {MAX_PLAIN} are read")
        if packed.arrays and not arrays:
            raise ValueError("it holds arrays, which are no JSON values")
        found = [_unpack_array(array) for array in packed.arrays]

        def hook(code: int, data: memoryview) -> Any:
            number = int.from_bytes(data, "little")
            if code != _REFERENCE or number >= len(found):
                raise ValueError("a reference to an array that is not there")
            return found[number]

        value = msgspec.msgpack.decode(packed.plain, ext_hook=hook)
        _check(value)
    except (RecursionError, TypeError, MemoryError, OverflowError) as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return value


def _unpack_array(array: _Array) -> Any:
    import numpy

    dtype = numpy.dtype(array.dtype)
    if dtype.kind not in _KINDS or dtype.str != array.dtype or dtype.itemsize > _WIDEST.get(dtype.kind, 8):
        raise ValueError(f"{array.dtype[:20]!r} is no type of numbers")
    if any(n < 0 for n in array.shape) or math.prod(array.shape) * dtype.itemsize != len(array.data):
        raise ValueError("an array whose shape does not fit its bytes")
    return numpy.frombuffer(array.data, dtype).reshape(array.shape)


def _check(value: Any) -> None:
    """Refuse what msgpack can hold and JSON cannot."""
    kind = type(value)
    if kind is list:
        for part in value:
            _check(part)
    elif kind is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise ValueError(f"a dictionary with the key {key!r:.50}; keys must be texts")
            _check(part)
    elif kind not in (int, float, str, bool, type(None)) and kind.__module__ != "numpy":
        raise ValueError(f"a {kind.__name__} is neither a JSON value nor an array")
