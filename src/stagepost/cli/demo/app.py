"""The demo's app, configured by the environment that `stagepost demo` gives its workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from stagepost.cli.demo.ledger import write_line
from stagepost.cli.demo.plan import Kind
from stagepost.client.app import App
from stagepost.client.context import JobContext
from stagepost.errors import Permanent, Retryable
from stagepost.model.retry import RetryPolicy

__all__ = ["app"]

LONG_WAY_SECONDS = 1.0
SOON = timedelta(seconds=0.5)

app = App()
hurried = RetryPolicy(max_attempts=3, first_delay=SOON, minimum_delay=SOON)


@app.task(name=Kind.DELIVER)
def deliver(job: JobContext, item: int) -> None:
    """Write to the ledger and complete the job in one transaction, so that both happen or neither."""
    mark = "?" if app.store.dialect.name == "sqlite" else "%s"
    with app.transaction() as tx:
        write_line(tx, run=job.queue, item=item, job_id=job.id, attempt=job.attempt, mark=mark)
        job.complete(tx)


@app.task(name=Kind.GREET)
async def greet(item: int) -> str:
    """Return a value without a transaction; the worker completes such jobs in groups."""
    return f"Good morning, number {item}!"


@app.task(name=Kind.STORM, retry=hurried)
def deliver_after_the_storm(job: JobContext, item: int) -> None:
    """Fail the first time, like a service that is briefly down."""
    if job.failures == 0:
        raise Retryable("there is a storm outside")
    deliver.function(job, item)


@app.task(name=Kind.LONG_WAY)
async def deliver_the_long_way(job: JobContext, item: int) -> None:
    """Take long enough to be running when the worker is killed."""
    await asyncio.sleep(LONG_WAY_SECONDS)
    await asyncio.to_thread(deliver.function, job, item)


@app.task(name=Kind.NO_ADDRESS)
async def deliver_without_address(item: int) -> None:
    """Fail in a way that no other attempt can fix."""
    raise Permanent(f"letter {item} has no address")


@app.task(name=Kind.BRIDGE_IS_DOWN, retry=hurried)
async def deliver_over_the_broken_bridge(item: int) -> None:
    """Fail every time, until no attempt is left."""
    raise ConnectionError(f"letter {item}: the bridge is down")
