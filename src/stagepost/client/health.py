"""Health checks of the database, the workers and the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Literal

import msgspec

from stagepost.client.broker_view import MOST_COUNTED, BrokerView, query_broker
from stagepost.clock import monotonic
from stagepost.config import Settings
from stagepost.database.migrate import pending
from stagepost.database.store import Store
from stagepost.errors import SchemaError, StoreRefused, StoreUnavailable
from stagepost.model.job import microseconds
from stagepost.store.health import durability_warnings, ping
from stagepost.store.wait_reasons import no_worker_for
from stagepost.store.workers import ALIVE_WITHIN, UnservedTask, WorkerRecord, list_workers, unknown_tasks

__all__ = ["Check", "check_health", "is_healthy"]

UNSERVED = timedelta(seconds=60)
"""Jobs that wait for a worker longer than this are a failure; before that a warning, because a restart takes time."""
UNSENT = timedelta(seconds=60)
"""Unsent jobs that have waited longer cause a warning."""


class Check(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    status: Literal["ok", "warning", "failed"]
    message: str


def check_health(
    store: Store, *, with_workers: bool = True, settings: Settings | None = None, queues: Iterable[str] = ()
) -> Iterator[Check]:
    """Check the database, its tables and durability, the workers and the broker; stop where further checks are useless.

    The broker is checked only if `settings` name one, for the given `queues` and those that have jobs.
    """
    started = monotonic()
    try:
        store.run(ping(), patience_seconds=0)
    except StoreUnavailable as error:
        yield Check("database", "failed", str(error))
        return
    yield Check("database", "ok", f"It answered in {(monotonic() - started) * 1000:.0f} ms.")
    schema = _schema(store)
    yield schema
    yield from _durability(store)
    if with_workers and schema.status == "ok":
        yield _workers(store)
        yield from _unserved(store)
    if settings is not None and schema.status == "ok":
        view = query_broker(store, settings, known=queues)
        if view is not None:
            yield from _broker(view, collects=settings.rabbitmq.collect_dead_letters)


def is_healthy(checks: list[Check]) -> bool:
    """Return whether no check failed; warnings do not count."""
    return all(check.status != "failed" for check in checks)


def _schema(store: Store) -> Check:
    try:
        missing = pending(store)
    except (SchemaError, StoreRefused) as error:
        return Check("schema", "failed", str(error))
    if missing:
        names = ", ".join(f"{migration.version:04}_{migration.name}" for migration in missing)
        return Check("schema", "failed", f"Missing migrations: {names}. Run `{store.migrate_command}`.")
    return Check("schema", "ok", "The tables are up to date.")


def _durability(store: Store) -> Iterator[Check]:
    warnings = store.run(durability_warnings())
    for warning in warnings:
        yield Check("durability", "warning", warning)
    if not warnings:
        yield Check("durability", "ok", "Committed data survives a crash of the database server.")


def _workers(store: Store) -> Check:
    workers = store.run(list_workers())
    alive = [worker for worker in workers if worker.silent_us <= microseconds(ALIVE_WITHIN)]
    if not alive:
        return Check("workers", "failed", "No worker is running. Start one with `stagepost worker`.")
    working = [worker for worker in alive if _looks_for_work(worker)]
    if not working:
        return Check(
            "workers",
            "failed",
            f"{_count(len(alive), 'worker')} running, but none has looked for jobs within "
            f"{ALIVE_WITHIN.seconds} s although there are free slots. Check the workers' logs and restart them.",
        )
    return Check("workers", "ok", f"{_count(len(working), 'worker')} running and looking for jobs.")


def _looks_for_work(worker: WorkerRecord) -> bool:
    looked_ago = worker.silent_us + worker.seen_at - worker.looked_at
    return looked_ago <= microseconds(ALIVE_WITHIN) or worker.running >= worker.slots


def _unserved(store: Store) -> Iterator[Check]:
    unserved = store.run(unknown_tasks(timedelta(0)))
    workers = store.run(list_workers()) if unserved else []
    for task in unserved:
        missing = no_worker_for(task.queue_name, task.task_name, workers) or "A worker has just started."
        yield Check(
            "tasks",
            "failed" if task.oldest_us >= microseconds(UNSERVED) else "warning",
            f"{_waiting(task)} {missing}",
        )
    if not unserved:
        yield Check("tasks", "ok", "A running worker knows every task that has waiting jobs.")


def _broker(view: BrokerView, *, collects: bool) -> Iterator[Check]:
    if view.trouble is not None:
        yield Check("broker", "failed", f"{view.trouble}. Jobs wait in the database; nothing is lost.")
    else:
        yield Check("broker", "ok", f"RabbitMQ at {view.address} answers.")
        for queue in view.queues:
            if queue.ready is None:
                yield Check(
                    "broker",
                    "warning",
                    f"Queue {queue.broker_name} does not exist, or access is denied. Run `stagepost rabbitmq check`.",
                )
    yield _unsent(view)
    if view.dead_letters is not None:
        held = (
            f"{view.dead_letter_queue} holds {view.dead_letters:,} messages; "
            f"{view.dead_messages:,} are stored in the database."
        )
        is_left = collects and view.dead_letters > 0
        remedy = " Workers collect them: check that one is running." if is_left else ""
        yield Check("dead letters", "warning" if is_left else "ok", held + remedy)


def _unsent(view: BrokerView) -> Check:
    waits_us = view.waits_us
    if waits_us is None:
        return Check("sending", "ok", "No job is waiting for the broker.")
    number = f"{view.unsent:,}" + (" or more" if any(queue.unsent >= MOST_COUNTED for queue in view.queues) else "")
    text = f"{number} jobs are waiting for the broker, the oldest for {waits_us / 1_000_000:,.0f} s."
    if waits_us < microseconds(UNSENT):
        return Check("sending", "ok", text)
    return Check("sending", "warning", f"{text} Their queue is paused or full, no worker runs, or the broker is down.")


def _waiting(task: UnservedTask) -> str:
    number, verb = ("1 job", "waits") if task.jobs == 1 else (f"At least {task.jobs:,} jobs", "wait")
    seconds = task.oldest_us / 1_000_000
    return f"{number} of task {task.task_name!r} {verb} in queue {task.queue_name!r}, the oldest for {seconds:,.0f} s."


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number:,} {noun}s are"
