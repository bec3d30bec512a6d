"""F46, F47 and more: the broker restarts, loses all it had, is away or is not used any more; work goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.fault.arena import Arena
from tests.fault.nursery import WorkerProcess
from tests.fault.rabbit import Names, PrivateRabbitmq, resent

RESTARTS = [2, pytest.param(40, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
RECONCILED_SECONDS = 60


@pytest.mark.parametrize("restarts", RESTARTS)
def test_restarts_in_the_middle_of_publishing_lose_nothing(
    all_carried: list[Arena], rabbitmq_node: PrivateRabbitmq, restarts: int
) -> None:
    start(all_carried)
    for _ in range(restarts):
        produce_during(all_carried, rabbitmq_node.restart_app)
    end(all_carried)

    for arena in all_carried:
        assert {job.state for job in arena.verify().jobs.values()} == {"completed"}


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_a_broker_that_lost_everything_gets_it_again(
    all_carried: list[Arena], rabbitmq_node: PrivateRabbitmq, times: int
) -> None:
    start(all_carried, concurrency=1)
    for _ in range(times):
        for arena in all_carried:
            arena.enqueue("transfer", 100, seconds=0.02)
        wait_for_all(all_carried, has_sent, "messages to wait")
        produce_during(all_carried, rabbitmq_node.wipe)
    end(all_carried)

    for arena in all_carried:
        assert {job.state for job in arena.verify().jobs.values()} == {"completed"}
    assert resent(all_carried[0]) > 0


def test_a_broker_that_is_away_delays_work_and_nothing_else(arena: Arena, names: Names) -> None:
    with names.proxy() as proxy:
        names.carry(arena, url=proxy.url_for(names.url))
        proxy.refuse()
        worker = arena.start_worker()
        ids = arena.enqueue("transfer", 10)
        arena.wait(lambda: "jobs wait in the database" in worker.logged(), "the worker to say what is wrong")
        assert not arena.notes("start", ids)
        proxy.pass_through()
        arena.wait_for_end(ids)
        proxy.refuse()
        ids = arena.enqueue("transfer", 10)
        arena.wait(lambda: "jobs wait in the database" in worker.logged().split("is back")[-1], "it to notice")
        proxy.pass_through()
        arena.wait_for_end(ids)
        worker.terminate()
        assert worker.wait() == 0

    arena.verify()
    assert resent(arena) == 0


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_worker_stops_in_time_though_its_broker_does_not_answer(arena: Arena, names: Names) -> None:
    with names.proxy() as proxy:
        names.carry(arena, url=proxy.url_for(names.url))
        worker = arena.start_worker()
        arena.wait_for_end(arena.enqueue("transfer", 5))
        proxy.swallow()
        began = time.monotonic()
        worker.terminate()
        assert worker.wait() == 0
        assert time.monotonic() - began < 20

    arena.verify()


def test_queues_move_to_the_broker_and_back_while_jobs_wait(arena: Arena, names: Names) -> None:
    """A deployment, twice: the next worker starts, then the one before is told to stop."""
    before = arena.start_worker(concurrency=1)
    arena.enqueue("transfer", 60, seconds=0.05)
    arena.wait(lambda: len(arena.notes("start")) >= 5, "jobs to run from the database")
    names.carry(arena)
    carrying = arena.start_worker(concurrency=1)
    stop(before)
    arena.wait(lambda: bool(arena.notes("start")) and has_sent(arena), "jobs to wait at the broker")
    arena.settings = {}
    after = arena.start_worker()
    stop(carrying)
    arena.wait_for_end()
    stop(after)

    assert {job.state for job in arena.verify().jobs.values()} == {"completed"}
    assert names.depth() > 0, "messages that nobody needs any more"


def stop(worker: WorkerProcess) -> None:
    worker.terminate()
    assert worker.wait() == 0


def start(arenas: list[Arena], **settings: Any) -> None:
    for arena in arenas:
        arena.start_worker(**settings)
        arena.start_worker(**settings)
    for arena in arenas:
        arena.wait_for_end(arena.enqueue("transfer", 5))


def produce_during(arenas: list[Arena], fault: Callable[[], None]) -> None:
    """Enqueue some before, some while and some after the broker suffers a fault."""
    enqueue(arenas)
    fault()
    enqueue(arenas)


def enqueue(arenas: list[Arena]) -> None:
    for arena in arenas:
        arena.enqueue("transfer", 15)
        arena.enqueue("transfer_flaky", 5)


def end(arenas: list[Arena]) -> None:
    """Wait for the end of all jobs; a broker that is back has everything again within a minute."""
    began = time.monotonic()
    for arena in arenas:
        arena.wait_for_end(seconds=2 * RECONCILED_SECONDS)
    assert time.monotonic() - began < RECONCILED_SECONDS


def wait_for_all(arenas: Iterable[Arena], condition: Callable[[Arena], bool], what: str) -> None:
    for arena in arenas:
        arena.wait(lambda arena=arena: condition(arena), what)  # type: ignore[misc]


def has_sent(arena: Arena) -> bool:
    [(sent,)] = arena.backend.rows("select count(*) from stagepost_job where sent_at is not null")
    return bool(sent > 10)
