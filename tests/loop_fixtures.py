"""Small recursions on the toy task: what equal ones share, a developer of few words, and runs that are killed."""

from __future__ import annotations

import json

import msgspec

from dreamrsi.developers import Draft
from dreamrsi.loop import recursion
from dreamrsi.schedule import Schedule, source
from toy_task import Toy

SMALL = {"workspaces": 4, "steps": 3, "width": 3, "workers": 2, "timeout": 60.0, "versions": 3}
TREE_TIMES = ("seconds",)


class Stopper:
    """A developer that proposes to open a single branch, then the same with another comment."""

    name = "stopper"

    def develop(self, request):
        made = source(Schedule(bootstrap=(0.3, 0.3)), "stopper")
        return Draft(made + b"#" * request.number + b"\n", {"number": request.number})


def run(out, arm="dream", rounds=3, task=None, **settings):
    given = {**SMALL, "developer": Stopper(), **settings}
    return recursion(Toy() if task is None else task, out, arm=arm, rounds=rounds, seed=5, **given)


def tree_content(tree):
    """All that equal trees share: everything but seconds."""
    return tree.header, tree.batches, [msgspec.structs.replace(attempt, seconds=None) for attempt in tree.attempts]


def content(found):
    """All that equal runs share."""
    return [(tree_content(round_.tree), round_.policy, round_.name, round_.guidance) for round_ in found.rounds]


def files(folder):
    """Name -> what equal runs have in that file: bytes, and JSON without seconds."""
    named = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith("workspaces.git/") or path.name in (".lock", "tree.jsonl"):
            continue
        named[name] = path.read_bytes()
        if path.suffix == ".json":
            named[name] = without_seconds(json.loads(named[name]))
    return named


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(part) for key, part in value.items() if key != "seconds"}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value
