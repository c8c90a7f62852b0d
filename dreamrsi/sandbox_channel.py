"""The channel between a sandboxed process and its caller. A message is a length in four bytes, then as many bytes."""

from __future__ import annotations

import os
import struct

CHANNEL = 3
"""The descriptor, in the sandboxed process, on which questions come and answers go."""

_LENGTH = struct.Struct("<I")


def receive() -> bytes:
    """Wait for the caller's next message.

    Raises
    ------
    EOFError
        The caller has hung up.
    """
    size = _LENGTH.unpack(_exactly(_LENGTH.size))[0]
    return _exactly(size)


def _exactly(size: int) -> bytes:
    chunks = []
    while size:
        chunk = os.read(CHANNEL, size)
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def send(body: bytes) -> None:
    """Send a message to the caller."""
    view = memoryview(_LENGTH.pack(len(body)) + body)
    while view:
        view = view[os.write(CHANNEL, view) :]
