"""The plan of a study says what is wrong in it before anything runs."""

import pytest

from dreamrsi.errors import UserError
from dreamrsi.plan import load_plan
from notebook_fixtures import write_notebook, write_plan

PLAN = """
[01_a]
outputs = ["figures/one", "tables/two", "trees/three.jsonl"]
deadline = { quick = 30, full = 3600 }
quick = { trials = 3 }
full = { trials = 200 }

[02_b]
needs = ["01_a"]
"""


def checkout(root, plan=PLAN):
    write_notebook(root / "notebooks" / "01_a.ipynb", parameters="out = None\ntrials = 1\nseed = 0")
    write_notebook(root / "notebooks" / "02_b.ipynb", parameters="seed = 0")
    write_plan(root, plan)
    return root


def test_a_plan(tmp_path):
    first, second = load_plan(checkout(tmp_path), "quick")
    assert first.outputs[:2] == ("figures/one.pdf", "figures/one.svg")
    assert first.outputs[3:] == ("tables/two.csv", "tables/two.tex", "tables/two.md", "trees/three.jsonl")
    assert (first.deadline, first.parameters, first.takes_out) == (30.0, {"trials": 3}, True)
    assert (second.deadline, second.needs, second.takes_out) == (600.0, ("01_a",), False)
    assert load_plan(tmp_path, "full")[0].parameters == {"trials": 200}


def test_only_and_overrides(tmp_path):
    checkout(tmp_path)
    assert [step.name for step in load_plan(tmp_path, "quick", only=["02"])] == ["02_b"]
    both = load_plan(tmp_path, "quick", overrides={"seed": 5, "01_a.trials": 9})
    assert [step.parameters for step in both] == [{"trials": 9, "seed": 5}, {"seed": 5}]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"only": ["03_b"]}, "no notebook '03_b'.*did you mean '02_b'"),
        ({"overrides": {"sed": 1}}, "no selected notebook has a parameter 'sed'; did you mean 'seed'"),
        ({"overrides": {"02_b.trials": 1}}, "02_b has no parameter 'trials'"),
        ({"overrides": {"out": "x"}}, "out is set by the study"),
        ({"overrides": {"01_a.trials": "many"}}, "must be int"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        load_plan(checkout(tmp_path), "quick", **options)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("needs =", "nedes =", "unknown key 'nedes'; did you mean 'needs'"),
        ('needs = ["01_a"]', 'needs = ["02_b"]', "needs '02_b', which is no notebook before it"),
        ('needs = ["01_a"]', 'needs = "01_a"', "must be a list of strings"),
        ("quick = 30", "quick = 0", "must be a number of seconds"),
        ("quick = 30, ", "", "deadline of profile quick is None"),
        ("trials = 3", "trails = 3", "did you mean 'trials'"),
        ("figures/one", "/figures/one", "must be a path in a folder of the export"),
        ("[02_b]\n", '[02_b]\noutputs = ["figures/one"]\n', "01_a and 02_b both declare the output 'figures/one'"),
        ("figures/one", "one", "must be a path in a folder of the export"),
        ("[02_b]", "[02_c]", "cannot read the notebook"),
        ("[02_b]\n", '[02_b]\noutputs = ["figures/x"]\n', "no parameter out = None"),
        ("[02_b]", "[02_b", "study.toml"),
    ],
)
def test_a_wrong_plan(tmp_path, old, new, message):
    assert old in PLAN
    with pytest.raises(UserError, match=message):
        load_plan(checkout(tmp_path, PLAN.replace(old, new)), "quick")


def test_profiles(tmp_path):
    with pytest.raises(UserError, match="no profile 'quik'; did you mean 'quick'"):
        load_plan(checkout(tmp_path), "quik")
    with pytest.raises(UserError, match="cannot read the plan"):
        load_plan(tmp_path / "elsewhere", "quick")
