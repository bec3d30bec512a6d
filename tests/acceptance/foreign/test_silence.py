"""Requests without an answer: sent again if they were lost, but never while a program merely takes its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from stagepost import App, Counts, JobState, Worker
from stagepost.store.sending import read_clock, sent_jobs
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.worker import stalled_consumers
from stagepost.worker.answers import Answers
from tests.acceptance.remote import (
    Recognise,
    Stranger,
    add_recognise,
    counted,
    is_sent,
    resent,
    unanswered,
    until,
    working,
)
from tests.depth import quickly_on

pytestmark = quickly_on("postgres", fixture="database")

PATIENCE = timedelta(hours=1)
"""Far longer than anything takes here: it passes only where a test lets it."""


def relayed(worker: Worker) -> list[str]:
    """Which queues it publishes for."""
    assert worker.parts.broker is not None
    return worker.parts.broker.relay.queues


def looks(worker: Any) -> int:
    """How often the reconciler has looked."""
    return int(worker.parts.broker.reconciler.passes)


def let_pass(app: App, time: timedelta) -> None:
    """Let requests have been sent, and their queue be empty and silent, for so much longer."""
    ago = time // timedelta(microseconds=1)
    with app.store.transaction() as connection:
        connection.execute(f"update stagepost_job set sent_at = sent_at - {ago}", {})
        connection.execute(
            f"update stagepost_channel set empty_since = empty_since - {ago}, active_at = active_at - {ago}", {}
        )


def let_pass_once_seen(app: App, worker: Worker, time: timedelta) -> None:
    """The same, after the reconciler has seen how things are now: a look that is under way may have seen less."""
    let_look(worker)
    let_pass(app, time)


def let_pass_until(app: App, worker: Worker, condition: Callable[[], bool], what: str) -> None:
    """Let all patience be over, until that has done what it should.

    The time restarts if the broker does not answer at once, or still counts messages that it is about to deliver.
    """

    def has_come() -> bool:
        let_pass_once_seen(app, worker, PATIENCE)
        let_look(worker)
        return condition()

    until(has_come, what)


def let_look(worker: Worker) -> None:
    """Wait until the reconciler has made use of a look that began just now, or later."""
    before = looks(worker)
    until(lambda: looks(worker) >= before + 3, "the reconciler to look")


def has_ended(app: App, job_id: str) -> bool:
    return app.client.job(job_id).state is JobState.COMPLETED


def age_of_oldest(app: App) -> Callable[[], float]:
    def age() -> float:
        [job, *_] = app.store.run(sent_jobs("recogniser", older=timedelta(0), most=1))
        return job.age_us / 1e6

    return age


def test_lost_requests_are_sent_again_as_the_same_attempt(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(5)]
        until(lambda: is_sent(app, 5), "requests to be sent")
        stranger.purge()
        let_pass_until(app, worker, lambda: resent(worker) > 0, "the requests to be sent again")

        requests = stranger.take(5)
        let_look(worker)
        for request in requests:
            assert request["attempt"] == 1
            stranger.answer(request)

        assert all(job.result(timeout=60) for job in jobs)
        assert resent(worker) == 5


def test_a_request_that_is_never_answered_becomes_a_dead_letter(app: App, stranger: Stranger) -> None:
    """A program that acknowledges and keeps silent does not keep a job, or its batch, for ever."""
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        with app.batch("upload") as batch:
            batch.add(recognise.item(key, key) for key in ("swallowed", "answered"))
        requests = {request["payload"]["audio_key"]: request for request in stranger.take(2)}
        stranger.answer(requests["answered"])
        until(lambda: batch.counts().completed == 1, "the answer to count")
        for number in range(3):
            [request] = [requests["swallowed"]] if number == 0 else stranger.take()
            assert (request["payload"]["audio_key"], request["attempt"]) == ("swallowed", 1)
            stranger.swallow(request)
            until(lambda: is_sent(app, 1), "the request to be marked")
            let_pass_until(app, worker, lambda: resent(worker) + unanswered(worker) > number, "it to be sent again")  # noqa: B023
        assert batch.wait(timeout=60) is JobState.COMPLETED_WITH_ERRORS
        assert (resent(worker), unanswered(worker)) == (2, 1)

    assert batch.counts() == Counts(completed=1, dead_letter=1)
    [item] = batch.items([JobState.DEAD_LETTER])
    assert "sent 3 times and never answered" in (item.error or "")


def test_a_leader_of_another_app_is_patient_with_programs_it_does_not_know(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app, timeout=timedelta(minutes=5))
    other = App(settings=app.settings)

    @other.task(queue="default")
    def greet() -> None: ...

    with working(app):
        job = recognise.enqueue("audio/1")
        [request] = stranger.take()
        until(lambda: is_sent(app, 1), "the request to be marked")
    with working(other) as leader:
        until(lambda: "recogniser" in relayed(leader), "the queue to be found")
        age = age_of_oldest(app)
        until(lambda: age() > 2.0, "the request to be old")  # four times lost_after_seconds
        before = looks(leader)
        until(lambda: looks(leader) >= before + 2, "the reconciler to look")
        assert resent(leader) == 0
    stranger.answer(request)
    with working(app):
        assert job.result(timeout=60)
    other.close()


def test_requests_are_sent_while_a_worker_without_a_broker_does_the_upkeep(app: App, stranger: Stranger) -> None:
    recognise = add_recognise(app)
    other = App(settings=msgspec.structs.replace(app.settings, transport=None))

    @other.task(queue="default")
    def greet() -> None: ...

    with working(other) as leader:
        until(lambda: leader.parts.leader.is_leading, "it to lead")
        with working(app) as worker:
            job = recognise.enqueue("audio/1")
            [request] = stranger.take()
            assert leader.parts.leader.is_leading
            assert not worker.parts.leader.is_leading
            stranger.answer(request)
            assert job.result(timeout=60)
    other.close()


def test_requests_that_a_slow_program_holds_are_not_sent_again(app: App, stranger: Stranger) -> None:
    """It holds them for much longer than the timeout, but gives a sign of life now and then."""
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(8)]
        held = stranger.take(8)
        until(lambda: is_sent(app, 8), "the requests to be marked")
        for _ in range(3):
            let_pass_once_seen(app, worker, PATIENCE * 0.75)
            stranger.answer(held.pop())
            until_active(app, partial(stranger.report, held[0]))
        let_look(worker)
        for request in held:
            stranger.answer(request)
        assert all(job.result(timeout=60) for job in jobs)

    assert (resent(worker), counted(worker).settled) == (0, 8)
    assert counted(worker).progress >= 3


def until_active(app: App, give_sign: Callable[[], None]) -> None:
    """Give signs of life until one is written down: not each is."""

    def idle() -> int:
        with app.store.transaction() as connection:
            [(since,)] = connection.execute(
                "select active_at from stagepost_channel where queue_name = 'recogniser'", {}
            )
        return int(app.store.run(read_clock())) - int(since or 0)

    def is_active() -> bool:
        give_sign()
        return idle() < PATIENCE / 2 // timedelta(microseconds=1)

    until(is_active, "a sign of life to be noted")


def test_a_request_is_not_sent_again_while_answers_wait_in_the_queue(app: App, stranger: Stranger) -> None:
    """Our workers were away for longer than the timeout while the program answered."""
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(8)]
        requests = stranger.take(8)
        until(lambda: is_sent(app, 8), "the requests to be marked")
        until(lambda: looks(worker) >= 2, "the reconciler to look")
    for request in requests:
        stranger.answer(request)
    let_pass(app, 2 * PATIENCE)

    with working(app) as worker:
        assert all(job.result(timeout=60) for job in jobs)
        done = looks(worker)
        until(lambda: looks(worker) >= done + 2, "the reconciler to look")

    assert (resent(worker), counted(worker).settled) == (0, 8)


def test_a_request_is_not_sent_again_while_an_answer_is_being_processed(
    app: App, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is slow to take them in, for longer than the timeout."""
    recognise = add_recognise(app, timeout=PATIENCE)
    take_in, has_some, may_go_on = Answers._take_in, threading.Event(), threading.Event()

    async def slow(self: Answers, deliveries: list[Delivery]) -> int:
        has_some.set()
        await asyncio.to_thread(may_go_on.wait, 60)
        return await take_in(self, deliveries)

    monkeypatch.setattr(Answers, "_take_in", slow)
    with working(app) as worker:
        jobs = [recognise.enqueue(f"audio/{number}") for number in range(8)]
        for request in stranger.take(8):
            stranger.answer(request)
        until(lambda: is_sent(app, 8), "the requests to be marked")
        assert has_some.wait(60)
        let_pass_once_seen(app, worker, PATIENCE)
        let_look(worker)
        may_go_on.set()
        assert all(job.result(timeout=60) for job in jobs)

    assert (resent(worker), counted(worker).settled) == (0, 8)


def test_answers_that_only_another_app_understands_hold_up_its_requests_and_no_others(app: App) -> None:
    add_recognise(app)
    broker = Worker(app).parts.broker
    assert broker is not None
    assert broker.answers is not None
    broker.answers._held = [(0.0, Delivery("answers", 1, 1, b"{}", redelivered=False, routing_key="", properties=None))]

    assert not broker.answers.has_some("recogniser"), "they are to no request of it, and may circle for ever"
    assert broker.answers.has_some("another-app")


def test_a_new_leader_does_not_rely_on_time_it_has_not_observed(app: App, stranger: Stranger) -> None:
    """What an earlier one saw as empty may have had answers since, which some worker has in its hands by now."""
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        recognise.enqueue("a")
        stranger.swallow(*stranger.take())
        until(lambda: is_sent(app, 1), "the request to be marked")
        let_pass_once_seen(app, worker, timedelta(0))
    let_pass(app, 2 * PATIENCE)

    broker = Worker(app).parts.broker
    assert broker is not None

    async def look() -> None:
        await broker.broker_leader.run_once()
        assert await broker.reconciler.run_once() == []

    asyncio.run(look())
    seen = broker.reconciler.looks["recogniser"].channel
    assert seen.empty_for_us == seen.looked_for_us, "it is empty since before this look"


def test_answers_that_the_broker_withholds_arrive(
    app: App, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it usually does if a queue is recreated at once; sometimes it notifies the consumer in time."""
    monkeypatch.setattr(stalled_consumers, "LOOK_SECONDS", 0.5)
    recognise = add_recognise(app, timeout=PATIENCE)
    with working(app) as worker:
        job = recognise.enqueue("a")
        [request] = stranger.take()
        stranger.make_answers_anew()
        stranger.answer(request)
        until(lambda: is_sent(app, 1) or has_ended(app, job.id), "the request to be marked")
        let_pass_until(app, worker, lambda: resent(worker) > 0 or has_ended(app, job.id), "the answer to be missed")
        assert job.result(timeout=60)


def test_a_queue_is_not_empty_while_answers_of_it_wait(app: App, recognise: Recognise, stranger: Stranger) -> None:
    with working(app):
        recognise.enqueue("a")
        [request] = stranger.take()
    stranger.answer(request)

    broker = Worker(app).parts.broker
    assert broker is not None

    async def look() -> None:
        await broker.broker_leader.run_once()
        await broker.reconciler.run_once()

    asyncio.run(look())
    assert broker.reconciler.looks["recogniser"].depth == Depth(ready=1, consumers=0)
