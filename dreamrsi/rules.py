"""The rules of the gate, each a function from the evidence to a check. What each is for is in ``docs/gate.md``."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dreamrsi.coverage import coverage, workspaces_needed
from dreamrsi.decision import Check, Settings, changes, percent, show
from dreamrsi.objective import score_map, value
from dreamrsi.replay import Episode
from dreamrsi.suite import Suite, neighbourhood_problem, read_policy
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    from dreamrsi.deploy import Pointer

CONFIRMATIONS = 2
"""How often every episode is repeated in a fresh process, to find a policy that chooses otherwise there."""


@dataclass(frozen=True)
class Row:
    """One policy's episodes, one a tree; ``problem`` says why they cannot be trusted, None if they can.

    ``episodes`` is empty where there is nothing to judge by.
    """

    episodes: Sequence[Episode]
    problem: str | None = None


@dataclass(frozen=True)
class Shadow:
    """The newly closed trees, and what both policies do on them; ``problem`` says why they prove nothing."""

    trees: Sequence[Tree]
    candidate: Row
    current: Row
    problem: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All that the rules look at. ``trees`` are those of the suite; the episodes are those of fresh processes.

    ``then`` is how the current policy is deployed, as the suite says where nothing else is known; ``now`` is how the
    candidate would be.
    """

    suite: Suite
    trees: Sequence[Tree]
    then: Settings
    now: Settings
    candidate: Row
    current: Row
    log: Row
    shadow: Shadow
    reviewer: str | None
    reviewed: str | None
    diff_sha256: str


def check_frozen(suite: Suite, current: str | os.PathLike[str], deployed: Pointer | None) -> Check:
    """The suite was read, so it is as frozen; the current policy that was named has to be the pinned, deployed one."""
    given = hashlib.sha256(read_policy(current)).hexdigest()
    pinned = suite.current_sha256
    runs = deployed.policy.sha256 if deployed else None
    evidence = {"suite": suite.sha256, "trees": len(suite.trees), "pinned": pinned, "given": given, "deployed": runs}
    problem = None
    if given != pinned:
        problem = f"{current} has the hash {given[:12]}, the current policy pinned in the suite has {pinned[:12]}"
    elif runs is not None and runs != pinned:
        problem = f"deployed is {runs[:12]}, and the suite pins {pinned[:12]}; freeze a suite with what is deployed"
    elif deployed and (odd := changes(_without_betas(deployed.settings), _without_betas(suite.manifest.settings))):
        problem = f"the current policy is deployed otherwise than the suite says: {', '.join(odd)}"
    passed = f"{len(suite.trees)} trees, settings and {suite.manifest.policy} are as frozen"
    return Check("frozen", problem is None, evidence, problem or passed)


def _without_betas(settings: Settings) -> Settings:
    """What a policy runs with; the cost term is what it is judged by, and its change is the reviewer's."""
    return msgspec.structs.replace(settings, beta1=None, beta2=None)


def check_sound(e: Evidence) -> Check:
    """Both policies run on every tree, and choose in fresh processes what they chose in a shared one."""
    rows = {
        "the candidate": e.candidate,
        "the current policy": e.current,
        "the candidate, in shadow,": e.shadow.candidate,
        "the current policy, in shadow,": e.shadow.current,
    }
    problems = [f"{name} {row.problem}" for name, row in rows.items() if row.problem]
    episodes = sum(len(row.episodes) for row in rows.values())
    evidence = {"episodes": episodes, "fresh processes an episode": CONFIRMATIONS, "problems": problems}
    return Check(
        "sound", not problems, evidence, "\n".join(problems) or f"{episodes} episodes, the same in every process"
    )


def check_log(suite: Suite, row: Row) -> Check:
    """Rule 1: the replay of the current policy has the attempts and the best score of its log."""
    if not row.episodes:
        return missing("log", row.problem)
    rows, odd = [], []
    for tree, entry, episode in zip(suite.trees, suite.manifest.trees, row.episodes, strict=True):
        attempts, best = (len(tree), tree.best) if entry.own else (entry.attempts, entry.best)
        same = (episode.attempts, episode.best) == (attempts, -math.inf if best is None else best)
        if entry.own and tree.batches:
            same = same and _without_empty(episode.picks) == _without_empty(tree.picks)
        rows.append(
            {
                "tree": tree.name,
                "recorded by": "current policy" if entry.own else "another",
                "logged attempts": attempts,
                "replayed attempts": episode.attempts,
                "logged best": best,
                "replayed best": episode.best,
                "same": same,
            }
        )
        if not same:
            why = episode.error or f"{episode.attempts} attempts, best {show(episode.best)}"
            odd.append(f"{tree.name}: logged are {attempts} attempts, best {show(best)}; replayed {why}")
    own = sum(entry.own for entry in suite.manifest.trees)
    if not own:
        return Check("log", False, {"trees": rows}, "no tree of the suite was recorded by the current policy")
    passed = f"attempts and best of all {len(rows)} trees, {own} of them its own log"
    return Check("log", not odd, {"trees": rows}, "\n".join(odd) or passed)


def _without_empty(picks: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return [tuple(batch) for batch in picks if batch]


def check_gain(e: Evidence) -> Check:
    """Rule 2: mean V and mean quality no worse than the current policy's, with a fifth fewer attempts."""
    new, old = e.candidate.episodes, e.current.episodes
    if not new or not old:
        return missing("gain", e.candidate.problem or e.current.problem)
    b1, b2 = e.now.beta1, e.now.beta2
    if b1 is None or b2 is None or not (math.isfinite(b1) and math.isfinite(b2)):
        return missing("gain", "beta1 and beta2 are not in the suite")
    values = [value(row, beta1=b1, beta2=b2) for row in (new, old)]
    quality = [_mean([episode.best for episode in row]) for row in (new, old)]
    attempts = [_mean([float(episode.attempts) for episode in row]) for row in (new, old)]
    share = e.suite.manifest.max_attempts
    rows = [
        {"policy": name, "V": values[i], "quality": quality[i], "attempts": attempts[i]}
        for i, name in enumerate(("candidate", "current"))
    ]
    odd = []
    for name, (mine, its) in (("V", values), ("quality", quality)):
        if not (math.isfinite(mine) and math.isfinite(its) and mine >= its):
            odd.append(f"mean {name} {show(mine)} is below {show(its)}, the current policy's")
    if not attempts[0] <= share * attempts[1]:
        odd.append(f"{show(attempts[0])} attempts a tree are more than {percent(share)} of {show(attempts[1])}")
    passed = f"V {_pair(values)}, quality {_pair(quality)}, attempts a tree {_pair(attempts)} (current)"
    return Check("gain", not odd, {"share of attempts allowed": share, "means": rows}, "\n".join(odd) or passed)


def check_coverage(e: Evidence) -> Check:
    """Rule 3: every branch that held a winner of the last K trees is opened, and the winning attempt revealed."""
    if not e.candidate.episodes:
        return missing("coverage", e.candidate.problem)
    last = e.suite.manifest.last
    if last < 1 or len(e.trees) < last:
        return missing("coverage", f"the suite has {len(e.trees)} trees, and the last {last} are looked at")
    pairs = zip(e.trees[-last:], e.candidate.episodes[-last:], strict=True)
    trees = [coverage(tree, episode) for tree, episode in pairs]
    if not all(trees):
        return missing("coverage", "one of these trees has no winner")
    rows = [row for found in trees for row in found]
    missed = [
        f"{r.tree}: branch {r.branch} held the winner ({r.score:g}, attempt {r.attempt}): {r.missed}"
        for r in rows
        if r.missed
    ]
    evidence = {"width": e.now.width, "last trees": last, "winners": [msgspec.structs.asdict(row) for row in rows]}
    passed = f"all {len(rows)} winners of the last {last} trees are revealed at width {e.now.width}"
    return Check("coverage", not missed, evidence, "\n".join(missed) or passed)


def check_betas(e: Evidence) -> Check:
    """Rule 4: the candidate wins or ties at every setting of the declared neighbourhood.

    V is linear in the betas, so what holds at the corners of the neighbourhood holds everywhere between them.
    """
    new, old = e.candidate.episodes, e.current.episodes
    if not new or not old:
        return missing("betas", e.candidate.problem or e.current.problem)
    manifest = e.suite.manifest
    problem = neighbourhood_problem(manifest, e.now.beta1, e.now.beta2)
    if problem:
        return missing("betas", problem)
    margin = manifest.margin
    assert margin is not None  # neighbourhood_problem looked
    found = score_map({"candidate": new, "current": old}, manifest.beta1s, manifest.beta2s)
    ahead = found.values[0] - found.values[1]
    worst = divmod(int(ahead.argmin()), ahead.shape[1])
    b1, b2, least = manifest.beta1s[worst[0]], manifest.beta2s[worst[1]], float(ahead[worst])
    evidence = {
        "beta1": [float(value) for value in manifest.beta1s],
        "beta2": [float(value) for value in manifest.beta2s],
        "margin": margin,
        "worst": {"beta1": b1, "beta2": b2, "ahead": least},
        "ahead": [
            {"beta1": beta, **{f"beta2 {other:g}": float(v) for other, v in zip(manifest.beta2s, line, strict=True)}}
            for beta, line in zip(manifest.beta1s, ahead, strict=True)
        ],
    }
    where = f"at beta1 {b1:g}, beta2 {b2:g}"
    if not (math.isfinite(least) and least >= -margin):
        lost = f"{int((~(ahead >= -margin)).sum())} of {ahead.size} settings lost"
        reason = f"behind by {show(-least)} {where}, more than the margin {show(margin)}; {lost}"
        return Check("betas", False, evidence, reason)
    return Check("betas", True, evidence, f"ahead by at least {show(least)} ({where}); margin for a tie {show(margin)}")


def check_shadow(e: Evidence) -> Check:
    """Rule 5: quality and attempts hold on each of two consecutive newly closed trees."""
    shadow, manifest = e.shadow, e.suite.manifest
    if shadow.problem:
        return missing("shadow", shadow.problem)
    if not shadow.candidate.episodes or not shadow.current.episodes:
        return missing("shadow", shadow.candidate.problem or shadow.current.problem)
    rows, odd = [], []
    for tree, new, old in zip(shadow.trees, shadow.candidate.episodes, shadow.current.episodes, strict=True):
        rows.append(
            {
                "tree": tree.name,
                "quality": new.best,
                "current quality": old.best,
                "attempts": new.attempts,
                "current attempts": old.attempts,
            }
        )
        if not keeps_quality(new.best, old.best, manifest.max_drop):
            lost = f"more than {percent(manifest.max_drop)} below {show(old.best)}"
            odd.append(f"{tree.name}: quality {show(new.best)} is {lost}")
        if not new.attempts <= manifest.max_attempts * old.attempts:
            allowed = f"{percent(manifest.max_attempts)} of {old.attempts}"
            odd.append(f"{tree.name}: {new.attempts} attempts are more than {allowed}")
    evidence = {
        "share of quality that may be lost": manifest.max_drop,
        "share of attempts allowed": manifest.max_attempts,
    }
    passed = ", ".join(
        f"{r['quality']:g} ({r['current quality']:g}) in {r['attempts']} ({r['current attempts']})" for r in rows
    )
    return Check(
        "shadow", not odd, {**evidence, "trees": rows}, "\n".join(odd) or f"quality in attempts (current): {passed}"
    )


def keeps_quality(best: float, reference: float, max_drop: float) -> bool:
    """Whether a quality is no more than a share of its size below the reference. False where either is not finite."""
    if not (math.isfinite(best) and math.isfinite(reference)):
        return False
    return best >= reference - max_drop * abs(reference)


def check_review(e: Evidence) -> Check:
    """Rule 6: a named reviewer and the hash of the diff, wherever width, depth or the cost term changed.

    What changes in effect counts too: the widest batch and the deepest branch of all episodes, and fewer workspaces
    opened on any tree than the last winner needed.
    """
    if not e.candidate.episodes or not e.current.episodes:
        return missing("review", e.candidate.problem or e.current.problem)
    needed = changes(e.then, e.now)
    for name, measure in (("widest batch", _widest), ("deepest branch", _deepest)):
        old, new = measure(e.current.episodes), measure(e.candidate.episodes)
        if old != new:
            needed.append(f"{name}: {old} -> {new}")
    workspaces = workspaces_needed(e.trees[-1])
    fewest = min(
        (ep.opened for ep, tree in zip(e.candidate.episodes, e.trees, strict=True) if len(tree.branches) >= workspaces),
        default=0,
    )
    if fewest < workspaces:
        needed.append(f"opens as few as {fewest} workspaces, and the last winner needed {workspaces}")
    evidence = {
        "needed because": needed,
        "reviewer": e.reviewer,
        "diff read": e.reviewed,
        "diff expected": e.diff_sha256,
        "fewest workspaces opened": fewest,
        "workspaces that the last winner needed": workspaces,
    }
    named = bool(e.reviewer and e.reviewer.strip())
    if e.reviewed is not None and e.reviewed.strip().lower() != e.diff_sha256:
        return Check("review", False, evidence, f"the diff that was read is not this one, {e.diff_sha256}")
    if not needed:
        return Check("review", True, evidence, "none needed: width, depth, cost term and workspaces are as before")
    what = "; ".join(needed)
    if not named or e.reviewed is None:
        lacking = "a named reviewer is missing" if not named else "the hash of the diff is missing"
        expected = f"the diff, which the decision shows, has the sha256 {e.diff_sha256}"
        return Check("review", False, evidence, f"needed: {what}\n{lacking}; {expected}")
    return Check("review", True, evidence, f"read by {e.reviewer} ({what})")


def _widest(episodes: Sequence[Episode]) -> int:
    return max((len(batch) for episode in episodes for batch in episode.picks), default=0)


def _deepest(episodes: Sequence[Episode]) -> int:
    return max((attempt + 1 for episode in episodes for _, attempt in episode.order), default=0)


CHECKS: Mapping[str, Callable[[Evidence], Check]] = {
    "sound": check_sound,
    "log": lambda e: check_log(e.suite, e.log),
    "gain": check_gain,
    "coverage": check_coverage,
    "betas": check_betas,
    "shadow": check_shadow,
    "review": check_review,
}
"""Name -> rule, for all but ``frozen``, which comes before them."""


def missing(name: str, why: str | None) -> Check:
    """The check of a rule whose evidence is not there."""
    return Check(name, False, {}, f"cannot be checked: {why or 'the evidence is missing'}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if min(values) > -math.inf else -math.inf


def _pair(values: Sequence[float]) -> str:
    return f"{show(values[0])} ({show(values[1])})"
