"""Enqueues join Django's transactions without being told of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections, transaction
from django.test import TestCase, TransactionTestCase, tag

from stagepost import JobHandle, JobState
from stagepost.contrib.django import app
from stagepost.testing import inline, manual
from tests.acceptance.django.helpers import exists, work
from tests.acceptance.django.shop.models import Order
from tests.acceptance.django.shop.tasks import count_orders, count_orders_async, receipt, rename


class Undo(Exception):
    """Rolls a block back."""


@contextlib.contextmanager
def rolled_back(**options: Any) -> Iterator[None]:
    """Roll back what the body does, as an error in a view would."""
    with contextlib.suppress(Undo), transaction.atomic(**options):
        yield
        raise Undo


class AtomicChecks(TransactionTestCase):
    """On a connection that really commits."""

    databases: ClassVar[set[str]] = {"default", "other"}

    @tag("two_connections")
    def test_a_job_is_stored_with_its_transaction(self) -> None:
        with transaction.atomic():
            job = receipt.enqueue(Order.objects.create(product="tea").pk)
            assert not self._seen_by_others(job.id)

        assert self._seen_by_others(job.id)

    def test_a_rolled_back_transaction_leaves_no_job(self) -> None:
        jobs: list[Any] = []
        with rolled_back():
            jobs.append(receipt.enqueue(1))
            jobs.append(receipt.using(delay=60).enqueue(1))
            jobs += receipt.enqueue_many([(1,), (2,)])
            app.batch("undone").add([receipt.item("a", 1)])
            assert exists(jobs[0].id)

        assert [exists(job.id) for job in jobs] == [False] * 4
        assert app.client.jobs() == []

    def test_a_savepoint_decides_about_its_own_jobs_only(self) -> None:
        with transaction.atomic():
            kept = receipt.enqueue(1)
            with rolled_back():
                undone = receipt.enqueue(2)
            kept_too = receipt.enqueue(3)

        assert [exists(job.id) for job in (kept, undone, kept_too)] == [True, False, True]

    def test_without_a_transaction_a_job_is_stored_at_once(self) -> None:
        job = receipt.enqueue(1)

        assert self._seen_by_others(job.id)

    def test_async_code_joins_the_transaction_of_its_caller(self) -> None:
        with rolled_back():
            job = async_to_sync(receipt.enqueue_async)(1)
            assert exists(job.id)

        assert not exists(job.id)

    async def test_a_block_in_sync_to_async_rolls_back(self) -> None:
        def order() -> str:
            with transaction.atomic():
                job = receipt.enqueue(1)
                transaction.set_rollback(True)
                return job.id

        undone = await sync_to_async(order)()
        stored = await receipt.enqueue_async(1)

        assert not await sync_to_async(exists)(undone)
        assert await stored.state_async() == JobState.QUEUED

    def test_a_cancel_can_be_rolled_back(self) -> None:
        job = receipt.using(delay=60).enqueue(1)
        with rolled_back():
            job.cancel()
            assert job.state() == JobState.CANCELLED

        assert job.state() == JobState.SCHEDULED

    def test_another_alias_has_nothing_to_do_with_it(self) -> None:
        with rolled_back(using="other"):
            job = receipt.enqueue(1)

        assert exists(job.id)

    @tag("worker")
    def test_a_worker_runs_what_was_committed(self) -> None:
        with transaction.atomic():
            order = Order.objects.create(product="tea")
            jobs: list[JobHandle[Any]] = [receipt.enqueue(order.pk), count_orders_async.enqueue()]
            rename.using(priority=-1).enqueue(order.pk, "coffee")

        work(concurrency=1)

        assert jobs[0].result(timeout=0) == "receipt for tea"
        assert jobs[1].result(timeout=0) == 1
        order.refresh_from_db()
        assert order.product == "coffee"

    @tag("worker")
    def test_no_process_of_a_test_run_touches_the_real_database(self) -> None:
        job = count_orders.using(max_attempts=1).enqueue()

        work()

        assert "would use the real database" in str(app.client.job(job.id).error)

    def _seen_by_others(self, job_id: str) -> bool:
        """Look at the rows on a connection of its own."""
        other = connections.create_connection("default")
        try:
            with other.cursor() as cursor:
                cursor.execute("select id from stagepost_job where id = %s", [job_id])
                return cursor.fetchone() is not None
        finally:
            other.close()


class RolledBackChecks(TestCase):
    """Inside the transaction that Django's TestCase rolls back."""

    def test_a_test_sees_the_jobs_that_it_enqueued(self) -> None:
        job = receipt.enqueue(Order.objects.create(product="tea").pk)

        assert [found.id for found in app.client.jobs()] == [job.id]
        assert job.state() == JobState.QUEUED

    def test_no_test_sees_the_jobs_of_another(self) -> None:
        assert app.client.jobs() == []

    async def test_async_tests_do_too(self) -> None:
        job = await receipt.enqueue_async(1)

        assert [found.id for found in await app.client.jobs_async()] == [job.id]

    def test_workers_are_woken_after_the_commit(self) -> None:
        woken: list[Any] = []
        app.store.notifier.subscribe(woken.append)
        with self.captureOnCommitCallbacks() as callbacks:
            receipt.enqueue(1)
            assert woken == []
        for callback in callbacks:
            callback()
        app.store.notifier.unsubscribe(woken.append)

        assert [set(queues) for queues in woken] == [{"default"}]

    def test_jobs_can_run_inline(self) -> None:
        order = Order.objects.create(product="tea")
        with inline(app):
            assert receipt.enqueue(order.pk).result() == "receipt for tea"

    def test_jobs_can_be_kept_for_later(self) -> None:
        with manual(app) as jobs:
            rename.enqueue(1, "coffee")
            jobs.assert_enqueued(rename, 1, product="coffee")

        assert app.client.jobs() == []
        assert not connection.needs_rollback
