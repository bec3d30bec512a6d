"""Urgent jobs that overtake others in RabbitMQ's own queue, through a real broker."""

from __future__ import annotations

import asyncio

import pytest

from stagepost import App
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.errors import TopologyConflict, TransportError
from stagepost.model.identity import new_id
from stagepost.transport.rabbitmq.admin import _channel, _version, apply, compare
from stagepost.transport.rabbitmq.topology import topology_of
from tests.acceptance.broker import carried, listening, until, working
from tests.conformance.bench import DatabaseOnBench

WAITING = 300
LEVELS = [0, 10]
BACKGROUND, ORDINARY, URGENT = -1, 0, 10


def sorting(database: DatabaseOnBench, broker_url: str, *, prefetch: int) -> App:
    """An app whose queue `default` has priorities at the broker."""
    own = BrokerQueueSettings(queue_type="classic", priorities=LEVELS)
    return carried(database.url, broker_url, prefetch=prefetch, queue={"default": own})


async def test_an_urgent_job_starts_before_300_that_wait_at_the_broker(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = sorting(on_postgres, broker_url, prefetch=2)
    started: list[str] = []

    @app.task
    async def note(name: str) -> None:
        started.append(name)

    @app.task(queue="other")
    async def other() -> None:
        raise NotImplementedError

    with listening(app) as broker:
        key = app.settings.rabbitmq.routing_key("default")
        async with working(app, queues=["other"]):  # publishes for all queues, and takes nothing from this one
            note.using(priority=BACKGROUND).enqueue("background")
            app.enqueue_many([note.job(f"ordinary {number}") for number in range(WAITING)])
            await until(lambda: broker.waiting()[key] == WAITING + 1)
            note.using(priority=URGENT).enqueue("urgent")
            await until(lambda: broker.waiting()[key] == WAITING + 2)
        async with working(app, queues=["default"], concurrency=1):
            await until(lambda: len(started) == WAITING + 2)

    assert started[0] == "urgent"
    assert started[-1] == "background"
    assert sorted(started[1:-1]) == sorted(f"ordinary {number}" for number in range(WAITING))
    app.close()


async def test_an_urgent_job_waits_only_for_what_workers_already_hold(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    prefetch = 3
    app = sorting(on_postgres, broker_url, prefetch=prefetch)
    started: list[str] = []
    is_released = asyncio.Event()

    @app.task
    async def note(name: str) -> None:
        started.append(name)
        await is_released.wait()

    with listening(app) as broker:
        key = app.settings.rabbitmq.routing_key("default")
        async with working(app, concurrency=1):
            app.enqueue_many([note.job(f"ordinary {number}") for number in range(WAITING)])
            await until(lambda: broker.waiting()[key] == WAITING - prefetch)
            note.using(priority=URGENT).enqueue("urgent")
            await until(lambda: broker.waiting()[key] == WAITING - prefetch + 1)
            is_released.set()
            await until(lambda: len(started) == WAITING + 1)

    assert started.index("urgent") <= prefetch
    app.close()


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (
            BrokerQueueSettings(),
            BrokerQueueSettings(queue_type="classic", priorities=LEVELS),
            "x-dead-letter-strategy 'at-least-once', and the settings ask for none (queue_type: only quorum queues",
        ),
        (
            BrokerQueueSettings(queue_type="classic"),
            BrokerQueueSettings(queue_type="classic", priorities=LEVELS),
            "x-max-priority none, and the settings ask for '2' (priorities)",
        ),
        (
            BrokerQueueSettings(queue_type="classic", priorities=LEVELS),
            BrokerQueueSettings(queue_type="classic", priorities=[5]),
            "x-max-priority '2', and the settings ask for '1' (priorities)",
        ),
        (
            BrokerQueueSettings(queue_type="classic", priorities=LEVELS),
            BrokerQueueSettings(queue_type="classic"),
            "x-max-priority '2', and the settings ask for none (priorities)",
        ),
    ],
)
def test_a_queue_that_has_other_priorities_is_named_with_both_values(
    broker_url: str, before: BrokerQueueSettings, after: BrokerQueueSettings, difference: str
) -> None:
    prefix = f"t{new_id()[-12:]}"
    apply(broker_url, topology_of(RabbitmqSettings(prefix=prefix, queue={"mail": before}), ["mail"]))
    changed = topology_of(RabbitmqSettings(prefix=prefix, queue={"mail": after}), ["mail"])

    with pytest.raises(TopologyConflict) as raised:
        apply(broker_url, changed)

    assert f"queue {prefix}.mail was declared with {difference}" in str(raised.value)
    assert "drain and delete it and then run `stagepost rabbitmq apply`" in str(raised.value)
    assert [one.status for one in compare(broker_url, changed) if one.name == f"{prefix}.mail"] == ["conflict"]


def test_a_broker_that_ignores_priorities_in_quorum_queues_is_not_used_for_them(broker_url: str) -> None:
    settings = RabbitmqSettings(prefix=f"t{new_id()[-12:]}", queue={"mail": BrokerQueueSettings(priorities=[1])})
    topology = topology_of(settings, ["mail"])

    with _channel(broker_url) as channel:
        version = _version(channel)
    if not version.startswith("3."):
        pytest.skip(f"RabbitMQ {version} has priorities in quorum queues")
    with pytest.raises(TransportError) as raised:
        apply(broker_url, topology)

    assert f"is a quorum queue with `priorities`, which needs RabbitMQ 4.0; this is {version}." in str(raised.value)
    assert 'Set `queue_type = "classic"` in [rabbitmq.queue.mail]' in str(raised.value)
    assert {one.name: one.status for one in compare(broker_url, topology)}[settings.routing_key("mail")] == "conflict"
