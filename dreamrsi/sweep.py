"""Many episodes at once: policies x trees x settings, in chunks, on the processes of a machine or on a Dask cluster.

A row depends on its policy, tree, width and rounds alone. The seed of a random policy is part of its name, so it
travels with the work: neither the backend, the number of workers nor the chunks can change a result.
"""

from __future__ import annotations

import hashlib
import pickle
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dreamrsi import cluster, objective
from dreamrsi import policies as builtin
from dreamrsi.errors import UserError
from dreamrsi.objective import Outcome, outcome
from dreamrsi.prefix import World
from dreamrsi.record import Batch
from dreamrsi.replay import replay_all
from dreamrsi.tree import Tree

if TYPE_CHECKING:
    pass

CHUNK_SECONDS = 0.1
"""Work in a chunk: long against the millisecond or ten that handing it to a worker costs, short against a sweep."""

PROBE_SECONDS = 0.05
LARGE = 1_000_000  # bytes of a block that must not travel with every chunk; joblib memory-maps arrays from about here


class Setting(NamedTuple):
    """What is run on a tree: a policy by name, W, and K2. None is the recorded width, and as many as attempts."""

    policy: str
    width: int | None
    max_rounds: int | None


class Walked(Tree):
    """A tree as a worker holds it: the part that replay and outcome read, a quarter of the bytes of the whole."""

    def __init__(self, name: str, world: World, batches: tuple[Batch, ...]) -> None:
        self.name = name
        self.header = world.header
        self.world = world
        self.batches = batches
        self._attempts = sum(len(chain.scores) for chain in world.chains)

    def __len__(self) -> int:
        return self._attempts


def sweep(
    trees: Sequence[Tree],
    policies: Sequence[str],
    *,
    widths: Sequence[int | None] = (None,),
    max_rounds: Sequence[int | None] = (None,),
    n_jobs: int = -1,
    scheduler: str | None = None,
) -> pd.DataFrame:
    """Replay every policy on every tree at every width and limit of rounds.

    Parameters
    ----------
    trees : the same on every worker, whatever files they came from; they travel once a worker or a chunk.
    policies : names such as ``early_stop:width=4`` or ``random:seed=3``.
    widths : W; None is the width that a tree was recorded at, 8 where its header has none.
    max_rounds : K2; None is as many as a tree has attempts, or batches if those are more.
    n_jobs : processes on this machine, -1 for one a core.
    scheduler : the address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``; its workers are used instead.

    Returns
    -------
    DataFrame
        One row a policy, width, limit and tree, in the order given: ``policy, tree, width, max_rounds`` as they were
        used, then the other fields of :class:`~dreamrsi.objective.Outcome`. V follows with :func:`with_betas`.

    Raises
    ------
    UserError
        Nothing to sweep, a policy that does not exist, a setting below 1, or a cluster that cannot be used.
    """
    names = dict.fromkeys(builtin.make(policy).name for policy in policies)  # a misspelt one ends here, not on a worker
    settings = [Setting(*values) for values in product(names, widths, max_rounds)]
    if not trees or not settings:
        raise UserError("there is nothing to sweep; give at least one tree, policy, width and limit of rounds")
    for name, value in [*(("width", w) for w in widths), *(("max_rounds", m) for m in max_rounds)]:
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}; it must be at least 1")
    chunks = _chunks(trees, settings, _seconds_an_attempt(trees, settings))
    parts = spread(_episodes, chunks, n_jobs=n_jobs, scheduler=scheduler)
    _hold("", [])  # one process may have done it all itself
    found = sorted((row for part in parts for row in part), key=lambda row: row.place)
    for failure in dict.fromkeys(row.error for row in found if row.error):
        warnings.warn(f"{failure}; it scores -inf", stacklevel=2)
    pairs = list(product(settings, trees))
    table = pd.DataFrame([row.outcome for row in found])
    table.insert(2, "width", [s.width or t.header.width or 8 for s, t in pairs])
    table.insert(3, "max_rounds", [s.max_rounds or max(len(t), len(t.batches)) for s, t in pairs])
    return table


def with_betas(table: pd.DataFrame, beta1s: ArrayLike, beta2s: ArrayLike) -> pd.DataFrame:
    """Add ``V`` of Eq. 1 to the rows of :func:`sweep` at every setting of the betas: arithmetic, no new replay.

    Parameters
    ----------
    beta1s, beta2s : numbers or one-dimensional arrays of length B1 and B2, in units of the score.

    Returns
    -------
    DataFrame
        The rows B1 x B2 times, with ``beta1``, ``beta2`` and ``V``.
    """
    betas = list(product(np.atleast_1d(beta1s).tolist(), np.atleast_1d(beta2s).tolist()))
    parallel = table.attempts / table.rounds.clip(lower=1)
    return pd.concat(
        [
            table.assign(beta1=b1, beta2=b2, V=objective._eq1(table.quality, table.attempts, parallel, b1, b2))
            for b1, b2 in betas
        ],
        ignore_index=True,
    )


def spread(
    function: Callable[..., Any],
    chunks: Iterable[Sequence[Any]],
    *,
    n_jobs: int = -1,
    scheduler: str | None = None,
) -> list[Any]:
    """Call a function once a chunk, ``function(*chunk)``, and return the results in the order of the chunks.

    Parameters
    ----------
    function : importable by name, with a result that follows from the chunk alone. Bytes beyond :data:`LARGE` among
        the values of a chunk travel once a worker, and may arrive as a memory-mapped array.
    n_jobs, scheduler : as for :func:`sweep`. A single chunk is done in this process if there is no scheduler.

    Raises
    ------
    UserError
        The cluster cannot be reached or used.
    """
    work = list(chunks)
    if scheduler is None:
        shared = _shared(work, lambda data: np.frombuffer(data, np.uint8))
        parallel = joblib.Parallel(n_jobs=n_jobs if len(work) > 1 else 1, batch_size=1)
        return list(parallel(joblib.delayed(function)(*(shared.get(id(v), v) for v in chunk)) for chunk in work))
    # Dask's own call and not joblib's: as long as a cluster has one thread, joblib computes everything here, and what
    # it scatters is lost with a worker. The result of a task is computed again from the scheduler's copy.
    with cluster.connected(scheduler) as client, warnings.catch_warnings():
        from distributed import KilledWorker
        from distributed.client import ClosedClientError

        warnings.filterwarnings("ignore", "Sending large graph")  # the blocks; it is meant, and once
        futures: list[Any] = []
        package = cluster.package()
        try:
            shared = _shared(work, lambda data: client.submit(bytes, data))
            for chunk in work:
                values = (shared.get(id(v), v) for v in chunk)
                futures.append(client.submit(cluster.checked, package, function, *values, pure=False))
            return list(client.gather(futures))
        except KilledWorker as error:
            raise UserError(
                f"{scheduler}: the same work ended several workers; they may lack memory: {error}"
            ) from error
        except (CancelledError, ClosedClientError, OSError) as error:
            if any(future.status == "error" for future in futures):
                raise  # the function's own
            raise UserError(f"{scheduler}: the scheduler was lost, and its work with it; run it again") from error


def _shared(work: list[Sequence[Any]], share: Callable[[bytes], Any]) -> dict[int, Any]:
    """What stands for the large values of all chunks, by their ``id``: one thing each, however many chunks hold it."""
    large = {id(v): v for chunk in work for v in chunk if isinstance(v, bytes) and len(v) > LARGE}
    return {place: share(value) for place, value in large.items()}


def _seconds_an_attempt(trees: Sequence[Tree], settings: Sequence[Setting]) -> float:
    """What an episode costs by the size of its tree, from a first few on the smallest one."""
    tree = min(trees, key=len)
    start = time.perf_counter()
    endless, episodes = cycle(settings), 0
    while (spent := time.perf_counter() - start) < PROBE_SECONDS:
        _run(next(endless), [tree])
        episodes += 1
    return spent / episodes / max(1, len(tree))


def _chunks(trees: Sequence[Tree], settings: Sequence[Setting], seconds: float) -> Iterator[tuple[Any, ...]]:
    """Cut the sweep into pieces of about :data:`CHUNK_SECONDS`: some trees, or one, under all or some settings.

    A tree is in one block only, and the chunks of a block come one after the other, so that a worker unpacks few
    blocks more than once.
    """
    numbered = list(enumerate(settings))
    block: list[tuple[int, Tree]] = []
    for place, tree in enumerate(trees):
        block.append((place, tree))
        cost = seconds * sum(len(tree) for _, tree in block)  # of one setting
        if cost * len(settings) < CHUNK_SECONDS and place + 1 < len(trees):
            continue
        data = pickle.dumps([(place, tree.name, tree.world, tree.batches) for place, tree in block], protocol=5)
        key = hashlib.sha256(data).hexdigest()
        step = max(1, int(CHUNK_SECONDS / max(cost, 1e-9)))
        for first in range(0, len(settings), step):
            yield key, data, numbered[first : first + step]
        block = []


class Row(NamedTuple):
    """One episode judged, and its place in the sweep: setting, tree."""

    place: tuple[int, int]
    outcome: Outcome
    error: str | None


_held: tuple[str, dict[int, Walked]] = ("", {})  # the block that this worker unpacked last


def _hold(key: str, parts: Iterable[Sequence[Any]]) -> dict[int, Walked]:
    global _held
    trees = {place: Walked(*part) for place, *part in parts}
    _held = (key, trees)
    return trees


def _episodes(key: str, data: Any, settings: Sequence[tuple[int, Setting]]) -> list[Row]:
    """One chunk: the trees of a block under some settings."""
    last, trees = _held  # in one step: a worker with several threads may replace it at any time
    if last != key:
        trees = _hold(key, pickle.loads(data))
    return [
        Row((number, place), *judged)
        for number, setting in settings
        for place, judged in zip(trees, _run(setting, list(trees.values())), strict=True)
    ]


def _run(setting: Setting, trees: Sequence[Tree]) -> list[tuple[Outcome, str | None]]:
    """One episode a tree, with the error of a policy that failed."""
    (episodes,) = replay_all([builtin.make(setting.policy)], trees, setting.width, setting.max_rounds).values()
    return [(outcome(episode, tree), episode.error) for episode, tree in zip(episodes, trees, strict=True)]
