"""F50, F52 to F54, F56: long runs against a broker that is purged, blocked, times out or loses its consumers."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.arena import Arena, jobs_of
from tests.fault.rabbit import Names, PrivateRabbitmq, resent

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
RETRIES = 10_000
FAIL_SECONDS = 90
PURGE_SECONDS = 5.0
LATE = "late "


def test_a_broker_short_of_memory_only_delays_work(carried: Arena, rabbitmq_node: PrivateRabbitmq) -> None:
    worker = carried.start_worker(rabbitmq_confirm_timeout_seconds=2)
    carried.wait_for_end(carried.enqueue("transfer"))
    rabbitmq_node.control("set_vm_memory_high_watermark", "0")
    try:
        began = time.monotonic()
        ids = carried.enqueue("transfer", 200)
        assert time.monotonic() - began < 5, "submitting does not wait for the broker"
        carried.wait(lambda: "takes no messages" in worker.logged(), "the worker to say what is wrong")
    finally:
        rabbitmq_node.control("set_vm_memory_high_watermark", "0.4")
    carried.wait_for_end(ids)

    carried.verify()


@pytest.mark.parametrize(
    ("backend", "jobs"), [("postgres", 50_000), ("mariadb", 10_000), ("sqlite", 10_000)], indirect=["backend"]
)
def test_purges_every_few_seconds_of_a_long_run_lose_nothing(carried: Arena, names: Names, jobs: int) -> None:
    names.carry(carried, rabbitmq_prefetch=100, rabbitmq_lost_after_seconds=5)
    for _ in range(jobs // 1000):
        carried.enqueue("transfer", 1000)
    for _ in range(2):
        carried.start_worker()
    with purging(names) as purged:
        carried.wait(lambda: live(carried) < jobs / 20, "most jobs to end", seconds=1200)
    began = time.monotonic()
    carried.wait(lambda: live(carried) == 0, "all jobs to end", seconds=300)
    print(f"{jobs} jobs, {len(purged)} purges of {sum(purged)} messages, {resent(carried)} sent again")  # noqa: T201

    carried.verify(idle_us=600_000_000)
    assert sum(purged) > 0
    assert time.monotonic() - began < 60


def test_thirty_workers_killed_with_fifty_messages_each_lose_none(carried: Arena, tmp_path: Path) -> None:
    carried.settings["rabbitmq_prefetch"] = 50
    gate = tmp_path / "gate"
    ids = carried.enqueue("note_at_gate", 100, gate=str(gate))
    for _ in range(30):
        ids += carried.enqueue("note_at_gate", 10, gate=str(gate))  # those before may all have died three times
        victim = carried.start_worker()
        before = len(carried.notes("start"))
        carried.wait(lambda before=before: len(carried.notes("start")) > before, "a job to run")  # type: ignore[misc]
        victim.kill()
        victim.wait()
    gate.touch()
    carried.start_worker()
    carried.wait_for_end(ids, seconds=120)

    carried.verify()


def test_a_consumer_timeout_at_the_broker_does_not_affect_a_long_job(
    carried: Arena, names: Names, rabbitmq_node: PrivateRabbitmq
) -> None:
    set_patience(rabbitmq_node, seconds=4)
    try:
        worker = carried.start_worker()
        ids = carried.enqueue("transfer", 3, seconds=15) + carried.enqueue("transfer", 20)
        carried.wait(lambda: "PRECONDITION_FAILED" in worker.logged(), "the broker to lose patience")
        carried.wait_for_end(ids)
    finally:
        set_patience(rabbitmq_node, seconds=1800)

    assert {job.attempt for job in carried.verify().jobs.values()} == {1}
    carried.wait(lambda: names.depth() == 0, "all messages to be acknowledged")


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_ten_thousand_retries_with_mixed_delays_are_on_time(carried: Arena, names: Names) -> None:
    """Delays of 0.1 to 60 s from one moment on, by which all have failed for the first time: none holds up another."""
    names.carry(carried, rabbitmq_prefetch=100)
    for _ in range(2):
        carried.start_worker(lease_seconds=5)
    carried.wait_for_end(carried.enqueue("transfer"))
    moment = time.time() + FAIL_SECONDS
    jobs = [
        job
        for _ in range(RETRIES)
        for job in jobs_of("note_late", due=round(moment + carried.random.uniform(0.1, 60), 2))
    ]
    for first in range(0, len(jobs), 1000):
        carried.submit(jobs[first : first + 1000])
    carried.wait(lambda: has_none(carried, "queued", "running"), "all to fail once", seconds=FAIL_SECONDS)
    carried.wait(lambda: live(carried) == 0, "all jobs to end", seconds=600)

    carried.verify(idle_us=120_000_000)
    lateness = sorted(
        float(note.what.removeprefix(LATE)) for note in carried.sink.notes() if note.what.startswith(LATE)
    )
    p99 = lateness[math.floor(len(lateness) * 0.99)]
    print(f"{len(lateness)} retries: median {lateness[len(lateness) // 2]:.3f} s late, p99 {p99:.3f} s")  # noqa: T201
    assert len(lateness) == RETRIES
    assert p99 < 1


def has_none(arena: Arena, *states: str) -> bool:
    found = {job.state for job in arena.jobs().values()}
    return not found & set(states)


def live(arena: Arena) -> int:
    [(number,)] = arena.backend.rows("select count(*) from stagepost_job")
    return int(number)


@contextlib.contextmanager
def purging(names: Names) -> Iterator[list[int]]:
    """Throw all messages away every few seconds."""
    purged: list[int] = []
    stopped = threading.Event()

    def purge() -> None:
        while not stopped.wait(PURGE_SECONDS):
            purged.append(names.purge())

    thread = threading.Thread(target=purge, name="fault-purge")
    thread.start()
    try:
        yield purged
    finally:
        stopped.set()
        thread.join()


def set_patience(node: PrivateRabbitmq, *, seconds: int) -> None:
    """How long a message may go without an acknowledgement; looked at so often that tests need not wait."""
    tick = min(60_000, seconds * 250)
    node.control("eval", f"application:set_env(rabbit, consumer_timeout, {seconds * 1000}).")
    node.control("eval", f"application:set_env(rabbit, channel_tick_interval, {tick}).")
