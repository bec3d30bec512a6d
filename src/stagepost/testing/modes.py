"""The two modes for tests: keep jobs until the test drains them, or run them when they are enqueued."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stagepost.client import App, Client
from stagepost.client.app import OPENED
from stagepost.database.transaction import run_in, run_in_async
from stagepost.errors import ConfigurationError, WaitTimeout
from stagepost.model.identity import new_id
from stagepost.model.job import JobRow
from stagepost.model.lifecycle import FINAL
from stagepost.model.option_types import check_type
from stagepost.store.jobs import get
from stagepost.task import Task
from stagepost.testing.clock import ManualClock
from stagepost.testing.drainer import Drained, Drainer
from stagepost.testing.enqueued import EnqueuedJob, Expectation, jobs_since
from stagepost.testing.inline_client import InlineClient
from stagepost.upkeep.scheduler import declaration_of

__all__ = ["Inline", "Manual", "clock_from_now", "inline", "manual"]

MEMORY = "sqlite://"
PATIENCE_SECONDS = 5.0
"""A test that waits for its own database lock has a deadlock: report it sooner than the usual half a minute."""


@contextlib.contextmanager
def manual(app: App, *, database_url: str = MEMORY, clock: ManualClock | None = None) -> Iterator[Manual]:
    """Keep the app's jobs in another database, where nothing runs until `drain()`.

    SQLite allows only one writing transaction at a time: code that enqueues inside `app.transaction()` must pass that
    transaction as `tx`, or it waits for itself. Jobs enqueued through the application's own connections are in that
    connection's database: find them with `within`, and pass its address as `database_url` to drain them.
    """
    check_type("clock", clock, ManualClock | None)
    clock = clock or clock_from_now()
    with _moved(app, database_url, clock):
        app.client = PromptClient(app.store, app.registry, async_store=app.async_store)
        yield Manual(app, clock)


@contextlib.contextmanager
def inline(app: App, *, database_url: str = MEMORY, clock: ManualClock | None = None) -> Iterator[Inline]:
    """Run the app's jobs immediately, in the thread or coroutine that enqueues them.

    Arguments and results go through JSON, and the job through a real database, as in production. Delays, limits and
    rates are ignored, and nothing is retried: `enqueue` raises what the task raises, except Snooze and Cancelled.
    Jobs enqueued in `app.transaction()` run when it commits, and raise there. Any other transaction passed as `tx`
    is only checked: its job runs immediately and is not written through it.
    """
    check_type("clock", clock, ManualClock | None)
    clock = clock or clock_from_now()
    with _moved(app, database_url, clock):
        app.client = InlineClient(app)
        yield Inline(app, clock)


def clock_from_now() -> ManualClock:
    """Create a clock that stands still at the current time, so that `at=` values based on real time make sense."""
    return ManualClock(datetime.now(UTC))  # noqa: TID251 - only where it starts


@contextlib.contextmanager
def _moved(app: App, database_url: str, clock: ManualClock) -> Iterator[None]:
    """Use another database and clock within the body; the originals are restored afterwards."""
    outer = dict(vars(app))
    for name in OPENED:
        vars(app).pop(name, None)
    app.settings = msgspec.structs.replace(app.settings, database_url=database_url)
    app.clock, app.given_store, app.auto_migrate = clock, None, True
    try:
        app.store.is_stand_in = True
        app.store.patience_seconds = app.store.pool.wait_seconds = PATIENCE_SECONDS
        for schedule in app.declared_schedules.values():
            app.store.run(declaration_of(schedule))
        yield
    finally:
        app.close()
        vars(app).update(outer)


class Manual:
    """The jobs of one test: lists enqueued jobs and runs them."""

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
        """Run all due jobs, including those they enqueue, until none is due; returns what ran.

        Retries, snoozed and delayed jobs, and schedules become due by the test's clock. Move it with
        `clock.advance(...)`, or pass `until` (a duration from now or an instant) to move it from one due time to the
        next up to that point. Plain tasks run in threads and `async def` tasks on an event loop, as in a worker.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigurationError("drain() was called in async code. Use `await drain_async()` instead.")
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(self.drain_async(until=until, queues=queues, concurrency=concurrency))

    async def drain_async(
        self,
        *,
        until: timedelta | datetime | None = None,
        queues: Collection[str] = (),
        concurrency: int = 1,
    ) -> Drained:
        """Drain like `drain`, on the running event loop."""
        drainer = Drainer(self.app, self.clock, queues=queues, concurrency=concurrency)
        return await drainer.run(until)

    def enqueued(self, task: Task[..., Any] | None = None, *, within: Any = None) -> list[EnqueuedJob]:
        """List the jobs that were enqueued in this test, in any state, oldest first.

        `within` is a connection or session with an open transaction, whose database is searched instead.
        """
        operation = jobs_since(self._since(within))
        found = self.app.store.run(operation) if within is None else run_in(within, operation, clock=self.clock)
        return self._of(task, found)

    async def enqueued_async(self, task: Task[..., Any] | None = None, *, within: Any = None) -> list[EnqueuedJob]:
        """List jobs like `enqueued`; `within` is an async connection or session."""
        operation = jobs_since(self._since(within))
        if within is None:
            return self._of(task, await self.app.async_store.run(operation))
        return self._of(task, await run_in_async(within, operation, clock=self.clock))

    def assert_enqueued(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, count: int | None = None, **kwargs: Any
    ) -> list[EnqueuedJob]:
        """Fail unless the task was enqueued with these arguments, `count` times if given; returns those jobs.

        Arguments that are left out match anything. Pass the task's own parameters named `within` or `count` by
        position, or inspect `enqueued(task)`.
        """
        __tracebackhide__ = True
        return Expectation(task, args, kwargs, count).check(self.enqueued(within=within))

    async def assert_enqueued_async(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, count: int | None = None, **kwargs: Any
    ) -> list[EnqueuedJob]:
        """Check like `assert_enqueued`; `within` is an async connection or session."""
        __tracebackhide__ = True
        return Expectation(task, args, kwargs, count).check(await self.enqueued_async(within=within))

    def assert_not_enqueued(self, task: Task[..., Any], /, *args: Any, within: Any = None, **kwargs: Any) -> None:
        """Fail if the task was enqueued with these arguments."""
        __tracebackhide__ = True
        Expectation(task, args, kwargs, 0).check(self.enqueued(within=within))

    async def assert_not_enqueued_async(
        self, task: Task[..., Any], /, *args: Any, within: Any = None, **kwargs: Any
    ) -> None:
        """Check like `assert_not_enqueued`; `within` is an async connection or session."""
        __tracebackhide__ = True
        Expectation(task, args, kwargs, 0).check(await self.enqueued_async(within=within))

    def _since(self, within: Any) -> str:
        """Return an id that excludes jobs from before the test, because ids grow with time."""
        return "" if within is None and self.app.store.database.is_memory else self._began

    def _of(self, task: Task[..., Any] | None, found: list[JobRow]) -> list[EnqueuedJob]:
        return [EnqueuedJob.of(job, self.app.registry) for job in found if task is None or job.task_name == task.name]


class Inline(Manual):
    """The jobs of one test, run when they are enqueued; `drain()` runs jobs that were snoozed or failed."""


class PromptClient(Client):
    """Returns results without waiting, because nothing else runs jobs during a test."""

    def _ended(self, job_id: str, timeout: timedelta | float | None) -> JobRow:  # noqa: ARG002 - in no time
        return _checked(self._run(get(job_id)))

    async def _ended_async(self, job_id: str, timeout: timedelta | float | None) -> JobRow:  # noqa: ARG002
        return _checked(await self._run_async(get(job_id)))


def _checked(job: JobRow) -> JobRow:
    if job.state not in FINAL:
        raise WaitTimeout(
            f"job {job.id} of {job.task_name} is {job.state}: in this test, it runs when you call drain()."
        )
    return job
