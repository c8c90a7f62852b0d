"""What the tests of the importers share: where logs are, and what holds for every import."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

import dreamrsi as d
from dreamrsi import logs

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("DREAMRSI_SHARED_LOGS", ROOT.parent / "shared" / "logs"))


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


def by_id(tree):
    """The attempts by the log's own names."""
    return {a.metrics["id"]: a for a in tree}


def check_quick(attempts, format, path, tmp_path, **options):
    """A log of so many attempts becomes a tree file in less than ten seconds of processor time."""
    began = time.process_time()
    tree, report = logs.read(format, path, **options)
    tree.save(tmp_path / "tree.jsonl")
    assert time.process_time() - began < 10 and len(tree) == attempts
    return report
