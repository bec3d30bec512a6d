"""Queues that RabbitMQ carries: the scenarios of a task's life, through a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from stagepost import App, JobContext, Permanent, RetryPolicy
from stagepost.model.lifecycle import JobState
from stagepost.store.dead_messages import dead_messages
from stagepost.worker import stalled_consumers
from tests.acceptance.broker import Broker, Heard, carried, listening, until, working
from tests.acceptance.helpers import notes, write
from tests.conformance.bench import DatabaseOnBench
from tests.depth import quickly_on

SOON = RetryPolicy(
    max_attempts=3, first_delay=timedelta(seconds=0.3), minimum_delay=timedelta(seconds=0.3), jitter=0
)  # fmt: skip
SLOTS = 10


@pytest.fixture
def app(database: DatabaseOnBench, broker_url: str) -> Iterator[App]:
    """An app on each database whose queues RabbitMQ carries, with its own table."""
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    app = carried(database.url, broker_url)
    yield app
    app.close()


def heard_at_least(number: int, broker: Broker, app: App) -> list[Heard] | None:
    """The requests that were published, once they are so many."""
    found = broker.heard(app.settings.rabbitmq.routing_key("default"))
    return found if len(found) >= number else None


async def test_happy_path_from_submission_to_acknowledgement(app: App) -> None:
    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    with listening(app) as broker:
        job = greet.enqueue("Ada")
        async with working(app) as worker:
            assert await job.result_async(timeout=60) == "hello Ada"
            [request] = await until(partial(heard_at_least, 1, broker, app))
            await until(lambda: worker.parts.broker.relay.sent)  # type: ignore[union-attr]
        assert broker.is_empty()

    body, properties = request.json, request.properties
    assert (body["task_id"], body["step"], body["attempt"]) == (job.id, "greet", 1)
    assert body["payload"] == {"name": "Ada"}
    assert body["created_at"].endswith("Z")
    assert body["trace_id"] == properties.correlation_id
    assert (properties.message_id, properties.delivery_mode) == (f"{job.id}.1", 2)
    assert {"taskId": job.id, "taskType": "greet", "attempt": 1}.items() <= properties.headers.items()
    assert worker.parts.broker is not None
    assert worker.parts.broker.relay.sent == 1


@quickly_on("postgres", fixture="database")
async def test_a_failed_attempt_waits_in_the_database_and_is_sent_when_it_is_due(app: App) -> None:
    @app.task(retry=SOON)
    def flaky(job: JobContext) -> int:
        if job.attempt < 3:
            raise OSError("the network is down")
        return job.attempt

    with listening(app) as broker:
        job = flaky.enqueue()
        async with working(app):
            assert await job.result_async(timeout=60) == 3
            requests = await until(partial(heard_at_least, 3, broker, app))
        assert broker.is_empty()

    assert [request.json["attempt"] for request in requests] == [1, 2, 3]
    assert [request.properties.headers["attempt"] for request in requests] == [1, 2, 3]


@quickly_on("postgres", fixture="database")
async def test_a_job_whose_attempts_are_used_up_is_announced_to_the_dead_letter_queue(app: App) -> None:
    @app.task(name="doomed", retry=RetryPolicy(max_attempts=2, first_delay=timedelta(0), minimum_delay=timedelta(0)))
    def doomed(order: int) -> None:
        raise OSError(f"no answer for {order}")

    with listening(app) as broker:
        job = doomed.enqueue(7)
        async with working(app) as worker:
            [letter] = await until(lambda: broker.heard(app.settings.rabbitmq.dead_letters))
            await until(lambda: worker.parts.broker.collector.collected["notices"])  # type: ignore[union-attr]
        assert broker.is_empty()

    assert app.client.job(job.id).state is JobState.DEAD_LETTER
    assert set(letter.json) == {"original_message", "failed_at", "failure_reason", "attempt"}
    assert letter.json["original_message"]["task_id"] == job.id
    assert letter.json["original_message"]["payload"] == {"order": 7}
    assert letter.json["attempt"] == 2
    assert "no answer for 7" in letter.json["failure_reason"]
    assert app.store.run(dead_messages()) == []


@quickly_on("postgres", fixture="database")
async def test_a_permanent_error_goes_straight_to_the_dead_letter_queue_and_can_be_retried(app: App) -> None:
    is_mended = False

    @app.task
    def refuse() -> str:
        if not is_mended:
            raise Permanent("bad parameter")
        return "mended"

    with listening(app) as broker:
        job = refuse.enqueue()
        async with working(app):
            await until(lambda: len(broker.heard(app.settings.rabbitmq.dead_letters)) == 1)
            await until(lambda: app.client.job(job.id).state is JobState.FAILED)
            is_mended = True
            app.client.retry(job.id)
            assert await job.result_async(timeout=60) == "mended"
            requests = await until(partial(heard_at_least, 2, broker, app))

    assert [one.json["attempt"] for one in requests] == [1, 2]


@quickly_on("postgres", fixture="database")
async def test_a_message_that_comes_five_times_has_one_effect(app: App) -> None:
    @app.task
    def pay(job: JobContext, order: int) -> None:
        with app.transaction() as tx:
            write(tx, f"order {order}")
            job.complete(tx)

    with listening(app) as broker:
        job = pay.enqueue(1)
        async with working(app) as worker:
            await job.result_async(timeout=60)
            key = f"{app.settings.rabbitmq.prefix}.default"
            [request] = await until(lambda: broker.heard(key))
            for _ in range(5):
                broker.publish(key, request.body, message_id=request.properties.message_id)
            receiver = worker.parts.broker.receiver  # type: ignore[union-attr]
            assert receiver is not None
            await until(lambda: receiver.needless == 5)
        assert broker.is_empty()

    assert notes(app) == ["order 1"]


async def test_many_jobs_are_shared_by_workers_and_each_runs_once(app: App) -> None:
    inside, both_run = 0, asyncio.Event()

    @app.task
    async def note(number: int) -> None:
        nonlocal inside
        inside += 1
        if inside > app.settings.concurrency:  # more than one worker runs at once
            both_run.set()
        await both_run.wait()
        with app.transaction() as tx:
            write(tx, f"{number:03}")

    with listening(app) as broker:
        handles = app.enqueue_many([note.job(number) for number in range(100)])
        async with working(app) as first, working(app) as second:
            for handle in handles:
                await handle.result_async(timeout=60)
        assert broker.is_empty()

    assert notes(app) == [f"{number:03}" for number in range(100)]
    assert first.parts.finisher.settled + second.parts.finisher.settled == 100
    assert min(first.parts.finisher.settled, second.parts.finisher.settled) > 0


@quickly_on("postgres", fixture="database")
async def test_a_parent_ends_when_its_children_have_come_through_the_broker(app: App) -> None:
    @app.task
    def child(number: int) -> int:
        if number == 2:
            raise Permanent("no two")
        return number

    @app.task
    def parent(job: JobContext) -> str:
        for number in range(3):
            job.submit(child, number)
        return "submitted"

    with listening(app) as broker:
        job = parent.enqueue()
        async with working(app):
            await until(lambda: app.client.job(job.id).state is JobState.COMPLETED_WITH_ERRORS)
            requests = await until(partial(heard_at_least, 4, broker, app))
    assert len(requests) == 4


@pytest.mark.prove
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_jobs_start_though_the_broker_gives_their_messages_to_nobody(
    database: DatabaseOnBench, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quorum queue that is deleted and recreated at once usually counts its old consumers, which get nothing."""
    monkeypatch.setattr(stalled_consumers, "LOOK_SECONDS", 0.5)
    database.empty()
    app = carried(database.url, broker_url, lost_after_seconds=2.0)

    @app.task
    def greet(name: str) -> str:
        return f"hello {name}"

    with listening(app) as broker:
        async with working(app):
            assert await greet.enqueue("Ada").result_async(timeout=60) == "hello Ada"
            await until(broker.is_empty)
            broker.make_anew(f"{app.settings.rabbitmq.prefix}.default")
            assert await greet.enqueue("Grace").result_async(timeout=60) == "hello Grace"
            await until(broker.is_empty)
    app.close()


async def test_by_default_a_worker_runs_as_many_carried_jobs_at_once_as_it_has_slots(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = carried(on_postgres.url, broker_url, prefetch=None)
    together = asyncio.Barrier(SLOTS)

    @app.task
    async def meet() -> None:
        await together.wait()

    jobs = [meet.enqueue() for _ in range(3 * SLOTS)]
    with listening(app):
        async with working(app, concurrency=SLOTS):
            for job in jobs:
                await job.result_async(timeout=60)
    app.close()


async def test_a_worker_with_free_slots_runs_what_a_worker_with_long_jobs_has_no_slot_for(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = carried(on_postgres.url, broker_url, prefetch=None)
    have_started, may_end = asyncio.Barrier(SLOTS + 1), asyncio.Event()

    @app.task
    async def hold() -> None:
        await have_started.wait()
        await may_end.wait()

    @app.task
    async def quick() -> None:
        pass

    with listening(app):
        async with working(app, concurrency=SLOTS) as first:
            held = [hold.enqueue() for _ in range(SLOTS)]
            await have_started.wait()
            quick_jobs = [quick.enqueue() for _ in range(SLOTS)]
            async with working(app, concurrency=SLOTS):
                for job in quick_jobs:
                    await job.result_async(timeout=60)
                assert first.parts.executor.ready == 0
                may_end.set()
                for job in held:
                    await job.result_async(timeout=60)
    app.close()
