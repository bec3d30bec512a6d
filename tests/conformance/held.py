"""Operations in callers' open transactions, each with the rows it needs, and the operations of others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from stagepost.database.statement import Operation
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob, OnConflict
from stagepost.model.outcome import Completed, Failed, Outcome, Refused, Snoozed
from stagepost.store import batch_items, batches, cancelling, concluding, counting, gates, jobs, leases, runs, settling
from stagepost.store.children import submit_children
from stagepost.store.settlement import Settlement
from tests.conformance import families, pipelines
from tests.conformance.batches import TOLD, filled, items, new_batch
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, enqueue, new_job, settle
from tests.limits import unblock

Prepared = Callable[[Bench], Operation[Any]]
"""Stores the rows that an operation needs, and returns the operation."""

FAILED = Failed("no ink", timedelta(minutes=1))
REFUSED = Refused("no such street")
FREED, HELD, HELD_FOR_LONG = "key:50", "key:60", "key:70"
HOUR_US = 3_600_000_000


def leased(store: Bench, queue_name: str) -> LeasedJob:
    [job] = store.run(leases.claim(queue_name, owner="worker-a", task_names=[TASK], slots=1, lease=LEASE))
    return job


def running(store: Bench, **changes: Any) -> LeasedJob:
    """Store a job in a separate queue and lease it, because jobs of other tests wait in theirs."""
    queue_name = new_id()
    enqueue(store, queue_name=queue_name, **changes)
    return leased(store, queue_name)


def with_ended_item(store: Bench, outcome: Outcome, key: str = "upload:42", **changes: Any) -> str:
    """Store a batch one of whose items has ended."""
    batch, queue_name = filled(store, 1, key, **changes), new_id()
    store.run(batches.add_items(batch.id, items(1, first=1, queue_name=queue_name)))
    assert settle(store, leased(store, queue_name), outcome)
    return batch.id


def keyed(key: str, **changes: Any) -> Prepared:
    return lambda _store: jobs.enqueue(new_job(unique_key=key, **changes))


def settled(outcome: Outcome, **changes: Any) -> Prepared:
    def prepare(store: Bench) -> Operation[Any]:
        return settling.settle([Settlement.of(running(store, **changes), outcome)], ended_counts=False)

    return prepare


def ended(store: Bench, outcome: Outcome = REFUSED, **changes: Any) -> LeasedJob:
    job = running(store, **changes)
    assert settle(store, job, outcome)
    return job


def asked_again(job: NewJob) -> Operation[Any]:
    return jobs.enqueue(job).repeated()


def again_live(store: Bench) -> Operation[Any]:
    job = new_job(queue_name="other")
    store.run(jobs.enqueue(job))
    return asked_again(job)


def again_ended(store: Bench) -> Operation[Any]:
    job = new_job(queue_name="letters")
    store.run(jobs.enqueue(job))
    assert settle(store, leased(store, "letters"), Completed())
    return asked_again(job)


def with_freed_key(store: Bench) -> Operation[Any]:
    ended(store, Completed(), unique_key=FREED)
    return jobs.enqueue(new_job(unique_key=FREED))


def with_held_key(**changes: Any) -> Prepared:
    def prepare(store: Bench) -> Operation[Any]:
        enqueue(store, unique_key=HELD, queue_name="other")
        return jobs.enqueue(new_job(unique_key=HELD, **changes))

    return prepare


def with_key_held_for_long(store: Bench) -> Operation[Any]:
    enqueue(store, unique_key=HELD_FOR_LONG, unique_for_us=HOUR_US, queue_name="other")
    return jobs.enqueue(new_job(unique_key=HELD_FOR_LONG, unique_for_us=HOUR_US))


def many_keyed(store: Bench) -> Operation[Any]:
    ended(store, Completed(), unique_key=FREED)
    enqueue(store, unique_key=HELD, queue_name="other")
    return jobs.enqueue_many([new_job(unique_key=f"key:{at}") for at in range(40, 70, 5)])


def children(store: Bench) -> Operation[Any]:
    return submit_children(running(store), [families.child(0), families.child(1)])


def parent(store: Bench) -> Operation[Any]:
    job = running(store)
    families.submit(store, job, 2)
    return settling.settle([Settlement.of(job, Completed())], ended_counts=False)


def more_items(store: Bench) -> Operation[Any]:
    filled(store, 2)
    return batches.add_to(new_batch(), items(4))


def sealed(store: Bench) -> Operation[Any]:
    return concluding.seal(filled(store, 2, gate="gate:5").id)


def started_again(store: Bench) -> Operation[Any]:
    key = pipelines.look(store, pipelines.begin(store, pipelines.step("a"))).key
    return runs.start(pipelines.new_run(pipelines.step("a"), key=key))


def cancelled_run(store: Bench) -> Operation[Any]:
    return runs.cancel(pipelines.begin(store, pipelines.step("a")), actor="ada")


HELD_OPEN: dict[str, Prepared] = {
    "enqueue": lambda _: jobs.enqueue(new_job()),
    "enqueue later": lambda _: jobs.enqueue(new_job(delay_us=HOUR_US)),
    "enqueue with a limit": lambda _: jobs.enqueue(new_job(limit_key="street", limit=1)),
    "enqueue with a chosen id": lambda _: jobs.enqueue(new_job(has_chosen_id=True)),
    "enqueue what is there": again_live,
    "enqueue what has ended": again_ended,
    "enqueue with a free key": keyed(FREED),
    "enqueue with a key freed just now": with_freed_key,
    "enqueue with a held key": with_held_key(),
    "enqueue with a held key for a period": with_key_held_for_long,
    "enqueue with a key for a period": keyed(FREED, unique_for_us=HOUR_US),
    "replace arguments": with_held_key(on_conflict=OnConflict.REPLACE),
    "debounce": with_held_key(on_conflict=OnConflict.DEBOUNCE, delay_us=HOUR_US),
    "enqueue many": lambda _: jobs.enqueue_many([new_job() for _ in range(10)]),
    "enqueue so many that others load them": lambda _: jobs.enqueue_many([new_job() for _ in range(150)]),
    "enqueue many with keys": many_keyed,
    "complete": settled(Completed()),
    "complete with a key": settled(Completed(), unique_key=HELD),
    "fail": settled(FAILED),
    "fail for good": settled(REFUSED),
    "snooze": settled(Snoozed(timedelta(minutes=1))),
    "submit children": children,
    "complete a parent": parent,
    "make a batch": lambda _: batches.add_to(new_batch(new_id(), gate="gate:5", on_complete=TOLD), items(2)),
    "add to a batch": more_items,
    "seal a batch": sealed,
    "seal a batch without items": lambda _: concluding.seal_key(new_batch(new_id(), gate="gate:5", on_complete=TOLD)),
    "pass a gate": lambda _: gates.locked_status("gate:5"),
    "cancel a batch": lambda store: cancelling.cancel_batch(filled(store, 2).id, actor="ada"),
    "cancel items": lambda store: cancelling.cancel_items(filled(store, 2).id),
    "retry failed items": lambda store: batch_items.retry_failed(with_ended_item(store, REFUSED), actor="ada"),
    "waive failed items": lambda store: batch_items.waive(with_ended_item(store, REFUSED), actor="ada", why="lost"),
    "cancel": lambda store: cancelling.cancel_job(enqueue(store, unique_key=HELD), actor="ada"),
    "cancel what runs": lambda store: cancelling.cancel_job(running(store).id, actor="ada"),
    "retry": lambda store: jobs.restart([ended(store).id], actor="ada"),
    "retry with a key": lambda store: jobs.restart([ended(store, unique_key=HELD).id], actor="ada"),
    "retry what lives": lambda store: jobs.restart([enqueue(store)], actor="ada"),
    "start a pipeline": lambda _: runs.start(pipelines.new_run(pipelines.step("a"), pipelines.step("b"))),
    "start a pipeline again": started_again,
    "cancel a pipeline": cancelled_run,
}


def renewed(store: Bench) -> Operation[Any]:
    job = running(store)
    return leases.renew([(job.id, job.attempt)], owner=job.owner, lease=LEASE)


def concluded(store: Bench) -> Operation[Any]:
    batch_id = with_ended_item(store, Completed(), "another", gate="gate:6", on_complete=TOLD)
    store.run(concluding.seal(batch_id))
    return concluding.conclude(batch_id)


def added(store: Bench) -> Operation[Any]:
    return batches.add_items(filled(store, 1, key="a third").id, items(3))


def claimed(store: Bench) -> Operation[Any]:
    enqueue(store)
    return leases.claim(QUEUE, owner="worker-b", task_names=[TASK], slots=5, lease=LEASE)


MEANWHILE: dict[str, Prepared] = {
    "complete another": settled(Completed()),
    "complete another with a key": settled(Completed(), unique_key="key:59"),
    "fail another": settled(FAILED),
    "fail another for good": settled(REFUSED),
    "renew another": renewed,
    "retry another": lambda store: jobs.restart([ended(store, unique_key="key:61").id], actor="eve"),
    "submit children of another": children,
    "complete another parent": parent,
    "conclude another batch": concluded,
    "add to another batch": added,
    "make another batch": lambda _: batches.add_to(new_batch(new_id(), gate="gate:7"), items(2)),
    "pass another gate": lambda _: gates.locked_status("gate:4"),
    "start another pipeline": lambda _: runs.start(pipelines.new_run(pipelines.step("a"))),
    "enqueue another": lambda _: jobs.enqueue(new_job()),
    "enqueue another with a chosen id": lambda _: jobs.enqueue(new_job(has_chosen_id=True)),
    **{f"enqueue with key {at}": keyed(f"key:{at}") for at in ("0", "49", "51", "599", "62", "9")},
    "enqueue with another key for a period": keyed("key:51", unique_for_us=HOUR_US),
    "enqueue many others": lambda _: jobs.enqueue_many([new_job() for _ in range(150)]),
    "promote": lambda _: leases.promote_due(),
    "rescue": lambda _: leases.rescue_expired(grace=timedelta(0)),
    "unblock": lambda _: unblock(),
    "fold moves": lambda _: counting.fold(),
    "claim": claimed,
}
