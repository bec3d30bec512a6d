"""Large payloads: a worker bounds the bytes it holds and publishes at once, not only the number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest

from stagepost import App, Worker
from stagepost.model.envelope import Message
from stagepost.store.outbox import add_messages, next_messages
from stagepost.transport.rabbitmq.publisher import Publisher, Verdict
from stagepost.upkeep import outgoing, relay
from stagepost.worker import claim_room, pace, parts
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from tests.acceptance.broker import carried, listening, until, working
from tests.acceptance.conftest import quick_settings

SIZE = 20_000
JOBS = 400
SLOTS = 4
BUDGET = 40 * SIZE


class Weighed(LeasedAttempts):
    """Notes how many bytes of payloads were held at most, counted from the attempts themselves."""

    most = 0

    def add(self, attempts: list[LeasedAttempt]) -> None:
        super().add(attempts)
        held = sum(len(attempt.job.payload) for attempt in self.all())
        self.most = max(self.most, held)
        assert self.payload_bytes == held


@pytest.mark.parametrize(("prefetch", "size"), [(None, SIZE), (1000, SIZE), (1000, SIZE // 4)])
async def test_a_worker_holds_no_more_bytes_than_its_bound(
    prefetch: int | None, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = 40 * size
    monkeypatch.setattr(pace, "HELD_BYTES", budget)
    monkeypatch.setattr(claim_room, "HELD_BYTES", budget)
    monkeypatch.setattr(parts, "LeasedAttempts", Weighed)
    settings = quick_settings(f"sqlite:///{tmp_path}/stagepost.db")
    app = App(settings=msgspec.structs.replace(settings, prefetch=prefetch))

    @app.task
    async def take(text: str) -> None:
        await asyncio.sleep(0)

    app.enqueue_many([take.job("x" * size) for _ in range(JOBS)])

    busy = Worker(app, concurrency=SLOTS)
    await busy.run(until_idle=True)

    assert busy.parts.finisher.settled == JOBS
    assert isinstance(busy.parts.attempts, Weighed)
    # A free slot may have one more job, however large, and a payload is a few bytes of JSON longer than its text.
    assert SLOTS * size < busy.parts.attempts.most <= budget + SLOTS * (size + 100)
    assert (len(busy.parts.attempts), busy.parts.attempts.payload_bytes) == (0, 0)
    app.close()


class Spy(Publisher):
    """Notes how many bytes were unconfirmed at most."""

    unconfirmed = most = 0

    def publish(self, messages: Sequence[Message]) -> Future[list[Verdict]]:
        size = sum(len(message.body) for message in messages)
        self.unconfirmed += size
        type(self).most = max(type(self).most, self.unconfirmed)
        answer = super().publish(messages)
        answer.add_done_callback(lambda _: self._confirm(size))
        return answer

    def _confirm(self, size: int) -> None:
        self.unconfirmed -= size


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes may be unconfirmed."""
    monkeypatch.setattr("stagepost.worker.broker.Publisher", Spy)
    monkeypatch.setattr(Spy, "most", 0)
    for module in (relay, outgoing):
        monkeypatch.setattr(module, "MOST_BYTES", BUDGET)
        monkeypatch.setattr(module, "FIRST", 5)
    return BUDGET // 2


async def test_unconfirmed_requests_stay_within_their_bound_in_bytes(
    tmp_path: Path, broker_url: str, bound: int
) -> None:
    app = carried(f"sqlite:///{tmp_path}/stagepost.db", broker_url)
    taken: list[int] = []

    @app.task
    async def take(text: str) -> None:
        taken.append(len(text))

    with listening(app) as broker:
        jobs = app.enqueue_many([take.job("x" * SIZE) for _ in range(100)])
        async with working(app):
            await until(lambda: len(taken) == len(jobs))
            await until(broker.is_empty)

    assert SIZE < Spy.most <= bound
    app.close()


async def test_unconfirmed_messages_of_the_outbox_stay_within_their_bound_in_bytes(
    tmp_path: Path, broker_url: str, bound: int
) -> None:
    app = carried(f"sqlite:///{tmp_path}/stagepost.db", broker_url)

    @app.task
    async def take() -> None: ...

    key = app.settings.rabbitmq.dead_letters
    with listening(app) as broker:
        app.store.run(add_messages([Message(key, b"x" * SIZE, f"m{number}") for number in range(60)]))
        async with working(app):
            await until(lambda: not app.store.run(next_messages(most=1)))
            await until(lambda: len(broker.heard(key)) == 60)
            await until(broker.is_empty)
        assert [one.properties.message_id for one in broker.heard(key)] == [f"m{number}" for number in range(60)]

    assert SIZE < Spy.most <= bound
    app.close()
