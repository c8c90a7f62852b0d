"""Made-up logs in the formats of other systems, each with the traps of its format.

``python tests/log_fixtures.py`` writes them to tests/fixtures/logs. Nothing in them is from a real run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
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


def dump(path, value):
    """JSON as the systems write it: with NaN and Infinity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def dump_lines(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def program(name, parent, iteration, score, **more):
    """A program of OpenEvolve. Its generation is 0 for the start, and one more than its place says for others."""
    metrics = {"combined_score": score, "runtime": 0.5} if isinstance(score, (int, float)) else score
    return {
        "id": name,
        "code": f"# {name}\n",
        "language": "python",
        "parent_id": parent,
        "generation": 0 if parent is None else 1,
        "timestamp": 1000.0 + iteration,
        "iteration_found": iteration,
        "metrics": metrics,
        "complexity": 1.0,
        "diversity": 0.0,
        "metadata": {"island": 0, "changes": "made up"},
        "artifacts_json": None,
    } | more


OPENEVOLVE = {
    "seed": program("seed", None, 0, 0.2),
    # an empty island gets a copy of the best, without a flag; the next one is a migrant, and a migrant of it
    "filler": program("filler", "seed", 0, 0.2, code="# seed\n", generation=0, metadata={"island": 1}),
    "a": program("a", "seed", 1, 0.4),
    "a-mig": program("a-mig", "a", 1, 0.4, code="# a\n", metadata={"island": 1, "migrant": True}),
    "a_migrant_2": program("a_migrant_2", "a-mig", 1, 0.4, code="# a\n", metadata={"island": 2}),
    "b": program("b", "filler", 2, {"error": 0.0}, artifacts_json='{"stderr": "Traceback:\\n  boom\\nKeyError: 1"}'),
    "c": program("c", "a", 3, {"error": 0.0, "timeout": True}),
    "d": program("d", "a_migrant_2", 4, -float("inf"), artifacts_json='{"stderr": "SKIPPED - lock busy"}'),
    "same": program("same", "a", 5, 0.4, code="# a\n", generation=2),  # an attempt that changed nothing is no copy
    "e": program("e", "a", 6, 0.7, generation=2),
    "f": program("f", "d", 8, {"stage1_passed": 0.0}),
    "g": program("g", "b", 9, {"combined_score": 0.0, "error": "SyntaxError: bad"}),
    "h": program("h", "e", 12, {"combined_score": 0.6, "error": 0.03, "ok": True}),  # an error that is a metric
    "stray": program("stray", "other-run", 7, 5.0),  # of an earlier run in the same folder
    "late": program("late", "seed", 14, 6.0),  # its iteration comes after the checkpoint's
}


def write_openevolve(folder):
    """Two checkpoints and a trace. In the second one, ``a`` is evicted and ``d`` displaced from its island."""
    first = ["seed", "filler", "a", "a-mig", "a_migrant_2", "b", "c", "d", "same"]
    second = ["seed", "filler", "a-mig", "b", "c", "d", "same", "e", "f", "g", "h", "stray", "late"]
    for number, names, unlisted in ((5, first, ()), (12, second, ("d", "stray", "late"))):
        place = folder / "checkpoints" / f"checkpoint_{number}"
        for name in names:
            dump(place / "programs" / f"{name}.json", OPENEVOLVE[name])
        listed = [n for n in names if n not in unlisted]
        islands = [[n for n in listed if n not in ("filler", "a-mig", "a_migrant_2")], ["filler", "a-mig"]]
        islands.append(["a_migrant_2"] if number == 5 else [])
        dump(place / "metadata.json", {"islands": islands, "archive": [], "last_iteration": number})
    trace = []
    for name in ["a", "b", "c", "d", "same", "e", "f", "g", "h"]:
        made = OPENEVOLVE[name]
        parent = OPENEVOLVE[made["parent_id"]]
        entry = {"iteration": made["iteration_found"], "timestamp": made["timestamp"], "child_id": name}
        entry |= {"parent_id": parent["id"], "parent_metrics": parent["metrics"], "child_metrics": made["metrics"]}
        entry |= {"child_code": made["code"], "parent_code": parent["code"], "island_id": 0}
        entry |= {"generation": parent["generation"] + 1}
        if made["artifacts_json"]:
            entry["artifacts"] = json.loads(made["artifacts_json"])
        trace.append(entry)
    dump_lines(folder / "evolution_trace.jsonl", trace)


def codeevolve_program(name, parent, iteration, island, fitness, **more):
    return {
        "id": name,
        "parent_id": parent,
        "iteration_found": iteration,
        "generation": iteration,
        "island_found": island,
        "returncode": 0,
        "fitness": fitness,
        "language": "python",
        "prompt_id": "q",
        "inspiration_ids": [],
        "model_id": 0,
        "eval_metrics": {"eval_time": 0.5},
        "error": None,
        "island": island,
        "alive": True,
    } | more


def write_codeevolve(folder):
    failed = {"returncode": 1, "eval_metrics": {}}
    lines = [
        codeevolve_program("s0", None, 0, 0, 0.0),
        codeevolve_program("a1", None, 1, 0, 0.5),
        codeevolve_program("a2", "a1", 2, 0, 0.6),
        codeevolve_program("a3", "a1", 3, 0, 0, error="Traceback:\n  line\nValueError: no\n", **failed),
        codeevolve_program("a4", "a2", 4, 0, 0, error="TimeoutError: too long", **failed),
        codeevolve_program("s1", None, 0, 1, 0.0),  # every island starts with the same program
        codeevolve_program("b1", "gone", 1, 1, 0.4),
        codeevolve_program("a1", None, 1, 0, 0.5) | {"island": 1},  # a migrant: its own id, and no parent there
        codeevolve_program("b2", "a1", 3, 1, 0.8),  # nothing in iteration 2
        codeevolve_program("m", None, 2, 2, 0.3) | {"island": 1},  # a migrant from an island that is not in the log
    ]
    dump_lines(folder / "programs.jsonl", lines)


SHINKA = [  # id, parent, generation, time, score, correct, island, metadata
    ("p0", None, 0, 100.0, 1.0, 1, 0, {"patch_type": "init", "compute_time": 2.5}),
    ("p0-copy", None, 0, 100.0, 1.0, 1, 1, {"_is_island_copy": True, "_original_program_id": "p0"}),
    ("p1", "p0", 1, 101.0, 1.5, 1, 0, {"patch_type": "diff", "api_costs": 0.004, "model_name": "m"}),
    (
        "p2",
        "p0-copy",
        2,
        102.0,
        0.0,
        0,
        1,
        {"patch_type": "full", "evaluation_failed": True, "stderr_log": "a\nboom\n"},
    ),
    ("p3", "p1", 3, 103.0, 0.0, 0, 0, {"patch_type": "cross", "stderr_log": ""}),
    ("p5", "p1", 5, 105.0, 2.0, 1, 0, {"patch_type": "diff"}),
    ("p6", "gone", 6, 106.0, 1.8, 1, 1, None),
]
PROPOSALS = [  # generation, stage, status, details, time
    (4, "proposal", "failed", {"failure_class": "novelty_rejected", "parent_id": "p0-copy"}, 104.0),
    (5, "proposal", "failed", {"failure_class": "patch_apply_failed", "parent_id": "p1"}, 104.5),
    (5, "proposal", "failed", {"failure_class": "llm_output_invalid", "parent_id": None}, 104.6),
    (5, "proposal", "ok", {}, 105.0),
    (6, "evaluation", "failed", {"failure_class": "evaluation_failed"}, 106.0),
]


def write_shinka(folder, programs=None, proposals=True, wal=True):
    """A database whose rows are all in the write-ahead log, as after a run that was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        database = sqlite3.connect(Path(made) / "programs.sqlite")
        database.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute(
            "CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT, language TEXT, parent_id TEXT, generation INTEGER, "
            "timestamp REAL, combined_score REAL, public_metrics TEXT, text_feedback TEXT, correct BOOLEAN, "
            "metadata TEXT, island_idx INTEGER)"
        )
        rows = [
            (
                i,
                f"# {i}",
                "python",
                parent,
                gen,
                time,
                score,
                '{"x": NaN}',
                "",
                correct,
                None if meta is None else json.dumps(meta),
                island,
            )
            for i, parent, gen, time, score, correct, island, meta in (SHINKA if programs is None else programs)
        ]
        database.executemany(f"INSERT INTO programs VALUES ({', '.join('?' * 12)})", rows)
        if proposals:
            database.execute("CREATE TABLE attempt_log (generation, stage, status, details, created_at)")
            rows = [(gen, stage, status, json.dumps(details), time) for gen, stage, status, details, time in PROPOSALS]
            database.executemany("INSERT INTO attempt_log VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
        for ending in ("", "-wal") if wal else ("",):
            shutil.copyfile(f"{made}/programs.sqlite{ending}", folder / f"programs.sqlite{ending}")
        database.close()


def node(name, parents, batch, chain, score, minute, **metrics):
    """A program of SimpleTES."""
    return {
        "id": name,
        "code": f"# {name}\n",
        "metrics": {"combined_score": score, "eval_time": 1.5} | metrics,
        "score": score,
        "parent_ids": parents,
        "gen_id": batch,
        "chain_idx": chain,
        "shared_construction_id": None,
        "status": "DONE",
        "created_at": f"2026-03-23T23:{minute:02d}:00",
    }


def write_simpletes(folder):
    """An instance with two states; by name the earlier one looks later, since the run went past midnight."""
    nodes = [
        node("r", [], None, None, 1.0, 0),
        node("n1", ["r"], 1, 0, 1.2, 1),
        node("n2", ["r"], 1, 0, 1.1, 2),
        node("n3", ["r"], 2, 1, -float("inf"), 3, combined_score=0.0, error="Traceback:\n  x\nMemoryError\n"),
        node("n4", ["n1", "n3"], 4, 0, 1.5, 5),
        node("n5", ["gone", "n1"], 7, 1, 1.4, 9),
    ]
    text = [{k: json.dumps(v) if isinstance(v, dict | list | float) else v for k, v in n.items()} for n in nodes]

    def failure(kind, reason, batch, chain, minute):
        stamp = f"2026-03-23T23:{minute:02d}:30"
        return {"type": kind, "reason": reason, "gen_id": batch, "chain_idx": chain, "created_at": stamp, "score": 0.0}

    failures = [
        failure("generation", "no code block in the answer", 4, 0, 4),  # its sibling is n4
        failure("evaluation", "Evaluation timed out", 5, 1, 6),  # no sibling: the policy knows the batch
        failure("evaluation", "crashed", 6, 1, 7),  # nobody knows
    ]
    state = {"batches": {"5": {"inspirations": ["n2"]}}, "chain_history": {"0": ["r", "n1", "n4"]}}
    for name, count in (("db_state_235900", 2), ("db_state_000200", 6)):
        place = folder / name
        dump(place / "nodes.json", nodes[:2] if count == 2 else [text[0], *nodes[1:5], text[5]])
        meta = {"completed_evaluations": count, "generation_failures": 2, "evaluation_failures": 2}
        dump(place / "metadata.json", meta)
        dump(place / "policy.json", {"name": "balance", "state": state})
        if count == 6:
            dump(place / "failure.json", failures)


WRITERS = {
    "tables": write_tables,
    "openevolve": write_openevolve,
    "codeevolve": write_codeevolve,
    "shinka": write_shinka,
    "simpletes": write_simpletes,
}


def check_committed(name, tmp_path):
    """The committed files are what is written here."""
    WRITERS[name](tmp_path / "written")
    for folder in (tmp_path / "written", FIXTURES / name):
        yield {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


if __name__ == "__main__":
    for name, write in WRITERS.items():
        if name != "shinka" or not (FIXTURES / name).exists():  # a database has other bytes every time
            write(FIXTURES / name)
