"""F25 and F11 together: workers are asked to stop while their database accepts requests but never answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from stagepost.database import Store
from stagepost.database.async_store import AsyncStore
from stagepost.errors import StoreUnavailable
from stagepost.store.health import ping
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.backends import SERVERS, Backend
from tests.fault.nursery import ROOT
from tests.fault.proxy import FaultProxy
from tests.fault.worker_main import IMPATIENT
from tests.services.processes import wait_until

HANDLER_SECONDS = 600
SHUTDOWN_SECONDS = 2.0
GRACE_SECONDS = 5.0
FIRST_SECONDS = SHUTDOWN_SECONDS + GRACE_SECONDS
"""What is promised for the first signal."""
SECOND_SECONDS = 2.0
"""What is promised for the second signal."""
SLOWNESS = 5.0
"""How many times as long a busy machine may take: a verdict must not depend on its speed."""
ENDED_SECONDS = 120.0


class CommandLineWorker:
    """`stagepost worker` in a separate process, with its child processes."""

    def __init__(self, arena: Arena, *options: str) -> None:
        self.log = arena.folder / f"command-{len(list(arena.folder.glob('command-*')))}.log"
        environment = os.environ | arena.environment(lease_seconds=LASTING_LEASE, concurrency=8)
        command = [sys.executable, "-m", "stagepost", "worker", "--app", "tests.fault.tasks:app", *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def tree(self) -> list[psutil.Process]:
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def wait_for(self, words: str, *, times: int = 1) -> None:
        wait_until(lambda: self.log.read_text().count(words) >= times, f"the log to say {words!r}", seconds=120)

    def seconds_until_end(self) -> float:
        began = time.monotonic()
        self.process.wait(ENDED_SECONDS)
        return time.monotonic() - began


@pytest.fixture
def start(arena: Arena) -> Iterator[Callable[..., CommandLineWorker]]:
    """Starts workers from the command line, and leaves none behind."""
    started: list[CommandLineWorker] = []

    def start(*options: str) -> CommandLineWorker:
        started.append(CommandLineWorker(arena, *options))
        return started[-1]

    yield start
    for worker in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in reversed(worker.tree()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        worker.process.wait()


class Hang:
    """Makes the database of the workers that are started afterwards hang, for them alone if it is a server."""

    def __init__(self, arena: Arena, stack: contextlib.ExitStack) -> None:
        self._arena = arena
        self._proxy = self._holder = None
        if arena.backend.name == "sqlite":
            holder = sqlite3.connect(arena.url.partition(":///")[2], timeout=60, isolation_level=None)
            self._holder = stack.enter_context(contextlib.closing(holder))
        else:
            self._proxy = stack.enter_context(FaultProxy.to(arena.backend.url))
            arena.url = self._proxy.url_for(arena.backend.url)

    def begin(self) -> None:
        if self._proxy is not None:
            self._proxy.swallow()
        if self._holder is not None:
            self._holder.execute("begin immediate")

    def end(self) -> None:
        self._arena.url = self._arena.backend.url
        if self._holder is not None and self._holder.in_transaction:
            self._holder.execute("rollback")


@pytest.fixture
def hang(arena: Arena) -> Iterator[Hang]:
    """Something between the workers and their database that can make it hang."""
    with contextlib.ExitStack() as stack:
        hang = Hang(arena, stack)
        yield hang
        hang.end()


@quickly_on("postgres")
@pytest.mark.parametrize(
    ("signals", "processes"),
    [
        pytest.param(1, 1, id="first signal"),
        pytest.param(2, 1, id="second signal"),
        pytest.param(1, 2, id="first signal, supervised", marks=pytest.mark.prove),
        pytest.param(2, 2, id="second signal, supervised"),
    ],
)
def test_a_worker_whose_database_hangs_ends_in_time_and_leaves_nothing_behind(
    arena: Arena,
    start: Callable[..., CommandLineWorker],
    hang: Hang,
    signals: int,
    processes: int,
) -> None:
    """Its jobs run again when their leases end; nothing of them is lost."""
    gate, never = arena.folder / "gate", arena.folder / "never"
    jobs = arena.enqueue("transfer_until_stopped", 2, seconds=HANDLER_SECONDS, seconds_again=0)
    jobs += arena.enqueue("transfer_until_stopped_in_process", 2, seconds=HANDLER_SECONDS)
    jobs += arena.enqueue("transfer_at_gate", 2, gate=str(gate))  # hang in a transaction of their own
    jobs += arena.enqueue("note_beside_full_executor", 1, threads=2, gate=str(never))  # keep the interpreter waiting
    timeout = SHUTDOWN_SECONDS if signals == 1 else HANDLER_SECONDS
    worker = start("--shutdown-timeout", str(timeout), *(["--processes", str(processes)] if processes > 1 else []))
    arena.wait(lambda: len(arena.notes("start", jobs)) == len(jobs), "all to start")
    worker.wait_for("runs queues", times=processes)  # one process may run all jobs while the other still starts

    hang.begin()
    gate.touch()
    tree = worker.tree()
    worker.process.send_signal(signal.SIGTERM)
    if signals == 2:
        worker.wait_for("stopping:", times=processes)
        worker.process.send_signal(signal.SIGTERM)
    took = worker.seconds_until_end()

    promised = FIRST_SECONDS if signals == 1 else SECOND_SECONDS
    print(f"{arena.backend.name}: ended {took:.2f} s after signal {signals}, promised are {promised:g} s")  # noqa: T201
    assert took < SLOWNESS * promised
    assert worker.process.returncode == 0, worker.log.read_text()
    gone, left = psutil.wait_procs(tree, timeout=ENDED_SECONDS)
    assert not left, gone
    assert "could not be written because the database did not answer" in worker.log.read_text()


@quickly_on("sqlite", "postgres")
def test_jobs_of_a_worker_that_ended_while_its_database_hung_are_rescued(arena: Arena, hang: Hang) -> None:
    """In a program of one's own, which nothing ends but the end of its `asyncio.run`."""
    jobs = arena.enqueue("transfer_until_stopped", 3, seconds=HANDLER_SECONDS, seconds_again=0)
    worker = arena.start_worker(shutdown_timeout_seconds=0, lease_seconds=LASTING_LEASE, environment={IMPATIENT: "1"})
    arena.wait(lambda: len(arena.notes("start", jobs)) == len(jobs), "all to start")
    hang.begin()
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(ENDED_SECONDS) == 0
    took = time.monotonic() - began
    print(f"{arena.backend.name}: ended {took:.2f} s after the signal, promised are {GRACE_SECONDS:g} s")  # noqa: T201
    assert took < SLOWNESS * GRACE_SECONDS

    hang.end()
    arena.end_leases(jobs)
    arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {(job.state, job.failures) for job in evidence.jobs.values()} == {("completed", 0)}
    assert max(job.crashes for job in evidence.jobs.values()) <= 1


@quickly_on("postgres", among=SERVERS)
def test_calls_that_hang_can_be_aborted_and_are_not_tried_again(backend: Backend) -> None:
    """Others that share their connections are left alone."""

    async def call_and_abort(store: Store) -> None:
        calls, others = AsyncStore(store), AsyncStore(store)
        proxy.swallow()
        hanging = [asyncio.create_task(calls.run(ping())) for _ in range(2)]
        other = asyncio.create_task(others.run(ping()))
        while store.pool.in_use < 3:  # noqa: ASYNC110 - threads bring it about
            await asyncio.sleep(0.01)

        calls.abort()

        for error in await asyncio.gather(*hanging, return_exceptions=True):
            assert isinstance(error, StoreUnavailable)
        assert not other.done()
        others.abort()
        await asyncio.wait({other})

    async def within(seconds: float, store: Store) -> None:
        async with asyncio.timeout(seconds):
            await call_and_abort(store)

    with FaultProxy.to(backend.url) as proxy:
        url = proxy.url_for(backend.url)
        store = Store.at(url, pool_size=3, call_seconds=10 * ENDED_SECONDS, patience_seconds=10 * ENDED_SECONDS)
        with contextlib.closing(store):
            loans = [store.pool.acquire() for _ in range(3)]  # connections that are there before it hangs
            for connection in loans:
                store.pool.give_back(connection, is_sound=True)
            asyncio.run(within(ENDED_SECONDS, store))
