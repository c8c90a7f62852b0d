"""What would change the article's verdict, measured: the gate and its guards over many seeds, and what they are worth.

The gated live round is the same as :mod:`dreamrsi.gated`'s, on synthetic worlds whose every round has a full tree: the
rules of :mod:`dreamrsi.rules` and the guards of :mod:`dreamrsi.guards` are asked themselves. The rules ``frozen``,
``sound``, ``log`` and ``review`` hold here by construction: nobody changes a file, the policies are this package's
own, and a reviewer signs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from dreamrsi import policies as builtin
from dreamrsi import worlds
from dreamrsi.coverage import winners
from dreamrsi.decision import Check, Decision, Settings
from dreamrsi.errors import UserError
from dreamrsi.experiments import ALL
from dreamrsi.freeze import AROUND
from dreamrsi.gate import SHADOWS
from dreamrsi.guards import Frozen, frozen_numbers, kill, rollback_reasons
from dreamrsi.intervals import Interval, interval, spread_of
from dreamrsi.record import Root
from dreamrsi.replay import replay
from dreamrsi.robustness import wilson
from dreamrsi.rules import Evidence, Row, Shadow, check_betas, check_coverage, check_gain, check_shadow
from dreamrsi.suite import LAST, Entry, Manifest, Suite
from dreamrsi.sweep import spread
from dreamrsi.synthetic import BETA1, BETA2
from dreamrsi.tree import Tree


class Change(NamedTuple):
    """A change of policy as it is put to the gate: built-in policies, by name."""

    name: str
    current: str
    candidate: str


NARROW = "parallel_refine:width=4,bootstrap=4"
CHANGES = (
    Change("narrower", "parallel_refine", NARROW),
    Change("stops early", "parallel_refine", "early_stop"),
    Change("from narrow, stops early", NARROW, "early_stop"),
    Change("no change", "parallel_refine", "parallel_refine"),
)
"""A candidate that cannot reach late branches; one that can; one that opens branches which no tree has; and none."""

ROUNDS = 5
RULES = {"gain": check_gain, "coverage": check_coverage, "betas": check_betas, "shadow": check_shadow}
ARMS = ("ungated", "gate", "guards", "gate and guards", "unchanged")
"""The candidate as it is; only if the gate promotes it; killed and rolled back in its rounds; both; never."""


def guarded(tree: Tree, frozen: Frozen) -> tuple[Tree, str | None]:
    """What the ceiling leaves of a live round, and why it was killed; None if it was not.

    Exact, since a policy sees nothing of later batches.
    """
    calls = 0
    for place, batch in enumerate(tree.batches):
        reason = kill(calls, frozen, batch.attempts)
        if reason is not None:
            return Tree(tree.header, tree.attempts[:calls], tree.batches[:place], tree.name), reason
        calls += batch.attempts
    return tree, None


def _evidence(change: Change, trees: Sequence[Tree], shadow: Sequence[Tree]) -> Evidence:
    """What the gate looks at, in memory."""
    header = trees[-1].header
    width = header.width or 1
    settings = Settings(width=width, steps=header.steps, branches=header.branches, beta1=BETA1, beta2=BETA2)
    manifest = Manifest(
        policy=change.current,
        settings=settings,
        beta1s=tuple(BETA1 * share for share in AROUND),
        beta2s=tuple(BETA2 * share for share in AROUND),
        margin=BETA1,
        trees=tuple(Entry(tree.name, tree.name, True, len(tree), tree.best) for tree in trees),
    )
    rows = {
        name: [Row([replay(builtin.make(name), tree, width) for tree in some]) for some in (trees, shadow)]
        for name in (change.candidate, change.current)
    }
    (new, new_shadow), (old, old_shadow) = rows[change.candidate], rows[change.current]
    return Evidence(
        suite=Suite(Path(), manifest, "in memory", trees, b""),
        trees=trees,
        then=settings,
        now=settings,
        candidate=new,
        current=old,
        log=Row(()),
        shadow=Shadow(shadow, new_shadow, old_shadow),
        reviewer=None,
        reviewed=None,
        diff_sha256="",
    )


def raised(tree: Tree, level: float) -> Tree:
    """The same tree with every score, the root's included, higher by ``level``."""
    root = None if tree.root is None else tree.root + level
    attempts = [
        msgspec.structs.replace(attempt, score=None if attempt.score is None else round(attempt.score + level, 6))
        for attempt in tree
    ]
    header = msgspec.structs.replace(tree.header, root=Root(root))
    return Tree(header, attempts, tree.batches, tree.name)


def gated_rounds(
    world: str,
    seed: int,
    changes: Sequence[Change] = CHANGES,
    rounds: int = ROUNDS,
    level: float = worlds.LEVEL,
) -> list[dict[str, Any]]:
    """Put every change to the gate on one seed of a world, and let its candidate live ``rounds`` rounds.

    The current policy has recorded three trees and the two for the shadow; all rounds are draws of their own, from the
    same root. Whatever the gate says, the candidate is run too, so that arms can be compared on the same draws.

    ``level`` is the root's score. The worlds count from 0; the article's scale, for which 2 percent of a score was
    meant, has its root at 6 and its winners above 9.

    Returns
    -------
    list of dict
        One a change: ``world, change, seed``; for every rule of :data:`RULES` whether it ``fails``; ``refused``;
        of the candidate's first live round, whether the winner is on a branch that the last tree did not contain
        (``new_branch``), and whether it is ``killed``, and rolled back for its ``quality`` or its ``branch``; and for
        every arm its ``calls`` and ``best``, means over the rounds.
    """
    drawn = [raised(worlds.world(world, seed, number), level) for number in range(LAST + SHADOWS + rounds)]
    found = []
    for change in changes:
        lived = {name: [worlds.live(builtin.make(name), full) for full in drawn] for name in change[1:]}
        trees = lived[change.current]
        evidence = _evidence(change, trees[:LAST], trees[LAST : LAST + SHADOWS])
        fails = {name: not rule(evidence).passed for name, rule in RULES.items()}
        frozen = frozen_numbers(evidence.suite)
        old, new = (lived[name][LAST + SHADOWS :] for name in change[1:])
        held = [guarded(tree, frozen) for tree in new]
        fired = [rollback_reasons(tree, frozen) for tree, _ in held]
        back = next((number for number, reasons in enumerate(fired) if reasons), rounds - 1)
        kept = [tree for tree, _ in held[: back + 1]] + old[back + 1 :]
        promoted = not any(fails.values())
        arms = (new, new if promoted else old, kept, kept if promoted else old, old)
        full = drawn[LAST + SHADOWS]
        row: dict[str, Any] = {"world": world, "change": change.name, "seed": seed, **fails, "refused": not promoted}
        row |= {
            "new_branch": winners(full)[0][0] >= frozen.opened,
            "killed": held[0][1] is not None,
            "quality": any("quality" in reason or "no attempt" in reason for reason in fired[0]),
            "branch": any("sits on branch" in reason for reason in fired[0]),
        }
        for arm, lives in zip(ARMS, arms, strict=True):
            row |= {f"{arm} calls": np.mean([len(tree) for tree in lives])}
            row |= {f"{arm} best": np.mean([tree.best for tree in lives])}
        found.append(row)
    return found


def gated_study(
    names: Sequence[str],
    seeds: Sequence[int],
    changes: Sequence[Change] = CHANGES,
    *,
    rounds: int = ROUNDS,
    level: float = worlds.LEVEL,
    n_jobs: int = -1,
) -> pd.DataFrame:
    """:func:`gated_rounds` over worlds and seeds, one row a world, change and seed."""
    chunks = [(name, part.tolist(), tuple(changes), rounds, level) for name in names for part in parts(seeds)]
    return pd.DataFrame([row for rows in spread(_gated_chunk, chunks, n_jobs=n_jobs) for row in rows])


def _gated_chunk(
    name: str, seeds: list[int], changes: tuple[Change, ...], rounds: int, level: float
) -> list[dict[str, Any]]:
    return [row for seed in seeds for row in gated_rounds(name, seed, changes, rounds, level)]


def parts(seeds: Sequence[int]) -> list[Any]:
    """A few dozen seeds each: enough work to be worth a process."""
    return np.array_split(np.asarray(seeds), max(1, math.ceil(len(seeds) / 25)))


FIRES = (*RULES, "refused", "new_branch", "killed", "quality", "branch")


def fires(rows: pd.DataFrame) -> pd.DataFrame:
    """How often each rule and guard of :func:`gated_rounds` fires: a row a change, world and event.

    ``share`` of the seeds with ``low`` and ``high``, its 95 % Wilson interval. The guards are those of the first live
    round, whatever the gate says.
    """
    found = []
    for (change, world), group in rows.groupby(["change", "world"], sort=False):
        for event in FIRES:
            times = int(group[event].sum())
            about = {"change": change, "world": world, "event": event, "seeds": len(group)}
            share = Interval(times / len(group), *wilson(times, len(group)))
            found.append(about | spread_of("share", share))
    return pd.DataFrame(found)


def price(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """What every arm of :data:`ARMS` costs and finds, and what that is against deploying ungated.

    Returns
    -------
    DataFrame
        One row a change, world and arm: ``calls`` and ``best`` a round; ``calls_change`` and ``best_change``, against
        the ungated arm on the same draws; each with its 95 % bootstrap interval over the seeds.
    """
    found = []
    for (change, world), group in rows.groupby(["change", "world"], sort=False):
        for arm in ARMS:
            row: dict[str, Any] = {"change": change, "world": world, "arm": arm}
            calls, best = group[f"{arm} calls"], group[f"{arm} best"]
            row |= spread_of("calls", interval(calls, rng)) | spread_of("best", interval(best, rng))
            row |= spread_of("calls_change", interval(calls - group["ungated calls"], rng))
            row |= spread_of("best_change", interval(best - group["ungated best"], rng))
            found.append(row)
    return pd.DataFrame(found)


def checks(decisions: Mapping[str, Decision]) -> pd.DataFrame:
    """What the gate said of candidates: a row a rule, a column a candidate; trees by the name of their file."""
    said = {
        name: {check.name: f"{'passed' if check.passed else 'FAILED'}: {_one_line(check)}" for check in decision.checks}
        for name, decision in decisions.items()
    }
    return pd.DataFrame(said).rename_axis("rule").reset_index()


def _one_line(check: Check) -> str:
    return re.sub(r"\S*/([^/\s]+)\.jsonl", r"\1", check.reason.replace("\n", "; "))


# against fixed exploration, task by task

GEOMETRIC = "geometric mean"


def ratios(tables: Mapping[str, Path], arm: str = "dream", against: str = "fixed") -> pd.DataFrame:
    """What notebook 06 exported, as ratios of one arm to another: a row a task, and their geometric mean.

    Parameters
    ----------
    tables : label -> file. Where a table has a column ``setting``, that names the task; else the label does.
    arm, against : which of its contrasts.

    Returns
    -------
    DataFrame
        ``task, runs``; ``equal_rounds`` and ``equal_calls``: the ratio of the final bests; ``cost``: that of the calls
        at equal rounds; each with a 95 % interval: of a task the paired one of notebook 06 over the control's mean, of
        the geometric mean a normal one on the logarithms, the tasks being independent.

    Raises
    ------
    UserError
        A table is not there: notebook 06 makes it.
    """
    rows = []
    for label, path in tables.items():
        if not path.exists():
            raise UserError(f"{path}: is not there; run notebook 06 first, with the same export folder")
        table = pd.read_csv(path)
        for _, found in table[(table.arm == arm) & (table.against == against)].iterrows():
            if found.get("setting") == ALL:
                continue
            row: dict[str, Any] = {"task": found.get("setting", label), "runs": int(found.runs)}
            for column in ("equal_rounds", "equal_calls"):
                row |= spread_of(column, Interval(*(1 + part / found.control for part in _cell(found[column]))))
            rows.append(row | spread_of("cost", _cell(found.cost)))
    each = pd.DataFrame(rows)
    mean: dict[str, Any] = {"task": GEOMETRIC, "runs": int(each.runs.sum())}
    for column in ("equal_rounds", "equal_calls", "cost"):
        logs, spans = np.log(each[column]), np.log(each[f"{column}_high"]) - np.log(each[f"{column}_low"])
        half = math.sqrt(float((spans**2).sum())) / 2 / len(each)
        ends = (float(logs.mean()) + shift for shift in (0.0, -half, half))
        mean |= spread_of(column, Interval(*map(math.exp, ends)))
    return pd.concat([each, pd.DataFrame([mean])], ignore_index=True)


def _cell(text: str) -> Interval:
    """A cell of :func:`dreamrsi.experiments.readable`, ``value [low, high]``."""
    return Interval(*(float(part) for part in re.findall(r"-?[0-9.]+", text)))
