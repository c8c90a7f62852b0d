"""The gate: no policy is promoted that cannot reach where the winners were. It fails closed.

Every rule is a check of its own with its evidence. Evidence that is missing, changed or unreadable fails the rule that
needs it, and whatever goes wrong while a rule is checked fails that rule. What each rule is for, and what the gate
cannot see, is in ``docs/gate.md``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dreamrsi.coverage import as_deployed
from dreamrsi.decision import RULES, Check, Decision, Named, Settings, diff_text
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.replay import Episode
from dreamrsi.rules import CHECKS, CONFIRMATIONS, Evidence, Row, Shadow, check_frozen, check_log, missing
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from dreamrsi.suite import Suite, fingerprint, load_closed, read_policy, round_number
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    from dreamrsi.deploy import Pointer

SHADOWS = 2
"""How many newly closed trees, one after the other, a candidate has to hold on."""


def gate(
    suite: str | os.PathLike[str],
    policy: str | os.PathLike[str],
    current: str | os.PathLike[str],
    *,
    shadow: Sequence[str | os.PathLike[str]] = (),
    width: int | None = None,
    steps: int | None = None,
    branches: int | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    beta: float | None = None,
    reviewer: str | None = None,
    diff_sha256: str | None = None,
    deployed: Pointer | None = None,
    limits: Limits | None = None,
) -> Decision:
    """Decide whether a candidate may replace the current policy.

    Parameters
    ----------
    suite : folder of a frozen suite.
    policy, current : files of the candidate and of the current policy, which has to be the one pinned in the suite.
    shadow : files of the trees that closed since, in that order; the last two count.
    width, steps, branches, beta1, beta2, beta : how the candidate would be deployed and judged; as the suite says if
        None.
    reviewer, diff_sha256 : who read the diff, and the hash of what was read (:attr:`Decision.diff_sha256`).
    deployed : what is deployed (:meth:`dreamrsi.deploy.Deployment.pointer`), if that is known.
    limits : of the sandbox.

    Returns
    -------
    Decision
        With a check for every one of :data:`~dreamrsi.decision.RULES`. Never raises for what the files hold.
    """
    try:
        frozen = Suite.load(suite)
    except Exception as error:  # whatever is wrong with it
        return _refused(f"the suite cannot be used: {error}")
    then = frozen.manifest.settings
    given = {"width": width, "steps": steps, "branches": branches, "beta1": beta1, "beta2": beta2, "beta": beta}
    now = msgspec.structs.replace(then, **{name: value for name, value in given.items() if value is not None})
    pinned = Named(frozen.manifest.policy, frozen.current_sha256)
    first = _guarded("frozen", check_frozen, frozen, current, deployed)
    about: dict[str, Any] = {"suite": frozen.sha256, "current": pinned, "settings": now, "reviewer": reviewer}
    try:
        source = read_policy(policy)
        with SandboxedPolicy(source, Path(policy).name, limits=limits) as loaded:
            about["policy"] = Named(loaded.name, loaded.sha256)
    except Exception as error:  # whatever the candidate does while it is loaded
        return _refused(f"the candidate cannot be used: {error}", "sound", first, **about)
    before = deployed.settings if deployed else then
    about["diff"] = diff_text(frozen.current, source, before, now)
    about["diff_sha256"] = hashlib.sha256(about["diff"].encode()).hexdigest()
    evidence = Evidence(
        suite=frozen,
        trees=frozen.trees,
        then=before,
        now=now,
        candidate=_play(source, frozen, frozen.trees, now, limits),
        current=_play(frozen.current, frozen, frozen.trees, then, limits),
        log=_as_recorded(frozen, limits),
        shadow=_shadow(frozen, source, [Path(path) for path in shadow], then, now, limits),
        reviewer=reviewer,
        reviewed=diff_sha256,
        diff_sha256=about["diff_sha256"],
    )
    return _decided([first, *(_guarded(name, rule, evidence) for name, rule in CHECKS.items())], **about)


def reproduces(suite: Suite, *, limits: Limits | None = None) -> Check:
    """The rule ``log`` alone: whether replaying the current policy reproduces its log."""
    return _guarded("log", lambda: check_log(suite, _as_recorded(suite, limits)))


def _play(source: bytes, suite: Suite, trees: Sequence[Tree], settings: Settings, limits: Limits | None) -> Row:
    """Replay one policy as it is deployed: all trees in one process, then each in fresh ones, which have to agree."""
    width, rounds, beta = settings.width, suite.manifest.max_rounds, settings.beta
    try:
        cut = [as_deployed(tree, settings) for tree in trees]
        screened = replay_sandboxed(source, cut, width, rounds, beta=beta, limits=limits)
        if broken := _broken(screened):
            return Row((), f"failed on {broken.tree}: {broken.error}")
        row: list[Episode] = []
        for _ in range(CONFIRMATIONS):
            backwards = replay_sandboxed(source, cut[::-1], width, rounds, beta=beta, fresh=True, limits=limits)
            again = backwards[::-1]
            if broken := _broken(again):
                return Row((), f"failed on {broken.tree} in a process of its own: {broken.error}")
            row = row or again
            odd = next((a for a, b in zip(again, screened, strict=True) if _choices(a) != _choices(b)), None)
            if odd:
                why = f"chose otherwise in a fresh process on {odd.tree}: it draws at random, or it remembers"
                return Row(row, why)
        return Row(row)
    except (UserError, OSError) as error:
        return Row((), str(error))


def _broken(episodes: Sequence[Episode]) -> Episode | None:
    """The first episode in which the policy failed."""
    return next((episode for episode in episodes if episode.reason == "failed"), None)


def _choices(episode: Episode) -> tuple[Any, ...]:
    return episode.picks, tuple(episode.reveals), episode.best, episode.reason


def _as_recorded(suite: Suite, limits: Limits | None) -> Row:
    """Replay the current policy on every tree at the width, caps and knob it was recorded with."""
    row = []
    for tree, entry in zip(suite.trees, suite.manifest.trees, strict=True):
        width, rounds = tree.header.width or suite.manifest.settings.width, suite.manifest.max_rounds
        try:
            row += replay_sandboxed(suite.current, [tree], width, rounds, beta=entry.beta, fresh=True, limits=limits)
        except PolicyError as error:
            return Row((), str(error))
    return Row(row)


def _shadow(
    suite: Suite, source: bytes, paths: Sequence[Path], then: Settings, now: Settings, limits: Limits | None
) -> Shadow:
    """Read the newly closed trees and play both policies on them."""
    empty = Row((), None)
    if len(paths) < SHADOWS:
        return Shadow((), empty, empty, f"{len(paths)} of the {SHADOWS} newly closed trees that are needed were given")
    try:
        trees = [load_closed(path) for path in paths[-SHADOWS:]]
        problem = _not_new(suite, trees, paths[-SHADOWS:])
    except (UserError, OSError) as error:
        return Shadow((), empty, empty, str(error))
    if problem:
        return Shadow((), empty, empty, problem)
    return Shadow(trees, _play(source, suite, trees, now, limits), _play(suite.current, suite, trees, then, limits))


def _not_new(suite: Suite, trees: Sequence[Tree], paths: Sequence[Path]) -> str | None:
    """Why the trees are not consecutive and newly closed, as far as that can be told."""
    known = {fingerprint(tree): f"is {tree.name} of the suite" for tree in suite.trees}
    tasks = {(tree.header.task, tree.header.synthetic) for tree in suite.trees}
    for tree in trees:
        mark = fingerprint(tree)
        if mark in known:
            return f"{tree.name}: {known[mark]}, so it is not newly closed"
        known[mark] = "was given twice"
        if (tree.header.task, tree.header.synthetic) not in tasks:
            return f"{tree.name}: is of the task {tree.header.task}, and no tree of the suite is"
    rounds = [round_number(path) for path in paths]
    numbers = [number for number in rounds if number is not None]
    frozen = max((entry.round for entry in suite.manifest.trees if entry.round is not None), default=-1)
    if len(numbers) == len(rounds) and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return f"rounds {', '.join(map(str, numbers))} do not follow one another"
    if numbers and min(numbers) <= frozen:
        return f"round {min(numbers)} is not later than round {frozen}, the last one of the suite"
    return None


def _guarded(name: str, rule: Callable[..., Check], *given: Any) -> Check:
    """Check a rule; whatever goes wrong fails it."""
    try:
        check = rule(*given)
    except Exception as error:  # a rule that cannot be checked does not hold
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return missing(name, reason)
    return check if check.name == name else missing(name, "the check of another rule came back")


def _refused(problem: str, at: str = "frozen", *earlier: Check, **about: Any) -> Decision:
    """Refuse at a rule without which no later one means anything."""
    checks = [*earlier, Check(at, False, {}, problem)]
    rest = list(RULES)[len(checks) :]
    return _decided([*checks, *(missing(name, f"{at} failed") for name in rest)], **about)


def _decided(checks: Sequence[Check], **about: Any) -> Decision:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    decision = Decision(kind="gate", outcome="refused", time=now, checks=tuple(checks), **about)
    return msgspec.structs.replace(decision, outcome="promoted") if decision.promoted else decision
