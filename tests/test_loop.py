"""The recursion: both arms begin alike, later rounds build on earlier ones, and what was scored is what runs."""

from __future__ import annotations

import json
import subprocess

import pytest

import dreamrsi as d
from dreamrsi import dreaming, policies
from dreamrsi.command_agent import CommandAgent
from dreamrsi.commands import Command
from dreamrsi.developers import Draft
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.loop import Watch, recursion
from dreamrsi.policy_file import Deployed, starting_policy
from dreamrsi.sandbox import SandboxedPolicy
from loop_fixtures import SMALL, Stopper, content, files, run, tree_content
from toy_task import Toy, climb, fail, spoil


@pytest.fixture(name="dreamt", scope="module")
def dreamt_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("dream") / "run"
    return run(out, guidance=True, beta1=1.0, beta2=0.0), out


@pytest.fixture(name="fixed", scope="module")
def fixed_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("fixed") / "run"
    return run(out, "fixed", guidance=True), out


def test_round_1_is_the_same_in_both_arms_by_construction(dreamt, fixed):
    one, other = dreamt[0].rounds[0], fixed[0].rounds[0]
    assert one.policy == other.policy and one.name == other.name == "parallel_refine"
    assert tree_content(one.tree) == tree_content(other.tree)  # commits, and so all files, included
    assert (dreamt[1] / "round-01/policy.py").read_bytes() == one.policy.source


def test_the_fixed_arm_never_changes_its_policy(fixed):
    assert len({round_.policy.sha256 for round_ in fixed[0].rounds}) == 1
    assert not list(fixed[1].rglob("dream.json"))
    assert [len(round_.tree) for round_ in fixed[0].rounds] == [9, 9, 9]  # 3 workspaces at width 3, 3 steps


def test_the_dreaming_arm_deploys_what_it_scored(dreamt):
    found, out = dreamt
    for number, round_ in enumerate(found.rounds[1:], 2):
        dream = round_.dream
        assert dream.selected.value >= dream.versions[0].value
        folder = out / f"round-{number:02}"
        assert (folder / "policy.py").read_bytes() == dream.selected.source == round_.policy.source
        assert json.loads((folder / "dream.json").read_bytes())
        assert round_.tree.header.provenance["policy_sha256"] == dream.selected.sha256
        assert round_.tree.header.policy == round_.name
        assert dream.versions[0].source == found.rounds[number - 2].policy.source  # the current one is a candidate
    assert [round_.name for round_ in found.rounds][1:] == ["stopper", "stopper"]  # attempts are dear here
    assert len(found.rounds[0].tree) == 9 > len(found.rounds[2].tree)


def test_every_round_replays_pick_for_pick(dreamt, fixed):
    for found, _ in (dreamt, fixed):
        for round_ in found.rounds:
            with SandboxedPolicy(round_.policy.source) as policy:
                episode = d.replay(policy, round_.tree, width=3)
            assert episode.picks == round_.tree.picks


def test_later_rounds_start_at_the_best_so_far(fixed, tmp_path):
    found, out = fixed
    best = found.rounds[0].tree.root
    for before, round_ in zip(found.rounds, found.rounds[1:], strict=False):
        best = max(best, before.tree.best)
        assert round_.tree.root == best
        place = round_.tree.header.provenance["start"]
        source = found.rounds[place["round"] - 1].tree.branches[place["branch"]][place["attempt"]]
        assert source.score == best
        first = round_.tree.branches[0][0]
        if first.commit is not None:
            assert parent(out, first.commit) == source.commit
    assert found.best == max(round_.tree.best for round_ in found.rounds)
    assert found.attempts == 27

    again = run(tmp_path / "run", "fixed", start="seed")
    assert [round_.tree.root for round_ in again.rounds] == [1.0] * 3
    scores = [[attempt.score for attempt in round_.tree] for round_ in again.rounds]
    assert scores[0] != scores[1] != scores[2]  # other seeds, not the same round again


def parent(out, commit):
    command = ["git", "--git-dir", out / "workspaces.git", "rev-parse", f"{commit}^"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_guidance_is_told_from_the_second_round_on(dreamt):
    found, out = dreamt
    assert found.rounds[0].guidance is None and not (out / "round-01/guidance.json").exists()
    for number, round_ in enumerate(found.rounds[1:], 2):
        told = json.loads((out / f"round-{number:02}/guidance.json").read_bytes())
        assert told["recommended"] == round_.guidance.recommended == round_.tree.header.recommended == "climb"
        assert told["weights"]["climb"] > 1 > told["weights"]["fail"]


def test_runs_are_equal_whatever_the_folder_and_the_workers(dreamt, tmp_path):
    again = run(tmp_path / "elsewhere", guidance=True, beta1=1.0, beta2=0.0, workers=1)
    assert content(again) == content(dreamt[0])
    assert files(tmp_path / "elsewhere") == files(dreamt[1])


def test_a_finished_run_is_read_again_and_goes_on_if_asked(tmp_path):
    out = tmp_path / "run"
    first = run(out, rounds=1)
    before = (out / "round-01/tree.jsonl").read_bytes()
    longer = run(out, rounds=2)
    assert (out / "round-01/tree.jsonl").read_bytes() == before
    assert content(longer)[:1] == content(first)
    assert json.loads((out / "config.json").read_bytes())["rounds"] == 2
    assert content(run(out, rounds=2, developer=Mute())) == content(longer)  # nobody is asked
    assert len(run(out, rounds=1).rounds) == 1
    assert json.loads((out / "config.json").read_bytes())["rounds"] == 2


class Mute(Stopper):
    def develop(self, request):
        raise AssertionError("asked again")


def test_other_settings_are_refused(tmp_path):
    out = tmp_path / "run"
    run(out, rounds=1)
    with pytest.raises(UserError, match="arm was 'dream' and is now 'fixed'"):
        run(out, "fixed", rounds=1)
    with pytest.raises(UserError, match="versions was 3 and is now 4"):
        run(out, rounds=1, versions=4)
    with pytest.raises(UserError, match="policy_sha256 was"):
        run(out, rounds=1, policy=starting_policy("early_stop"))


def test_a_policy_that_was_edited_does_not_run(tmp_path):
    out = tmp_path / "run"
    run(out, rounds=2)
    path = out / "round-02/policy.py"
    path.write_bytes(path.read_bytes() + b"# better\n")
    with pytest.raises(UserError, match="round-02/policy.py: is not what this run wrote there"):
        run(out, rounds=2)


def test_a_round_without_any_score_is_not_dreamt_on(tmp_path):
    found = run(tmp_path / "run", rounds=2, task=Toy(fail))
    assert found.rounds[1].dream is None and found.rounds[1].policy == found.rounds[0].policy
    assert found.best == 1.0  # the seed's


def test_a_round_that_only_made_things_worse_leaves_the_start_where_it_was(tmp_path):
    found = run(tmp_path / "run", "fixed", task=Toy(spoil))
    assert [round_.tree.root for round_ in found.rounds] == [1.0] * 3
    assert all(round_.tree.header.provenance["start"] is None for round_ in found.rounds)


class Broken:
    """A developer whose versions fail in every way; the last one works in replay and not in the live run."""

    name = "broken"

    def develop(self, request):
        if request.number == 1:
            raise RuntimeError("no idea")
        return Draft(b"class Policy:\n def start(self, width): pass\n def choose(self, prefix): return [7]\n")


def test_a_developer_that_fails_costs_the_dream_and_not_the_run(tmp_path):
    found = run(tmp_path / "run", rounds=2, developer=Broken())
    dream = found.rounds[1].dream
    assert [version.error is None for version in dream.versions] == [True, False, False]
    assert dream.selected.number == 0 and found.rounds[1].policy == found.rounds[0].policy
    assert len(found.rounds[1].tree) > 0


def test_a_deployed_policy_that_breaks_its_contract_leaves_a_record(tmp_path):
    bad = Deployed(
        b"class Policy:\n"
        b"    def start(self, width): pass\n"
        b"    def choose(self, prefix): return [-1] if not prefix.round else [9]\n"
    )
    with pytest.raises(PolicyError, match="round 1, pick 0"):
        run(tmp_path / "run", "fixed", policy=bad)
    assert len(d.Tree.load(tmp_path / "run/round-01/tree.jsonl")) == 1


@pytest.mark.parametrize("text", [*policies.BUILTIN, "early_stop:strikes=3,width=2", "random:seed=4"])
def test_a_built_in_policy_as_a_file_makes_the_same_picks(text):
    given = starting_policy(text)
    tree = d.Tree.load("synthetic/history/late-6a.jsonl")
    with SandboxedPolicy(given.source) as policy:
        assert policy.name == policies.make(text).name
        assert d.replay(policy, tree).picks == d.replay(policies.make(text), tree).picks


def test_bad_settings_are_named_before_anything_is_written(tmp_path, monkeypatch):
    wrong = [{"arm": "both"}, {"rounds": 0}, {"workspaces": 1.5}, {"versions": 0}, {"timeout": 0}, {"width": -1}]
    for settings in [*wrong, {"workers": 0}, {"max_rounds": 0}]:
        with pytest.raises(UserError, match=next(iter(settings))):
            recursion(Toy(), tmp_path / "run", **{**SMALL, **settings})
    for settings in ({"start": "middle"}, {"plan": "mine"}, {"objective": "best"}, {"revise": "none"}):
        with pytest.raises(UserError, match=next(iter(settings))):
            recursion(Toy(), tmp_path / "run", arm="dream", **{**SMALL, **settings})
    for beta1 in (float("inf"), float("nan")):
        with pytest.raises(UserError, match="beta1"):
            recursion(Toy(), tmp_path / "run", arm="dream", **SMALL, beta1=beta1)
    with pytest.raises(UserError, match="timeout is inf"):
        recursion(Toy(), tmp_path / "run", **{**SMALL, "timeout": float("inf")})
    with pytest.raises(PolicyError, match="SyntaxError"):
        recursion(Toy(), tmp_path / "run", **SMALL, policy=Deployed(b"class Policy"))
    with pytest.raises(UserError, match=r"nowhere.py: cannot be read \(No such file or directory\)"):
        starting_policy("nowhere.py")
    with pytest.raises(UserError, match="there is no policy 'best'"):
        starting_policy("best")
    with pytest.raises(UserError, match="this task has no program for a command to edit"):
        run(tmp_path / "run", agent=CommandAgent(Command("sh", 1.0)))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="git was not found"):
        recursion(Toy(), tmp_path / "run", **SMALL)
    assert not list(tmp_path.iterdir())


class Notes(Watch):
    def __init__(self):
        self.told = []

    def begun(self, number, policy, total, there):
        self.told.append(("begun", number, policy, total, there))

    def attempt(self, done, total, attempt):
        self.told.append(("attempt", done, total))

    def dreaming(self, number):
        self.told.append(("dreaming", number))

    def dreamt(self, number, dream):
        self.told.append(("dreamt", number, len(dream.versions)))

    def ended(self, round_):
        self.told.append(("ended", round_.number))


def test_the_watch_is_told_in_order(tmp_path):
    notes = Notes()
    run(tmp_path / "run", rounds=2, task=Toy(climb), watch=notes)
    heads = [told for told in notes.told if told[0] != "attempt"]
    assert heads[:3] == [("begun", 1, "parallel_refine", 12, 0), ("ended", 1), ("dreaming", 2)]
    assert heads[3] == ("dreamt", 2, 3) and heads[4][:2] == ("begun", 2) and heads[5] == ("ended", 2)
    attempts = [told for told in notes.told if told[0] == "attempt"]
    assert attempts[:9] == [("attempt", done, 12) for done in range(1, 10)]
    again = Notes()
    run(tmp_path / "run", rounds=2, task=Toy(climb), watch=again)
    assert again.told[0] == ("begun", 1, "parallel_refine", 12, 9)
    assert not any(told[0] == "attempt" for told in again.told)


class Planner:
    """A developer whose policy asks for another grid, within the caps or beyond them."""

    name = "planner"

    def __init__(self, branches, steps):
        self.plan = {"branches": branches, "steps": steps, "reason": "a hunch"}

    def develop(self, request):
        made = starting_policy("parallel_refine:width=1").source.decode()
        return Draft(f"{made}\n    def plan_grid(self, summaries):\n        return {self.plan}\n".encode())


def test_a_policy_may_plan_the_grid_within_the_attempts_of_a_round(tmp_path):
    given = {"beta1": 1.0, "beta2": 0.0, "rounds": 2}  # attempts are dear: its version wins
    found = run(tmp_path / "wide", developer=Planner(6, 2), **given)
    assert found.rounds[1].dream.selected.number == 1
    plan = found.rounds[1].plan
    assert (plan.branches, plan.steps, plan.reason) == (6, 2, "a hunch")
    assert (found.rounds[1].tree.header.branches, found.rounds[1].tree.header.steps) == (6, 2)
    assert json.loads((tmp_path / "wide/round-02/round.json").read_bytes())["plan"]["branches"] == 6

    greedy = run(tmp_path / "greedy", developer=Planner(6, 3), **given)  # 18 attempts, a round has 12
    plan = greedy.rounds[1].plan
    assert (plan.branches, plan.steps) == (4, 3) and "the budget is 12; the present grid stays" in plan.reason

    fixed = run(tmp_path / "none", developer=Planner(6, 2), plan="none", **given)
    assert fixed.rounds[1].tree.header.branches == 4

    ruled = run(tmp_path / "rule", developer=Planner(6, 2), plan="rule", **given)
    assert ruled.rounds[1].plan.reason.partition(":")[0] in ("keep", "widen", "deepen", "shrink")


def test_the_sweep_score_sets_the_knob_between_rounds(tmp_path):
    found = run(tmp_path / "run", developer=None, objective="sweep", rounds=4)
    assert [round_.beta is None for round_ in found.rounds] == [True, False, False, False]
    notes = [json.loads((tmp_path / f"run/round-0{n}/round.json").read_bytes()) for n in (1, 2, 3, 4)]
    assert notes[0]["beta"] is None
    assert notes[1]["beta"] == [0.6, "1 rounds are too few to go by"]
    assert [note["beta"][0] for note in notes[1:]] == [round_.beta for round_ in found.rounds[1:]]
    for round_ in found.rounds[1:]:  # the knob is part of what is replayed
        with SandboxedPolicy(round_.policy.source) as policy:
            policy.beta = round_.beta
            assert d.replay(policy, round_.tree, width=3).picks == round_.tree.picks


class Trap:
    """A developer whose policy works on the trees so far and breaks where the root is better than theirs."""

    name = "trap"

    def develop(self, request):
        made = starting_policy("parallel_refine:width=1").source.decode()
        trap = "return [99] if prefix.root > 1.5 else super().choose(prefix)"
        return Draft(f"{made}\n    def choose(self, prefix):\n        {trap}\n".encode(), {"trap": True})


@pytest.mark.filterwarnings("ignore:round-02. no attempt has a score")
def test_a_developed_policy_that_breaks_in_the_live_run_costs_its_round_only(tmp_path):
    given = {"developer": Trap(), "task": Toy(climb), "beta1": 1.0, "beta2": 0.0, "versions": 2}
    found = run(tmp_path / "run", **given)
    second, third = found.rounds[1:]
    assert second.dream.selected.number == 1 and "round 0, pick 0: branch 99" in second.failure
    assert len(second.tree) == 0 and found.rounds[0].failure is None
    assert third.dream.current.source == found.rounds[0].policy.source  # what worked before, not what broke
    assert json.loads((tmp_path / "run/round-02/failure.json").read_bytes())["error"] == second.failure
    assert content(run(tmp_path / "run", **given)) == content(found)  # and the round is not tried again
    (tmp_path / "run/round-02/failure.json").write_text("[]")
    with pytest.raises(UserError, match="round-02/failure.json: is not what this run wrote there"):
        run(tmp_path / "run", **given)


def sink(files, seed):
    return {**files, "value": repr(float(files["value"]) - 1).encode()}


def test_a_worse_candidate_is_no_start(tmp_path):
    found = run(tmp_path / "run", "fixed", task=Toy(sink))
    assert all(attempt.score < 1 for round_ in found.rounds for attempt in round_.tree)
    assert [round_.tree.root for round_ in found.rounds] == [1.0] * 3
    assert {round_.tree.header.provenance["start"] for round_ in found.rounds} == {None}
    assert parent(tmp_path / "run", found.rounds[2].tree.branches[0][0].commit) == parent(
        tmp_path / "run", found.rounds[0].tree.branches[0][0].commit
    )


def test_what_a_dream_is_given(tmp_path):
    out = tmp_path / "run"
    found = run(out, max_rounds=2, revise="latest")
    assert [len(round_.tree.batches) for round_ in found.rounds] == [2, 2, 2]
    dreams = [json.loads((out / f"round-0{number}/dream.json").read_bytes())["settings"] for number in (2, 3)]
    first = d.scaled_betas([found.rounds[0].tree])
    assert first != d.scaled_betas([found.rounds[1].tree])
    assert [(dream["beta1"], dream["beta2"]) for dream in dreams] == [first, first]  # one scale for all rounds
    assert dreams[0]["seed"] != dreams[1]["seed"]
    assert {dream["max_rounds"] for dream in dreams} == {2} and {dream["revise"] for dream in dreams} == {"latest"}


def test_the_knob_goes_on_from_where_it_was_with_the_best_so_far(tmp_path, monkeypatch):
    asked = []

    def next_beta(beta, bests, sweep):
        asked.append((beta, bests))
        return beta + 0.1, "told to"

    monkeypatch.setattr(dreaming, "next_beta", next_beta)
    found = run(tmp_path / "run", "dream", objective="sweep", rounds=4, start="seed", task=Toy(climb))
    assert [round(beta, 9) for beta, _ in asked] == [0.6, 0.7, 0.8]
    bests = [round_.tree.best for round_ in found.rounds]
    assert [told for _, told in asked] == [[max(bests[: k + 1]) for k in range(n)] for n in (1, 2, 3)]


@pytest.mark.parametrize("name", [".config.json.ab12cd_9", "round-01/.policy.py.ab12cd_9"])
def test_what_a_kill_left_of_a_write_is_removed(tmp_path, name):
    path = tmp_path / "run" / name
    if "round" in name:
        run(tmp_path / "run", rounds=1)
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    assert len(run(tmp_path / "run", rounds=1).rounds) == 1
    assert not path.exists()
