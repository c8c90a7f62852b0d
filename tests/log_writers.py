"""Made-up logs in the formats of other systems, each with the traps of its format.

``python tests/log_writers.py`` writes them to tests/fixtures/logs. Nothing in them is from a real run.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures" / "logs"

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
            "metadata TEXT, island_idx INTEGER, archive_inspiration_ids TEXT)"
        )
        rows = []
        for i, parent, gen, time, score, correct, island, meta in SHINKA if programs is None else programs:
            text = None if meta is None else json.dumps(meta)
            row = (i, f"# {i}", "python", parent, gen, time, score, '{"x": NaN}', "", correct, text, island)
            rows.append((*row, '["p1", "p2"]' if i == "p5" else "[]"))
        database.executemany(f"INSERT INTO programs VALUES ({', '.join('?' * 13)})", rows)
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


def journal_node(name, step, value, maximize=False, **more):
    """A node of AIDE."""
    return {
        "id": name,
        "step": step,
        "ctime": 1000.0 + step,
        "code": f"# {name}\n",
        "plan": "made up",
        "parent": None,
        "children": [],
        "_term_out": ["ok"],
        "exec_time": 0.5,
        "exc_type": None,
        "exc_info": None,
        "exc_stack": None,
        "analysis": "fine",
        "metric": {"value": value, "maximize": None if value is None else maximize},
        "is_buggy": value is None,
    } | more


def write_aide(folder):
    """A journal of AIDE with two drafts, and one of MLEvolve. The config would run a command if it were obeyed."""
    failed = {"exc_type": "KeyError", "exc_info": {"args": ["no such\ncolumn 'x'"]}}
    nodes = [
        journal_node("d1", 0, 0.5),
        journal_node("f1", 3, 0.3),  # out of order in the file
        journal_node("d2", 1, None, **failed),
        journal_node("f2", 2, None, exc_type="TimeoutError"),
        journal_node("f3", 4, 0.2, is_buggy=True),  # a number all the same
        journal_node("f4", 6, None, is_buggy=False),
        journal_node("f5", 7, float("nan"), is_buggy=False),
        journal_node("f6", 8, 0.1, is_buggy=None),
    ]
    parents = {"f1": "d1", "f2": "d2", "f3": "d1", "f4": "f1", "f5": "gone", "f6": "f1"}
    dump(folder / "journal.json", {"nodes": nodes, "node2parent": parents, "__version": "2"})
    (folder / "config.yaml").write_text("log_dir: !!python/object/apply:os.system\n- touch was-here\n")
    evolved = [
        journal_node("root", 0, None, stage="root", code="", is_buggy=False, branch_id=None),
        journal_node("x", 1, None, stage="draft", branch_id=1, is_valid=True, is_buggy=False),
        journal_node("y", 2, 0.7, True, stage="improve", branch_id=1, is_valid=True),
        journal_node("z", 3, 0.9, True, stage="fusion", branch_id=2, is_valid=False),
    ]
    evolved[1]["metric"] = {"value": "0.6", "maximize": "True"}
    parents = {"x": "root", "y": "x", "z": "x"}
    more = {"node2best_local_node": {}, "__version": "2"}
    dump(folder / "mlevolve" / "journal.json", {"nodes": evolved, "node2parent": parents} | more)


RESULTS = """\
commit\tval_bpb\tmemory_gb\tstatus\tdescription\tkind
a000001\t1.000000\t40.0\tkeep\tbaseline\t
a000002\t1.010000\t40.0\tdiscard\t"wider", and a quote that opens\twidth
a000003\t0.000000\t0.0\tcrash\tout of memory\twidth
a000004\t0.990000\t41.0\tkeep\tlower rate\trate
a000005\t0.995000\t41.0\tdiscard\tstill lower\trate
"""


def write_autoresearch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.tsv").write_text(RESULTS)


WRITERS = {
    "tables": write_tables,
    "openevolve": write_openevolve,
    "codeevolve": write_codeevolve,
    "shinka": write_shinka,
    "simpletes": write_simpletes,
    "aide": write_aide,
    "autoresearch": write_autoresearch,
}


if __name__ == "__main__":
    for name, write in WRITERS.items():
        if name != "shinka" or not (FIXTURES / name).exists():  # a database has other bytes every time
            write(FIXTURES / name)
