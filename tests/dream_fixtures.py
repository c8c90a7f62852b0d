"""A small history, policies as source, a scripted developer, and what equal dreams share."""

from __future__ import annotations

import json
from pathlib import Path

from dreamrsi.developers import Draft
from dreamrsi.dream import dream
from sandbox_fixtures import no_server_left, nothing_left, policy_source  # noqa: F401
from strategies import tree_of

TREE = tree_of([[1.0, 2.0, 3.0], [2.0, 1.0, 1.5], [0.5, 4.0, 9.0], [3.0, None, 3.5]], steps=3, branches=4, root=0.0)
OTHER = tree_of([[5.0, 5.5, 5.2], [6.0, 7.0, 7.5]], steps=3, branches=2, root=1.0)
SETTINGS = {"beta1": 0.02, "beta2": 0.05, "width": 3, "seed": 7}
FIRST = policy_source("return [-1] if prefix.round == 0 else []")
ALL = policy_source("return [-1] * 3 if prefix.can_open else [b.number for b in prefix.branches if not b.ended][:3]")
HALF = policy_source("return [-1] * 2 if prefix.round == 0 else []")
BROKEN = policy_source("return [99]")
NOWHERE = policy_source("return []")


class Scripted:
    """Writes what it was told to, by the number of the version: a source, a draft, an exception or a function."""

    def __init__(self, *script, name="scripted"):
        self.name = name
        self.script = script
        self.requests = []

    def develop(self, request):
        self.requests.append(request)
        what = self.script[request.number - 1]
        if isinstance(what, BaseException):
            raise what
        if callable(what):
            return what(request)
        return Draft(what) if isinstance(what, bytes) else what


def run(folder, *script, current=FIRST, history=(TREE, OTHER), developer=None, **given):
    developer = developer or Scripted(*script)
    chosen = {"versions": len(script) + 1, **SETTINGS, **given}
    return dream(history, current, developer, folder=Path(folder), **chosen)


def files_of(folder):
    """Every file's content, without the two fields in which equal dreams may differ."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.name != ".lock":
            content = path.read_bytes()
            if path.name in ("dream.json", "version.json"):
                content = {**json.loads(content), "seconds": None}
            found[str(path.relative_to(folder))] = content
    return found
