"""The caller's side of sandboxed episodes: what of a prefix was sent, and many episodes in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dreamrsi.errors import PolicyError
from dreamrsi.prefix import Branch, Prefix
from dreamrsi.replay import Episode, check_batch, failed, reveal
from dreamrsi.sandbox_child import Answer, Ask, News, Seen, Start
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    from dreamrsi.sandbox import SandboxedPolicy


class Feed:
    """What of one episode's prefix was sent, so that each question carries only what is new."""

    def __init__(self, number: int, prefix: Prefix, beta: float | None) -> None:
        header = prefix._world.header
        forks = bool(prefix._world.children)
        self._start: Start | None = Start(
            prefix.width, beta, prefix.root, prefix.advice, header.branches, header.steps, forks
        )
        self._number = number
        self._prefix = prefix
        self._sent: list[int] = []  # attempts of each opened branch
        self.batch: Sequence[int] = ()  # the last answer

    def ask(self) -> Ask:
        """The next question."""
        if self._start is not None:
            start, self._start = self._start, None
            return Ask(self._number, start, None)
        prefix, sent = self._prefix, self._sent
        branches: Sequence[Branch] = prefix.branches
        extended: list[Seen | None] = []
        for pick in self.batch:
            if pick < 0:
                continue
            branch = branches[pick]
            n = branch._n
            if n == sent[pick]:
                extended.append(None)
            else:
                sent[pick] = n
                chain = branch._chain
                extended.append((chain.scores[n - 1], chain.statuses[n - 1]))  # type: ignore[arg-type]
        opened = []
        for branch in branches[len(sent) :]:
            chain = branch._chain
            opened.append((chain.scores[0], chain.statuses[0], chain.tag, branch.origin))
            sent.append(1)
        return Ask(self._number, None, News(extended, opened, prefix._open_failed))  # type: ignore[arg-type]


class Walk:
    """One episode of a lockstep replay; :func:`dreamrsi.replay` turned inside out."""

    def __init__(self, policy: SandboxedPolicy, number: int, tree: Tree, width: int, max_rounds: int | None) -> None:
        self.prefix = Prefix(tree.world, width)
        self.feed = Feed(number, self.prefix, policy.beta)
        self.episode: Episode | None = None
        self._policy = policy
        self._tree = tree
        self._limit = max(len(tree), len(tree.batches)) if max_rounds is None else max_rounds
        self._picks: list[tuple[int, ...]] = []
        self._reveals: list[int] = []
        self._go_on()

    def take(self, answer: Answer) -> None:
        """Check the answer and reveal what it picks."""
        try:
            if isinstance(answer, dict):
                raise self._policy._refusal(self.prefix.round, answer)
            batch = check_batch(self._policy.name, self.prefix, answer)
        except PolicyError as error:
            return self.fail(error)
        if not batch:
            return self._end("stopped")
        self.feed.batch = batch
        self._picks.append(batch)
        reveal(self.prefix, batch, self._reveals)
        self._go_on()

    def fail(self, error: PolicyError) -> None:
        """The policy broke its contract here."""
        self.episode = failed(self._policy.name, self._tree.name, error)

    def _go_on(self) -> None:
        if len(self._reveals) >= len(self._tree):
            self._end("complete")
        elif len(self._picks) >= self._limit:
            self._end("rounds")

    def _end(self, reason: str) -> None:
        self.episode = Episode(
            self._policy.name, self._tree.name, tuple(self._picks), self._reveals, self.prefix.best, reason
        )
