"""Alerts are stored together with the change they report, or neither is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from stagepost.database.statement import Operation, as_json
from stagepost.model.alert import ALERT_QUEUE, Alert, AlertKind
from stagepost.model.dead_letter import DeadMessage, Letter, Undelivered, stray
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.store import jobs, leases, sending
from stagepost.store.alerts import alerting
from stagepost.store.dead_messages import add_dead_messages, dead_messages, end_undelivered
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, claim, enqueue, new_job
from tests.conformance.sending import sent_job

GRACE = timedelta(seconds=15)


@dataclass(frozen=True)
class Work:
    """An operation that alerts report."""

    prepare: Callable[[Bench], Operation[Any]]
    """Store what it needs, and return what is done then."""
    ended: Callable[[Any], list[str]]
    """Which jobs that ended, by what it returned."""


def crashed(store: Bench) -> Operation[Any]:
    enqueue(store)
    for owner in ("worker-a", "worker-b", "worker-c"):
        store.run(leases.rescue_expired(grace=GRACE))
        claim(store, owner=owner)
        store.clock.advance(LEASE + GRACE + timedelta(microseconds=1))
    return leases.rescue_expired(grace=GRACE)


def unroutable(store: Bench) -> Operation[Any]:
    return sending.refuse_unsent([(enqueue(store), 1)], error="nowhere to go")


def unanswered(store: Bench) -> Operation[Any]:
    sent_job(store)
    store.clock.advance(1)
    return sending.put_back_lost(QUEUE, sent_before=store.now, most=10, sends=1)


def undelivered(store: Bench) -> Operation[Any]:
    job_id, attempt = sent_job(store)
    return end_undelivered([Undelivered(job_id, attempt, "expired", "task.mail")])


WORKS = {
    AlertKind.CRASHED: Work(crashed, lambda rescued: list(rescued.buried)),
    AlertKind.UNROUTABLE: Work(unroutable, list),
    AlertKind.UNANSWERED: Work(unanswered, lambda back: back.unanswered),
    AlertKind.UNDELIVERED: Work(undelivered, lambda found: found.ended),
}
ENDS = {JobState.FAILED, JobState.DEAD_LETTER}


@pytest.fixture(params=sorted(WORKS))
def kind(request: pytest.FixtureRequest) -> AlertKind:
    return AlertKind(request.param)


def job_for(alert: Alert) -> NewJob:
    return new_job(id=alert.id, queue_name=ALERT_QUEUE, task_name="page", payload=as_json({"alert": alert}))


def alert_jobs(store: Bench) -> list[str]:
    rows = store.rows("select id from stagepost_job where queue_name = :queue", queue=ALERT_QUEUE)
    return [str(row[0]) for row in rows]


def dead(store: Bench) -> list[str]:
    return [str(row[0]) for row in store.rows("select id from stagepost_job_history")]


def test_an_alert_is_committed_with_the_change_it_reports(store: Bench, kind: AlertKind) -> None:
    work = WORKS[kind]
    operation = work.prepare(store)
    about = lambda result: Alert.of_jobs(kind, work.ended(result), "why", queue=QUEUE)  # noqa: E731

    result, alert = store.run(alerting(operation, about, job_for))

    [ended] = work.ended(result)
    assert alert is not None
    assert (alert.kind, alert.number, alert.job_ids, alert.queue) == (kind, 1, [ended], QUEUE)
    assert store.run(jobs.get(ended)).state in ENDS
    told = store.run(jobs.get(alert.id))
    assert (told.queue_name, told.state, told.payload) == (ALERT_QUEUE, JobState.QUEUED, as_json({"alert": alert}))


def test_a_change_whose_alert_cannot_be_stored_is_rolled_back(store: Bench, kind: AlertKind) -> None:
    work = WORKS[kind]
    operation = work.prepare(store)

    def refuse(_alert: Alert) -> NewJob:
        raise RuntimeError("no room for alerts")

    with pytest.raises(RuntimeError, match="no room"):
        store.run(alerting(operation, lambda result: Alert.of_jobs(kind, work.ended(result), "why"), refuse))

    assert dead(store) == []
    assert len(work.ended(store.run(operation))) == 1, "it is still to be done"


def test_without_a_change_there_is_no_alert(store: Bench, kind: AlertKind) -> None:
    work = WORKS[kind]
    operation = work.prepare(store)
    tell: Operation[Any] = alerting(operation, lambda result: Alert.of_jobs(kind, work.ended(result), "why"), job_for)
    store.run(tell)
    [alert] = alert_jobs(store)

    assert store.run(tell)[1] is None, "the reply was lost, and it was done again"
    assert alert_jobs(store) == [alert]


def test_an_alert_of_messages_that_is_raised_twice_is_one(store: Bench) -> None:
    messages: list[DeadMessage] = [stray(Letter(body=b"?", message_id="m-1"))]
    alert = Alert.of_messages(AlertKind.STRAY, 1, "cannot be read", queue="task.dlq")
    tell: Operation[Any] = alerting(add_dead_messages(messages), lambda _: alert, job_for)

    store.run(tell)
    store.run(tell)

    assert alert_jobs(store) == [alert.id]
    assert [message.id for message in store.run(dead_messages())] == [messages[0].id]


def test_an_alert_names_the_first_of_many_and_says_how_many(store: Bench) -> None:
    ids = [enqueue(store) for _ in range(120)]
    about = partial(Alert.of_jobs, AlertKind.UNROUTABLE, reason="x" * 9000)

    operation = sending.refuse_unsent([(job_id, 1) for job_id in ids], error="nowhere to go")
    _, alert = store.run(alerting(operation, about, job_for))

    assert alert is not None
    assert (alert.number, len(alert.job_ids), len(alert.reason)) == (120, 100, 2000)
    assert set(alert.job_ids) < set(ids)
