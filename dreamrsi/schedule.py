"""The policy template: a few thresholds that follow one schedule, written out as the source of a policy file.

A :class:`Schedule` says which rules a policy has and between which values their thresholds move; :func:`source` writes
the program, without the code of rules that are not used, and :func:`read` finds the schedule of such a program again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from dreamrsi.errors import UserError

DEFAULT_BETA = 0.6
"""The knob where nothing speaks for another value (paper, appendix B.2: about 0.6 while the history is short)."""

Order = Literal["opened", "best", "last"]
Shares = tuple[float, float]
Counts = tuple[int, int]


@dataclass(frozen=True)
class Schedule:
    """The parameters of an exploration policy.

    A threshold is a pair: its value at level 0 and at level 1, the second at least as large. The level is ``beta`` plus
    ``drift`` for every round in a row that did not raise the best score, kept in [0, 1]; it is the one schedule that
    all thresholds follow, so a higher ``beta`` (patience) never makes one smaller. Of the prefix nothing enters but
    counts and comparisons of its scores. Shares are of W, the width; fractions are kept to six decimals.

    Attributes
    ----------
    beta : the knob's default, from 0 to 1.
    bootstrap : share of W, up to 4: branches to open at the start; without ``reopen`` branches to open in all.
    width : share of W, up to 1: picks of a batch after the first.
    narrow : factor, up to 1, by which that width shrinks after a round that raised the best; it grows back likewise
        after one that did not. 1 leaves it alone.
    order : which live branches go first where there are more than places: the earliest ``opened``, the highest
        ``best`` or the highest ``last`` score.
    strikes : attempts in a row that did not improve on the best of their branch, after which it is retired. None:
        never.
    reopen : share of W, up to 4: while fewer branches are live, free workers open new ones before others are extended.
        None: never.
    repairs : failures in a row after which a branch is still extended, at most one such branch a batch. None: a
        failure is an attempt like any other.
    quiet : rounds in a row that did not raise the best, after which the policy stops. None: when nothing is left to do.
    fade : rounds that are added to ``quiet`` for every round that it took to reach the best.
    drift : change of the level with every round in a row that did not raise the best.

    Raises
    ------
    UserError
        A value outside these bounds; names it.
    """

    beta: float = DEFAULT_BETA
    bootstrap: Shares = (1.0, 1.0)
    width: Shares = (1.0, 1.0)
    narrow: float = 1.0
    order: Order = "opened"
    strikes: Counts | None = None
    reopen: Shares | None = None
    repairs: Counts | None = None
    quiet: Counts | None = None
    fade: float = 0.0
    drift: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            _check_number(name, getattr(self, name), low, high, float)
            object.__setattr__(self, name, round(float(getattr(self, name)), 6))
        for name, (low, high, kind, optional) in _PAIRS.items():
            value = getattr(self, name)
            if value is not None or not optional:
                _check_pair(name, value, low, high, kind)
                object.__setattr__(self, name, tuple(round(kind(part), 6) for part in value))
        if self.order not in get_args(Order):
            raise UserError(f"schedule: order is {self.order!r}; choose one of {', '.join(get_args(Order))}")

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Schedule:
        """The schedule that :meth:`to_json` wrote."""
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise UserError(f"a schedule has no parameter {unknown[0]!r}; it has {', '.join(known)}")
        return cls(**values)


_TINY = 0.01  # the smallest share or factor; it still means one place or branch
_BOUNDS = {"beta": (0.0, 1.0), "narrow": (_TINY, 1.0), "fade": (0.0, 4.0), "drift": (-1.0, 1.0)}
_PAIRS: dict[str, tuple[float, float, type, bool]] = {  # lowest, highest, kind, whether it may be None
    "bootstrap": (_TINY, 4.0, float, False),
    "width": (_TINY, 1.0, float, False),
    "strikes": (1, 1000, int, True),
    "reopen": (_TINY, 4.0, float, True),
    "repairs": (0, 1000, int, True),
    "quiet": (1, 1000, int, True),
}


def _check_number(name: str, value: object, low: float, high: float, kind: type) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (kind is float and isinstance(value, float))) or not low <= value <= high:  # type: ignore[operator]
        wanted = "whole number" if kind is int else "number"
        raise UserError(f"schedule: {name} is {value!r}; it must be a {wanted} from {low:g} to {high:g}")


def _check_pair(name: str, value: object, low: float, high: float, kind: type) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UserError(f"schedule: {name} is {value!r}; it must be two numbers, at level 0 and at level 1")
    for part in value:
        _check_number(name, part, low, high, kind)
    if value[0] > value[1]:
        raise UserError(f"schedule: {name} is {value!r}; a higher beta must not give a smaller threshold")


PARALLEL_REFINE = Schedule()
"""Open W branches, then extend every live one: what :class:`dreamrsi.policies.ParallelRefine` does, at every beta."""

EARLY_STOP = Schedule(strikes=(2, 2), reopen=(1.0, 1.0))
"""Two strikes and a new branch for every free worker: :class:`dreamrsi.policies.EarlyStop`, at every beta."""


def source(schedule: Schedule, name: str) -> bytes:
    """Write a policy file.

    Parameters
    ----------
    schedule : what it does.
    name : the policy's, of letters, digits and ``_.:=,+-``.

    Returns
    -------
    bytes
        Python source that defines ``class Policy`` (docs/adding-a-policy.md). Equal arguments give equal bytes.
    """
    if not re.fullmatch(_NAME, name):
        raise UserError(f"{name!r} cannot be the name of a policy; use letters, digits and _.:=,+- only")
    use = _Uses(schedule)
    parts = [_introduction(schedule, use), "from dreamrsi.prefix import OPEN", _constants(schedule, use)]
    text = "\n\n".join(parts) + "\n\n\n"
    if use.level:
        text += _BETWEEN + "\n\n\n"
    text += "\n".join([*_head(schedule, use, name), *_notice(use), *_schedule(use), *_choose(schedule, use)]) + "\n"
    return text.encode()


def read(content: bytes) -> Schedule | None:
    """The schedule of a policy file that :func:`source` wrote; None for every other file.

    The file is neither run nor parsed: its constants are looked up, and the file is written again from them.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    found: dict[str, Any] = {}
    for constant, *parts in re.findall(rf"^([A-Z]+) = (?:({_NUMBER})|\(({_NUMBER}), ({_NUMBER})\))  #", text, re.M):
        numbers = [float(n) if "." in n else int(n) for n in parts if n]
        found[constant.lower()] = numbers[0] if constant.lower() in _BOUNDS else (numbers[0], numbers[-1])
    beta = re.search(rf"^    beta = ({_NUMBER})$", text, re.M)
    name = re.search(rf'^    name = "({_NAME})"$', text, re.MULTILINE)
    if beta is None or name is None:
        return None
    for order in get_args(Order):
        try:
            schedule = Schedule.from_json({**found, "beta": float(beta[1]), "order": order})
        except UserError:
            return None
        if source(schedule, name[1]) == content:
            return schedule
    return None


_NAME = r"[\w.:=,+-]{1,80}"
_NUMBER = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?"

_BETWEEN = '''\
def between(pair, level):
    """The value of a threshold at a level from 0 to 1."""
    low, high = pair
    return low + (high - low) * level'''


class _Uses:
    """Which rules a schedule has; the code of the others is left out."""

    def __init__(self, s: Schedule) -> None:
        self.narrow = s.narrow < 1
        self.width = self.narrow or s.width != (1.0, 1.0)
        self.given = [name for name in _PAIRS if getattr(s, name) is not None and (name != "width" or self.width)]
        self.moving = {name for name in self.given if len(set(getattr(s, name))) == 2}
        self.level = bool(self.moving)
        self.drift = self.level and s.drift != 0
        self.quiet = s.quiet is not None
        self.fade = self.quiet and s.fade > 0
        self.count = self.quiet or self.drift
        self.notice = self.narrow or self.count


def _plain(value: float | int) -> str:
    """A number as it stands in the source: never in exponents, so that ``read`` finds it."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _introduction(s: Schedule, use: _Uses) -> str:
    rules = ["Open branches first"]
    if s.order == "opened":
        rules.append("then extend the live ones, the earliest first")
    else:
        rules.append(f"then extend the live ones, those with the highest {s.order} score first")
    lines = ['"""' + ", ".join(rules) + "."]
    if use.level:
        lines += [
            "",
            "Two values of a threshold are those at level 0 and at level 1; it moves between them with the level.",
            "The level is the knob beta" + (", plus a drift while the best score stalls." if use.drift else "."),
            "A higher beta is more patient: wider, deeper, slower to give up.",
        ]
    else:
        lines += ["", "No threshold moves with the knob beta."]
    lines += ["Shares are of the width, the most picks a batch may hold.", '"""']
    return "\n".join(lines)


def _constants(s: Schedule, use: _Uses) -> str:
    words = {
        "bootstrap": "share: branches to open at the start",
        "width": "share: picks of a batch after the first",
        "strikes": "attempts in a row without a new best of their branch after which it is retired",
        "reopen": "share: while fewer branches are live, free workers open new ones",
        "repairs": "failures in a row after which a branch is still tried; more retire it",
        "quiet": "rounds in a row without a new best score after which the search stops",
    }
    if s.reopen is None:
        words["bootstrap"] = "share: branches to open, in all"
    lines = []
    for name in use.given:
        low, high = getattr(s, name)
        value = f"({_plain(low)}, {_plain(high)})" if name in use.moving else _plain(low)
        lines.append(f"{name.upper()} = {value}  # {words[name]}")
    if use.fade:
        lines.append(f"FADE = {_plain(s.fade)}  # rounds more before it stops, for each round that the best took")
    if use.narrow:
        lines.append(
            f"NARROW = {_plain(s.narrow)}  # the batch shrinks by this factor after a new best, else grows back"
        )
    if use.drift:
        lines.append(f"DRIFT = {_plain(s.drift)}  # change of the level with each round without a new best score")
    return "\n".join(lines)


def _head(s: Schedule, use: _Uses, name: str) -> list[str]:
    lines = ["class Policy:", f'    name = "{name}"', f"    beta = {_plain(s.beta)}", ""]
    lines += ["    def start(self, width):", "        self.width = width"]
    lines += ["        self.live = []  # branches that can be extended", "        self.opened = 0"]
    lines += _those(
        (use.notice, "        self.best = None  # score"),
        (use.count, "        self.quiet = 0  # rounds in a row without a new best score"),
        (use.fade, "        self.reached = 0  # rounds that the best score took"),
        (use.narrow, "        self.share = 1.0  # of its width that a batch has now"),
    )
    return [*lines, ""]


def _those(*lines: tuple[bool, str]) -> list[str]:
    """The lines whose rule is used."""
    return [line for used, line in lines if used]


def _notice(use: _Uses) -> list[str]:
    """The method that follows the best score."""
    if not use.notice:
        return []
    lines = ["    def notice(self, prefix):", '        """See whether the last round raised the best score."""']
    lines += ["        if prefix.round:", "            if prefix.best > self.best:"]
    lines += _those(
        (use.count, "                self.quiet = 0"),
        (use.fade, "                self.reached = prefix.round"),
        (use.narrow, "                self.share = max(1 / self.width, self.share * NARROW)"),
        (True, "            else:"),
        (use.count, "                self.quiet += 1"),
        (use.narrow, "                self.share = min(1.0, self.share / NARROW)"),
    )
    return [*lines, "        self.best = prefix.best", ""]


def _schedule(use: _Uses) -> list[str]:
    """The method that gives all thresholds of a round."""
    lines = ["    def schedule(self):", '        """The thresholds of this round."""']
    if use.drift:
        lines.append("        level = min(1.0, max(0.0, self.beta + DRIFT * self.quiet))")
    elif use.level:
        lines.append("        level = self.beta")
    lines.append("        return {")
    for name in use.given:
        value = f"between({name.upper()}, level)" if name in use.moving else name.upper()
        if name in ("bootstrap", "width", "reopen"):
            share = " * self.share" if name == "width" and use.narrow else ""
            value = f"max(1, round({value} * self.width{share}))"
        elif name in use.moving:
            value = f"round({value})"
        if name == "quiet" and use.fade:
            value += " + int(FADE * self.reached)"
        lines.append(f'            "{name}": {value},')
    return [*lines, "        }", ""]


def _choose(s: Schedule, use: _Uses) -> list[str]:
    lines = ["    def choose(self, prefix):"]
    if use.notice:
        lines.append("        self.notice(prefix)")
    lines.append("        now = self.schedule()")
    if use.quiet:
        lines += ['        if self.quiet >= now["quiet"]:', "            return []  # nothing better for too long"]
    lines += [
        "        branches = prefix.branches",
        "        if len(branches) > self.opened:",
        "            self.live += branches[self.opened :]",
        "            self.opened = len(branches)",
    ]
    lines += _living(s)
    lines += ["        ready = self.live"] + _ready(s)
    places = 'now["width"] if prefix.round else self.width' if use.width else "self.width"
    lines.append(f"        places = {places}")
    if s.reopen is None:
        lines.append('        opens = now["bootstrap"] - self.opened')
    else:
        lines.append('        opens = (now["reopen"] if prefix.round else now["bootstrap"]) - len(self.live)')
    return [
        *lines,
        "        opens = max(0, min(opens, places)) if prefix.can_open else 0",
        "        return [branch.number for branch in ready[: places - opens]] + [OPEN] * opens",
    ]


def _living(s: Schedule) -> list[str]:
    """Which branches stay live; the others are left for good."""
    conditions = ["not branch.ended"]
    if s.strikes is not None:
        conditions.append('branch.stalled < now["strikes"]')
    if s.repairs is not None:
        conditions.append('branch.failures <= now["repairs"]')
    text = f"        self.live = [branch for branch in self.live if {' and '.join(conditions)}]"
    if len(text) <= 120:
        return [text]
    lines = ["        self.live = [", "            branch", "            for branch in self.live"]
    return [*lines, "            if " + " and ".join(conditions), "        ]"]


def _ready(s: Schedule) -> list[str]:
    """Which live branches may be extended, the first ones first."""
    lines = []
    if s.order != "opened":
        lines.append(f"        ready = sorted(ready, key=lambda branch: branch.{s.order}, reverse=True)")
    if s.repairs is not None:
        lines += [
            "        broken = [branch for branch in ready if branch.failures]",
            "        if broken:  # one of them a batch, the best",
            "            repair = max(broken, key=lambda branch: branch.best)",
            "            ready = [repair] + [branch for branch in ready if not branch.failures]",
        ]
    return lines
