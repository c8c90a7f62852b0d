"""The offline developer: its versions are new, valid, informed by what is known, and the same after an interruption."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi import synthetic
from dreamrsi.developers import DeveloperFailure, Request, Version
from dreamrsi.schedule import EARLY_STOP, PARALLEL_REFINE, Schedule, read, source
from dreamrsi.schedule_search import REVISIONS, ScheduleSearch, _compose, _locate, revised, schedule_of
from test_schedule import load, schedules

TREES = synthetic.committed("history")


def version(number, content, value, notes=None):
    return Version(number, None, content, hashlib.sha256(content).hexdigest(), value, (), notes or {})


def value_of(content):
    namespace = {}
    exec(content, namespace)
    episodes = [d.replay(namespace["Policy"](), tree, 8, 80) for tree in TREES]
    return d.value(episodes, beta1=synthetic.BETA1, beta2=synthetic.BETA2)


def ask(versions, folder, seed=None, base=None):
    best = max(versions, key=lambda v: (v.value, -v.number))
    number = len(versions)
    return Request(number, base or best, tuple(versions), {}, "Eq. 1", 8, number if seed is None else seed, folder)


def developed(versions, draft, value):
    return version(len(versions), draft.source, value, draft.notes)


def dreamt(first, count, folder, values=value_of):
    versions = [version(0, first, values(first))]
    while len(versions) < count:
        draft = ScheduleSearch().develop(ask(versions, folder))
        versions.append(developed(versions, draft, values(draft.source)))
    return versions


@given(schedules(), st.integers(0, 99))
def test_a_revision_is_a_schedule_that_emits_a_working_policy(schedule, seed):
    found = revised(schedule, random.Random(seed))
    assert found == revised(schedule, random.Random(seed))
    assert d.replay(load(found), TREES[0], 8).attempts > 0


@given(st.randoms(use_true_random=False))
def test_coordinates_and_schedules_go_back_and_forth(rng):
    schedule = _compose(lambda _, count: rng.randrange(count), 0.3)
    assert _compose(lambda name, _: _locate(schedule)[name], 0.3) == schedule


def test_versions_are_new_and_named_by_what_they_do(tmp_path):
    versions = dreamt(source(PARALLEL_REFINE, "parallel_refine"), 14, tmp_path)
    plain = [source(schedule_of(v), "policy") for v in versions]
    assert len(set(plain)) == 14
    for v in versions[1:]:
        schedule = Schedule.from_json(v.notes["schedule"])
        assert source(read(v.source), "policy") == source(schedule, "policy")
        assert v.notes["how"].startswith("version " if v.number <= REVISIONS else "sampled, told")
    assert list(tmp_path.iterdir()) == []


def test_the_first_versions_revise_the_base(tmp_path):
    base = Schedule(0.4, strikes=(2, 4), reopen=(0.5, 1.0), order="best")
    versions = [version(0, source(base, "mine"), 3.0)]
    for seed in range(20):
        found = schedule_of(developed(versions, ScheduleSearch().develop(ask(versions, tmp_path, seed)), 0.0))
        before, after = base.to_json(), found.to_json()
        assert found.beta == 0.4
        assert 1 <= sum(before[name] != after[name] for name in before) <= 3


def test_dreaming_on_the_synthetic_history_finds_better_policies(tmp_path):
    versions = dreamt(source(PARALLEL_REFINE, "parallel_refine"), 16, tmp_path)
    assert max(v.value for v in versions) > versions[0].value
    assert all(math.isfinite(v.value) for v in versions)


def test_the_sampler_learns_from_values(tmp_path):
    """Told that versions with early retirement are good and all others bad, it proposes more of them."""

    def proposals(sign):
        rng = random.Random(0)
        known = [version(0, source(PARALLEL_REFINE, "p"), -1.0 * sign)]
        for number in range(1, 40):
            schedule = _compose(lambda _, count: rng.randrange(count), 0.6)
            good = schedule.strikes is not None and schedule.strikes[0] <= 2
            known.append(version(number, source(schedule, f"v{number}"), sign * (1.0 if good else -1.0)))
        drafts = (ScheduleSearch().develop(ask(known, tmp_path, seed)) for seed in range(30))
        found = [read(draft.source) for draft in drafts]
        return sum(s.strikes is not None and s.strikes[0] <= 2 for s in found)

    assert proposals(1) > proposals(-1) + 10


def test_failed_versions_rank_below_all_others(tmp_path):
    """Were failures ignored, or taken for good ones, a rule that always fails would go on being proposed."""
    rng = random.Random(1)
    known = [version(0, source(PARALLEL_REFINE, "p"), 0.0)]
    for number in range(1, 40):
        schedule = _compose(lambda _, count: rng.randrange(count), 0.6)
        value = -math.inf if schedule.quiet is not None else rng.random()
        known.append(version(number, source(schedule, f"v{number}"), value))
    found = [read(ScheduleSearch().develop(ask(known, tmp_path, seed)).source) for seed in range(30)]
    assert sum(s.quiet is not None for s in found) <= 8
    only = [dataclasses.replace(v, value=-math.inf) for v in known]
    assert read(ScheduleSearch().develop(ask(only, tmp_path)).source) is not None


def test_an_interrupted_dream_goes_on_to_the_same_versions(tmp_path):
    whole = dreamt(source(EARLY_STOP, "early_stop"), 9, tmp_path)
    for kept in (1, 3, 6, 8):
        draft = ScheduleSearch().develop(ask(whole[:kept], tmp_path))  # a new object, as after a restart
        assert (draft.source, draft.notes) == (whole[kept].source, whole[kept].notes)
    other = ScheduleSearch().develop(ask(whole[:6], tmp_path, seed=999))
    assert other.source != whole[6].source


def test_a_first_policy_of_the_users_own_has_nothing_to_revise(tmp_path):
    versions = dreamt(b"class Policy:\n    pass\n", 12, tmp_path, lambda content: 9.0 if b"pass\n" in content else 1.0)
    found = [schedule_of(v) for v in versions]
    assert found[0] is None and found[1:3] == [PARALLEL_REFINE, EARLY_STOP]
    assert len({source(s, "policy") for s in found[1:]}) == 11
    # told of another developer's notes, it goes by the source
    odd = version(0, source(EARLY_STOP, "e"), 1.0, {"schedule": {"patience": 3}})
    assert schedule_of(odd) == EARLY_STOP
    assert schedule_of(version(0, source(EARLY_STOP, "e"), 1.0, {"schedule": PARALLEL_REFINE.to_json()})) == EARLY_STOP


def test_it_says_so_when_nothing_is_new(tmp_path, monkeypatch):
    monkeypatch.setattr("dreamrsi.schedule_search.revised", lambda schedule, rng: schedule)
    monkeypatch.setattr("dreamrsi.schedule_search._compose", lambda pick, beta: PARALLEL_REFINE)
    with pytest.raises(DeveloperFailure, match="proposed before"):
        ScheduleSearch().develop(ask([version(0, source(PARALLEL_REFINE, "p"), 0.0)], tmp_path))


def test_optuna_is_silent_loaded_late_and_left_as_it_was(tmp_path, capfd):
    import optuna

    level = optuna.logging.get_verbosity()
    filters = list(warnings.filters)
    dreamt(source(PARALLEL_REFINE, "p"), REVISIONS + 3, tmp_path)
    assert (optuna.logging.get_verbosity(), list(warnings.filters)) == (level, filters)
    assert capfd.readouterr() == ("", "")
    code = "import sys, dreamrsi, dreamrsi.schedule_search; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("line", ["MARGIN = ...  # later", "BETA = -  # later", "STRIKES = (, )  # later"])
def test_a_base_by_hand_whose_constants_are_no_numbers_is_a_base_without_a_schedule(line, tmp_path):
    by_hand = f'{line}\n\n\nclass Policy:\n    name = "mine"\n    beta = 0.5\n'.encode()
    draft = ScheduleSearch().develop(ask([version(0, by_hand, 1.0)], tmp_path))
    assert read(draft.source) is not None and draft.notes["how"].endswith("the base has no schedule")


@pytest.mark.parametrize("count", [4, 9])
def test_ranks_instead_of_values_change_nothing(count, tmp_path):
    """Where values would give away what was not revealed, dreaming hands out ranks."""
    versions = dreamt(source(PARALLEL_REFINE, "parallel_refine"), count, tmp_path)
    versions.append(version(count, versions[1].source + b"#", -math.inf))
    levels = sorted({v.value for v in versions if math.isfinite(v.value)})
    assert len(levels) > 1
    ranked = [
        dataclasses.replace(v, value=1.0 + levels.index(v.value)) if math.isfinite(v.value) else v for v in versions
    ]
    assert ScheduleSearch().develop(ask(ranked, tmp_path)) == ScheduleSearch().develop(ask(versions, tmp_path))
