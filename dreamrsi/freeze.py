"""Freezing: the trees, the current policy and the settings become a suite that never changes."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dreamrsi.decision import Settings
from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write
from dreamrsi.objective import scaled_betas
from dreamrsi.replay import Episode
from dreamrsi.sandbox import SandboxedPolicy, replay_sandboxed
from dreamrsi.suite import (
    CURRENT,
    LAST,
    MANIFEST,
    MAX_ATTEMPTS,
    MAX_DROP,
    TREES,
    Entry,
    Manifest,
    Suite,
    check_limits,
    fingerprint,
    load_closed,
    neighbourhood_problem,
    read_policy,
    round_number,
    seal,
)
from dreamrsi.tree import Tree

AROUND = (0.5, 0.75, 1.0, 1.5, 2.0)
"""The declared neighbourhood, if no other is declared: these multiples of beta1 and of beta2."""


def freeze(
    trees: Sequence[str | os.PathLike[str]],
    policy: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    width: int | None = None,
    steps: int | None = None,
    branches: int | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    beta: float | None = None,
    around: Sequence[float] = AROUND,
    margin: float | None = None,
    last: int = LAST,
    max_rounds: int | None = None,
    max_drop: float = MAX_DROP,
    max_attempts: float = MAX_ATTEMPTS,
    others: Iterable[str | os.PathLike[str]] = (),
) -> Suite:
    """Freeze trees and the current policy into a suite. The same input gives the same bytes.

    Parameters
    ----------
    trees : files, in the order in which the trees closed.
    policy : the file of the current policy.
    out : the suite's folder, which must not exist.
    width, steps, branches : what the current policy is deployed with; that of the last tree if None.
    beta1, beta2 : those of :func:`dreamrsi.scaled_betas` if None.
    beta : what the policy's knob is set to; that of the last tree, where a run's folder says it, if None.
    around : the declared neighbourhood, as multiples of beta1 and of beta2.
    margin : a difference in mean V that counts as a tie there, in units of the score; beta1, the cost of one attempt,
        if None.
    last : K of the coverage rule.
    max_rounds : K2 of the replays; as many as a tree has attempts if None.
    max_drop, max_attempts : stricter limits than the usual 0.02 and 0.80 of the shadow and gain rules.
    others : those of the trees that another policy recorded. A tree with a ``policy.py`` beside it, as in a run's
        folder, says itself whether the current policy recorded it; every other tree is taken for its log.

    Raises
    ------
    UserError
        A file cannot be read; a tree was not closed or has no score; a setting is out of range or missing.
    """
    folder = Path(out)
    if folder.exists():
        raise UserError(f"{folder}: exists already; a suite is never changed, freeze into a new folder")
    if not trees:
        raise UserError("give the trees to freeze, in the order in which they closed")
    source = read_policy(policy)
    foreign = {Path(path).resolve() for path in others}
    unknown = foreign - {Path(path).resolve() for path in trees}
    if unknown:
        raise UserError(f"{min(unknown)}: is not among the trees that are frozen; name one of them")
    loaded = [load_closed(Path(path)) for path in trees]
    twice = [tree.name for tree, seen in zip(loaded, _seen(loaded), strict=True) if seen]
    if twice:
        raise UserError(f"{twice[0]}: is there twice; give every tree once")
    given = {"width": width, "steps": steps, "branches": branches, "beta1": beta1, "beta2": beta2}
    settings = _settings(loaded, given, beta=_knob(Path(trees[-1])) if beta is None else beta)
    b1, b2 = settings.beta1, settings.beta2
    assert b1 is not None and b2 is not None
    with SandboxedPolicy(source, Path(policy).name) as sandboxed:
        name = sandboxed.name
    entries: list[Entry] = []
    for path, tree in zip(map(Path, trees), loaded, strict=True):
        own = path.resolve() not in foreign and _recorded_by(path, source)
        at = tree.header.width or settings.width
        knob = _knob(path) if own else settings.beta
        replayed = None if own else replay_sandboxed(source, [tree], at, max_rounds, beta=knob)[0]
        entries.append(_entry(len(entries), path, tree, replayed, knob))
    manifest = Manifest(
        policy=name,
        settings=settings,
        max_rounds=max_rounds,
        last=last,
        beta1s=tuple(factor * b1 for factor in around),
        beta2s=tuple(factor * b2 for factor in around),
        margin=b1 if margin is None else margin,
        max_drop=max_drop,
        max_attempts=max_attempts,
        trees=tuple(entries),
    )
    _check_settings(manifest)
    _write(folder, manifest, source, {e.file: Path(path) for e, path in zip(manifest.trees, trees, strict=True)})
    return Suite.load(folder)


def multiples(low: float, high: float) -> tuple[float, ...]:
    """Five multiples from low to high, 1 among them; a UserError where they do not lie around it."""
    if not 0 <= low < 1 < high < math.inf:
        raise UserError(f"a neighbourhood from {low:g} to {high:g} times the betas is not around them; 0.5 and 2, say")
    return low, (low + 1) / 2, 1.0, (1 + high) / 2, high


def _recorded_by(path: Path, source: bytes) -> bool:
    """Whether the policy recorded the tree, as far as can be told: the file beside it decides, where there is one."""
    beside = path.absolute().parent / "policy.py"
    return not beside.exists() or read_policy(beside) == source


class _Round(msgspec.Struct):
    """What of a run's ``round.json`` is needed: the value of the knob, and why; None where it was left alone."""

    beta: tuple[float, str] | None = None


def _knob(path: Path) -> float | None:
    """What the knob of the policy that recorded a tree was set to, as the run's folder says it."""
    beside = path.absolute().parent / "round.json"
    if round_number(path) is None or not beside.exists():
        return None
    try:
        found = msgspec.json.decode(beside.read_bytes(), type=_Round)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{beside}: cannot be read ({error}); it says how the tree was recorded") from error
    return found.beta[0] if found.beta else None


def _seen(trees: Sequence[Tree]) -> list[bool]:
    """For each tree, whether one with the same attempts came before it."""
    marks = [fingerprint(tree) for tree in trees]
    return [mark in marks[:place] for place, mark in enumerate(marks)]


def _settings(trees: Sequence[Tree], given: Mapping[str, Any], beta: float | None) -> Settings:
    """What was given, and for the rest what the last tree and the scale of the scores say."""
    header = trees[-1].header
    said: dict[str, Any] = {"width": header.width, "steps": header.steps, "branches": header.branches}
    said |= zip(("beta1", "beta2"), scaled_betas(trees), strict=True)
    said |= {name: value for name, value in given.items() if value is not None}
    if said["width"] is None:
        raise UserError(f"{trees[-1].name}: does not say the width it was recorded at; give the width")
    return Settings(**said, beta=beta)


def _entry(number: int, path: Path, tree: Tree, replayed: Episode | None, knob: float | None) -> Entry:
    """``replayed`` is the current policy's episode on a tree that another one recorded."""
    place = round_number(path)
    stem = path.stem if place is None else f"round-{place:02d}"
    name = re.sub(r"[^A-Za-z0-9_.\-]", "-", stem).lstrip(".-")[:80] or "tree"
    attempts, best = (len(tree), tree.best) if replayed is None else (replayed.attempts, replayed.best)
    logged = best if math.isfinite(best) else None
    return Entry(f"{TREES}/{number:03d}-{name}.jsonl", name, replayed is None, attempts, logged, place, knob)


def _check_settings(manifest: Manifest) -> None:
    """Refuse what a gate would refuse whatever the candidate."""
    settings, trees = manifest.settings, len(manifest.trees)
    check_limits(manifest)
    if manifest.last < 1:
        raise UserError(f"K, the trees that coverage looks at, is {manifest.last}; it must be at least 1")
    if manifest.last > trees:
        raise UserError(f"coverage looks at the last {manifest.last} trees, and there are {trees}; give more trees")
    problem = neighbourhood_problem(manifest, settings.beta1, settings.beta2)
    if problem:
        raise UserError(problem)


def _write(folder: Path, manifest: Manifest, source: bytes, trees: Mapping[str, Path]) -> None:
    """Write the suite beside its place and rename it: it is there whole or not at all."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        temporary.chmod(0o755)  # mkdtemp gives 0700, which others could not read
        (temporary / TREES).mkdir()
        for file, path in trees.items():
            shutil.copyfile(path, temporary / file)
        atomic_write(temporary / CURRENT, source)
        atomic_write(temporary / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        seal(temporary)
        os.rename(temporary, folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; choose another folder") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
