"""Replays the versions of a policy on the history, in the sandbox, and gives them their values."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, get_args

from dreamrsi import objective as eq1
from dreamrsi import traces
from dreamrsi.developers import Version
from dreamrsi.dream_files import Grid, Trial, finite
from dreamrsi.errors import PolicyError, UserError
from dreamrsi.replay import Episode
from dreamrsi.sandbox import Limits, SandboxedPolicy, replay_sandboxed
from dreamrsi.sweep_score import BETAS, sweep_score
from dreamrsi.tree import Tree

Objective = Literal["eq1", "sweep"]
Revise = Literal["best", "latest"]
Normalise = Literal["range"] | None

_PROBE = b"class Policy:\n def start(self, width): pass\n def choose(self, prefix): return []\n"


@dataclass(frozen=True)
class Settings:
    """What :func:`dreamrsi.dream.dream` was given; see there."""

    versions: int
    beta1: float
    beta2: float
    width: int
    seed: int
    max_rounds: int | None
    objective: Objective
    revise: Revise
    normalise: Normalise
    limits: Limits
    confirm: bool

    def check(self) -> None:
        """Refuse what is wrong before anything is written, asked or replayed."""
        rounds = 0 if self.max_rounds is None else self.max_rounds
        for name, number, least in (
            ("versions", self.versions, 1),
            ("width", self.width, 1),
            ("max_rounds", rounds, 0),
            ("seed", self.seed, 0),
        ):
            if type(number) is not int or number < least:
                raise UserError(f"{name} is {number!r}; it must be a whole number of at least {least}")
        if not (math.isfinite(self.beta1) and math.isfinite(self.beta2)):
            raise UserError(f"beta1 and beta2 must be finite numbers; got {self.beta1} and {self.beta2}")
        for name, given, known in (
            ("objective", self.objective, get_args(Objective)),
            ("revise", self.revise, get_args(Revise)),
            ("normalise", self.normalise, ("range", None)),
        ):
            if given not in known:
                raise UserError(f"{name} is {given!r}; it must be one of {known}")
        if self.normalise and self.objective == "sweep":
            raise UserError("normalise belongs to Eq. 1; the sweep score knows no scales; leave it out")


class Judge:
    """Gives versions their values, by their replays on a history of at least one tree."""

    def __init__(self, history: Sequence[Tree], settings: Settings) -> None:
        if not history:
            raise UserError("the history is empty; give at least one tree with a scored attempt")
        self.history = history
        self.settings = settings
        self._betas: tuple[float | None, ...] = (None,)
        if settings.objective == "sweep":
            self._betas = (None, *BETAS)
        nothing = [Episode("", tree.name, (), (), 0.0, "stopped") for tree in history]
        self._eq1(nothing, history)  # an error where scores cannot be normalised

    @property
    def text(self) -> str:
        """What a value is, in one line."""
        if self.settings.objective == "sweep":
            return "sweep score: area under attainment over work, minus 0.1 x rounds an attempt, over the grid of beta"
        best = "best" if self.settings.normalise is None else "best/(best recorded - root)"
        cost = f"{best} - {self.settings.beta1:g}*N + {self.settings.beta2:g}*N/max(1, k)"
        return f"mean over {len(self.history)} trees of V = {cost} for N attempts revealed in k rounds"

    @property
    def told(self) -> str:
        """What the values are that a developer is told, in one line."""
        if not self._hidden:
            return self.text
        return f"{self.text}. Of it you are told the rank among the versions so far: 1 is the lowest, equals share one"

    def ranked(self, versions: Sequence[Version]) -> tuple[Version, ...]:
        """The versions as a developer sees them.

        A value that depends on what was not revealed is replaced by its rank: with the value itself a developer could
        compute the best recorded score. What order alone says stays. -inf, a failure, is shown as it is.
        """
        if not self._hidden:
            return tuple(versions)
        levels = sorted({version.value for version in versions if version.value > -math.inf})
        return tuple(
            dataclasses.replace(v, value=1.0 + levels.index(v.value)) if v.value > -math.inf else v for v in versions
        )

    @property
    def _hidden(self) -> bool:
        """Whether values depend on scores that were not revealed, by the scale of a tree or by what is attained."""
        return self.settings.objective == "sweep" or self.settings.normalise is not None

    def trial(
        self, number: int, base: int | None, source: bytes, notes: Mapping[str, Any], earlier: Sequence[Trial]
    ) -> Trial:
        """Screen a version; one with the bytes of an earlier version takes its value."""
        hash_ = sha256(source).hexdigest()
        same = next((t for t in earlier if t.version.source == source and source), None)
        if same is not None:
            version = dataclasses.replace(same.version, number=number, base=base, notes=notes)
            return Trial(version, same.grid, same.traces, same.version.number)
        try:
            grid = self._screen(source)
        except PolicyError as error:
            if number == 0:
                _probe(error)
            failure = Version(number, base, source, hash_, -math.inf, (), notes, str(error))
            return Trial(failure, {})
        value, problem = self.value(grid)
        version = Version(number, base, source, hash_, value, grid[None], notes, problem)
        return Trial(version, grid, self.traces(grid))

    def _screen(self, source: bytes) -> Grid:
        """One process, all trees in lockstep, once for each beta."""
        grid: dict[float | None, tuple[Episode, ...]] = {}
        with SandboxedPolicy(source, limits=self.settings.limits) as policy:
            for beta in self._betas:
                policy.beta = beta
                grid[beta] = self._labelled(
                    policy.replay_all(self.history, self.settings.width, self.settings.max_rounds)
                )
        return grid

    def fresh(self, source: bytes, seed: str) -> Grid:
        """One fresh process a tree and beta, in a shuffled order.

        Raises
        ------
        PolicyError
            The policy could not be loaded this time.
        """
        order = [(beta, place) for beta in self._betas for place in range(len(self.history))]
        random.Random(seed).shuffle(order)
        found = {}
        for beta, place in order:
            alone = [self.history[place]]
            [found[beta, place]] = replay_sandboxed(
                source,
                alone,
                self.settings.width,
                self.settings.max_rounds,
                beta=beta,
                fresh=True,
                limits=self.settings.limits,
            )
        return {beta: self._labelled([found[beta, k] for k in range(len(self.history))]) for beta in self._betas}

    def _labelled(self, episodes: Iterable[Episode]) -> tuple[Episode, ...]:
        """Episodes without the names of files: developers see them, and the files hold what was not revealed."""
        return tuple(
            dataclasses.replace(episode, tree=_label(place), reveals=tuple(episode.reveals))
            for place, episode in enumerate(episodes)
        )

    def value(self, grid: Grid) -> tuple[float, str | None]:
        """The value by the objective, and why it is -inf."""
        problem = next((e.error for row in grid.values() for e in row if e.reason == "failed"), None)
        if problem is not None:
            return -math.inf, problem
        if self.settings.objective == "sweep":
            by_beta = {beta: row for beta, row in grid.items() if beta is not None}
            return sweep_score(by_beta, self.history, self.settings.width).reward, None
        blind = next((e.tree for e in grid[None] if e.best == -math.inf), None)
        return self._eq1(grid[None], self.history), None if blind is None else f"{blind}: nothing scored was revealed"

    def _eq1(self, episodes: Sequence[Episode], trees: Sequence[Tree]) -> float:
        s = self.settings
        return eq1.value(episodes, beta1=s.beta1, beta2=s.beta2, trees=trees, normalise=s.normalise)

    def per_tree(self, grid: Grid) -> list[dict[str, Any]]:
        """For dream.json: V and its parts on every tree."""
        return [
            {
                "V": finite(self._eq1([episode], [tree])),
                "quality": finite(episode.best),
                "attempts": episode.attempts,
                "rounds": episode.rounds,
                "reason": episode.reason,
            }
            for episode, tree in zip(grid.get(None, ()), self.history, strict=bool(grid))
        ]

    def traces(self, grid: Grid) -> tuple[str, ...]:
        """One text a tree: the episode at the policy's own beta, and where others were tried, how they ended."""
        s = self.settings
        scale = None if s.normalise is None else "best recorded - root"
        texts = []
        for place, episode in enumerate(grid.get(None, ())):
            text = traces.trace(
                episode,
                self.history[place],
                label=_label(place),
                width=s.width,
                beta1=s.beta1,
                beta2=s.beta2,
                scale=scale,
            )
            for beta, row in grid.items():
                if beta is not None:
                    e = row[place]
                    text += f"with beta {beta:g}: best {e.best:.10g}, N = {e.attempts}, k = {e.rounds}, {e.reason}\n"
            texts.append(text)
        return tuple(texts)


def _label(place: int) -> str:
    return f"tree {place}"


def _probe(error: PolicyError) -> None:
    """The current policy cannot be loaded: is it the policy, or can none be loaded on this machine?"""
    try:
        SandboxedPolicy(_PROBE).close()
    except PolicyError:
        raise UserError(f"no policy can be run here: {error}") from error
