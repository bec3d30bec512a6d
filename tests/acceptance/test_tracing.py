"""Ids that travel: from the request, into its jobs and their children, and into every log record on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from stagepost import App, JobContext, traced
from stagepost.config.logging import JobContextFilter, TextFormatter
from stagepost.model.context import TraceContext
from tests.acceptance.helpers import work

log = logging.getLogger("shop")


@pytest.fixture
def records() -> Iterator[dict[str, logging.LogRecord]]:
    """What the application logs, by message."""
    found: dict[str, logging.LogRecord] = {}

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found[record.getMessage()] = record

    keeper = Keeper()
    keeper.addFilter(JobContextFilter())
    log.addHandler(keeper)
    log.setLevel(logging.INFO)
    yield found
    log.removeHandler(keeper)


def trace_of(app: App, job_id: str) -> TraceContext:
    """The ids that are stored with a job."""
    return app.client.job(job_id).trace


def test_a_job_carries_the_ids_of_the_request_that_enqueued_it(app: App) -> None:
    @app.task
    def ship(job: JobContext) -> list[str | None]:
        return [job.trace.trace_id, job.trace.correlation_id, job.trace.user_id]

    with traced(trace_id="t-1", correlation_id="c-1"), traced(user_id="ada"):
        job = ship.enqueue()
        [another] = app.enqueue_many([ship.job()])
    untraced = ship.enqueue()
    chosen = ship.using(trace=TraceContext(trace_id="t-2")).enqueue()

    work(app)

    assert job.result(timeout=0) == another.result(timeout=0) == ["t-1", "c-1", "ada"]
    assert untraced.result(timeout=0) == [None, None, None]
    assert chosen.result(timeout=0) == ["t-2", None, None]
    assert app.client.job(untraced.id).trace == TraceContext()


def test_children_carry_the_ids_on_and_name_their_parent(app: App) -> None:
    @app.task
    def child() -> None: ...

    @app.task
    def parent() -> str:
        return child.enqueue().id

    @app.task
    async def async_parent() -> str:
        await asyncio.sleep(0)
        return (await child.enqueue_async()).id

    with traced(trace_id="t-1", user_id="ada"):
        plain, asynchronous = parent.enqueue(), async_parent.enqueue()

    work(app)

    for job in (plain, asynchronous):
        assert trace_of(app, job.result(timeout=0)) == TraceContext(trace_id="t-1", user_id="ada", parent_id=job.id)


def test_log_records_of_a_handler_carry_its_ids(app: App, records: dict[str, logging.LogRecord]) -> None:
    @app.task
    def plain() -> None:
        log.info("plain")

    @app.task
    async def asynchronous() -> None:
        await asyncio.to_thread(log.info, "from a thread of an async handler")
        await asyncio.gather(asyncio.create_task(logs_later()))

    async def logs_later() -> None:
        await asyncio.sleep(0)
        log.info("from a task of an async handler")

    with traced(trace_id="t-1", correlation_id="c-1", user_id="ada"):
        jobs = {"plain": plain.enqueue().id}
    with traced(trace_id="t-2"):
        job_id = asynchronous.enqueue().id
        jobs |= {"from a thread of an async handler": job_id, "from a task of an async handler": job_id}
    log.info("outside")

    work(app)

    assert {message: vars(records[message])["job_id"] for message in jobs} == jobs
    facts = vars(records["plain"])
    assert (facts["task"], facts["attempt"], facts["task_id"]) == (plain.name, 1, jobs["plain"])
    assert (facts["trace_id"], facts["correlation_id"], facts["user_id"]) == ("t-1", "c-1", "ada")
    assert f"job={jobs['plain']} attempt=1 trace=t-1 correlation=c-1 user=ada" in TextFormatter().format(
        records["plain"]
    )
    assert vars(records["from a task of an async handler"])["trace_id"] == "t-2"
    assert vars(records["outside"])["job_id"] is None
    assert TextFormatter().format(records["outside"]).endswith("shop: outside")


def test_handlers_that_run_side_by_side_do_not_mix_their_ids(app: App, records: dict[str, logging.LogRecord]) -> None:
    @app.task
    async def note(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        log.info("number %d", number)

    with traced(trace_id="t-1"):
        handles = app.enqueue_many([note.job(number) for number in range(20)])

    work(app)

    seen = [vars(records[f"number {number}"])["job_id"] for number in range(20)]
    assert seen == [handle.id for handle in handles]
