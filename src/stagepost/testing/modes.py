"""The two ways in which a test can have jobs: kept until it says so, or run at once where they are enqueued."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from stagepost.client import App, Client
from stagepost.client.client import result_of
from stagepost.clock import ManualClock
from stagepost.errors import ConfigurationError, WaitTimeout
from stagepost.model.identity import new_id
from stagepost.model.job import Job
from stagepost.model.lifecycle import FINAL
from stagepost.store.transaction import run_in, run_in_async
from stagepost.task import Registry, Task
from stagepost.testing.drainer import Drained, Drainer
from stagepost.testing.enqueued import EnqueuedJob, Wanted, jobs_since
from stagepost.testing.inline_client import InlineClient
from stagepost.upkeep.scheduler import declaration_of

__all__ = ["Inline", "Manual", "clock_from_now", "inline", "manual"]

MEMORY = "sqlite://"
PATIENCE_SECONDS = 5.0
"""A test that waits for its own database has locked itself out: it should not take the usual half a minute."""


@contextlib.contextmanager
def manual(app: App, *, database_url: str = MEMORY, clock: ManualClock | None = None) -> Iterator[Manual]:
    """Keep the app's jobs in another database, in which nothing runs until `drain()`.

    In SQLite only one transaction can write at a time: code that enqueues while it has `app.transaction()` open must
    hand that over, or it waits for itself. Jobs written through connections of the application's own are in the
    database of those: look for them with `within`, and give its address as `database_url` to drain them.
    """
    clock = clock or clock_from_now()
    with _moved(app, database_url, clock):
        app.client = PromptClient(app.store, app.registry, async_store=app.async_store)
        yield Manual(app, clock)


@contextlib.contextmanager
def inline(app: App, *, database_url: str = MEMORY, clock: ManualClock | None = None) -> Iterator[Inline]:
    """Run the app's jobs at once, in the thread or coroutine that enqueues them.

    Arguments and results go through JSON, and the job through a real database, as they would in production. Delays,
    limits and rates are passed over, and nothing is tried again: what the task raises comes out of `enqueue`, except
    Snooze and Cancelled. What is enqueued in `app.transaction()` runs when that commits, and comes out there. Any
    other transaction that is handed over is only checked: its job runs at once, and is not written through it.
    """
    clock = clock or clock_from_now()
    with _moved(app, database_url, clock):
        app.client = InlineClient(app)
        yield Inline(app, clock)


def clock_from_now() -> ManualClock:
    """Make a clock that starts now, so that `at=` computed from the real time makes sense, and stands still."""
    return ManualClock(datetime.now(UTC))  # noqa: TID251 - only where it starts


@contextlib.contextmanager
def _moved(app: App, database_url: str, clock: ManualClock) -> Iterator[None]:
    with app.moved_to(database_url, clock=clock):
        app.store.patience_seconds = app.store.pool.wait_seconds = PATIENCE_SECONDS
        for schedule in app.schedules.values():
            app.store.run(declaration_of(schedule))
        yield


class Manual:
    """The jobs of one test: looks at what was enqueued, and runs it."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self._began = new_id()

    def drain(
        self,
        *,
        until: timedelta | datetime | None = None,
        queues: Collection[str] = (),
        concurrency: int = 1,
    ) -> Drained:
        """Run everything that is due, and what that enqueues, until nothing is; then say what was run.

        Retries, snoozed and delayed jobs and schedules are due when the clock says so: move it with
        `clock.advance(...)`, or give `until`, a duration from now or an instant, to move it from one due time to the
        next up to there. Plain tasks run in threads and `async def` ones on a loop, as in a worker.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigurationError("drain() was called in async code: use `await drain_async()` there.")
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(self.drain_async(until=until, queues=queues, concurrency=concurrency))

    async def drain_async(
        self,
        *,
        until: timedelta | datetime | None = None,
        queues: Collection[str] = (),
        concurrency: int = 1,
    ) -> Drained:
        """Do as `drain` does, on the running loop."""
        drainer = Drainer(self.app, self.clock, queues=queues, concurrency=concurrency)
        return await drainer.run(until)

    def enqueued(self, task: Task[..., Any] | None = None, *, within: Any = None) -> list[EnqueuedJob]:
        """List the jobs that were enqueued in this test, oldest first, whatever has become of them.

        `within` is a connection or session with a transaction open: then those in its database, as it sees them.
        """
        operation = jobs_since(self._since(within))
        found = self.app.store.run(operation) if within is None else run_in(within, operation, clock=self.clock)
        return self._of(task, found)

    async def enqueued_async(self, task: Task[..., Any] | None = None, *, within: Any = None) -> list[EnqueuedJob]:
        """List as `enqueued` does; `within` is an async connection or session."""
        operation = jobs_since(self._since(within))
        if within is None:
            return self._of(task, await self.app.async_store.run(operation))
        return self._of(task, await run_in_async(within, operation, clock=self.clock))

    def assert_enqueued(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, count: int | None = None, **kwargs: Any
    ) -> list[EnqueuedJob]:
        """Fail unless the task was enqueued with these arguments, `count` times if given; returns those jobs.

        Arguments that are left out may be anything. Give parameters of the task that are called `within` or `count`
        by position, or look at `enqueued(task)`.
        """
        __tracebackhide__ = True
        return Wanted(task, args, kwargs, count).check(self.enqueued(within=within))

    async def assert_enqueued_async(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, count: int | None = None, **kwargs: Any
    ) -> list[EnqueuedJob]:
        """Do as `assert_enqueued` does; `within` is an async connection or session."""
        __tracebackhide__ = True
        return Wanted(task, args, kwargs, count).check(await self.enqueued_async(within=within))

    def assert_not_enqueued(self, task: Task[..., Any], /, *args: Any, within: Any = None, **kwargs: Any) -> None:
        """Fail if the task was enqueued with these arguments."""
        __tracebackhide__ = True
        Wanted(task, args, kwargs, 0).check(self.enqueued(within=within))

    async def assert_not_enqueued_async(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, **kwargs: Any
    ) -> None:
        """Do as `assert_not_enqueued` does; `within` is an async connection or session."""
        __tracebackhide__ = True
        Wanted(task, args, kwargs, 0).check(await self.enqueued_async(within=within))

    def _since(self, within: Any) -> str:
        """Leave out what a database that outlives the test had before it; ids grow with time."""
        return "" if within is None and self.app.store.database.is_memory else self._began

    def _of(self, task: Task[..., Any] | None, found: list[Job]) -> list[EnqueuedJob]:
        return [EnqueuedJob.of(job, self.app.registry) for job in found if task is None or job.task_name == task.name]


class Inline(Manual):
    """The jobs of one test, run where they were enqueued; `drain()` runs what was snoozed or failed there."""


class PromptClient(Client):
    """Does not wait for results: in a test nobody else runs the job meanwhile."""

    def result(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any:  # noqa: ARG002 - in no time
        """Return the result of a job that has ended."""
        return _result_now(self.job(job_id), self._registry)

    async def result_async(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any:  # noqa: ARG002
        """Return the result of a job that has ended."""
        return _result_now(await self.job_async(job_id), self._registry)


def _result_now(job: Job, registry: Registry) -> Any:
    if job.state not in FINAL:
        raise WaitTimeout(
            f"job {job.id} of {job.task_name} is {job.state}: in this test it runs when you call drain()."
        )
    return result_of(job, registry)
