"""Sweeps: the rows are those of a replay one by one, wherever and in whatever pieces they are computed."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

import dreamrsi as d
from cluster_fixtures import cluster, endless, gated, knocks, ready, until
from dreamrsi import cluster as connection
from dreamrsi import robustness, synthetic
from dreamrsi import sweep as module
from dreamrsi.record import Batch
from dreamrsi.sweep import spread, sweep, with_betas

POLICIES = ("parallel_refine", "early_stop:width=4", "greedy_best", "random:seed=3")
SETTINGS = {"widths": (None, 1, 4), "max_rounds": (None, 7)}


def trees():
    """Trees of several sizes, with a root and without, a failed attempt, and a fork."""
    rooted = d.Header(task="t", width=3, root=d.Root(score=0.5))
    attempts = [
        d.Attempt(branch=0, attempt=0, seq=0, score=0.4, status="ok"),
        d.Attempt(branch=1, attempt=0, seq=1, score=None, status="error", origin=(0, 0)),
        d.Attempt(branch=1, attempt=1, seq=2, score=0.9, status="ok"),
    ]
    drawn = synthetic.draw("late_peak", np.random.default_rng(1), "deep", branches=5, steps=40)
    return [*synthetic.corpus(5, noise=0.1), d.Tree(rooted, attempts, name="forked"), drawn]


@pytest.fixture(scope="module")
def local():
    return sweep(trees(), POLICIES, **SETTINGS, n_jobs=1)


def test_the_rows_are_the_outcomes_one_by_one_in_the_order_given(local):
    rows = iter(local.itertuples(index=False))
    for name in POLICIES:
        for width in (None, 1, 4):
            for limit in (None, 7):
                for tree in trees():
                    row, used = next(rows), width or tree.header.width
                    episode = d.replay(d.policies.make(name), tree, used, limit)
                    assert (row.width, row.max_rounds) == (used, limit or len(tree))
                    assert row._asdict().items() >= d.outcome(episode, tree)._asdict().items()
    assert next(rows, None) is None


def test_recorded_batches_that_revealed_nothing_count_in_the_limit():
    batches = [Batch(picks, n, int(n < 2)) for n, picks in enumerate([(d.OPEN,), (0,), *[(d.OPEN,)] * 3])]
    attempts = [d.Attempt(branch=0, attempt=n, seq=n, round=n, score=0.1, status="ok") for n in (0, 1)]
    tree = d.Tree(d.Header(task="t", width=3, branches=1), attempts, batches)
    assert list(sweep([*trees()[-2:-1], tree], ["greedy_best"], n_jobs=1).max_rounds) == [3, 5]


@pytest.mark.parametrize("seconds", [1e-9, 0.002, 1e9])
def test_the_chunks_change_nothing(monkeypatch, local, seconds):
    monkeypatch.setattr(module, "CHUNK_SECONDS", seconds)
    settings = [module.Setting("greedy_best", 8, None)] * 3
    chunks = list(module._chunks(trees(), settings, 1e-6))
    assert len(chunks) == (3 * len(trees()) if seconds == 1e-9 else 1 if seconds == 1e9 else len(chunks))
    assert_frame_equal(sweep(trees(), POLICIES, **SETTINGS, n_jobs=1), local)


def test_a_chunk_is_about_as_long_as_it_should_be():
    many = trees() * 50
    settings = [module.Setting("greedy_best", width, None) for width in range(1, 21)]
    seconds = 1e-6
    for _, data, part in module._chunks(many, settings, seconds):
        attempts = sum(len(module.Walked(*tree)) for _, *tree in pickle.loads(data))
        assert seconds * attempts * len(part) < 2 * module.CHUNK_SECONDS
    big = synthetic.draw("plateau", np.random.default_rng(1), branches=100, steps=100)
    parts = [len(part) for _, _, part in module._chunks([big], settings, seconds)]
    assert parts == [10, 10]


def test_processes_change_nothing(monkeypatch, local):
    monkeypatch.setattr(module, "CHUNK_SECONDS", 0.002)
    monkeypatch.setattr(module, "LARGE", 3000)  # so that some blocks travel as arrays and some as they are
    assert_frame_equal(sweep(trees(), POLICIES, **SETTINGS, n_jobs=2), local)


def test_large_bytes_arrive_whole():
    data = os.urandom(module.LARGE + 1)
    assert spread(_digest, [(data,), (data,)], n_jobs=2) == [hash_of(data)] * 2


def _digest(data):
    return hash_of(data)


def hash_of(data):
    return module.hashlib.sha256(data).hexdigest()


def test_v_is_arithmetic_on_the_rows(local):
    table = with_betas(local, [0.0, 0.02], [0.05])
    assert len(table) == 2 * len(local) and list(table.columns[-3:]) == ["beta1", "beta2", "V"]
    for row in table[(table.policy == "greedy_best") & (table.width == 4)].itertuples():
        (tree,) = [t for t in trees() if t.name == row.tree]
        episode = d.replay(d.policies.make("greedy_best"), tree, 4, row.max_rounds)
        assert row.V == d.score(episode, beta1=row.beta1, beta2=row.beta2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(policies=["nobody"]), "no policy 'nobody'"),
        (dict(policies=[]), "nothing to sweep"),
        (dict(trees=[]), "nothing to sweep"),
        (dict(widths=()), "nothing to sweep"),
        (dict(widths=(0,)), "width is 0"),
        (dict(max_rounds=(4, -1)), "max_rounds is -1"),
        (dict(scheduler="here"), "tcp://HOST:PORT"),
        (dict(scheduler="tcp://127.0.0.1:x"), "tcp://HOST:PORT"),
        (dict(scheduler="tcp://127.0.0.1:99999"), "tcp://HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(d.UserError, match=message):
        sweep(**{"trees": trees(), "policies": POLICIES} | arguments)


@pytest.fixture
def port():
    """A socket with a port of its own that nobody listens at yet."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found


def at(port):
    return f"tcp://127.0.0.1:{port.getsockname()[1]}"


def test_nobody_at_the_address_is_said(port):
    with pytest.raises(d.UserError, match="cannot be reached .*running there"):
        sweep(trees(), POLICIES, scheduler=at(port))


def test_a_listener_that_never_speaks_is_said(monkeypatch, port):
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    port.listen()
    start = time.monotonic()
    with pytest.raises(d.UserError, match="cannot be reached .no answer"):
        sweep(trees(), POLICIES, scheduler=at(port))
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\0"])
def test_a_listener_that_is_no_scheduler_is_said(monkeypatch, port, greeting):
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    port.listen()
    taken = []

    def greet():
        with suppress(OSError):
            while True:
                taken.append(port.accept()[0])
                taken[-1].sendall(greeting)

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    try:
        with pytest.raises(d.UserError, match="cannot be reached"):
            sweep(trees(), POLICIES, scheduler=at(port))
    finally:
        port.shutdown(socket.SHUT_RDWR)  # ends the thread
        thread.join(60)
        for one in taken:
            one.close()
    until(lambda: not any(t.name == "dreamrsi-connect" for t in threading.enumerate()))


def test_a_policy_given_twice_is_run_once():
    table = sweep(trees()[:1], ["random", "random:seed=0", "early_stop"], n_jobs=1)
    assert list(table.policy) == ["random:seed=0", "early_stop"]


def test_a_policy_that_fails_is_named_and_the_others_go_on(monkeypatch):
    class Broken(d.policies.EarlyStop):
        def choose(self, prefix):
            return [7]

    monkeypatch.setitem(d.policies.BUILTIN, "broken", Broken)
    with pytest.warns(UserWarning, match="policy broken, round 0, pick 0.*scores -inf"):
        table = sweep(trees()[:1], ["broken", "early_stop"], n_jobs=1)
    assert table.quality[0] == -np.inf and table.attempts[1] > 0


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(d.UserError, match=r"dreamrsi-kit\[distributed\]"):
        sweep(trees(), POLICIES, scheduler="tcp://127.0.0.1:1")


# With a real scheduler


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A loaded machine needs a while to start a scheduler."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 90)


@pytest.fixture
def address(running):
    """The scheduler's address once it listens and has both workers."""
    ready(running, 2)
    return running.address


@pytest.mark.slow
def test_a_cluster_changes_nothing(monkeypatch, address, local):
    monkeypatch.setattr(module, "CHUNK_SECONDS", 0.002)
    monkeypatch.setattr(module, "LARGE", 3000)
    assert_frame_equal(sweep(trees(), POLICIES, **SETTINGS, scheduler=address), local)
    here, there = (robustness.survey(12, (0.1,), n_jobs=1, scheduler=where) for where in (None, address))
    for one, other in zip(here, there, strict=True):
        assert_frame_equal(one, other)


@pytest.mark.slow
def test_the_command_prints_the_same_rows(monkeypatch, capsys, address):
    from dreamrsi import cli

    path = str(synthetic.in_checkout("synthetic/history") / "math.jsonl")
    printed = []
    for where in (["--workers", "1"], ["--scheduler", address]):
        monkeypatch.setattr(sys, "argv", ["dreamrsi", "sweep", path, "--width", "2", "--format", "csv", *where])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") == 1 + len(d.policies.BUILTIN) - 1


@pytest.mark.slow
def test_other_code_on_a_worker_is_refused(monkeypatch, address):
    monkeypatch.setattr(connection, "package", lambda: "0" * 64)
    with pytest.raises(d.UserError, match=r"workers have dreamrsi [\d.]+ \(\w+\), this is [\d.]+ \(000000000000\)"):
        sweep(trees(), POLICIES, scheduler=address)
    monkeypatch.setattr(connection, "_check_versions", lambda *_: None)  # as for a worker that joins later
    with pytest.raises(d.UserError, match=r"a worker has dreamrsi .*, which is not the code of the caller"):
        sweep(trees(), POLICIES, scheduler=address)


@pytest.mark.slow
def test_an_error_of_the_work_is_not_taken_for_a_lost_scheduler(address):
    with pytest.raises(FileNotFoundError):
        spread(os.stat, [("/nowhere",)], scheduler=address)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(monkeypatch, tmp_path):
    """It dies with blocks that it alone may hold; the other worker does what is left, and what that needs, again."""
    monkeypatch.setattr(module, "CHUNK_SECONDS", 0.002)
    monkeypatch.setattr(module, "LARGE", 3000)
    many = [tree for seed in range(40) for tree in synthetic.corpus(seed)]
    alone = sweep(many, POLICIES, **SETTINGS, n_jobs=1)
    monkeypatch.setattr(module, "_episodes", partial(gated, str(tmp_path), module._episodes))
    with cluster(tmp_path, workers=2) as two:
        ready(two, 2)
        victim = two.processes[1]

        def kill():
            try:
                until((tmp_path / f"held-{victim.pid}").exists)
                two.kill(victim)
            finally:
                (tmp_path / "open").touch()

        with ThreadPoolExecutor(1) as pool:
            killer = pool.submit(kill)
            table = sweep(many, POLICIES, **SETTINGS, scheduler=two.address)
            killer.result(120)
    assert_frame_equal(table, alone)


@pytest.mark.slow
def test_one_worker_does_the_work_and_a_scheduler_that_dies_is_said(tmp_path):
    with cluster(tmp_path, workers=1) as other:
        assert spread(os.getpid, [()], scheduler=other.address) == [other.processes[1].pid]
        marker = tmp_path / "begun"

        def kill():
            until(marker.exists)
            other.kill(other.processes[0])

        with ThreadPoolExecutor(1) as pool:
            killer = pool.submit(kill)
            with pytest.raises(d.UserError, match="was lost"):
                spread(endless, [(str(marker),)] * 3, scheduler=other.address)
            killer.result(120)


@pytest.mark.slow
def test_a_stopped_scheduler_is_said(monkeypatch, tmp_path):
    with cluster(tmp_path, workers=0) as other:
        until(lambda: knocks(other.address))
        os.killpg(other.processes[0].pid, signal.SIGSTOP)
        monkeypatch.setattr(connection, "CONNECT_SECONDS", 1)
        with pytest.raises(d.UserError, match="cannot be reached"):
            sweep(trees(), POLICIES, scheduler=other.address)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_said(monkeypatch, tmp_path):
    with cluster(tmp_path, workers=0) as other:
        until(lambda: knocks(other.address))
        monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)
        with pytest.raises(d.UserError, match="has no worker"):
            sweep(trees(), POLICIES, scheduler=other.address)
