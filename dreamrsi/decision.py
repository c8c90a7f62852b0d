"""What was decided about a policy, why, and on what evidence: a record that a program and a person can read."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

FORMAT = "dreamrsi.decision/1"

RULES: dict[str, str] = {
    "frozen": "the suite is as it was frozen, and the current policy is the one pinned in it",
    "sound": "both policies run, choose the same each time, and remember nothing",
    "log": "replaying the current policy reproduces its log",
    "gain": "no worse in value and quality, with fewer attempts",
    "coverage": "the winners of the last trees are within reach",
    "betas": "it wins over the declared neighbourhood of (beta1, beta2)",
    "shadow": "it holds on two trees that closed since",
    "review": "a person has read what changes the width, the depth or the cost term",
}
"""The checks that a gate's decision holds, in this order: name -> what it means. All are needed."""


class Check(msgspec.Struct, frozen=True):
    """One rule: whether it holds, the numbers behind that, and what to tell a reader."""

    name: str
    passed: bool
    evidence: dict[str, Any]
    reason: str


class Named(msgspec.Struct, frozen=True):
    """A policy: its name, and the hash of the bytes that run."""

    name: str
    sha256: str


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a policy is deployed and judged.

    ``width`` is W; ``steps`` (the depth: attempts a branch) and ``branches`` (workspaces) are caps, None for none;
    ``beta1`` and ``beta2``, in units of the score, make the cost term; ``beta`` is what the policy's knob is set to,
    None for its own default.
    """

    width: int
    steps: int | None = None
    branches: int | None = None
    beta1: float | None = None
    beta2: float | None = None
    beta: float | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided.

    Attributes
    ----------
    kind : ``gate``; ``first`` (the first policy of a deployment); ``kill`` and ``rollback`` of a live round.
    outcome : ``promoted`` or ``refused`` by a gate; ``deployed``, ``killed``, ``rolled back`` else.
    time : when, in UTC.
    suite : hash of the frozen suite.
    policy, current : the candidate (or what was deployed), and what it was compared with (or what comes back).
    settings : how the candidate is to be deployed.
    checks : one a rule, for a gate.
    fired : the reasons of a kill or a rollback.
    diff, diff_sha256 : what a reviewer reads, and its hash.
    reviewer : who says that it was read.
    """

    format: str = FORMAT
    kind: Literal["gate", "first", "kill", "rollback"]
    outcome: Literal["promoted", "refused", "deployed", "killed", "rolled back"]
    time: str
    suite: str | None = None
    policy: Named | None = None
    current: Named | None = None
    settings: Settings | None = None
    checks: tuple[Check, ...] = ()
    fired: tuple[str, ...] = ()
    diff: str = ""
    diff_sha256: str | None = None
    reviewer: str | None = None

    @property
    def promoted(self) -> bool:
        """Whether every rule was checked and passed; never by what ``outcome`` says alone."""
        complete = [check.name for check in self.checks] == list(RULES)
        return self.kind == "gate" and complete and all(check.passed is True for check in self.checks)

    def check(self, name: str) -> Check:
        """The check of one rule."""
        return next(check for check in self.checks if check.name == name)

    def json(self) -> bytes:
        """The record for programs. A number that is not finite is null."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def markdown(self) -> str:
        """The record for people."""
        lines = [f"# {_title(self)}", "", f"{self.time}. {_about(self)}", ""]
        for name, named in (("policy", self.policy), ("current policy", self.current)):
            if named:
                lines.append(f"* {name}: {plain(named.name)}, sha256 `{named.sha256}`")
        if self.suite:
            lines.append(f"* suite: sha256 `{self.suite}`")
        if self.settings:
            lines.append(f"* deployed with {describe(self.settings)}")
        if self.reviewer:
            lines.append(f"* reviewer: {plain(self.reviewer)}")
        lines += [f"* fired: {plain(reason)}" for reason in self.fired]
        if self.checks:
            lines += ["", "| rule | | why |", "|---|---|---|"]
            lines += [
                f"| {c.name} | {'passed' if c.passed else '**FAILED**'} | {_cell(c.reason)} |" for c in self.checks
            ]
        for check in self.checks:
            lines += _evidence(check)
        if self.diff:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", self.diff)), default=0))
            lines += ["", f"## Diff, sha256 `{self.diff_sha256}`", "", f"{fence}diff", self.diff.rstrip("\n"), fence]
        return "\n".join(lines) + "\n"


def decode(content: bytes) -> Decision:
    """Read a decision from its record.

    Raises
    ------
    msgspec.DecodeError
        It is none.
    """
    return msgspec.json.decode(content, type=Decision)


def describe(settings: Settings) -> str:
    """One line: ``width 8, steps 11, branches 8, beta1 0.02, beta2 0.05``."""
    said = msgspec.structs.asdict(settings)
    if settings.beta is None:
        del said["beta"]
    return ", ".join(f"{name} {show(value)}" for name, value in said.items())


def show(value: Any) -> str:
    """A value as a reader sees it; ``none`` for None."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def percent(share: float) -> str:
    """A share as a reader sees it: ``2 percent``."""
    return f"{100 * share:.3g} percent"


def changes(then: Settings, now: Settings) -> list[str]:
    """What of the settings changes, one line each: ``width: 8 -> 4``."""
    old, new = msgspec.structs.asdict(then), msgspec.structs.asdict(now)
    return [f"{name}: {show(old[name])} -> {show(new[name])}" for name in old if old[name] != new[name]]


def diff_text(current: bytes, candidate: bytes, then: Settings, now: Settings) -> str:
    """What a reviewer reads: the hashes of both policies, what changes of the settings, and the diff of the source.

    Characters that a terminal does not show, or shows elsewhere, are written as escapes.
    """
    old, new = (plain(source.decode(errors="backslashreplace"), keep="\n\t") for source in (current, candidate))
    lines = [f"current sha256 {hashlib.sha256(current).hexdigest()}"]
    lines += [f"candidate sha256 {hashlib.sha256(candidate).hexdigest()}", *changes(then, now)]
    lines += difflib.unified_diff(old.split("\n"), new.split("\n"), "current", "candidate", lineterm="")
    return "\n".join(lines) + "\n"


def plain(text: str, keep: str = "") -> str:
    """Text with everything that cannot be printed, such as control and bidirectional characters, as escapes."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _title(decision: Decision) -> str:
    name = plain(decision.policy.name) if decision.policy else "no policy"
    return f"{decision.kind}: {name} {decision.outcome}"


def _about(decision: Decision) -> str:
    if decision.kind != "gate":
        return "No rule of the gate was asked."
    failed = [check.name for check in decision.checks if not check.passed]
    if not failed:
        return f"All {len(decision.checks)} rules passed."
    return f"{len(failed)} of {len(decision.checks)} rules failed: {', '.join(failed)}."


def _cell(text: str) -> str:
    return plain(text, keep="\n").replace("|", "\\|").replace("\n", "<br>")


def _evidence(check: Check) -> list[str]:
    """The numbers behind a check: a table of each list of rows, then the rest as a list."""
    lines = ["", f"## {check.name}: {RULES.get(check.name, '')}", ""]
    tables: list[str] = []
    for key, value in check.evidence.items():
        rows = [row for row in value if isinstance(row, Mapping)] if isinstance(value, (list, tuple)) else []
        if rows and len(rows) == len(value):
            tables += ["", f"{key}:", "", *_table(rows)]
        else:
            lines.append(f"* {key}: {_cell(_value(value))}")
    return lines + tables


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(_cell(_value(row.get(c))) for c in columns) + " |" for row in rows]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(part)}" for key, part in value.items())
    if isinstance(value, float) and not math.isfinite(value):
        return "no score"
    return show(value)
