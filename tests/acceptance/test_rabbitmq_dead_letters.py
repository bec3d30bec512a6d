"""Dead letters of queues that RabbitMQ carries: dropped requests, unreadable messages, and crashes in between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from stagepost import App, Permanent, Worker
from stagepost.model.batch import BatchState
from stagepost.model.dead_letter import DeadMessage, Letter, stray
from stagepost.model.lifecycle import JobState
from stagepost.store.dead_messages import dead_messages, retry_dead_messages
from stagepost.store.outbox import add_messages, next_messages, unannounced
from stagepost.transport.rabbitmq.consumer import Consumer
from stagepost.upkeep import dead_letters as collecting
from stagepost.upkeep import outgoing
from stagepost.worker.concluder import Concluder
from tests.acceptance.broker import carried, listening, until, working
from tests.conformance.bench import DatabaseOnBench


@pytest.fixture
def app(on_postgres: DatabaseOnBench, broker_url: str) -> Iterator[App]:
    app = carried(on_postgres.url, broker_url)
    yield app
    app.close()


async def test_a_request_that_expires_ends_its_job_as_a_dead_letter_and_its_batch_goes_on(
    on_postgres: DatabaseOnBench, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = carried(on_postgres.url, broker_url, message_ttl_seconds=1.0)
    noted: list[str | None] = []
    # Upkeep concludes the batch instead.
    monkeypatch.setattr(Concluder, "note", lambda _self, batch_ids: noted.extend(batch_ids))

    @app.task(queue="slow")
    def slow() -> None: ...

    @app.task(queue="other")
    def other() -> None: ...

    with listening(app) as broker:
        batch = app.batch("upload")
        batch.add([slow.item("one")])
        batch.seal()
        async with working(app, queues=["other"]):
            await until(lambda: batch.state() is BatchState.DONE)
            await until(lambda: noted == [batch.stored().id])
            await until(lambda: len(broker.heard(app.settings.rabbitmq.dead_letters)) == 2)
        heard = broker.heard(app.settings.rabbitmq.dead_letters)
        request, letter = sorted(heard, key=lambda one: "original_message" in one.json)
    assert batch.counts().dead_letter == 1
    assert letter.json["original_message"] == request.json
    assert "before a consumer took it" in letter.json["failure_reason"]
    app.close()


async def test_a_request_that_an_external_program_rejects_ends_its_job(app: App) -> None:
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
    assert "rejected by its consumer" in (app.client.job(job.id).error or "")


async def test_unreadable_messages_are_stored_once_and_sent_again_in_order(app: App) -> None:
    @app.task
    def greet() -> None: ...

    key = f"{app.settings.rabbitmq.prefix}.default"
    bodies = [b"{broken", b"\xff\x00", b'{"task_id": 5}']
    with listening(app) as broker:
        async with working(app) as worker:
            for number, body in enumerate(bodies):
                broker.publish(key, body, message_id=f"m{number}", headers={"n": number})
                await until(partial(kept_are, app, number + 1))
            broker.publish(key, bodies[0], message_id="m0")  # once more
            assert worker.parts.broker is not None
            collector = worker.parts.broker.collector
            assert collector is not None
            await until(lambda: collector.collected["strays"] == 4)
        assert broker.is_empty()
        kept = app.store.run(dead_messages())
        assert [(one.body, one.routing_key, one.message_id) for one in reversed(kept)] == [
            (body, key, f"m{number}") for number, body in enumerate(bodies)
        ]

        app.store.run(retry_dead_messages([one.id for one in kept], actor="ada"))
        async with working(app):
            await until(lambda: len(broker.heard(key)) == 7)
            await until(lambda: len(app.store.run(dead_messages())) == 3)  # they are as bad as before
            await until(lambda: app.store.run(next_messages(most=9)) == [])
        sent_again = [one.body for one in broker.heard(key)][-3:]
    assert sent_again == bodies


def kept_are(app: App, number: int) -> bool:
    return len(app.store.run(dead_messages())) == number


async def test_an_unknown_message_in_the_dead_letter_queue_is_stored_for_operators(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def greet() -> None: ...

    acked: list[bytes] = []
    ack = Consumer.ack

    def note(consumer: Consumer, deliveries: Any) -> None:
        acked.extend(delivery.body for delivery in deliveries)
        ack(consumer, deliveries)

    monkeypatch.setattr(Consumer, "ack", note)
    with listening(app) as broker:
        async with working(app):
            broker.publish(app.settings.rabbitmq.dead_letters, b'{"who": "am I"}')
            broker.publish(app.settings.rabbitmq.dead_letters, b'{"who": "am I"}')
            await until(lambda: app.store.run(dead_messages()))
            await until(lambda: acked == [b'{"who": "am I"}'] * 2)
    [kept] = app.store.run(dead_messages())
    assert (kept.body, kept.routing_key) == (b'{"who": "am I"}', "")


async def test_without_the_collector_dead_letters_stay_at_the_broker(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = carried(on_postgres.url, broker_url, collect_dead_letters=False)

    @app.task
    def refuse() -> None:
        raise Permanent("no")

    with listening(app) as broker:
        refuse.enqueue()
        async with working(app):
            await until(lambda: broker.waiting()[app.settings.rabbitmq.dead_letters] == 1)
    app.close()


async def test_a_collector_that_dies_before_it_acknowledges_stores_nothing_twice(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def greet() -> None: ...

    with listening(app) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(Consumer, "ack", lambda *_: None)
            async with working(app):
                broker.publish(app.settings.rabbitmq.dead_letters, b"who am I")
                await until(partial(kept_are, app, 1))
        assert await until(lambda: broker.waiting()[app.settings.rabbitmq.dead_letters] == 1)
        async with working(app):
            await until(broker.is_empty)
        assert kept_are(app, 1)


def dies(*_: Any) -> Any:
    raise ConnectionError("killed here")


async def test_a_relay_that_dies_before_it_deletes_a_message_sends_it_twice_and_it_is_stored_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def greet() -> None: ...

    dead_letters = app.settings.rabbitmq.dead_letters
    with listening(app) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(outgoing, "delete_messages", dies)
            async with working(app):
                broker.publish(f"{app.settings.rabbitmq.prefix}.default", b"{broken", message_id="m1")
                await until(lambda: broker.heard(dead_letters))
        before = len(broker.heard(dead_letters))
        async with working(app):
            await until(lambda: app.store.run(next_messages(most=9)) == [])
            await until(broker.is_empty)
            await until(partial(kept_are, app, 1))
        assert len(broker.heard(dead_letters)) == before + 1


async def test_a_relay_that_dies_before_it_marks_a_notice_publishes_it_twice_and_the_row_stays_the_record(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def refuse() -> None:
        raise Permanent("no")

    dead_letters = app.settings.rabbitmq.dead_letters
    with listening(app) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(outgoing, "mark_announced", dies)
            job = refuse.enqueue()
            async with working(app):
                await until(lambda: broker.heard(dead_letters))
        before = len(broker.heard(dead_letters))
        async with working(app):
            await until(lambda: len(broker.heard(dead_letters)) == before + 1)
            await until(broker.is_empty)
            await until(lambda: not untold(app))
        assert kept_are(app, 0)
    assert app.client.job(job.id).state is JobState.FAILED


def untold(app: App) -> list[Any]:
    asked = unannounced("default", JobState.FAILED, since=0, routing_key="", asked_by="", most=9)
    return app.store.run(asked).notices


async def test_an_unroutable_message_becomes_a_dead_message_and_delays_no_other(app: App) -> None:
    @app.task
    def greet() -> None: ...

    key = f"{app.settings.rabbitmq.prefix}.nobody"
    lost = DeadMessage(
        id="0", queue="", routing_key=key, message_id="m1", correlation_id=None, error="", headers={}, body=b"{}"
    ).again()
    with listening(app) as broker:
        broker.channel.queue_unbind(broker.ear, broker.exchange, routing_key="#")
        app.store.run(add_messages([lost]))
        async with working(app):
            await until(partial(kept_are, app, 1))
            await until(lambda: app.store.run(next_messages(most=9)) == [])
    [kept] = app.store.run(dead_messages())
    assert (kept.routing_key, kept.body) == (key, b"{}")
    assert "no queue is bound to exchange" in kept.error


async def test_an_invalid_answer_is_stored_for_operators(app: App) -> None:
    @app.task(queue="foreign", remote=True)
    def recognise(file: str) -> str:
        raise NotImplementedError

    with listening(app) as broker:
        async with working(app):
            broker.publish(app.settings.rabbitmq.answers, b"done!")
            await until(partial(kept_are, app, 1))
            await until(broker.is_empty)
    [kept] = app.store.run(dead_messages())
    assert (kept.queue, kept.body) == (app.settings.rabbitmq.answers, b"done!")


async def test_hundreds_of_failed_jobs_are_each_announced_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def refuse(number: int) -> None:
        raise Permanent("no")

    monkeypatch.setattr(outgoing, "MOST_AT_ONCE", 7)
    with listening(app) as broker:
        handles = app.enqueue_many([refuse.job(number) for number in range(60)])
        async with working(app):
            await until(lambda: len(broker.heard(app.settings.rabbitmq.dead_letters)) >= 60)
            await until(lambda: not untold(app))
            await until(broker.is_empty)
        told = [one.json["original_message"]["task_id"] for one in broker.heard(app.settings.rabbitmq.dead_letters)]
    assert sorted(told) == sorted(handle.id for handle in handles)


async def test_jobs_that_failed_before_the_broker_was_used_are_not_announced(app: App) -> None:
    """Turning a broker on is no reason to raise alerts for all of history."""
    plain = App(settings=msgspec.structs.replace(app.settings, transport=None))

    def refuse(number: int) -> None:
        raise Permanent("no")

    in_history, fresh = plain.task(name="refuse")(refuse), app.task(name="refuse")(refuse)
    before = in_history.enqueue(1)
    await Worker(plain).run(until_idle=True)
    with listening(app) as broker:
        async with working(app):
            after = fresh.enqueue(2)
            await until(lambda: broker.heard(app.settings.rabbitmq.dead_letters))
            await until(broker.is_empty)
        async with working(app):  # nor by the next worker
            await until(broker.is_empty)
        told = [one.json["original_message"]["task_id"] for one in broker.heard(app.settings.rabbitmq.dead_letters)]
    plain.close()
    assert {app.client.job(job.id).state for job in (before, after)} == {JobState.FAILED}
    assert told == [after.id]


async def test_a_dead_letter_that_cannot_be_stored_holds_up_no_other(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def greet() -> None: ...

    def refuse_one(letter: Letter) -> DeadMessage:
        if letter.body == b"poison":
            raise ValueError("no database takes this")
        return stray(letter)

    monkeypatch.setattr(collecting, "stray", refuse_one)
    with listening(app) as broker:
        for body in (b"poison", b"one", b"poison", b"two"):
            broker.publish(app.settings.rabbitmq.dead_letters, body)
        async with working(app) as worker:
            await until(lambda: worker.parts.broker.collector.collected["strays"] == 2)  # type: ignore[union-attr]
            assert kept_are(app, 2)
        await until(lambda: broker.waiting()[app.settings.rabbitmq.dead_letters] == 2)
