"""How much a worker logs while its database is away, or refuses its role."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest

from stagepost import App, Settings, Worker
from stagepost.database.migrate import migrate
from stagepost.database.store import Store
from tests.fault.servers import PrivatePostgres
from tests.fault.wakeups import until

LIMIT = 300.0
MOST_LINES = 6
"""One when the database is away, one about wake-ups, one for each when it is back, and two to spare."""
MOST_TABLES = 8
"""Loops that read different tables fail differently."""


def app_at(url: str) -> App:
    app = App(settings=Settings(database_url=url, poll_longest_seconds=0.2, lease_seconds=600))
    app.store.patience_seconds = 0.2  # so that loops fail soon, and often

    @app.task(name="greet")
    def greet() -> str:
        return "hello"

    return app


def failures_of(worker: Worker) -> dict[str, int]:
    """How often each loop has failed since it last worked."""
    return {loop.name: service.failures_in_a_row for loop, service in worker.parts.loops.items()}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the worker logged as a problem, or as its end."""
    return [
        message
        for record, message in zip(caplog.records, caplog.messages, strict=True)
        if record.levelno >= logging.WARNING or "again" in message
    ]


async def test_a_worker_whose_database_is_away_logs_a_few_lines(
    private_postgres: PrivatePostgres, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_at(private_postgres.url)
    migrate(app.store)
    worker = Worker(app)
    with caplog.at_level(logging.INFO, "stagepost"):
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as running:
            running.create_task(worker.run())
            await until(lambda: worker.parts.leader.is_leading and worker.parts.wakeups.is_hearing)
            caplog.clear()

            await asyncio.to_thread(private_postgres.stop, "immediate")
            await until(lambda: sum(failures_of(worker).values()) >= 20)
            assert len(lines(caplog)) <= MOST_LINES / 2
            await asyncio.to_thread(private_postgres.start)

            await until(lambda: not any(failures_of(worker).values()) and worker.parts.wakeups.is_hearing)
            [job] = await asyncio.to_thread(app.enqueue_many, [app.registry.get("greet").job()])
            assert await job.result_async(timeout=LIMIT) == "hello"
            worker.stop()
    app.close()

    assert len(lines(caplog)) <= MOST_LINES, "\n".join(lines(caplog))
    [recovery] = [line for line in lines(caplog) if "working again after" in line]
    assert "claimer" in recovery
    assert not [record for record in caplog.records if record.exc_info], "a traceback of an expected error"


@pytest.fixture
def role(postgres_database: str) -> Iterator[str]:
    """A role that may read and write all tables, until somebody revokes it."""
    name = f"log_lines_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(f"create role {name}")
        yield name
        owner.execute(f"drop owned by {name}")
        owner.execute(f"drop role {name}")


async def test_a_worker_without_grants_logs_each_cause_once(
    postgres_database: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(Store.at(postgres_database)) as store:
        migrate(store)
    app = app_at(f"{postgres_database}?options={quote(f'-c role={role}')}")
    worker = Worker(app)
    with caplog.at_level(logging.INFO, "stagepost"), psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(f"grant all on all tables in schema public to {role}")
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as running:
            running.create_task(worker.run())
            await until(lambda: worker.parts.leader.is_leading)
            caplog.clear()

            owner.execute(f"revoke all on all tables in schema public from {role}")
            await until(lambda: sum(failures_of(worker).values()) >= 20)
            logged = lines(caplog)
            owner.execute(f"grant all on all tables in schema public to {role}")
            await until(lambda: not any(failures_of(worker).values()))
            worker.stop()
    app.close()

    assert len(logged) <= MOST_TABLES, "\n".join(logged)
