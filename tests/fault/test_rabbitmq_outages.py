"""F46, F47 and more: the broker restarts, loses its data, is down or is no longer used; work continues by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.depth import quickly_on, sized
from tests.fault.arena import LASTING_LEASE, WAIT_SECONDS, Arena
from tests.fault.nursery import WorkerProcess
from tests.fault.rabbit import QUICK, Names, PrivateRabbitmq, resent
from tests.services.processes import wait_until

RESTARTS = sized(1, 2, 40)
WIPES = sized(1, 1, 10)
patient = pytest.mark.timeout(3600)
"""The broker's own program takes minutes on a busy machine."""
RECONCILED_SECONDS = 60
WORKERS = 2


@patient
def test_restarts_in_the_middle_of_publishing_lose_nothing(
    all_carried: list[Arena], rabbitmq_node: PrivateRabbitmq
) -> None:
    start(all_carried)
    for _ in range(RESTARTS):
        produce_during(all_carried, rabbitmq_node.restart_app)
    end(all_carried)

    for arena in all_carried:
        assert {job.state for job in arena.verify().jobs.values()} == {"completed"}


@pytest.mark.prove
@patient
def test_a_broker_that_lost_everything_is_sent_all_messages_again(
    all_carried: list[Arena], rabbitmq_node: PrivateRabbitmq
) -> None:
    start(all_carried, concurrency=1)
    for number in range(WIPES):
        for arena in all_carried:  # whose workers are busy until the broker is back
            arena.enqueue(
                "note_at_gate", WORKERS * QUICK["rabbitmq_prefetch"], gate=str(arena.folder / f"gate {number}")
            )
            arena.enqueue("transfer", 100)
        wait_for_all(all_carried, has_sent, "messages to wait")
        produce_during(all_carried, rabbitmq_node.wipe)
        for arena in all_carried:
            (arena.folder / f"gate {number}").touch()
    end(all_carried)

    for arena in all_carried:
        assert {job.state for job in arena.verify().jobs.values()} == {"completed"}
        assert resent(arena) > 0


@quickly_on("sqlite")
def test_a_broker_outage_only_delays_work(arena: Arena, names: Names) -> None:
    with names.proxy() as proxy:
        names.carry(arena, url=proxy.url_for(names.url))
        proxy.refuse()
        worker = arena.start_worker()
        ids = arena.enqueue("transfer", 10)
        arena.wait(lambda: "Jobs wait in the database" in worker.logged(), "the worker to say what is wrong")
        assert not arena.notes("start", ids)
        proxy.pass_through()
        arena.wait_for_end(ids)
        proxy.refuse()
        ids = arena.enqueue("transfer", 10)
        arena.wait(lambda: "Jobs wait in the database" in worker.logged().split("working again")[-1], "it to notice")
        proxy.pass_through()
        arena.wait_for_end(ids)
        worker.terminate()
        assert worker.wait() == 0

    arena.verify()
    assert resent(arena) == 0


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.prove
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


@quickly_on("mariadb")
def test_queues_move_to_the_broker_and_back_while_jobs_wait(arena: Arena, names: Names) -> None:
    """A deployment, twice: the next worker starts, then the one before is told to stop, in the middle of a job."""
    before = arena.start_worker(concurrency=1, lease_seconds=LASTING_LEASE)
    gates = [arena.folder / f"gate {number}" for number in range(2)]
    held = []
    for gate in gates:
        arena.enqueue("transfer", 20)
        held += arena.enqueue("note_at_gate", gate=str(gate))
    arena.enqueue("transfer", 200)
    arena.wait(lambda: bool(arena.notes("start", held[:1])), "jobs to run from the database")
    names.carry(arena)
    carrying = arena.start_worker(concurrency=1, lease_seconds=LASTING_LEASE)
    stop(before, gates[0])
    arena.wait(lambda: bool(arena.notes("start", held[1:])) and has_sent(arena), "jobs to wait at the broker")
    arena.settings = {}
    after = arena.start_worker(lease_seconds=LASTING_LEASE)
    stop(carrying, gates[1])
    arena.wait_for_end()
    stop(after)

    assert {job.state for job in arena.verify().jobs.values()} == {"completed"}
    assert names.depth() > 0, "messages that nobody needs any more"


def stop(worker: WorkerProcess, gate: Path | None = None) -> None:
    """Tell a worker to stop; its job goes on once it has heard."""
    worker.terminate()
    if gate is not None:
        wait_until(lambda: "stopping" in worker.logged(), "the worker to notice", seconds=WAIT_SECONDS)
        gate.touch()
    assert worker.wait() == 0


def start(arenas: list[Arena], **settings: Any) -> None:
    for arena in arenas:
        for _ in range(WORKERS):
            arena.start_worker(lease_seconds=LASTING_LEASE, **settings)
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
