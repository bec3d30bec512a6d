"""Queues that RabbitMQ carries: the scenarios of a task's life, through a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from stagepost import App, JobContext, Permanent, RetryPolicy
from stagepost.model.batch import BatchState
from stagepost.model.lifecycle import JobState
from stagepost.store.dead_messages import dead_messages, retry_dead_messages
from stagepost.store.outbox import next_messages
from tests.acceptance.broker import Broker, carried, listening, until, working
from tests.acceptance.helpers import notes, write
from tests.conformance.bench import DatabaseOnBench
from tests.services.rabbitmq import RabbitmqServer

SOON = RetryPolicy(
    max_attempts=3, first_delay=timedelta(seconds=0.3), minimum_delay=timedelta(seconds=0.3), jitter=0
)  # fmt: skip


@pytest.fixture(scope="session")
def broker_url(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    with rabbitmq_server.database() as url:
        yield url


@pytest.fixture
def app(database: DatabaseOnBench, broker_url: str) -> Iterator[App]:
    """An app on each database whose queues RabbitMQ carries, with a table of its own."""
    database.empty()
    with database.store.transaction() as connection:
        connection.execute("delete from effect", {})
    app = carried(database.url, broker_url)
    yield app
    app.close()


def dead_letter_queue(app: App) -> str:
    return app.settings.rabbitmq.dead_letters


def is_empty(broker: Broker) -> bool:
    return set(broker.waiting().values()) == {0}


async def test_happy_path_from_submission_to_acknowledgement(app: App) -> None:
    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    with listening(app) as broker:
        job = greet.enqueue("Ada")
        async with working(app) as worker:
            assert await job.result_async(timeout=60) == "hello Ada"
            [request] = await until(lambda: broker.heard(f"{app.settings.rabbitmq.prefix}.default"))
        assert is_empty(broker)

    body, properties = request.json, request.properties
    assert (body["task_id"], body["step"], body["attempt"]) == (job.id, "greet", 1)
    assert body["payload"] == {"name": "Ada"}
    assert body["created_at"].endswith("Z")
    assert body["trace_id"] == properties.correlation_id
    assert (properties.message_id, properties.delivery_mode) == (f"{job.id}.1", 2)
    assert {"taskId": job.id, "taskType": "greet", "attempt": 1}.items() <= properties.headers.items()
    assert worker.broker is not None
    assert worker.broker.relay.sent == 1


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
        requests = broker.heard(f"{app.settings.rabbitmq.prefix}.default")
        assert is_empty(broker)

    assert [request.json["attempt"] for request in requests] == [1, 2, 3]
    assert [request.properties.headers["attempt"] for request in requests] == [1, 2, 3]


async def test_a_job_whose_attempts_are_used_up_is_announced_to_the_dead_letter_queue(app: App) -> None:
    @app.task(name="doomed", retry=RetryPolicy(max_attempts=2, first_delay=timedelta(0), minimum_delay=timedelta(0)))
    def doomed(order: int) -> None:
        raise OSError(f"no answer for {order}")

    with listening(app) as broker:
        job = doomed.enqueue(7)
        async with working(app) as worker:
            [letter] = await until(lambda: broker.heard(dead_letter_queue(app)))
            await until(lambda: worker.broker.collector.collected["notices"])  # type: ignore[union-attr]
        assert is_empty(broker)

    assert app.client.job(job.id).state is JobState.DEAD_LETTER
    assert set(letter.json) == {"original_message", "failed_at", "failure_reason", "attempt"}
    assert letter.json["original_message"]["task_id"] == job.id
    assert letter.json["original_message"]["payload"] == {"order": 7}
    assert letter.json["attempt"] == 2
    assert "no answer for 7" in letter.json["failure_reason"]
    assert app.store.run(dead_messages()) == []


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
            await until(lambda: len(broker.heard(dead_letter_queue(app))) == 1)
            await until(lambda: app.client.job(job.id).state is JobState.FAILED)
            is_mended = True
            app.client.retry(job.id)
            assert await job.result_async(timeout=60) == "mended"
        attempts = [one.json["attempt"] for one in broker.heard(f"{app.settings.rabbitmq.prefix}.default")]

    assert attempts == [1, 2]


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
            receiver = worker.broker.receiver  # type: ignore[union-attr]
            assert receiver is not None
            await until(lambda: receiver.needless == 5)
        assert is_empty(broker)

    assert notes(app) == ["order 1"]


async def test_many_jobs_are_shared_by_workers_and_each_runs_once(app: App) -> None:
    @app.task
    async def note(number: int) -> None:
        await asyncio.sleep(0.005)
        with app.transaction() as tx:
            write(tx, f"{number:03}")

    with listening(app) as broker:
        handles = app.enqueue_many([note.job(number) for number in range(100)])
        async with working(app) as first, working(app) as second:
            for handle in handles:
                await handle.result_async(timeout=60)
        assert is_empty(broker)

    assert notes(app) == [f"{number:03}" for number in range(100)]
    assert first.finisher.settled + second.finisher.settled == 100
    assert min(first.finisher.settled, second.finisher.settled) > 0


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
        assert len(broker.heard(f"{app.settings.rabbitmq.prefix}.default")) == 4


async def test_a_request_that_expires_ends_its_job_as_a_dead_letter_and_its_batch_goes_on(
    database: DatabaseOnBench, broker_url: str
) -> None:
    database.empty()
    app = carried(database.url, broker_url, message_ttl=1.0, lost_after=30.0)

    @app.task(queue="slow")
    def slow() -> None: ...

    @app.task(queue="other")
    def other() -> None: ...

    with listening(app) as broker:
        batch = app.batch("upload")
        batch.add([slow.item("one")])
        batch.seal()
        async with working(app, queues=["other"]) as worker:
            await until(lambda: batch.state() is BatchState.DONE)
            await until(lambda: worker.broker.collector.collected["ended"] == 1)  # type: ignore[union-attr]
            await until(lambda: len(broker.heard(dead_letter_queue(app))) == 2)
        request, letter = broker.heard(dead_letter_queue(app))
    assert batch.counts().dead_letter == 1
    assert letter.json["original_message"] == request.json
    assert "nobody took it in time" in letter.json["failure_reason"]
    app.close()


async def test_a_request_that_a_foreign_program_rejects_ends_its_job(app: App) -> None:
    @app.task(queue="foreign")
    def recognise(file: str) -> None: ...

    @app.task(queue="other")
    def other() -> None: ...

    queue = f"{app.settings.rabbitmq.prefix}.foreign"
    with listening(app) as broker:
        job = recognise.enqueue("a.wav")
        async with working(app, queues=["other"]):
            await until(lambda: broker.waiting()[queue] == 1)
            method, _, _ = broker.channel.basic_get(queue)
            broker.channel.basic_nack(method.delivery_tag, requeue=False)
            await until(lambda: app.client.job(job.id).state is JobState.DEAD_LETTER)
    assert "rejected by whoever took it" in (app.client.job(job.id).error or "")


async def test_messages_that_cannot_be_read_are_kept_once_and_sent_again_in_order(app: App) -> None:
    @app.task
    def greet() -> None: ...

    key = f"{app.settings.rabbitmq.prefix}.default"
    bodies = [b"{broken", b"\xff\x00", b'{"task_id": 5}']
    with listening(app) as broker:
        async with working(app):
            for number, body in enumerate(bodies):
                broker.publish(key, body, message_id=f"m{number}", headers={"n": number})
                await until(partial(kept_are, app, number + 1))
            broker.publish(key, bodies[0], message_id="m0")  # once more
            await until(lambda: len(broker.heard(dead_letter_queue(app))) == 4)
        assert is_empty(broker)
        kept = app.store.run(dead_messages())
        assert [(one.body, one.routing_key, one.message_id) for one in reversed(kept)] == [
            (body, key, f"m{number}") for number, body in enumerate(bodies)
        ]

        app.store.run(retry_dead_messages([one.id for one in kept], actor="ada"))
        async with working(app):
            await until(lambda: len(broker.heard(key)) == 7)
            await until(lambda: len(app.store.run(dead_messages())) == 3)  # they are as bad as before
        sent_again = [one.body for one in broker.heard(key)][-3:]
    assert sent_again == bodies
    assert app.store.run(next_messages(most=9)) == []


def kept_are(app: App, number: int) -> bool:
    return len(app.store.run(dead_messages())) == number


async def test_a_stranger_in_the_dead_letter_queue_is_kept_for_people_to_see(app: App) -> None:
    @app.task
    def greet() -> None: ...

    with listening(app) as broker:
        async with working(app):
            broker.publish(dead_letter_queue(app), b'{"who": "am I"}')
            broker.publish(dead_letter_queue(app), b'{"who": "am I"}')
            await until(lambda: app.store.run(dead_messages()))
            await until(lambda: is_empty(broker))
    [kept] = app.store.run(dead_messages())
    assert (kept.body, kept.routing_key) == (b'{"who": "am I"}', "")


async def test_without_the_collector_dead_letters_stay_at_the_broker(
    database: DatabaseOnBench, broker_url: str
) -> None:
    database.empty()
    app = carried(database.url, broker_url, collect_dead_letters=False)

    @app.task
    def refuse() -> None:
        raise Permanent("no")

    with listening(app) as broker:
        refuse.enqueue()
        async with working(app):
            await until(lambda: broker.waiting()[dead_letter_queue(app)] == 1)
    app.close()
