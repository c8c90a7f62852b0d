"""Exploration policies: given the prefix, pick the next batch. Each is a few lines; its rule is its docstring.

The first five are those of the article "Branch six was never on the map"; the portfolio follows the paper's
appendix B.2; random is the floor. The exact rules of :class:`Adaptive` and :class:`Portfolio` are in
``synthetic/README.md``, written before they were scored.
"""

from __future__ import annotations

import inspect
import math
import operator
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from dreamrsi.errors import UserError
from dreamrsi.prefix import OPEN, Branch, Prefix

_last = operator.attrgetter("last")
_best = operator.attrgetter("best")
_attempts = operator.attrgetter("attempts")
_REPAIRABLE = ("invalid", "error", "timeout")


class Policy(Protocol):
    """What replay and live runs ask of a policy. It must be deterministic and see nothing but the prefix."""

    @property
    def name(self) -> str:
        """Its name in tables and messages."""

    def start(self, width: int) -> None:
        """Begin a fresh episode with at most ``width`` picks a batch; forget everything."""

    def choose(self, prefix: Prefix) -> Sequence[int]:
        """Return the next batch: OPEN or numbers of branches to extend; an empty one stops."""


class _Builtin:
    """What the built-in policies share: the branches that are still live, and a name that says the parameters."""

    def __init__(self) -> None:
        self.name = _snake(type(self).__name__)

    def _parameters(self, **given: object) -> None:
        """Say in the name which parameters are not the default."""
        shown = ",".join(f"{key}={value}" for key, value in given.items() if value is not None)
        self.name += f":{shown}" if shown else ""

    def __repr__(self) -> str:
        return f"<policy {self.name}>"

    def start(self, width: int) -> None:
        """Begin a fresh episode."""
        self._width = width
        self._live: list[Branch] = []
        self._opened = 0

    def _look(self, prefix: Prefix) -> list[Branch]:
        """The live branches, in the order they were opened."""
        branches = prefix.branches
        if len(branches) > self._opened:
            self._live.extend(branches[self._opened :])
            self._opened = len(branches)
        self._live = [branch for branch in self._live if not branch.ended]
        return self._live


class ParallelRefine(_Builtin):
    """Open W branches, then extend every live one. ``width`` and ``bootstrap`` freeze it below W."""

    def __init__(self, width: int | None = None, bootstrap: int | None = None) -> None:
        super().__init__()
        self._parameters(width=_positive("width", width), bootstrap=_positive("bootstrap", bootstrap))
        self.width = width
        self.bootstrap = bootstrap

    def start(self, width: int) -> None:
        """Begin a fresh episode."""
        super().start(min(width, self.width or width))
        self._first = self.bootstrap or self._width

    def choose(self, prefix: Prefix) -> list[int]:
        """Extend the live branches; open until ``bootstrap`` are."""
        batch = [branch.number for branch in self._look(prefix)[: self._width]]
        if self._opened < self._first and prefix.can_open:
            batch += [OPEN] * min(self._first - self._opened, self._width - len(batch))
        return batch


class EarlyStop(_Builtin):
    """Drop a branch that fails to improve on its best ``strikes`` times in a row.

    A dropped or ended branch frees its worker, which opens the next branch.
    """

    def __init__(self, strikes: int = 2, width: int | None = None, bootstrap: int | None = None) -> None:
        super().__init__()
        self._parameters(
            strikes=_positive("strikes", strikes) if strikes != 2 else None,
            width=_positive("width", width),
            bootstrap=_positive("bootstrap", bootstrap),
        )
        self.strikes = strikes
        self.width = width
        self.bootstrap = bootstrap

    def start(self, width: int) -> None:
        """Begin a fresh episode."""
        super().start(min(width, self.width or width))
        self._first = min(self.bootstrap or self._width, self._width)

    def choose(self, prefix: Prefix) -> list[int]:
        """Extend what still improves; give every free worker the next branch."""
        strikes = self.strikes
        self._live = live = [branch for branch in self._look(prefix) if branch.stalled < strikes]
        batch = [branch.number for branch in live]
        if prefix.can_open:
            batch += [OPEN] * ((self._width if prefix.round else self._first) - len(batch))
        return batch


class GreedyBest(_Builtin):
    """After the bootstrap extend the single best live leaf, one a round.

    The next branch is opened only when no leaf is live.
    """

    def __init__(self, bootstrap: int | None = None) -> None:
        super().__init__()
        self._parameters(bootstrap=_positive("bootstrap", bootstrap))
        self.bootstrap = bootstrap

    def choose(self, prefix: Prefix) -> list[int]:
        """Extend the best leaf; the earliest branch on a tie."""
        if prefix.round == 0:
            return [OPEN] * min(self.bootstrap or self._width, self._width)
        live = self._look(prefix)
        if live:
            return [max(live, key=_last).number]
        return [OPEN] if prefix.can_open else []


class Adaptive(_Builtin):
    """Narrow while the best improves, widen when it stalls.

    Half the width after a round that raised the best score, twice the width (at most W) after one that did not.
    The width goes to the best live leaves; where there are fewer, new branches are opened.
    """

    def start(self, width: int) -> None:
        """Begin a fresh episode."""
        super().start(width)
        self._now = width
        self._best = -math.inf

    def choose(self, prefix: Prefix) -> list[int]:
        """Set the width by the last round, then take the best leaves."""
        live = self._look(prefix)
        if prefix.round:
            self._now = max(1, self._now // 2) if prefix.best > self._best else min(self._width, 2 * self._now)
        self._best = prefix.best
        batch = [branch.number for branch in sorted(live, key=_last, reverse=True)[: self._now]]
        if prefix.can_open:
            batch += [OPEN] * (self._now - len(batch))
        return batch


class SemanticGuidance(_Builtin):
    """Bootstrap W branches, then extend only those whose first attempt carries the recommended tag.

    Stops when they are exhausted.
    """

    def choose(self, prefix: Prefix) -> list[int]:
        """Extend the advised branches."""
        if prefix.round == 0:
            return [OPEN] * self._width
        advice = prefix.advice
        return [branch.number for branch in self._look(prefix) if advice is not None and branch.tag == advice]


class Portfolio(_Builtin):
    """Each batch mixes exploitation, exploration and at most one recovery (after the paper's appendix B.2).

    A branch that failed to improve three times in a row is retired. One place goes to the best branch whose leaf
    is a first failure; half the width to the branches with the highest best; the rest opens branches while fewer than W
    are live, then goes to the least extended ones.
    """

    def choose(self, prefix: Prefix) -> list[int]:
        """Fill the places in the order recovery, exploitation, exploration."""
        self._live = live = [branch for branch in self._look(prefix) if branch.stalled < 3]
        broken = [b for b in live if b.status in _REPAIRABLE]
        sound = [b for b in live if b not in broken] if broken else live[:]
        batch = [b.number for b in sorted((b for b in broken if b.failures == 1), key=_best, reverse=True)[:1]]
        sound.sort(key=_best, reverse=True)
        half = (self._width + 1) // 2
        batch += [b.number for b in sound[: min(half, self._width - len(batch))]]
        room = self._width - len(batch)
        if prefix.can_open:
            opens = min(room, max(0, self._width - len(live)))
            batch += [OPEN] * opens
            room -= opens
        rest = sorted(sound[half:], key=_attempts)
        return batch + [b.number for b in rest[:room]]


class Random(_Builtin):
    """The floor: each round stop with chance 1/10, else make a random number of random picks."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._parameters(seed=seed)
        self.seed = seed

    def start(self, width: int) -> None:
        """Begin a fresh episode with the same random numbers."""
        super().start(width)
        self._random = random.Random(self.seed)

    def choose(self, prefix: Prefix) -> list[int]:
        """Draw from the live branches and, where one can be opened, OPEN."""
        live = self._look(prefix)
        options = [branch.number for branch in live] + ([OPEN] if prefix.can_open else [])
        if not options or (prefix.round and self._random.random() < 0.1):
            return []
        return self._random.sample(options, min(len(options), self._random.randint(1, self._width)))


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise UserError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return value


BUILTIN: dict[str, Callable[..., Policy]] = {
    _snake(policy.__name__): policy
    for policy in (ParallelRefine, EarlyStop, GreedyBest, Adaptive, SemanticGuidance, Portfolio, Random)
}
"""Name -> class of every built-in policy."""

ARTICLE = ("parallel_refine", "early_stop", "greedy_best", "adaptive", "semantic_guidance")
"""The five policies that the article compares."""


def make(text: str) -> Policy:
    """Build a built-in policy from ``name`` or ``name:key=value,...``, as the command line and policy names write it.

    Raises
    ------
    UserError
        Unknown name or parameter, or a value that is not a whole number.
    """
    name, _, rest = text.partition(":")
    if name.endswith(".py") and rest:
        raise UserError(f"{text}: a policy file takes no parameters; set them in the file, and give {name}")
    if name.endswith(".py"):
        raise UserError(f"{text}: a policy file cannot be used here; name a built-in policy: {', '.join(BUILTIN)}")
    if name not in BUILTIN:
        raise UserError(f"there is no policy {name!r}; choose one of {', '.join(BUILTIN)}, or give a .py file")
    known = list(inspect.signature(BUILTIN[name]).parameters)
    values: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise UserError(f"policy {name} has no parameter {key!r}; it has {', '.join(known) or 'none'}")
        try:
            values[key] = int(value)
        except ValueError:
            raise UserError(f"policy {name}: {key}={value} is not a whole number") from None
    if name == "random" and "seed" not in values:
        values["seed"] = 0
    return BUILTIN[name](**values)
