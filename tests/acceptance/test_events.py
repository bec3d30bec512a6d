"""Events through the public API: read, followed from both colours, at the level that each task declares."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stagepost import App, JobContext, JobState, Permanent, TraceContext, traced
from stagepost.client.events import Follower
from stagepost.errors import ConfigurationError, EventsPruned
from stagepost.events import Event, JobCancelled, JobCompleted, JobCompletedWithErrors, JobDeadLettered, JobFailed
from stagepost.store.events import levels, prune_events
from tests.acceptance.helpers import AT_ONCE, LIMIT, notes, work, write


def test_every_way_to_end_has_its_event(app: App) -> None:
    @app.task
    def greet(name: str) -> str:
        return f"Hello {name}"

    @app.task
    def refuse() -> None:
        raise Permanent("no address")

    @app.task(retry=AT_ONCE)
    def fail() -> None:
        raise ValueError("bridge 7 is down")

    @app.task
    def gather(job: JobContext) -> None:
        job.submit(refuse)

    with traced(trace_id="4bf9", user_id="ada"):
        greeted = greet.enqueue("Bob")
    refused, failed, gathered, cancelled = refuse.enqueue(), fail.enqueue(), gather.enqueue(), greet.enqueue("Eve")
    cancelled.cancel()
    started = datetime.now(UTC) - timedelta(minutes=5)
    work(app)

    events = {event.job_id: event for event in app.events.page()}

    wanted: dict[str, type[Event]] = {
        greeted.id: JobCompleted,
        refused.id: JobFailed,
        failed.id: JobDeadLettered,
        gathered.id: JobCompletedWithErrors,
        cancelled.id: JobCancelled,
    }
    assert {job_id: type(events[job_id]) for job_id in wanted} == wanted
    assert len(events) == len(wanted) + 1  # the child
    event = events[greeted.id]
    assert event.trace == TraceContext(trace_id="4bf9", user_id="ada")
    assert (event.task, event.queue, event.attempt) == (greet.name, "default", 1)
    assert started < event.time < datetime.now(UTC) + timedelta(minutes=5)
    assert (events[failed.id].reason, events[failed.id].attempt) == ("ValueError: bridge # is down", 3)


def test_a_handlers_transaction_holds_the_event_of_its_end(app: App) -> None:
    @app.task
    def charge(job: JobContext) -> None:
        with app.transaction() as tx:
            write(tx, "charged")
            job.complete(tx)
            assert app.events.page() == []

    job = charge.enqueue()
    work(app)

    assert notes(app) == ["charged"]
    assert [(type(event), event.job_id) for event in app.events.page()] == [(JobCompleted, job.id)]


def test_an_end_that_is_rolled_back_has_no_event(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def charge(job: JobContext) -> None:
        with app.transaction() as tx:
            job.complete(tx)
            if job.attempt == 1:
                raise ZeroDivisionError

    charge.enqueue()
    work(app)

    assert [event.attempt for event in app.events.page()] == [2]


def test_events_are_read_in_pages_and_followed(app: App) -> None:
    @app.task
    def greet(number: int) -> None: ...

    jobs = greet.enqueue_many([(number,) for number in range(7)])
    work(app)

    pages = [app.events.page(after=after, limit=3) for after in (0, 3, 6, 7)]
    followed = list(itertools.islice(app.events.follow(), 7))

    assert [event.number for page in pages for event in page] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert {event.job_id for event in followed} == {job.id for job in jobs}
    assert app.events.last_number() == 7


async def test_a_follower_gets_events_that_happen_later(app: App) -> None:
    @app.task
    def greet(number: int) -> None: ...

    job_ids: list[str] = []
    start = await app.events.last_number_async()

    async def follow() -> list[str]:
        found: list[str] = []
        async for event in app.events.follow_async(after=start):
            found.append(event.job_id)
            if len(found) == 3:
                break
        return found

    async with asyncio.timeout(LIMIT):
        following = asyncio.create_task(follow())
        for number in range(3):
            job = await greet.enqueue_async(number)
            job_ids.append(job.id)
            await app.client.cancel_async(job.id)
        assert await following == job_ids
    assert [event.number for event in await app.events.page_async()] == [1, 2, 3]


def test_a_reader_that_fell_behind_is_told_so(app: App) -> None:
    @app.task
    def greet(number: int) -> None: ...

    for number in range(4):
        greet.enqueue(number).cancel()
    assert len(app.events.page()) == 4
    app.store.run(prune_events(timedelta(0), keep=1))

    with pytest.raises(EventsPruned) as caught:
        next(iter(app.events.follow(after=1)))

    assert caught.value.oldest == 4
    assert [event.number for event in app.events.page(after=caught.value.oldest - 1)] == [4]


def test_workers_store_the_levels_of_their_tasks(app: App) -> None:
    @app.task
    def told() -> None: ...

    @app.task(events="off")
    def quiet() -> None: ...

    spoken = told.enqueue()
    quiet.enqueue()
    work(app)

    assert [event.job_id for event in app.events.page()] == [spoken.id]
    assert app.store.run(levels()) == {quiet.name: "off"}


def test_the_level_of_tasks_without_one_is_a_setting(app: App) -> None:
    app.settings = msgspec.structs.replace(app.settings, events="off")

    @app.task
    def quiet() -> None: ...

    @app.task(events="final")
    def told() -> None: ...

    quiet.enqueue()
    spoken = told.enqueue()
    work(app)

    assert [event.job_id for event in app.events.page()] == [spoken.id]


@pytest.mark.parametrize("level", ["all", 1, True])
def test_an_unknown_level_is_refused(level: Any) -> None:
    with pytest.raises(ConfigurationError, match="events"):
        App("sqlite:///:memory:").task(events=level)


def test_an_event_is_a_cloud_event(app: App) -> None:
    @app.task
    def greet(name: str) -> None: ...

    with traced(correlation_id="order:7"):
        job = greet.enqueue("Bob")
    job.cancel()
    [event] = app.events.page()

    document = event.cloud_event(source="/shop")

    assert document == {
        "specversion": "1.0",
        "id": f"{job.id}.1",
        "source": "/shop",
        "type": "job.cancelled",
        "subject": job.id,
        "time": event.time.isoformat().replace("+00:00", "Z"),
        "sequence": "1",
        "datacontenttype": "application/json",
        "data": {
            "job_id": job.id,
            "task": greet.name,
            "queue": "default",
            "state": "cancelled",
            "attempt": 0,
            "correlation_id": "order:7",
        },
    }
    assert event.state is JobState.CANCELLED
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_a_follower_polls_less_often_while_nothing_happens() -> None:
    follower = Follower(5)

    pauses = [follower.pause_after([]) for _ in range(30)]

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1], follower.after) == (0.02, 1.0, 5)


def test_a_negative_number_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="after is -1"):
        app.events.page(after=-1)


def test_a_worker_with_the_default_level_stores_nothing_when_it_starts(app: App) -> None:
    """So that it starts on a database that cannot be written at the moment."""

    @app.task
    def told() -> None: ...

    work(app)

    assert app.store.run(levels()) == {}
