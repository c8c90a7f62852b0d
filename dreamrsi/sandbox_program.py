"""What runs in a candidate program's process after its source was loaded: calls of its functions, one at a time.

A call is three questions, so that the caller can time the work alone: take the arguments, run, give the value.
"""

from __future__ import annotations

import types
from typing import Any

import msgspec

from dreamrsi.sandbox_channel import receive, send
from dreamrsi.sandbox_confine import MAX_TEXT, text_of, where
from dreamrsi.sandbox_values import pack, unpack


class Call(msgspec.Struct, array_like=True):
    """The first question: a function's name, and the list of its arguments, packed. The answer is empty."""

    function: str
    arguments: bytes


class Go(msgspec.Struct, array_like=True):
    """The second: run. The answer is a :class:`Done` with the same token, which cannot be written ahead of this."""

    token: bytes


class Done(msgspec.Struct, array_like=True):
    """The function has returned, or raised ``error``."""

    token: bytes
    error: str | None


class Given(msgspec.Struct, array_like=True):
    """The answer to the third question, which is empty: the value, packed, or why it cannot be sent."""

    value: bytes
    error: str | None


def answer_calls(module: types.ModuleType, file: str) -> None:
    """Answer until the caller hangs up."""
    encode = msgspec.msgpack.encode
    while True:
        call = msgspec.msgpack.decode(receive(), type=Call)
        arguments = unpack(call.arguments)
        send(b"")
        go = msgspec.msgpack.decode(receive(), type=Go)
        value, error = _run(module, call.function, arguments, file)
        send(encode(Done(go.token, error)))
        if error is None:
            receive()
            send(encode(_give(value)))


def _run(module: types.ModuleType, name: str, arguments: list[Any], file: str) -> tuple[Any, str | None]:
    function = module.__dict__.get(name)
    if not callable(function):
        return None, f"{file}: defines no function {name}()"
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, f"{where(error, file)}: {name}() raised {text_of(error)}"


def _give(value: Any) -> Given:
    try:
        return Given(pack(value), None)
    except BaseException as error:
        return Given(b"", text_of(error)[:MAX_TEXT])
