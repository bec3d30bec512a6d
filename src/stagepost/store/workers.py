"""Operations on what workers say of themselves: for people to look at, no lease or rescue rests on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import TASK
from stagepost.store.counting import count_by_queue

__all__ = [
    "ALIVE_WITHIN",
    "HEARTBEAT",
    "UnservedTask",
    "WorkerRecord",
    "forget_silent",
    "forget_worker",
    "heartbeat",
    "list_workers",
    "notify_workers",
    "other_workers",
    "say_hello",
    "unknown_tasks",
]

LONGEST_NOTIFICATION = 8000
"""PostgreSQL takes notifications shorter than this, in bytes."""
ALIVE_WITHIN = timedelta(seconds=60)
"""A worker that said nothing for longer counts as gone."""
HEARTBEAT = timedelta(seconds=5)
"""How often a worker reports."""
TAKES_JOBS_WITHIN = timedelta(seconds=12)
"""A worker that has missed two reports was probably killed: nobody should give jobs back for it to take."""
MOST_LOOKED_AT = 1000
"""How many jobs of a queue are looked at for tasks that nobody knows."""


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker as it last described itself. Times are microseconds since 1970, by the database's clock."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    running: int
    started_at: int
    seen_at: int
    looked_at: int
    """When it last looked for work; long ago while it has free slots means that it is stuck."""
    silent_us: int
    """How long ago it last said something."""


@operation
def say_hello(
    worker_id: str, *, host: str, pid: int, queues: Sequence[str], tasks: Sequence[str], slots: int
) -> Statements[None]:
    """Describe a worker that starts; saying it again changes the description."""
    yield Statement(
        "say_hello",
        {
            "id": worker_id,
            "host": host[:191],
            "pid": pid,
            "queues": as_json(sorted(queues)),
            "tasks": as_json(sorted(tasks)),
            "slots": slots,
        },
    )


@operation
def heartbeat(worker_id: str, *, running: int, looked_ago: timedelta) -> Statements[bool]:
    """Say that a worker is alive; False if it was forgotten and has to say hello again."""
    rows = yield Statement("heartbeat", {"id": worker_id, "running": running, "looked_us": microseconds(looked_ago)})
    return bool(rows)


@query
def list_workers() -> Statements[list[WorkerRecord]]:
    """List the workers that are not forgotten, those that started last first."""
    rows = yield Statement("list_workers")
    return [_worker(*row) for row in rows]


@query
def other_workers(worker_id: str, queue_names: Collection[str]) -> Statements[list[str]]:
    """List the other workers that serve any of these queues and have reported lately."""
    workers = yield from list_workers().start()
    longest_us = microseconds(TAKES_JOBS_WITHIN)
    return [
        worker.id for worker in workers if worker.silent_us <= longest_us and _is_other(worker, worker_id, queue_names)
    ]


def _is_other(worker: WorkerRecord, worker_id: str, queue_names: Collection[str]) -> bool:
    return worker.id != worker_id and not set(queue_names).isdisjoint(worker.queues)


@operation
def forget_worker(worker_id: str) -> Statements[None]:
    """Remove a worker that stops."""
    yield Statement("forget_worker", {"id": worker_id})


@operation
def forget_silent(after: timedelta) -> Statements[list[str]]:
    """Remove workers that said nothing for longer than `after`; returns their ids."""
    rows = yield Statement("forget_silent", {"after_us": microseconds(after)})
    return [row[0] for row in rows]


@operation
def notify_workers(queue_names: Collection[str]) -> Statements[None]:
    """Tell workers of other processes that these queues have jobs, where the database can."""
    names = ",".join(sorted(queue_names))
    fits = len(names.encode()) < LONGEST_NOTIFICATION  # an empty text stands for any queue
    yield Statement("notify_workers", {"queue_names": names if fits else ""}, is_enough=True)


class UnservedTask(msgspec.Struct, frozen=True):
    """Jobs that wait in a queue where no live worker knows their task; they are kept until one does."""

    task_name: str
    queue_name: str
    jobs: int
    """There may be more, behind those that were looked at."""
    oldest_us: int
    """For how long the oldest could have been run."""


@query
def unknown_tasks(older_than: timedelta, *, alive_within: timedelta = ALIVE_WITHIN) -> Statements[list[UnservedTask]]:
    """Find tasks with jobs queued for longer than `older_than` that no live worker of their queue lists.

    Looks at the next jobs of each queue only: what no worker claims is left there sooner or later.
    """
    workers = yield from list_workers().start()
    served = set(_served(worker for worker in workers if worker.silent_us <= microseconds(alive_within)))
    counted = yield from count_by_queue().start()
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
    """Find jobs that are blocked until a worker knows their task."""
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


def _worker(worker_id: str, host: str, pid: int, queues: str, tasks: str, *numbers: int) -> WorkerRecord:
    return WorkerRecord(worker_id, host, pid, _names(queues), _names(tasks), *numbers)


def _names(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])
