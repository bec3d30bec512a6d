"""Workers describe themselves, and tasks that none of them knows are noticed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stagepost.store import jobs, workers
from stagepost.store.listing import list_jobs
from stagepost.store.workers import (
    UnservedTask,
    WorkerRecord,
    forget_silent,
    forget_worker,
    heartbeat,
    list_workers,
    notify_workers,
    other_workers,
    register_worker,
    unknown_tasks,
)
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, TASK, claim, new_job

MINUTE = timedelta(minutes=1)


def hello(store: Bench, worker_id: str, **changes: Any) -> None:
    facts: dict[str, Any] = {
        "host": "north",
        "pid": 4321,
        "queues": [QUEUE],
        "tasks": [TASK],
        "slots": 8,
        "loops": ["claimer"],
    }
    store.run(register_worker(worker_id, **(facts | changes)))


def test_a_worker_is_listed_as_it_described_itself(store: Bench) -> None:
    started_at = store.now
    hello(store, "w-1", queues=["mail", "images"], tasks=["resize", "crop"], loops=["relay", "claimer"])
    store.clock.advance(10)

    alive = store.run(heartbeat("w-1", running=3, looked_ago=timedelta(seconds=4)))
    store.clock.advance(2)

    assert alive
    assert store.run(list_workers()) == [
        WorkerRecord(
            id="w-1",
            host="north",
            pid=4321,
            queues=("images", "mail"),
            tasks=("crop", "resize"),
            loops=("relay", "claimer"),
            slots=8,
            running=3,
            started_at=started_at,
            seen_at=started_at + 10_000_000,
            looked_at=started_at + 6_000_000,
            silent_us=2_000_000,
        )
    ]


def test_saying_hello_again_changes_the_description_and_not_the_start(store: Bench) -> None:
    started_at = store.now
    hello(store, "w-1")
    store.clock.advance(10)

    hello(store, "w-1", slots=2, queues=["images"], tasks=["crop"], loops=["relay"])

    [worker] = store.run(list_workers())
    assert (worker.slots, worker.queues, worker.tasks, worker.loops) == (2, ("images",), ("crop",), ("relay",))
    assert (worker.started_at, worker.silent_us) == (started_at, 0)


def test_a_worker_whose_record_was_deleted_must_register_again(store: Bench) -> None:
    hello(store, "w-1")

    store.run(forget_worker("w-1"))

    assert store.run(heartbeat("w-1", running=0, looked_ago=timedelta(0))) is False
    assert store.run(list_workers()) == []


def test_only_workers_silent_for_longer_are_forgotten(store: Bench) -> None:
    hello(store, "w-silent")
    store.clock.advance(MINUTE)
    hello(store, "w-late")
    store.clock.advance(1)

    assert store.run(forget_silent(MINUTE)) == ["w-silent"]
    assert store.run(forget_silent(MINUTE)) == []
    assert [worker.id for worker in store.run(list_workers())] == ["w-late"]


def test_tasks_that_no_live_worker_lists_are_reported_and_their_jobs_kept(store: Bench) -> None:
    hello(store, "w-1")
    for task_name in ("unheard_of", "unheard_of", TASK):
        store.run(jobs.enqueue(new_job(task_name=task_name)))
        store.clock.advance(1)
    store.clock.advance(MINUTE)
    store.run(heartbeat("w-1", running=0, looked_ago=timedelta(0)))

    unserved = store.run(unknown_tasks(MINUTE))

    assert unserved == [UnservedTask("unheard_of", QUEUE, jobs=2, oldest_us=63_000_000)]
    assert len(store.run(list_jobs(task_name="unheard_of"))) == 2


def test_a_task_is_unserved_once_its_only_worker_falls_silent(store: Bench) -> None:
    hello(store, "w-1")
    store.run(jobs.enqueue(new_job()))
    store.clock.advance(MINUTE)
    assert store.run(unknown_tasks(MINUTE)) == []

    store.clock.advance(1)

    assert [task.task_name for task in store.run(unknown_tasks(MINUTE))] == [TASK]


def test_a_task_that_is_only_known_in_another_queue_is_unserved(store: Bench) -> None:
    hello(store, "w-1", queues=["images"])
    store.run(jobs.enqueue(new_job()))

    unserved = store.run(unknown_tasks(timedelta(0)))

    assert [(task.queue_name, task.task_name) for task in unserved] == [(QUEUE, TASK)]


def test_jobs_queued_for_less_or_running_are_not_reported(store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    claim(store)
    store.clock.advance(MINUTE)
    store.run(jobs.enqueue(new_job()))
    store.clock.advance(30)

    assert store.run(unknown_tasks(MINUTE)) == []


def test_only_the_next_jobs_of_a_queue_are_looked_at(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_LOOKED_AT", 3)
    store.run(jobs.enqueue_many([new_job(task_name="unheard_of", priority=priority) for priority in (5, 4, 3, 2)]))
    store.run(jobs.enqueue(new_job(task_name="behind_them", priority=1)))
    store.clock.advance(MINUTE)

    [task] = store.run(unknown_tasks(MINUTE))

    assert (task.task_name, task.jobs) == ("unheard_of", 3)


def test_workers_can_be_notified_of_any_number_of_queues(store: Bench) -> None:
    """Where the database cannot notify, and where the names are too long for it, nothing is wrong."""
    store.run(notify_workers([QUEUE, "mail"]))
    store.run(notify_workers([f"{number:0190}" for number in range(100)]))


def test_other_workers_are_those_that_live_and_share_a_queue(store: Bench) -> None:
    for worker_id, queues in (("silent", ["mail"]), ("me", ["mail"])):
        hello(store, worker_id, queues=queues)
    store.clock.advance(61)
    for worker_id, queues in (("me", ["mail"]), ("elsewhere", ["images"]), ("beside", ["images", "mail"])):
        hello(store, worker_id, queues=queues)

    assert store.run(other_workers("me", ["mail", "reports"])) == ["beside"]
    assert store.run(other_workers("beside", ["reports"])) == []


@pytest.mark.parametrize(("silent", "found"), [(11.5, ["beside"]), (12.5, [])])
def test_a_worker_that_missed_two_reports_would_not_take_what_another_gives_back(
    store: Bench, silent: float, found: list[str]
) -> None:
    hello(store, "me")
    hello(store, "beside")
    store.clock.advance(silent)
    store.run(heartbeat("me", running=0, looked_ago=timedelta(0)))

    assert store.run(other_workers("me", [QUEUE])) == found
