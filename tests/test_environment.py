"""The files that describe the project agree with each other."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dreamrsi

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def requirements():
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    return [r for r in map(Requirement, texts) if r.name != PROJECT["name"]]  # test asks for the project's own extra


def locked():
    """The pins of constraints.txt: name -> [(version, marker)]."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.lstrip().startswith("#"):
            pin = Requirement(line)
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def test_conda_installs_what_the_makefile_installs():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    constraint, editable = pip
    assert constraint == "-c constraints.txt"
    extras = re.fullmatch(r"-e \.\[([\w,]+)\]", editable).group(1).split(",")
    assert set(extras) <= set(EXTRAS)
    makefile = (ROOT / "Makefile").read_text()
    assert f"{constraint} -e '.[{','.join(extras)}]'" in makefile
    assert f"python{PROJECT['requires-python']}" in environment["dependencies"]
    assert "not run by us" in (ROOT / "environment.yml").read_text().lower()


def test_every_requirement_is_locked_within_its_range_and_is_a_range():
    pins = locked()
    for requirement in requirements():
        assert all(part.operator != "==" for part in requirement.specifier), requirement
        assert canonicalize_name(requirement.name) in pins, requirement
        for pin in pins[canonicalize_name(requirement.name)]:
            (version,) = [part.version for part in pin.specifier]
            assert requirement.specifier.contains(version), (requirement, pin)


def test_the_lock_and_the_project_name_no_place_on_a_machine():
    for name in ("constraints.txt", "pyproject.toml", "Makefile", "environment.yml", ".ci/run"):
        text = (ROOT / name).read_text()
        assert not re.search(r"file://|(?<![\w.])/(opt|home|root|work|Users)/", text), name
    assert "pins.in" not in (ROOT / "constraints.txt").read_text()


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == dreamrsi.__version__ == PROJECT["version"]
    assert metadata.version(PROJECT["name"]) == PROJECT["version"]


def test_the_citation_has_what_the_format_asks():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= set(citation)
    assert citation["authors"] == [{"name": "the dreamrsi authors"}]
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper) and paper["identifiers"][0]["value"] == "arXiv:2609.14858"
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert "2026 the dreamrsi authors" in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("target", ["study", "test", "lint", "lab", "bench"])
def test_make_knows_its_targets(target):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ".venv/bin/" in done.stdout


def test_make_says_which_python_it_needs(tmp_path):
    fake = tmp_path / "python3.9"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(["make", "study", f"PY={fake}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "needs Python 3.11 or newer" in done.stderr and not (tmp_path / ".venv").exists()
