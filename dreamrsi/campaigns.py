"""Campaigns of the experiments: the recursion on synthetic worlds, in this process, and on real tasks.

Both arms are the same loop. The dreaming arm dreams after every round over all of its own rounds, and goes on until
it has spent ``calls``, the fixed arm's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dreamrsi import worlds
from dreamrsi.dream import Dream, dream
from dreamrsi.experiments import Campaign
from dreamrsi.loop import recursion
from dreamrsi.policy_file import starting_policy
from dreamrsi.schedule_search import ScheduleSearch
from dreamrsi.sweep import spread
from dreamrsi.synthetic import BETA1, BETA2
from dreamrsi.tree import Tree

Arm = Literal["fixed", "dream"]
ROUNDS = 7
VERSIONS = 8
MOST = 4
"""An arm that spends little a round ends after this many times the rounds asked for, whatever it has spent."""

REFINE = "parallel_refine"
CHEAP = "early_stop"
"""A policy that saves calls without any dreaming: what a dream has to beat at equal calls."""


def arm_name(arm: Arm, policy: str = REFINE, guidance: bool = False) -> str:
    """How an arm is called in tables and figures."""
    return arm + ("" if policy == REFINE else f" {policy.replace('_', ' ')}") + ("+guidance" if guidance else "")


def synthetic(
    name: str,
    arm: Arm,
    seed: int,
    *,
    policy: str = REFINE,
    rounds: int = ROUNDS,
    calls: int | None = None,
    versions: int = VERSIONS,
    beta1: float = BETA1,
    beta2: float = BETA2,
    most: int = MOST,
    **world: Any,
) -> Campaign:
    """The recursion on a synthetic world.

    Parameters
    ----------
    name, seed : of the world; both arms meet the same draws, and begin with the same round.
    arm : ``dream`` develops the policy between the rounds, ``fixed`` does not.
    policy : of the first round, a built-in one; of all rounds in the fixed arm.
    rounds : at least so many.
    calls : go on until so many are spent, but for no more than ``most`` times the rounds.
    versions, beta1, beta2 : of the dreams.
    **world : sizes and noise, as for :func:`dreamrsi.worlds.world`.
    """
    current = starting_policy(policy)
    source, notes = current.source, dict(current.notes)
    trees: list[Tree] = []
    dreams: list[Dream | None] = []
    root, spent = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        while root < worlds.CEILING and (
            len(trees) < rounds or (calls is not None and spent < calls and len(trees) < most * rounds)
        ):
            dreamt = None
            if arm == "dream" and trees:
                place = Path(folder) / f"round-{len(trees)}"
                place.mkdir()
                dreamt = dream(
                    trees,
                    source,
                    ScheduleSearch(),
                    versions=versions,
                    beta1=beta1,
                    beta2=beta2,
                    width=trees[0].header.width or 1,
                    seed=seed * 1000 + len(trees),
                    folder=place,
                    current_notes=notes,
                    confirm=False,  # the versions are this package's own template, which remembers nothing
                )
                source, notes = dreamt.selected.source, dict(dreamt.selected.notes)
            tree = worlds.live(worlds.in_process(source), worlds.world(name, seed, len(trees), root=root, **world))
            trees.append(tree)
            dreams.append(dreamt)
            root, spent = max(root, tree.best), spent + len(tree)
    return Campaign(name, arm_name(arm, policy), seed, tuple(trees), tuple(dreams))


def synthetic_arms(name: str, seed: int, settings: dict[str, Any]) -> list[Campaign]:
    """Fixed exploration, and until its calls are spent: the cheap fixed policy, and dreaming from either start."""
    fixed = synthetic(name, "fixed", seed, **settings)
    others: tuple[tuple[Arm, str], ...] = (("fixed", CHEAP), ("dream", REFINE), ("dream", CHEAP))
    return [fixed, *(synthetic(name, a, seed, policy=p, calls=fixed.calls, **settings) for a, p in others)]


def synthetic_study(
    seeds: Sequence[int], names: Sequence[str] = worlds.NAMES, *, n_jobs: int = -1, **settings: Any
) -> list[Campaign]:
    """All arms for every world and seed; ``settings`` as for :func:`synthetic`."""
    chunks = [(name, seed, settings) for name in names for seed in seeds]
    return [campaign for arms in spread(synthetic_arms, chunks, n_jobs=n_jobs) for campaign in arms]


def real(
    task: str,
    arm: Arm,
    seed: int,
    out: Path,
    *,
    policy: str = REFINE,
    rounds: int,
    calls: int | None = None,
    most: int = MOST,
    guidance: bool = False,
    **settings: Any,
) -> Campaign:
    """The recursion on a real task, in ``out/ARM-seed-N``; a call with the same settings goes on where one ended.

    ``settings`` as for :func:`dreamrsi.loop.recursion`; the rest as for :func:`synthetic`.
    """
    name = arm_name(arm, policy, guidance)
    folder = out / f"{name.replace(' ', '-')}-seed-{seed}"
    start = starting_policy(policy)
    now = rounds
    while True:
        found = recursion(task, folder, arm=arm, policy=start, seed=seed, rounds=now, guidance=guidance, **settings)
        left = 0 if calls is None else calls - found.attempts
        if left <= 0 or now >= most * rounds:
            break
        # few rounds at a time, although each call looks through all of them: what is beyond the budget is wasted
        now = min(most * rounds, now + max(1, left // (2 * len(found.rounds[-1].tree) + 1)))
    trees = tuple(round_.tree for round_ in found.rounds)
    return Campaign(task, name, seed, trees, tuple(round_.dream for round_ in found.rounds))


def real_study(
    task: str,
    seeds: Sequence[int],
    out: Path,
    *,
    rounds: int,
    arms: Sequence[tuple[Arm, str, bool]] = (("fixed", CHEAP, False), ("dream", REFINE, False)),
    **settings: Any,
) -> list[Campaign]:
    """Fixed exploration for every seed, and further arms until they have spent its calls.

    ``arms`` are triples for :func:`arm_name`: arm, first policy, guidance. A further fixed arm of parallel refine
    spends as much in as many rounds.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in seeds:
        fixed = real(task, "fixed", seed, out, rounds=rounds, **settings)
        found.append(fixed)
        for arm, policy, told in arms:
            found.append(
                real(task, arm, seed, out, policy=policy, rounds=rounds, calls=fixed.calls, guidance=told, **settings)
            )
    return found
