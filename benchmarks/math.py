"""How good are the solvers of the mathematical tasks, and how fast? See ``math_rows.py``, which this starts.

    python benchmarks/math.py                        every row
    python benchmarks/math.py sum_difference         one row; --seeds and --seconds change its size

Python has a module of this name too. Where that is a file as well, every script in this folder, and each library it
loads, would get this file in its place; so it steps aside.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


def standard_math() -> ModuleType:
    """Python's own module, wherever this folder stands in the path."""
    here, path = os.path.dirname(os.path.realpath(__file__)), sys.path
    sys.modules.pop("math", None)
    sys.path = [entry for entry in path if os.path.realpath(entry) != here]
    try:
        return importlib.import_module("math")
    finally:
        sys.path = path


if __name__ in ("math", "__main__"):
    sys.modules["math"] = standard_math()

if __name__ == "__main__":
    from math_rows import main

    main()
