"""When a consumer connects again because jobs were sent again and it got nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from stagepost.database.async_store import AsyncStore
from stagepost.store import queue_observations, sending
from stagepost.worker.stalled_consumers import LOOK_SECONDS, StalledConsumerCheck
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, enqueue


class Standing:
    """Where a consumer stands, as the test wants it."""

    def __init__(self) -> None:
        self.at: tuple[int, int] | None = (1, 7)
        self.reasons: list[str] = []

    def position(self, queue: str) -> tuple[int, int] | None:
        assert queue == "task.mail"
        return self.at

    def reconnect(self, reason: str) -> None:
        self.reasons.append(reason)


class Scene:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.consumer = bench, Standing()
        self._store = AsyncStore(bench.database.store)
        queues = {QUEUE: "task.mail"}
        self._consumer_check = StalledConsumerCheck(
            self._store, bench.clock, queues, lambda: cast("Any", self.consumer)
        )
        bench.run(queue_observations.begin_carrying(QUEUE))
        self._job_id = enqueue(bench)
        self.look()

    def send_again(self) -> None:
        self.bench.run(sending.mark_sent([(self._job_id, 1)]))
        self.bench.clock.advance(1)
        assert self.bench.run(sending.put_back_lost(QUEUE, sent_before=self.bench.now, most=1)).again

    def look(self) -> list[str]:
        """Look once, some time after the last; returns for what reasons the consumer was to connect again so far."""
        self.bench.clock.advance(LOOK_SECONDS)
        asyncio.run(self._consumer_check.look())
        return self.consumer.reasons

    def close(self) -> None:
        self._store.close()


def test_a_consumer_that_received_nothing_since_jobs_were_resent_reconnects_once(blocking_store: Bench) -> None:
    scene = Scene(blocking_store)
    scene.send_again()

    assert scene.look() == [], "what was sent again may be on its way"
    assert scene.look() == [f"no message arrived although jobs of queue {QUEUE} were sent again"]
    assert len(scene.look()) == 1
    scene.send_again()
    assert len(scene.look()) == 1
    assert len(scene.look()) == 2
    scene.close()


def test_a_consumer_that_received_something_or_could_not_is_left_alone(blocking_store: Bench) -> None:
    scene = Scene(blocking_store)
    scene.send_again()
    scene.look()
    scene.consumer.at = (1, 8)
    assert scene.look() == []

    scene.consumer.at = None  # its hands are full, or it connects again already
    scene.send_again()
    scene.look()
    assert scene.look() == []
    scene.close()


def test_jobs_resent_before_a_consumer_connected_are_ignored(blocking_store: Bench) -> None:
    earlier = Scene(blocking_store)
    earlier.send_again()
    scene = Scene(blocking_store)

    assert [scene.look(), scene.look()] == [[], []]
    earlier.close()
    scene.close()


def test_two_checks_in_quick_succession_count_as_one(blocking_store: Bench) -> None:
    scene = Scene(blocking_store)
    scene.send_again()
    scene.look()
    asyncio.run(scene._consumer_check.look())

    assert scene.consumer.reasons == [], "two looks at once are one"
    scene.close()
