"""Operations on workers' descriptions of themselves. They are informative: leases and rescue do not depend on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.database.statement import (
    Statement,
    Statements,
    as_json,
    operation,
    query,
    single_statement,
)
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import TASK
from stagepost.store.counting import count_by_queue

__all__ = [
    "ALIVE_WITHIN",
    "HEARTBEAT",
    "TAKES_JOBS_WITHIN",
    "UnservedTask",
    "WorkerRecord",
    "forget_silent",
    "forget_worker",
    "heartbeat",
    "list_workers",
    "notify_workers",
    "other_workers",
    "register_worker",
    "unknown_tasks",
]

LONGEST_NOTIFICATION = 8000
"""PostgreSQL accepts notifications shorter than this, in bytes."""
ALIVE_WITHIN = timedelta(seconds=60)
"""A worker without a heartbeat for longer than this counts as dead."""
HEARTBEAT = timedelta(seconds=5)
"""How often a worker reports."""
TAKES_JOBS_WITHIN = timedelta(seconds=12)
"""A worker that has missed two reports was probably killed: nobody should give jobs back for it to take."""
MOST_LOOKED_AT = 1000
"""How many jobs of a queue are searched for unknown tasks."""


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker as it last described itself. Times are microseconds since 1970, by the database's clock."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    loops: tuple[str, ...]
    """The names of its loops, in the order of `worker/loop_table.py`."""
    slots: int
    running: int
    started_at: int
    seen_at: int
    looked_at: int
    """When it last looked for work. If that is long ago and it has free slots, it is stuck."""
    silent_us: int
    """The time since its last heartbeat."""


@operation
def register_worker(
    worker_id: str,
    *,
    host: str,
    pid: int,
    queues: Sequence[str],
    tasks: Sequence[str],
    slots: int,
    loops: Sequence[str] = (),
) -> Statements[None]:
    """Register a worker that starts, or update its description."""
    yield Statement(
        "say_hello",
        {
            "id": worker_id,
            "host": host[:191],
            "pid": pid,
            "queues": as_json(sorted(queues)),
            "tasks": as_json(sorted(tasks)),
            "loops": as_json(list(loops)),
            "slots": slots,
        },
    )


@operation
def heartbeat(worker_id: str, *, running: int, looked_ago: timedelta) -> Statements[bool]:
    """Record that a worker is alive. False if its record was deleted and it must call `register_worker` again."""
    rows = yield Statement("heartbeat", {"id": worker_id, "running": running, "looked_us": microseconds(looked_ago)})
    return bool(rows)


@query
def list_workers() -> Statements[list[WorkerRecord]]:
    """List registered workers, last started first."""
    rows = yield Statement("list_workers")
    return [_worker(*row) for row in rows]


@query
def other_workers(worker_id: str, queue_names: Collection[str]) -> Statements[list[str]]:
    """List the other workers that serve any of these queues and have reported lately."""
    workers = yield from list_workers()
    longest_us = microseconds(TAKES_JOBS_WITHIN)
    return [
        worker.id for worker in workers if worker.silent_us <= longest_us and _is_other(worker, worker_id, queue_names)
    ]


def _is_other(worker: WorkerRecord, worker_id: str, queue_names: Collection[str]) -> bool:
    return worker.id != worker_id and not set(queue_names).isdisjoint(worker.queues)


@operation
def forget_worker(worker_id: str) -> Statements[None]:
    """Delete the record of a worker that stops."""
    yield Statement("forget_worker", {"id": worker_id})


@operation
def forget_silent(after: timedelta) -> Statements[list[str]]:
    """Delete the records of workers without a heartbeat for longer than `after`, and return their ids."""
    rows = yield Statement("forget_silent", {"after_us": microseconds(after)})
    return [row[0] for row in rows]


@single_statement
def notify_workers(queue_names: Collection[str]) -> Statements[None]:
    """Notify workers in other processes that these queues have jobs, if the database supports it."""
    names = ",".join(sorted(queue_names))
    fits = len(names.encode()) < LONGEST_NOTIFICATION  # an empty text means any queue
    yield Statement("notify_workers", {"queue_names": names if fits else ""})


class UnservedTask(msgspec.Struct, frozen=True):
    """Jobs that wait in a queue where no live worker knows their task. They are kept until one does."""

    task_name: str
    queue_name: str
    jobs: int
    """A lower bound, because only `MOST_LOOKED_AT` jobs are searched."""
    oldest_us: int
    """How long the oldest of them has been ready to run."""


@query
def unknown_tasks(older_than: timedelta, *, alive_within: timedelta = ALIVE_WITHIN) -> Statements[list[UnservedTask]]:
    """Find tasks with jobs queued for longer than `older_than` that no live worker of their queue knows.

    Searches only the next jobs of each queue: jobs that no worker claims end up among them sooner or later.
    """
    workers = yield from list_workers()
    served = set(_served(worker for worker in workers if worker.silent_us <= microseconds(alive_within)))
    counted = yield from count_by_queue()
    unserved: list[UnservedTask] = []
    for queue_name in [name for name, counts in counted.items() if counts[JobState.QUEUED]]:
        which = {"queue_name": queue_name, "older_us": microseconds(older_than), "most": MOST_LOOKED_AT}
        rows = yield Statement("queued_tasks", which)
        unserved += [
            UnservedTask(task_name, queue_name, jobs, oldest_us)
            for task_name, jobs, oldest_us in rows
            if (queue_name, task_name) not in served
        ]
    return unserved + (yield from _held(older_than))


def _held(older_than: timedelta) -> Statements[list[UnservedTask]]:
    """Find jobs that are blocked because no worker knows their task."""
    unserved: list[UnservedTask] = []
    after = TASK
    while rows := (yield Statement("blocked_names", {"after": after, "most": 1})):
        [(after,)] = rows
        if not after.startswith(TASK):
            break
        found = yield Statement("blocked_tasks", {"name": after, "most": MOST_LOOKED_AT})
        unserved += [
            UnservedTask(after.removeprefix(TASK), queue_name, jobs, oldest_us)
            for queue_name, jobs, oldest_us in found
            if oldest_us >= microseconds(older_than)
        ]
    return unserved


def _served(workers: Iterable[WorkerRecord]) -> Iterable[tuple[str, str]]:
    return ((queue, task) for worker in workers for queue in worker.queues for task in worker.tasks)


def _worker(worker_id: str, host: str, pid: int, queues: str, tasks: str, loops: str, *numbers: int) -> WorkerRecord:
    return WorkerRecord(worker_id, host, pid, _names(queues), _names(tasks), _names(loops), *numbers)


def _names(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])
