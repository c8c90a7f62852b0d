"""The policy template: what it emits does what the schedule says."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.sandbox import replay_sandboxed
from dreamrsi.schedule import EARLY_STOP, PARALLEL_REFINE, Schedule, read, source
from strategies import tree_of, trees, universes

LEVELS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


def pairs(values):
    return st.tuples(values, values).map(lambda pair: tuple(sorted(pair)))


def fractions(low, high):
    return st.floats(low, high).map(lambda value: round(value, 2))


@st.composite
def schedules(draw):
    def perhaps(strategy):
        return draw(st.one_of(st.none(), strategy))

    return Schedule(
        beta=draw(fractions(0, 1)),
        bootstrap=draw(pairs(fractions(0.05, 2))),
        width=draw(pairs(fractions(0.05, 1))),
        narrow=draw(st.one_of(st.just(1.0), fractions(0.2, 1))),
        order=draw(st.sampled_from(["opened", "best", "last"])),
        strikes=perhaps(pairs(st.integers(1, 4))),
        reopen=perhaps(pairs(fractions(0.05, 2))),
        repairs=perhaps(pairs(st.integers(0, 3))),
        quiet=perhaps(pairs(st.integers(1, 5))),
        fade=draw(fractions(0, 2)),
        drift=draw(st.one_of(st.just(0.0), fractions(-0.5, 0.5))),
    )


def load(schedule, beta=None, name="emitted"):
    namespace = {}
    exec(source(schedule, name), namespace)
    policy = namespace["Policy"]()
    if beta is not None:
        policy.beta = beta
    return policy


@pytest.mark.parametrize(
    ("schedule", "builtin"), [(PARALLEL_REFINE, d.policies.ParallelRefine), (EARLY_STOP, d.policies.EarlyStop)]
)
@given(tree=trees(), width=st.integers(1, 9), beta=LEVELS)
def test_the_presets_are_the_built_in_policies_pick_for_pick(schedule, builtin, tree, width, beta):
    emitted, ours = (d.replay(p, tree, width, 200) for p in (load(schedule, beta), builtin()))
    assert (emitted.picks, emitted.reveals, emitted.reason) == (ours.picks, ours.reveals, ours.reason)


@settings(max_examples=300)
@given(schedules(), st.one_of(trees(), universes()), LEVELS, st.integers(1, 9))
def test_every_emitted_policy_ends_by_itself_is_deterministic_and_legal(schedule, tree, beta, width):
    limit = 20 * (len(tree) + 2)  # far more rounds than there are attempts
    first = d.replay(load(schedule, beta), tree, width, limit)  # raises at an illegal pick
    policy = load(schedule, beta)
    assert first.reason in ("stopped", "complete")
    assert d.replay(policy, tree, width, limit) == first
    assert d.replay(policy, tree, width, limit) == first  # the same object, started again
    assert first.attempts > 0


@given(schedules(), st.lists(st.floats(-5, 5), min_size=1, max_size=12), LEVELS, LEVELS, st.integers(1, 16))
def test_a_higher_beta_never_gives_a_smaller_threshold(schedule, bests, one, other, width):
    low, high = load(schedule, min(one, other)), load(schedule, max(one, other))

    class Seen:
        round = 0
        best = float("-inf")

    low.start(width), high.start(width)
    for round_, best in enumerate(bests):
        Seen.round, Seen.best = round_, max(Seen.best, best)
        for policy in (low, high):
            if hasattr(policy, "notice"):
                policy.notice(Seen)
        below, above = low.schedule(), high.schedule()
        assert below.keys() == above.keys()
        assert all(below[name] <= above[name] for name in below)


@given(schedules(), st.sampled_from([0.25, 4.0, 1024.0]), trees(), LEVELS)
def test_only_the_order_of_scores_matters(schedule, factor, tree, beta):
    chains = [[None if a.score is None else a.score * factor for a in branch] for branch in tree.branches]
    plain = [[a.score for a in branch] for branch in tree.branches]
    one, other = (d.replay(load(schedule, beta), tree_of(c), 4, 200) for c in (plain, chains))
    assert one.picks == other.picks


@given(schedules())
def test_a_schedule_survives_json_and_its_own_source(schedule):
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule
    written = source(schedule, "schedule-7")
    found = read(written)
    assert found is not None and source(found, "schedule-7") == written
    assert d.replay(load(found), tree_of([[1.0, 2.0, 0.0]] * 3), 2) == d.replay(
        load(schedule), tree_of([[1.0, 2.0, 0.0]] * 3), 2
    )


def test_a_file_that_was_edited_or_written_by_hand_has_no_schedule():
    written = source(EARLY_STOP, "mine")
    assert read(written) == EARLY_STOP
    assert read(written.replace(b"branch.stalled < ", b"branch.stalled <= ")) is None
    assert read(written + b"# mine\n") is None
    assert read(written.replace(b"STRIKES = 2 ", b"STRIKES = 0 ")) is None
    assert read(written.replace(b"STRIKES = 2 ", b"STRIKES = 1.1.1 ")) is None
    assert read(b"\xff") is None and read(b"") is None
    assert read(b"class Policy:\n    name = 'x'\n    beta = 1\n") is None


CONSTANTS = [
    "...",
    "-",
    "1.",
    ".5",
    "--1",
    "1-2",
    "(1, )",
    "(, )",
    "(-, .)",
    "1, 2",
    "(1, 2, 3)",
    "9" * 5000,
    "1" + "." * 50,
]


@given(
    schedules(),
    st.one_of(st.sampled_from(CONSTANTS), st.text("-.0123456789(), ", max_size=12)),
    st.sampled_from(["MARGIN", "STRIKES", "BETA", "ORDER", "FADE"]),
)
def test_no_constant_of_a_file_by_hand_is_an_error(schedule, value, constant):
    """A user's file with `MARGIN = ...  # later` made every version of a dream fail."""
    line = f"{constant} = {value}  # later\n".encode()
    written = source(schedule, "p")
    assert read(line + b"class Policy:\n    name = 'x'\n    beta = 1\n") is None
    assert read(line + written) is None and read(written.replace(b"\nclass", b"\n" + line + b"class")) is None
    beta = f"    beta = {value}\n".encode()
    found = read(re.sub(rb"    beta = .*\n", lambda _: beta, written))
    assert found is None or source(found, "p") == re.sub(rb"    beta = .*\n", lambda _: beta, written)


@given(st.one_of(st.binary(), st.text().map(str.encode)), schedules(), st.integers(0, 4000), st.integers(0, 40))
def test_reading_never_fails(junk, schedule, place, length):
    assert read(junk) is None
    written = source(schedule, "p")
    torn = written[:place] + junk + written[place + length :]
    found = read(torn)
    assert found is None or source(found, re.search(rb'name = "(.*)"', torn)[1].decode()) == torn


@given(schedules())
def test_the_source_is_a_program_without_unused_names(schedule):
    tree = ast.parse(source(schedule, "p"))
    stored = {n.targets[0].id for n in tree.body if isinstance(n, ast.Assign)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert stored <= used
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.value.id == "self"]
    written = {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}
    assert written <= {n.attr for n in attributes if isinstance(n.ctx, ast.Load)}
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert functions <= {"start", "choose"} | used | {n.attr for n in attributes}


def test_a_rule_that_is_not_used_leaves_no_trace():
    text = source(PARALLEL_REFINE, "p").decode()
    for word in ("STRIKES", "REOPEN", "REPAIRS", "QUIET", "FADE", "NARROW", "DRIFT", "WIDTH =", "between", "notice"):
        assert word not in text
    assert "STRIKES = 2" in source(EARLY_STOP, "p").decode()


@pytest.mark.parametrize(
    "schedule",
    [
        PARALLEL_REFINE,
        EARLY_STOP,
        Schedule(strikes=(1, 4), repairs=(1, 1), order="last"),
        Schedule(0.6, (0.5, 1.0), (0.5, 1.0), 0.5, "best", (1, 4), (0.5, 1.0), (0, 2), (2, 6), 0.5, 0.1),
    ],
)
def test_the_emitted_source_is_formatted(schedule):
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "-"]
    written = source(schedule, "p")
    done = subprocess.run(command, input=written, capture_output=True, check=True)
    assert done.stdout == written


def test_the_rules_by_hand():
    # width 2, beta 1: two strikes; the best branch first; a stalled branch is retired and its worker opens the next
    tree = tree_of([[5.0, 4.0, 4.0, 9.0], [6.0, 7.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]], steps=4, branches=3)
    schedule = Schedule(order="best", strikes=(1, 2), reopen=(1.0, 1.0))
    episode = d.replay(load(schedule, 1.0), tree, 2)
    assert episode.picks == ((-1, -1), (1, 0), (1, 0), (1, -1), (2,), (2,), (2,))
    assert d.replay(load(schedule, 0.0), tree, 2).picks == ((-1, -1), (1, 0), (1, -1), (2,), (2,), (2,))
    # stop after two rounds without a new best; 7 came in the second round
    stops = Schedule(quiet=(2, 2))
    assert d.replay(load(stops), tree, 2).rounds == 4
    longer = Schedule(quiet=(2, 2), fade=1.0)  # and two rounds more, because the best took two
    assert d.replay(load(longer), tree_of([[5.0, 7.0] + [1.0] * 9]), 1).rounds == 6
    # one repair a batch, of a branch that failed once; twice retires it
    failing = tree_of([[None, None, 9.0], [None, 3.0, 4.0], [1.0, 2.0, 3.0]], steps=3, branches=3)
    repairs = Schedule(repairs=(1, 1))
    assert d.replay(load(repairs), failing, 3).picks == ((-1, -1, -1), (0, 2), (1, 2), (1,))
    # half the batch after each round that raised the best, all of it after one that did not
    narrow = Schedule(narrow=0.5)
    wide = tree_of([[1.0, 2.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]], steps=4, branches=2)
    assert d.replay(load(narrow), wide, 2).picks == ((-1, -1), (0,), (0,), (0, 1), (1,), (1,))


def test_drift_moves_the_level_while_the_best_stalls():
    schedule = Schedule(beta=0.0, width=(0.25, 1.0), drift=0.5)
    flat = tree_of([[5.0] * 6] * 4, steps=6, branches=4)
    sizes = [len(batch) for batch in d.replay(load(schedule), flat, 4).picks]
    assert sizes[:5] == [4, 1, 2, 4, 4]  # 1 + 3 * level (2.5 is rounded to even); the first round raised the best


def test_emitted_policies_run_in_the_sandbox():
    schedule = Schedule(order="best", strikes=(1, 3), reopen=(0.5, 1.0), repairs=(0, 1), quiet=(2, 5), drift=-0.1)
    tree = tree_of([[1.0, None, 3.0, 2.0], [2.0, 2.0, 5.0, 1.0], [None, None, 4.0, 6.0]], steps=4, branches=3)
    for beta in (0.0, 0.5, 1.0):
        (episode,) = replay_sandboxed(source(schedule, "emitted"), [tree], 2, beta=beta)
        assert episode == d.replay(load(schedule, beta), tree, 2)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"beta": 1.5}, "beta is 1.5; it must be a number from 0 to 1"),
        ({"beta": True}, "beta is True"),
        ({"strikes": (0, 2)}, "strikes is 0; it must be a whole number from 1"),
        ({"strikes": (1.5, 2)}, "strikes is 1.5"),
        ({"strikes": (3, 2)}, "a higher beta must not give a smaller threshold"),
        ({"strikes": 2}, "it must be two numbers"),
        ({"bootstrap": None}, "it must be two numbers"),
        ({"width": (0.5, 2.0)}, "width is 2.0"),
        ({"drift": float("nan")}, "drift is nan"),
        ({"order": "score"}, "choose one of opened, best, last"),
    ],
)
def test_bad_parameters_are_named(bad, problem):
    with pytest.raises(d.UserError, match=problem):
        Schedule(**bad)


def test_unknown_parameters_and_names_are_refused():
    with pytest.raises(d.UserError, match="no parameter 'patience'"):
        Schedule.from_json({"patience": 1})
    with pytest.raises(d.UserError, match="cannot be the name of a policy"):
        source(PARALLEL_REFINE, 'x"\nimport os')
