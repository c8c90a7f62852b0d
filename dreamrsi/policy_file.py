"""A policy as it is deployed: the bytes of a source file; and the built-in policies as such files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamrsi.errors import UserError


@dataclass(frozen=True)
class Deployed:
    """A policy as it is deployed: its source, and what its developer wants to know of it again."""

    source: bytes
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """What the policy is: the hash of its bytes, in hexadecimal."""
        return hashlib.sha256(self.source).hexdigest()


def starting_policy(text: str) -> Deployed:
    """The source of a built-in policy, from ``name`` or ``name:key=value,...``, or of a file that ends in ``.py``.

    Raises
    ------
    UserError
        Unknown name or parameter, or the file cannot be read.
    """
    from dreamrsi import policies
    from dreamrsi.schedule import PARALLEL_REFINE, source

    if text.endswith(".py"):
        try:
            return Deployed(Path(text).read_bytes())
        except OSError as error:
            raise UserError(f"{text}: cannot be read ({error.strerror}); give the path of a policy's file") from error
    made = policies.make(text)
    if text == "parallel_refine":
        return Deployed(source(PARALLEL_REFINE, text), {"schedule": PARALLEL_REFINE.to_json()})
    kind = type(made).__name__
    given = ", ".join(text.partition(":")[2].split(",")) or ("seed=0" if kind == "Random" else "")
    lines = [
        f'"""The built-in policy {made.name}."""\n',
        f"from dreamrsi.policies import {kind}\n\n",
        f"class Policy({kind}):",
        f"    name = {made.name!r}\n",
        "    def __init__(self) -> None:",
        f"        super().__init__({given})",
    ]
    return Deployed("\n".join(lines).encode() + b"\n")
