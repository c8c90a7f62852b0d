"""Made-up logs in the formats of other systems, each with the traps of its format.

``python tests/log_fixtures.py`` writes them to tests/fixtures/logs. Nothing in them is from a real run.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

import dreamrsi as d

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "logs"
SHARED = Path(os.environ.get("DREAMRSI_SHARED_LOGS", ROOT.parent / "shared" / "logs"))

TABLE = """\
id,parent,loss,ended,when,kind,note
seed,,0.9,ok,0,,start
a,seed,0.7,ok,1,widen,
b,seed,,crash,2,deepen,no memory
c,a,0.5,ok,3,deepen,
d,a,0.6,ok,4,widen,forks
e,b,0.8,ok,5,widen,
f,gone,0.65,ok,6,widen,its parent is not here
g,c,0.0,timeout,7,widen,a failure with a number
"""
TABLE_OPTIONS = {
    "columns": {"id": "id", "parent": "parent", "score": "loss", "status": "ended", "order": "when", "tag": "kind"},
    "direction": "min",
    "root": "seed",
}


def real(*names):
    """A real log, or skip: they are not part of this repository."""
    path = SHARED.joinpath(*names)
    if not path.exists():
        pytest.skip(f"no real log {'/'.join(names)}; DREAMRSI_SHARED_LOGS names the folder that holds them")
    return path


def hashes(path):
    """Names, contents and times of every file of a log."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in files}


class AsRecorded:
    """The policy that repeats the recorded order, one attempt a round."""

    name = "as recorded"

    def __init__(self, tree):
        self.picks = [d.OPEN if a.attempt == 0 else a.branch for a in tree]

    def start(self, width):
        self.left = iter(self.picks)

    def choose(self, prefix):
        pick = next(self.left, None)
        return [] if pick is None else [pick]


def check_import(read, path, tmp_path):
    """What holds for every import: the log is unchanged, the bytes are the same twice, the file reads back equal,
    no failure has a score, the counts add up, and the recorded order replays to the recorded best at every step.
    """
    before = hashes(path)
    tree, report = read()
    assert hashes(path) == before
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    tree.save(first)
    read().tree.save(second)
    assert first.read_bytes() == second.read_bytes()
    for line in first.read_bytes().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    again = d.Tree.load(first)
    assert again.attempts == tree.attempts and again.header == tree.header
    assert all((a.score is not None) is (a.status == "ok") for a in tree)
    assert report.attempted == report.kept + report.lost
    assert report.kept == len(tree) == report.scored + report.failed + report.rejected + report.unknown
    check_replay(tree)
    return tree, report


def check_replay(tree):
    """The recorded order can be replayed, and shows the same best after every attempt."""
    if len(tree) == 0:
        return
    episode = d.replay(AsRecorded(tree), tree, width=1)
    assert episode.order == tuple((a.branch, a.attempt) for a in tree)
    assert episode.best == tree.best


def write_tables(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.csv").write_text(TABLE)


WRITERS = {"tables": write_tables}

if __name__ == "__main__":
    for name, write in WRITERS.items():
        write(FIXTURES / name)
