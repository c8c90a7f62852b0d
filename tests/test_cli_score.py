"""The command ``score`` as a user types it: what it prints at 80 columns, and what it writes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import dreamrsi as d

CORPUS = Path(__file__).parent.parent / "synthetic" / "history"
LATE = str(CORPUS / "late-6a.jsonl")
MATH = str(CORPUS / "math.jsonl")
EXAMPLE = str(Path(__file__).parent.parent / "examples" / "circle_packing_26.jsonl")


@pytest.fixture
def score(dreamrsi):
    """Run the command ``score``."""
    return partial(dreamrsi, "score")


def rows(out):
    """Policy -> column -> cell, of the first table."""
    table = out[out.index("policy ") :].split("\n\n")[0]
    head, *lines = [line.replace("random:20 seeds", "random").split() for line in table.splitlines()]
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def said(out):
    """What was printed, as if there were no lines."""
    return " ".join(out.split())


def log(path, scores, **header):
    """A foreign log: one branch, neither width nor caps nor rounds unless the header gives them."""
    lines = [{"branch": 0, "attempt": i, "seq": i, "score": s, "status": "ok"} for i, s in enumerate(scores)]
    path.write_text("\n".join(map(json.dumps, [{"format": "dreamrsi.tree/1", "task": path.stem, **header}, *lines])))
    return path


def test_the_record_stands_beside_the_policies(score):
    done = score(LATE, MATH, "--beta1", "0.02", "--beta2", "0.05")
    assert done.returncode == 0 and not done.stderr
    table = rows(done.stdout)
    assert table["recorded"] == table["parallel_refine"] | {"policy": "recorded"}
    assert (table["early_stop"]["hits"], table["early_stop"]["attempts"]) == ("2", "44.0")
    assert "2 trees: 8 branches, 88 attempts each" in done.stdout
    assert "width as recorded (8)" in done.stdout and "beta1 0.02 (given); beta2 0.05 (given)" in done.stdout
    assert "exact on what was recorded, 8 branches a tree" in said(done.stdout)


@pytest.mark.parametrize("extra", [[], ["--by-tree"], ["--width", "2", "--width", "8"]])
def test_everything_fits_into_80_columns(score, extra):
    done = score(*sorted(CORPUS.glob("*.jsonl")), *extra)
    assert max(map(len, done.stdout.splitlines())) <= 80
    lines = done.stdout.splitlines()
    head = next(line for line in lines if line.startswith("policy"))
    assert {"V", "quality", "attempts", "rounds", "opened", "unopened"} < set(head.split())


def test_the_map_of_the_betas_is_always_there(score):
    out = said(
        score(*sorted(CORPUS.glob("*.jsonl")), "--beta1", "0.02", "--beta2", "0.05", "--max-rounds", "80").stdout
    )
    assert "At beta1 0.02 and beta2 0.05 early_stop wins, 0.115 ahead of portfolio." in out
    low, high = map(float, re.search(r"It wins for beta1 from ([\d.]+) to ([\d.]+),", out).groups())
    assert 0.004 < low < 0.005 and 1.2 < high < 1.6
    shares = [float(share) for share in re.findall(r"([\d.]+) %[,.]", out.split("Of the map:")[1].split("same as")[0])]
    assert sum(shares) == pytest.approx(100, abs=0.1)
    assert "The same as parallel_refine under any betas: recorded." in out
    assert "Wins nowhere: greedy_best, adaptive, semantic_guidance, portfolio." in out
    assert "beta1 from 0 to 0.04753, beta2 from 0 to 0.1901 (1 % and 4 % of the range" in out


def test_a_policy_that_wins_without_having_opened_the_winners_branch_is_called_blind(score):
    out = score(LATE, "--only", "--policy", "parallel_refine:width=4", "--beta1", "0.1", "--beta2", "0").stdout
    assert "UNOPENED: parallel_refine:width=4." in out
    assert rows(out)["parallel_refine:width=4"]["unopened"] == "1"
    assert "parallel_refine:width=4 wins" in said(out) and "BLIND: it never opened the branch" in said(out)
    assert "BLIND" not in score(LATE, "--only", "--policy", "early_stop").stdout


def test_a_family_at_several_widths_is_one_call(score):
    family = ["--policy", "early_stop:strikes=1", "--policy", "early_stop:strikes=3"]
    done = score(EXAMPLE, "--only", *family, "--width", "2", "--width", "4", "--format", "csv")
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["policy"], row["width"]) for row in table] == [
        ("recorded", ""),
        ("early_stop:strikes=1", "2"),
        ("early_stop:strikes=1", "4"),
        ("early_stop:strikes=3", "2"),
        ("early_stop:strikes=3", "4"),
    ]
    tree = d.Tree.load(EXAMPLE)
    for row in table[1:]:
        episode = d.replay(d.policies.make(row["policy"]), tree, int(row["width"]))
        assert (float(row["attempts"]), float(row["rounds"])) == (episode.attempts, episode.rounds)
        assert (float(row["quality"]), float(row["opened"])) == (episode.best, episode.opened)
    assert "early_stop:strikes=1,W=4" in done.stderr  # the map has them apart


def test_by_tree_shows_hit_regret_and_what_was_never_opened(score):
    out = score(LATE, MATH, "--policy", "parallel_refine:width=4", "--by-tree", "--format", "csv").stdout
    table = list(csv.DictReader(io.StringIO(out)))
    frozen = {row["tree"]: row for row in table if row["policy"] == "parallel_refine:width=4"}
    assert (frozen[LATE]["hit"], frozen[LATE]["unopened"], frozen[LATE]["opened"]) == (
        "False",
        "True",
        "4",
    )
    assert (frozen[MATH]["hit"], frozen[MATH]["regret"], frozen[MATH]["unopened"]) == ("True", "0.0", "False")
    assert not any(row["policy"].startswith("random") for row in table)


@pytest.mark.parametrize(("form", "start"), [("csv", "policy,hits"), ("md", "| policy"), ("tex", "% needs")])
def test_other_formats_stand_alone(score, form, start):
    done = score(MATH, "--format", form)
    assert done.stdout.startswith(start) and "Map of the betas" not in done.stdout
    assert "Map of the betas" in done.stderr and "Replay is exact" in done.stderr


def test_other_formats_keep_the_digits_that_scores_need(score, tmp_path):
    path = log(tmp_path / "small.jsonl", (1.25e-6, 1.75e-6, 1.7499e-6))
    small = score(path, "--format", "md", "--by-tree").stdout
    head, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in small.splitlines()]
    first = dict(zip(head, lines[0], strict=True))
    assert first["quality"] == "0.00000175000" and (first["attempts"], first["unopened"]) == ("3", "no")
    large = score(log(tmp_path / "large.jsonl", (1e9, 2.5e9)), "--format", "tex").stdout
    assert " 2500000000 " in large and " 1.0000 " in large


def test_every_output_of_score_has_the_columns_of_the_readme(score, tmp_path):
    readme = (Path(__file__).parent.parent / "README.md").read_text().split("| column of `score`")[1].split("\n\n")[0]
    names = {name for line in readme.splitlines()[2:] for name in line.split("|")[1].strip().split(", ")}
    for form in ("csv", "md", "tex"):
        head = next(line for line in score(MATH, "--format", form).stdout.splitlines() if "policy" in line)
        assert names <= set(re.findall(r"\w+", head))
    score(MATH, "--only", "--policy", "early_stop", "--out", tmp_path / "out")
    for name in ("scores", "scores_by_tree"):
        head = (tmp_path / "out" / "tables" / f"{name}.csv").read_text().splitlines()[0]
        assert {"attained", "opened", "unopened"} < set(head.split(","))


def test_the_betas_follow_from_the_scale_of_the_scores(score, tmp_path):
    path = log(tmp_path / "tree.jsonl", (100.0, 350.0), root={"score": -50.0})
    assert "beta1 0.8 (0.2 % of the range of the scores); beta2 2 (0.5 % of it)" in said(score(path).stdout)
    beyond = said(score(path, "--beta1", "30").stdout)
    assert "beta1 from 0 to 60, beta2 from 0 to 16 (" in beyond and "twice a given beta that lies beyond" in beyond


def test_a_log_without_width_and_rounds_says_what_was_used_instead(score, tmp_path):
    out = said(score(log(tmp_path / "foreign.jsonl", (1.0, 3.0, 2.0))).stdout)
    assert "width 8, since the record names none; --width sets another" in out
    assert "rounds: one attempt a round, since no rounds are recorded." in out
    assert "compare at --width 1 or --beta2 0" in out
    assert "NARROW: foreign.jsonl records 1 branch, and a width of 8 has room for more" in out
    assert "NARROW" not in score(tmp_path / "foreign.jsonl", "--width", "1").stdout


def test_negative_scores_and_mixed_tasks(score, tmp_path):
    paths = [log(tmp_path / "a", (-12e6, -11e6, -10e6)), log(tmp_path / "b", (0.1, 0.2, 0.3))]
    mixed = score(*paths).stdout
    assert "of different tasks, and raw scores were averaged" in said(mixed)
    assert rows(mixed)["parallel_refine"]["hits"] == "2"
    assert rows(mixed)["parallel_refine"]["quality"] == "-5e+06"
    ranged = score(*paths, "--normalise", "range").stdout
    assert "beta1 0.002 " in ranged and "raw scores were averaged" not in said(ranged)


@pytest.mark.parametrize("scores", [(2.0,), (2.0, 2.0, 2.0), (0.0, 0.0)])
def test_one_attempt_and_equal_scores(score, tmp_path, scores):
    done = score(log(tmp_path / "flat.jsonl", scores))
    out = said(done.stdout)
    assert done.returncode == 0
    assert "beta1 and beta2 are 0, so V is the quality alone." in out
    assert {row["unopened"] for row in rows(done.stdout).values()} == {"0"}


def test_the_betas_can_be_given_when_all_scores_are_equal(score, tmp_path):
    out = score(log(tmp_path / "flat.jsonl", (5.0, 5.0, 5.0)), "--beta1", "0.1").stdout
    assert "At beta1 0.1 and beta2 0 semantic_guidance wins" in said(out)  # it makes one attempt


def test_a_log_without_any_score_is_one_clear_error(score, tmp_path):
    path = tmp_path / "failed.jsonl"
    failure = {"branch": 0, "attempt": 0, "seq": 0, "score": None, "status": "error"}
    path.write_text("\n".join(map(json.dumps, [{"format": "dreamrsi.tree/1", "task": "t"}, failure])))
    done = subprocess.run(
        [sys.executable, "-m", "dreamrsi", "score", path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "failed.jsonl: no attempt has a score; the tree was left out" in done.stderr
    assert "there is nothing to score a policy on" in done.stderr
    assert "Traceback" not in done.stderr


def test_only_needs_a_policy(score):
    done = score(MATH, "--only")
    assert done.returncode == 2 and "name the policies with --policy" in done.stderr


POLICY = """
class Policy:
    name = "{name}"
    def start(self, width):
        self.width = width
    def choose(self, prefix):
        {body}
"""


def test_a_policy_file_is_scored_in_the_sandbox(score, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format(name="mine", body="return [-1] * self.width if not prefix.round else []"))
    done = score(MATH, "--policy", path, "--width", "3", "--width", "8", "--format", "csv")
    assert done.returncode == 0, done.stderr
    mine = [row for row in csv.DictReader(io.StringIO(done.stdout)) if row["policy"] == "mine"]
    assert [(row["width"], float(row["attempts"])) for row in mine] == [("3", 3), ("8", 8)]


def test_a_policy_file_whose_name_is_taken_is_named_after_the_file(score, tmp_path):
    paths = [tmp_path / folder / "policy.py" for folder in ("round-02", "round-03", "other/round-03")]
    for path, name in zip(paths, ("parallel_refine", "recorded", "recorded"), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(POLICY.format(name=name, body="return []"))
    extra = [word for path in paths for word in ("--policy", path)]
    done = score(MATH, *extra, "--only", "--policy", "parallel_refine", "--format", "csv")
    named = [row["policy"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert named == ["recorded", "round-02/policy.py", "round-03/policy.py", str(paths[2]), "parallel_refine"]
    twice = score(MATH, "--policy", "early_stop", "--policy", "early_stop:strikes=2")
    assert twice.returncode == 2 and "two rows would be named early_stop" in twice.stderr


def test_a_folder_that_cannot_be_is_said_before_the_work(score, tmp_path, monkeypatch):
    monkeypatch.setattr("dreamrsi.score_report.score_trees", None)  # nothing may have been scored by then
    file = log(tmp_path / "file", (1.0,))
    for out in (file, file / "deeper"):
        done = score(MATH, "--out", out)
        assert done.returncode == 2 and f"--out {out}: {file} is no folder that can be written to" in done.stderr


def test_out_writes_figures_tables_and_one_page_with_equal_bytes(score, tmp_path):
    digests = []
    for name in ("a", "b"):
        done = score(MATH, "--only", "--policy", "early_stop:width=4", "--out", tmp_path / name)
        assert f"{tmp_path / name / 'report.html'}: the page" in done.stdout
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        digests.append(
            {p.relative_to(tmp_path / name).as_posix(): hashlib.sha256(p.read_bytes()).digest() for p in files}
        )
    assert digests[0] == digests[1]
    drawn = ["tradeoff", "beta_map", "anytime", "tree"]
    written = ["scores", "scores_by_tree", "misses", "betas"]
    assert set(digests[0]) == {
        *(f"figures/{name}.{kind}" for name in drawn for kind in ("pdf", "svg", "png")),
        *(f"tables/{name}.{kind}" for name in written for kind in ("csv", "tex", "md")),
        "report.html",
    }
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(drawn)
    assert not re.search(r"(src|href)=\"(?!data:)", page) and "<script" not in page  # it needs nothing else
    assert str(CORPUS) not in page and str(tmp_path) not in page
    assert len(set(re.findall(r'<table id="(\w+)"', page))) == page.count("<table ")


@pytest.mark.slow
def test_pictures_of_one_attempt_of_negative_scores_and_of_many_trees(score, tmp_path):
    assert score(log(tmp_path / "one.jsonl", (2.0,)), "--out", tmp_path / "one").returncode == 0
    negative = [log(tmp_path / f"{place}.jsonl", (-5.0, -3.0, -4.0 - place)) for place in range(7)]
    assert score(*negative, "--only", "--policy", "early_stop", "--out", tmp_path / "many").returncode == 0
    page = (tmp_path / "many" / "report.html").read_text()
    assert page.count("<h3>") == 7 and page.count("<figure>") == 2 + 2 * 6
    assert "The first 6 of 7 trees are pictured." in page


@pytest.mark.slow
@pytest.mark.parametrize("forks", [False, True])
def test_a_hundred_thousand_attempts_take_seconds(score, tmp_path, forks):
    drawn = random.Random(0)
    lengths: list[int] = []
    lines = [{"format": "dreamrsi.tree/1", "task": "large"}]
    for seq in range(100_000):
        if not lengths or drawn.random() < (0.6 if forks else 0.01):
            origin = drawn.randrange(len(lengths)) if lengths and forks else None
            row = {"branch": len(lengths), "attempt": 0}
            if origin is not None:
                row["origin"] = [origin, drawn.randrange(lengths[origin])]
            lengths.append(1)
        else:
            branch = drawn.randrange(len(lengths))
            row = {"branch": branch, "attempt": lengths[branch]}
            lengths[branch] += 1
        failed = drawn.random() < 0.2
        lines.append(
            {**row, "seq": seq, "score": None if failed else drawn.random(), "status": "error" if failed else "ok"}
        )
    path = tmp_path / "large.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    began = time.process_time()
    done = score(path, "--out", tmp_path / "out")
    assert time.process_time() - began < 40  # about 8 where nothing else runs
    assert rows(done.stdout)["recorded"]["attempts"] == "100000.0"
    assert "too dense to be drawn" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "report.html").stat().st_size < 5_000_000
