"""A stand-in for a coding agent that develops policies: its arguments say what the first and the second call write."""

import os
import sys
import time
from pathlib import Path

GOOD = '''"""Open all that can be opened, then extend what is not stalled."""
from dreamrsi.policies import OPEN

class Policy:
    beta = 0.6
    def start(self, width):
        self.width = width
    def choose(self, prefix):
        if prefix.round == 0:
            return [OPEN] * self.width
        live = [b for b in prefix.branches if not b.ended and b.stalled < 1 + 2 * self.beta]
        return [b.number for b in live[: self.width]]
'''


def changed(old, new):
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


POLICIES = {
    "good": GOOD,
    "broken": changed("class Policy:", "class Policy"),
    "absent": None,
    "unchanged": "",
    "huge": GOOD + "#" * 2**20,
    "loops": changed(
        "if prefix.round == 0:", "while prefix.round == 1:\n            pass\n        if prefix.round == 0:"
    ),
    "raises": changed("self.width = width", "self.width = width / 0"),
    "illegal": changed("return [OPEN] * self.width", "return [OPEN] * (self.width + 1)"),
    "random": changed("import OPEN", "import OPEN\nimport random").replace("2 * self.beta", "4 * random.random()"),
    "impatient": changed("beta = 0.6", "beta = 1.5"),
    "plans": changed("beta = 0.6", "beta = 0.6\n    def plan_grid(self, summaries):\n        return 1 / 0"),
    "score": changed("b.stalled < 1", "b.best > 2.7182 and b.stalled < 1"),
    "sum": changed("b.stalled < 1", "b.best > 2.5 + 0.2182 and b.stalled < 1"),
    "text": changed("b.stalled < 1", "b.best > float('2.7182') and b.stalled < 1"),
    "cells": changed("beta = 0.6", "beta = 0.6\n    good = [(0, 3), (2, 1), (5, 7)]"),
}


def main():
    written = Path("policy.py")
    calls = Path(os.environ["STAND_IN_NOTES"])
    number = len(list(calls.glob("[0-9]")))
    (calls / str(number)).write_text(sys.stdin.read())
    (calls / "files").write_text("\n".join(sorted(str(p) for p in Path(".").rglob("*") if p.is_file())))
    what = sys.argv[1:][min(number, len(sys.argv) - 2)]
    if what == "fails":
        sys.exit(3)
    if what == "hangs":
        time.sleep(1000)
    policy = POLICIES[what]
    if policy is None:
        written.unlink()
    elif policy:
        written.write_text(policy)


if __name__ == "__main__":
    main()
