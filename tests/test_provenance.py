"""Whoever holds an exported file finds what it was made from, by which code, and on which machine."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from dreamrsi import provenance, study
from dreamrsi.errors import UserError
from dreamrsi.study import run_study
from notebook_fixtures import fake_study, write_notebook, write_plan


@pytest.fixture
def fake(tmp_path, monkeypatch):
    fake = fake_study(tmp_path, monkeypatch)
    (tmp_path / "data.txt").write_text("data")
    write_plan(tmp_path, '[01_a]\ninputs = ["data.txt"]\noutputs = ["tables/a"]\nquick = { n = 2 }\n[02_b]\n[03_c]\n')
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", parameters="out = None\nn = 1\nseed = 7")
    return fake


def read(out):
    return json.loads((out / "provenance.json").read_text())


def test_an_exported_file_leads_to_its_facts(fake):
    out = run_study(root=fake.root).out
    facts = provenance.of(out / "tables" / "a.csv")
    assert (facts["file"], facts["notebook"], facts["profile"]) == ("tables/a.csv", "01_a", "quick")
    assert (facts["parameters"], facts["seed"]) == ({"n": 2, "seed": 7}, 7)
    assert facts["inputs"] == {"data.txt": "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"}
    assert set(facts["run"]) == {"commit", "dirty", "started", "seconds", "environment", "code"}
    machine = facts["run"]["environment"]
    assert machine["packages"]["numpy"] and machine["cpus"] and machine["platform"] and machine["python"]
    assert machine["blas"] and "OMP_NUM_THREADS" in machine["threads"] and isinstance(machine["gpus"], list)


def test_the_published_files_lead_to_their_facts_too(fake, tmp_path):
    out = run_study("full", root=fake.root).out
    figures = fake.root / "figures"
    assert provenance.of(figures / "a.md") == provenance.of(out / "tables" / "a.md")
    copy = tmp_path / "paper" / "table-1.md"
    copy.parent.mkdir()
    shutil.copy(figures / "a.md", copy)
    assert provenance.of(copy, figures)["file"] == "tables/a.md"
    with pytest.raises(UserError, match="there is no manifest.json at"):
        provenance.of(copy)
    copy.write_text("by hand")
    with pytest.raises(UserError, match="was changed, or made elsewhere"):
        provenance.of(copy, figures)
    with pytest.raises(UserError, match="there is no file"):
        provenance.of(figures / "b.md")
    (figures / "provenance.json").unlink()
    assert provenance.of(figures / "a.md")["run"] is None


def test_a_file_of_the_committed_export_leads_to_its_notebook():
    assert provenance.of(Path(__file__).parent.parent / "figures" / "beta_map.pdf")["notebook"] == "04_beta_map"


def test_an_entry_stays_as_long_as_its_results(fake, monkeypatch):
    out = run_study(root=fake.root).out
    first = read(out)
    monkeypatch.setattr(provenance, "environment", lambda: {"machine": "another"})
    run_study(root=fake.root, only=["03"], force=True)
    second = read(out)
    assert {name: second["notebooks"][name] for name in ("01_a", "02_b")} == {
        name: first["notebooks"][name] for name in ("01_a", "02_b")
    }
    assert len(second["environments"]) == 2 and provenance.of(out / "tables" / "a.md")["run"]["environment"]["cpus"]
    run_study(root=fake.root)  # all cached
    assert read(out) == second

    def interrupt(where):
        raise KeyboardInterrupt

    good, fake.behaviour["01_a"] = fake.behaviour["01_a"], interrupt
    with pytest.raises(KeyboardInterrupt):
        run_study(root=fake.root, force=True)
    assert set(read(out)["notebooks"]) == {"02_b", "03_c"}
    fake.behaviour["01_a"] = good
    run_study(root=fake.root)
    run_study(root=fake.root, only=["02"], force=True)
    assert list(read(out)["environments"].values()) == [{"machine": "another"}]  # the first is needed no longer
    (out / "tables" / "a.csv").write_text("changed by hand")
    run_study(root=fake.root, only=["03"])
    assert set(read(out)["notebooks"]) == {"02_b", "03_c"}


def test_the_manifest_knows_neither_time_nor_machine(fake, monkeypatch):
    first = (run_study(root=fake.root).out / "manifest.json").read_bytes()
    monkeypatch.setattr(provenance, "environment", lambda: {"machine": "another"})
    monkeypatch.setattr(provenance, "_git", lambda root, *arguments: "other")
    assert (run_study(root=fake.root, force=True).out / "manifest.json").read_bytes() == first


def test_commit_and_dirty_flag(fake):
    def git(*arguments):
        name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        done = subprocess.run(["git", "-C", fake.root, *name, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (fake.root / ".gitignore").write_text("/runs/\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    out = run_study("full", root=fake.root).out
    run = read(out)["notebooks"]["01_a"]
    assert (run["commit"], run["dirty"]) == (git("rev-parse", "HEAD"), False)
    run_study("full", root=fake.root, force=True)
    assert read(out)["notebooks"]["01_a"]["dirty"] is False  # what was published has made nothing
    (fake.root / "data.txt").write_text("other")
    run_study("full", root=fake.root)
    assert read(out)["notebooks"]["01_a"]["dirty"] is True
    assert read(out)["notebooks"]["02_b"]["dirty"] is False  # it was not run again


def test_a_gpu_is_named_and_one_that_does_not_answer_costs_a_second(tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command.write_text("#!/bin/sh\necho 'NVIDIA X, 1.2, 3 MiB'\n")
    command.chmod(0o755)
    assert provenance._gpus() == ["NVIDIA X, 1.2, 3 MiB"]
    command.write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    assert provenance._gpus() == [] and time.monotonic() - start < 5
    command.write_text("#!/bin/sh\nexit 9\n")
    assert provenance._gpus() == []


def test_without_git(fake, monkeypatch):
    monkeypatch.setattr(provenance, "_git", lambda root, *arguments: None)
    run = read(study.run_study(root=fake.root).out)["notebooks"]["01_a"]
    assert (run["commit"], run["dirty"]) == (None, None)
