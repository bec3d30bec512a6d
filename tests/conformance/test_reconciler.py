"""What the reconciler concludes from the broker's reports."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.store import sending, workers
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.transport.rabbitmq.topology import QueuePlan
from stagepost.upkeep import reconciler
from stagepost.upkeep.alerting import AlertingRunner
from stagepost.upkeep.leader import Leader
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, TASK, enqueue

LOST_AFTER = 15
QUIET_TIME = 600
LOOK = 5
TOLD_OF_NONE = Depth(0, 0)
"""Said of a quorum queue that does not answer, too, whatever is in it."""


class Scene:
    """A job whose message was sent, a live worker, and a leader that checks every few seconds."""

    def __init__(self, bench: Bench, store: AsyncStore, leader: Leader, told: list[Depth]) -> None:
        self._bench, self._leader, self._told = bench, leader, told
        settings = RabbitmqSettings(lost_after_seconds=LOST_AFTER, quiet_time_seconds=QUIET_TIME)
        signals = Signals()
        self._reconciler = reconciler.Reconciler(
            store,
            leader,
            signals,
            url="amqp://nobody",
            settings=settings,
            queues=[QUEUE],
            patience={QUEUE: None},
            alerts=AlertingRunner(store, signals),
        )
        bench.run(workers.register_worker("w", host="h", pid=1, queues=[QUEUE], tasks=[TASK], slots=1))
        bench.run(sending.mark_sent([(enqueue(bench), 1)]))

    def resent(self, told: Depth, *, seconds: int, is_heard: bool = True) -> int:
        """How many jobs are sent again if the broker reports this for `seconds`."""
        self._told[:] = [told]
        for _ in range(0, seconds, LOOK):
            self._bench.clock.advance(LOOK)
            if is_heard:
                self._bench.run(workers.heartbeat("w", running=0, looked_ago=timedelta(0)))
            asyncio.run(self._look())
        return self._reconciler.resent

    async def _look(self) -> None:
        await self._leader.run_once()
        await self._reconciler.run_once()


@pytest.fixture
def scene(blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch) -> Scene:
    told: list[Depth] = []

    def depths(_url: str, wanted: list[QueuePlan]) -> dict[str, Depth]:
        return {plan.name: told[0] for plan in wanted}

    monkeypatch.setattr(reconciler, "depths", depths)
    return Scene(blocking_store, own_store, leader, told)


def test_a_queue_that_lost_its_message_is_sent_it_again(scene: Scene) -> None:
    assert scene.resent(Depth(0, 1), seconds=LOST_AFTER) == 0
    assert scene.resent(Depth(0, 1), seconds=LOOK) == 1


def test_a_queue_of_a_live_worker_that_reports_no_consumer_is_not_trusted(scene: Scene) -> None:
    assert scene.resent(TOLD_OF_NONE, seconds=4 * LOST_AFTER) == 0
    assert scene.resent(Depth(0, 1), seconds=LOST_AFTER) == 0, "it was not seen empty before"
    assert scene.resent(Depth(0, 1), seconds=LOOK) == 1


def test_a_queue_that_does_not_report_its_length_is_judged_by_a_long_silence(scene: Scene) -> None:
    assert scene.resent(TOLD_OF_NONE, seconds=QUIET_TIME - LOOK) == 0
    assert scene.resent(TOLD_OF_NONE, seconds=2 * LOOK) == 1


def test_a_queue_without_workers_may_have_no_consumer(scene: Scene) -> None:
    assert scene.resent(TOLD_OF_NONE, seconds=LOST_AFTER, is_heard=False) == 0
    assert scene.resent(TOLD_OF_NONE, seconds=2 * LOST_AFTER, is_heard=False) == 1
