"""PostgreSQL notifies listening workers once per statement, at commit, of the jobs they can claim."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest

from stagepost.database import Store
from stagepost.database.migrate import migrate
from stagepost.database.statement import Operation
from stagepost.database.wakeups.postgres import PROBE_PREFIX, PostgresWakeups
from stagepost.loops.signals import Signals
from stagepost.model.children import DeferredOutcome, NewChild
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.outcome import Completed, Released
from stagepost.store.children import submit_children
from stagepost.store.concluding import conclude
from stagepost.store.jobs import enqueue
from stagepost.store.leases import claim
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from tests.fault.wakeups import SOON, app_at, greeting, listening, opened


@pytest.fixture
def heard(postgres_database: str) -> Iterator[Callable[[], list[str]]]:
    """What was sent on the channel since the last question, in the order of the commits."""
    with contextlib.closing(Store.at(postgres_database)) as store:
        migrate(store)
    with psycopg.connect(postgres_database, autocommit=True) as ear, psycopg.connect(postgres_database) as mouth:
        ear.execute("listen stagepost")

        def ask() -> list[str]:
            mouth.execute("select pg_notify('stagepost', 'end')")
            mouth.commit()
            payloads: list[str] = []
            for notification in ear.notifies(timeout=SOON):
                if notification.payload == "end":
                    return [payload for payload in payloads if not payload.startswith(PROBE_PREFIX)]
                payloads.append(notification.payload)
            raise AssertionError("nothing arrives")

        yield ask


def test_postgres_notifies_once_for_a_statement_with_many_jobs(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    digest = app.task(name="digest", queue="reports")(lambda: None)
    with opened(app):
        app.enqueue_many([*(greeting(app) for _ in range(100)), digest.job()])

        assert heard() == ["mail,reports"]


def test_postgres_notifies_once_for_many_jobs_of_one_task(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    digest = app.task(name="digest", queue="reports")(lambda: None)
    with opened(app):
        digest.enqueue_many([()] * 200)
        digest.using(delay=60).enqueue_many([()] * 200)

        assert heard() == ["reports"]


def test_postgres_does_not_notify_for_jobs_that_cannot_be_claimed_yet(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    later = app.task(name="later")(lambda: None)
    elsewhere = app.task(name="elsewhere", queue="elsewhere", remote=True, max_running=1)(lambda: None)
    one_by_one = app.task(name="one_by_one", max_running=1)(lambda: None)
    with opened(app):
        later.using(delay=5).enqueue()
        elsewhere.enqueue()
        assert heard() == []

        one_by_one.enqueue()
        assert heard() == ["default"]

        app.client.enqueue_many([later.using(delay=5).job(), greeting(app)])
        assert heard() == ["mail"]


def test_a_list_of_queues_too_long_for_a_notification_notifies_everybody(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    wakeups = PostgresWakeups(app.store.database.connect, ["unrelated"])
    names = [f"{number:0190}" for number in range(50)]
    jobs = [NewJob(id=new_id(), task_name="greet", payload="{}", queue_name=name) for name in names]
    with opened(app), listening(wakeups) as ear:
        app.client.enqueue_many(jobs)

        assert heard() == [""]
        ear.hears()


def test_postgres_notifies_of_a_callers_job_when_the_caller_commits(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    with opened(app), psycopg.connect(postgres_database) as tx:
        app.client.enqueue(greeting(app), tx=tx)
        app.client.enqueue(greeting(app), tx=tx)
        assert heard() == []

        tx.commit()
        assert heard() == ["mail"]


def test_postgres_does_not_notify_when_the_caller_rolls_back(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    with opened(app), psycopg.connect(postgres_database) as tx:
        app.client.enqueue(greeting(app), tx=tx)
        tx.rollback()

        assert heard() == []


def test_postgres_does_not_notify_when_wake_ups_are_off(postgres_database: str, heard: Callable[[], list[str]]) -> None:
    app = app_at(postgres_database, wakeups=False)
    with opened(app):
        app.client.enqueue(greeting(app))

        assert heard() == []


def test_a_transaction_does_not_notify_while_others_that_would_delay_its_commit_do(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    with opened(app), psycopg.connect(postgres_database) as others:
        others.execute("select pg_try_advisory_xact_lock(736475017, number) from generate_series(0, 511) as number")
        app.client.enqueue(greeting(app))
        assert heard() == []

        others.commit()
        app.client.enqueue(greeting(app))
        assert heard() == ["mail"]


def test_postgres_notifies_of_a_continuation(postgres_database: str, heard: Callable[[], list[str]]) -> None:
    """Ending the last child queues it, not an insert."""
    parent, child, then = (
        NewJob(id=new_id(), task_name="bind", payload="{}", queue_name=name)
        for name in ("letters", "copies", "bindery")
    )
    with contextlib.closing(Store.at(postgres_database)) as store:
        store.run(enqueue(parent))
        [leased] = store.run(leased_of("letters"))
        store.run(submit_children(leased, [NewChild(child, None, 0)]))
        store.run(settle([Settlement.of(leased, Completed(None, DeferredOutcome(then=then)))]))
        [copy] = store.run(leased_of("copies"))
        store.run(settle([Settlement.of(copy, Completed())]))
        assert heard() == []

        store.run(conclude(parent.id))
        assert heard() == ["bindery"]


def leased_of(queue_name: str) -> Operation[list[LeasedJob]]:
    return claim(queue_name, owner="w", task_names=["bind"], slots=1, lease=timedelta(seconds=30))


async def test_postgres_notifies_of_jobs_that_a_worker_released(
    postgres_database: str, heard: Callable[[], list[str]]
) -> None:
    app = app_at(postgres_database)
    with opened(app):
        app.client.enqueue(greeting(app))
        heard()
        store = app.async_store
        for notifies in (False, True):
            [job] = await store.run(
                claim("mail", owner="a", task_names=["greet"], slots=1, lease=timedelta(seconds=30))
            )
            finisher = Finisher(store, LeasedAttempts(), Signals(), notifies=notifies)
            finisher.put(LeasedAttempt(job, lease_ends=0), Released())
            await finisher.run_once()
            assert heard() == (["mail"] if notifies else [])
