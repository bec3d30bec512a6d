"""Probes of a worker whose event loop a handler blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from stagepost import App, Worker
from stagepost.errors import StoreUnavailable
from stagepost.worker import probes
from stagepost.worker.probes import Probes
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import LIMIT
from tests.conformance.bench import DatabaseOnBench
from tests.services.processes import wait_until


@contextmanager
def blocked_worker(url: str, *, slots: int) -> Iterator[Worker]:
    """Run a worker whose event loop stands still until the end of the block."""
    app = App(settings=quick_settings(url))
    is_blocked, may_end = threading.Event(), threading.Event()

    @app.task(name="block")
    async def block() -> None:
        is_blocked.set()
        may_end.wait(LIMIT)

    block.enqueue()
    try:
        with Worker(app, concurrency=slots) as worker:
            try:
                assert is_blocked.wait(LIMIT)
                yield worker
            finally:
                may_end.set()
    finally:
        app.close()


def test_a_worker_with_a_blocked_event_loop_is_not_alive(
    on_postgres: DatabaseOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "ALIVE_WITHIN", timedelta(0))
    with blocked_worker(on_postgres.url, slots=4) as worker:
        asked = Probes(worker, worker.app.store)

        wait_until(lambda: not asked.live().is_good, "the probe notices", seconds=LIMIT)

        assert "although 3 of 4 slots are free" in asked.live().text


def test_a_worker_whose_slots_are_all_busy_is_alive(
    on_postgres: DatabaseOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "ALIVE_WITHIN", timedelta(0))
    with blocked_worker(on_postgres.url, slots=1) as worker:
        asked = Probes(worker, worker.app.store)

        wait_until(lambda: asked.live().text == "All 1 slots are busy.", "the last look is long ago", seconds=LIMIT)

        assert asked.live().is_good


def test_readiness_asks_the_database_when_the_worker_does_not(on_postgres: DatabaseOnBench) -> None:
    with blocked_worker(on_postgres.url, slots=4) as worker:
        worker.parts.store.answered_at = float("-inf")

        assert Probes(worker, worker.app.store).ready().is_good


def test_a_worker_that_has_not_started_is_alive_and_not_ready(on_postgres: DatabaseOnBench) -> None:
    app = App(settings=quick_settings(on_postgres.url))
    app.task(name="nothing")(lambda: None)
    asked = Probes(Worker(app), app.store)

    assert (asked.live().is_good, asked.ready()) == (True, (False, "The worker is starting."))
    app.close()


async def test_a_worker_without_its_database_still_looks_for_jobs() -> None:
    app = App(settings=quick_settings("postgresql://nobody@127.0.0.1:1/nowhere"))
    app.task(name="nothing")(lambda: None)
    worker = Worker(app)
    worker.parts.claimer.began_at = float("-inf")

    with pytest.raises(StoreUnavailable):
        await worker.parts.claimer.run_once()

    assert worker.seconds_since_look < LIMIT
    worker.parts.store.abort()
    app.close()
