"""Trees and policies for the property tests."""

from __future__ import annotations

import random

from hypothesis import strategies as st

import dreamrsi as d
from dreamrsi.record import Batch

# Few distinct scores, so that ties are common; None is a failed attempt.
SCORES = st.one_of(st.none(), st.integers(-3, 9).map(float), st.floats(-1e6, 1e6, allow_nan=False))


def tree_of(chains, *, steps=None, branches=None, width=3, root=None, recommended=None, origins=None, tags=None):
    """A tree from lists of scores, recorded round by round; ``origins`` maps a branch to (branch, attempt)."""
    attempts = []
    for depth in range(max(map(len, chains), default=0)):
        for number, chain in enumerate(chains):
            if depth < len(chain):
                attempts.append((number, depth, chain[depth]))
    if origins:  # a fork is recorded after its origin: branch by branch
        attempts.sort()
    return d.Tree(
        d.Header(task="toy", width=width, branches=branches, steps=steps, root=d.Root(root), recommended=recommended),
        [
            d.Attempt(
                branch=b,
                attempt=a,
                seq=seq,
                score=score,
                status="error" if score is None else "ok",
                tag=tags[b] if tags else None,
                origin=(origins or {}).get(b) if a == 0 else None,
            )
            for seq, (b, a, score) in enumerate(attempts)
        ],
    )


@st.composite
def trees(draw, forks=None):
    """Trees with failures, ragged branches, caps or none, a root score or none, forks or none."""
    chains = draw(st.lists(st.lists(SCORES, min_size=1, max_size=6), min_size=1, max_size=7))
    longest = max(map(len, chains))
    steps = draw(st.sampled_from([None, longest, longest + 2]))
    branches = draw(st.sampled_from([None, len(chains), len(chains) + 1]))
    origins = {}
    if forks or (forks is None and draw(st.booleans())):
        for number in range(1, len(chains)):
            if draw(st.booleans()):
                source = draw(st.integers(0, number - 1))
                origins[number] = (source, draw(st.integers(0, len(chains[source]) - 1)))
    tags = [draw(st.sampled_from(["a", "b", None])) for _ in chains]
    root = draw(st.one_of(st.none(), st.floats(-10, 10, allow_nan=False)))
    advice = draw(st.sampled_from(["a", None]))
    return tree_of(chains, steps=steps, branches=branches, root=root, recommended=advice, origins=origins, tags=tags)


@st.composite
def builtin_policies(draw):
    """Every built-in policy with drawn parameters."""
    name = draw(st.sampled_from(list(d.policies.BUILTIN)))
    small = st.one_of(st.none(), st.integers(1, 4))
    if name in ("parallel_refine", "early_stop"):
        return d.policies.BUILTIN[name](width=draw(small), bootstrap=draw(small))
    if name == "greedy_best":
        return d.policies.GreedyBest(bootstrap=draw(small))
    if name == "random":
        return d.policies.Random(draw(st.integers(0, 99)))
    return d.policies.make(name)


class Wild:
    """A legal policy without any sense: random picks, ended branches and OPENs that open nothing among them."""

    def __init__(self, seed):
        self.name = f"wild:{seed}"
        self.seed = seed

    def start(self, width):
        self._random = random.Random(self.seed)
        self._width = width

    def choose(self, prefix):
        steps = prefix._world.header.steps
        options = [b.number for b in prefix.branches if b.attempts != steps] + [d.OPEN] * 2
        if self._random.random() < 0.03:
            return []
        return self._random.sample(options, self._random.randint(1, min(self._width, len(options))))


policies = st.one_of(builtin_policies(), st.integers(0, 999).map(Wild))


@st.composite
def universes(draw):
    """What a live run could find: every branch full up to both caps."""
    branches, steps = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    chains = draw(st.lists(st.lists(SCORES, min_size=steps, max_size=steps), min_size=branches, max_size=branches))
    tags = [draw(st.sampled_from(["a", "b"])) for _ in chains]
    return tree_of(chains, steps=steps, branches=branches, recommended="a", tags=tags)


def recording(universe, episode):
    """The tree that a live run of this episode in this universe leaves behind, batches included."""
    order = iter(episode.order)
    attempts, batches, opened = [], [], 0
    for round_, picks in enumerate(episode.picks):
        opens = min(picks.count(d.OPEN), universe.header.branches - opened)
        opened += opens
        made = len(picks) - picks.count(d.OPEN) + opens
        batches.append(Batch(picks, round_, made))
        for branch, attempt in (next(order) for _ in range(made)):
            source = universe.branches[branch][attempt]
            attempts.append(
                d.Attempt(
                    branch=branch,
                    attempt=attempt,
                    seq=len(attempts),
                    round=round_,
                    score=source.score,
                    status=source.status,
                    tag=source.tag,
                )
            )
    assert next(order, None) is None
    return d.Tree(universe.header, attempts, batches)
