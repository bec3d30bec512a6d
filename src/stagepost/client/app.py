"""The app: tasks, schedules and the database that stores their jobs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload
from zoneinfo import ZoneInfo

import msgspec

from stagepost.client.batches import BatchHandle
from stagepost.client.client import Client
from stagepost.client.context import JobContext
from stagepost.client.functions import check_function, wants_context
from stagepost.client.gates import Gate
from stagepost.client.handle import JobHandle
from stagepost.client.hooks import AroundHook, FailureHook, WorkerHook
from stagepost.client.limiter import RateLimiter
from stagepost.client.operating import OperatedApp
from stagepost.client.pipelines import Pipeline
from stagepost.client.tasks import AppTask, AsyncAppTask
from stagepost.client.transaction import Transaction
from stagepost.config import Settings
from stagepost.database.connection import database_at
from stagepost.database.migrate import migrate
from stagepost.errors import ConfigurationError, PipelineError, StagepostError, TaskError, duration_of, shown
from stagepost.model.alert import ALERT_QUEUE, LARGEST
from stagepost.model.batch import OnFailed
from stagepost.model.checks import check_name
from stagepost.model.job import Enqueued, NewJob
from stagepost.model.option_types import check_type
from stagepost.model.options import TaskKeywords, TaskOptions, task_options
from stagepost.model.other_libraries import APP_WORDS, missing_attribute
from stagepost.model.rate import RateLimit
from stagepost.model.schedule import CatchUp, parse_rule
from stagepost.task import ScheduleSpec, check_job, check_jobs, default_name, is_interactive

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")

OPENED = ("client", "waker", "async_store", "async_transactions", "users_store", "store")
"""Attributes that an app creates on first use, in the order in which `close` releases them."""


class App(OperatedApp):
    """Tasks, schedules and their store. Use one per application; it can be shared between threads."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        transport: str | None = None,
        settings: Settings | None = None,
        auto_migrate: bool | None = None,
    ) -> None:
        for name, value, hint in (
            ("database_url", database_url, str | None),
            ("transport", transport, str | None),
            ("settings", settings, Settings | None),
            ("auto_migrate", auto_migrate, bool | None),
        ):
            check_type(f"App: {name}", value, hint)
        settings = Settings.load() if settings is None else settings
        given = {"database_url": database_url, "transport": transport}
        changes = {name: value for name, value in given.items() if value is not None}
        super().__init__(msgspec.structs.replace(settings, **changes), auto_migrate=auto_migrate)
        database_at(self.settings.database_url, folder=self.folder)  # a URL that cannot work is refused here

    def migrate(self) -> None:
        """Create or update Stagepost's tables, like `stagepost migrate`; safe to call at every start."""
        migrate(self.store)

    async def migrate_async(self) -> None:
        """Create or update Stagepost's tables without blocking the event loop."""
        await asyncio.to_thread(self.migrate)

    @cached_property
    def client(self) -> Client:
        """Enqueues and manages jobs."""
        return Client(self.store, self.registry, async_store=self.async_store, waker=self.waker)

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /) -> AsyncAppTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncAppTask[P, R]: ...

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> AppTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> AppTask[P, R]: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **options: Unpack[TaskKeywords]
    ) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Register a function with the options of `TaskOptions`; the default name is its module and function name."""
        decorator = TaskDecorator(self, name, task_options(options))
        return decorator if function is None else decorator(function)

    @overload
    def on_alert(self, function: Callable[Concatenate[JobContext, P], R], /) -> AppTask[P, R]: ...

    @overload
    def on_alert(self, function: Callable[P, R], /) -> AppTask[P, R]: ...

    @overload
    def on_alert(
        self, function: None = None, /, *, name: str | None = None, **options: Unpack[TaskKeywords]
    ) -> TaskDecorator: ...

    def on_alert(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
    ) -> Any:
        """Register the task that is called with every `Alert`; takes the options of `task`, except `queue`.

        Its job is enqueued in the same transaction as the event it reports, in a queue that no broker carries.
        """
        if options.get("queue", ALERT_QUEUE) != ALERT_QUEUE:
            raise ConfigurationError(f"alerts go to queue {ALERT_QUEUE}, which no broker carries. Leave `queue` out.")
        made = task_options({**options, "queue": ALERT_QUEUE})
        decorator = TaskDecorator(self, name, made, on_made=self._tell_of_alerts)
        return decorator if function is None else decorator(function)

    def _tell_of_alerts(self, task: AppTask[..., Any]) -> None:
        if self.alert_task is not None and self.alert_task.name != task.name:
            raise ConfigurationError(
                f"tasks {self.alert_task.name} and {task.name} are both registered with `on_alert`. "
                f"Let one call the other."
            )
        try:
            task.job(LARGEST)
        except StagepostError as error:
            raise TaskError(
                f"task {task.name} is registered with `on_alert`: it must take one argument, a stagepost.Alert. {error}"
            ) from error
        self.alert_task = task

    def around_attempt(self, hook: AroundHook, /) -> AroundHook:
        """Register a generator function that wraps every attempt: it takes the job and yields once.

        It runs where the handler runs: in its thread, its asyncio task or its process. The handler's error is raised
        at the `yield`; the hook may raise another error instead, but cannot hide it. The first hook is the outermost.
        An async generator function wraps only handlers that are `async def`.
        """
        self.hooks.add_around(hook)
        return hook

    def on_failure(self, hook: FailureHook, /) -> FailureHook:
        """Register a function that is called with the job and the error after every attempt that fails."""
        self.hooks.add_failure(hook)
        return hook

    def on_worker_start(self, hook: WorkerHook, /) -> WorkerHook:
        """Register a function that every worker calls before it looks for jobs; if it raises, the worker fails."""
        self.hooks.add_worker_start(hook)
        return hook

    def on_worker_stop(self, hook: WorkerHook, /) -> WorkerHook:
        """Register a function that every worker calls after its last job; the last one registered is called first."""
        self.hooks.add_worker_stop(hook)
        return hook

    def schedule(
        self,
        name: str,
        rule: str | timedelta | float,
        job: NewJob,
        *,
        time_zone: str | ZoneInfo = "UTC",
        catch_up: CatchUp | Literal["skip", "latest", "all"] = "latest",
    ) -> None:
        """Enqueue `job` (from `task.job(...)`) whenever `rule` is due: a cron rule, "every 15m", or an interval.

        An interval is a timedelta or a number of seconds.
        """
        check_name("schedule", name)
        check_job(f"schedule {name!r}: the job", job)
        check_type(f"schedule {name!r}: time_zone", time_zone, str | ZoneInfo)
        check_type(f"schedule {name!r}: catch_up", catch_up, CatchUp | Literal["skip", "latest", "all"])
        interval = rule if isinstance(rule, str) else duration_of(rule, f"schedule {name!r}: the rule")
        zone = time_zone if isinstance(time_zone, str) else time_zone.key
        text = parse_rule(interval, zone).text
        declared = ScheduleSpec(name, text, zone, CatchUp(catch_up), job)
        if name in self.declared_schedules and not (
            self.declared_schedules[name].is_same(declared) or is_interactive()
        ):
            raise ConfigurationError(
                f"schedule {name!r} is declared twice, with another job, rule, time zone or catch_up. "
                f"Give one of them another name."
            )
        self.declared_schedules[name] = declared

    def pipeline(self, name: str, *, on_complete: AppTask[..., Any] | None = None) -> Pipeline:
        """Declare a pipeline; the task `on_complete` is enqueued once at the end of every run."""
        frame = inspect.currentframe()
        caller = frame and frame.f_back  # its line tells a second declaration from a module that is loaded twice
        place = f"{caller.f_code.co_filename}, line {caller.f_lineno}" if caller else ""
        pipeline = Pipeline(self, name, on_complete=on_complete)
        first = self.declared_pipelines.setdefault(name, place)
        if first != place and not is_interactive():
            raise PipelineError(
                f"pipeline {name!r} is declared twice: in {first}, and in {place}. Give one of them another name."
            )
        return pipeline

    def batch(
        self,
        key: str,
        *,
        gate: str | Gate | None = None,
        on_failed: OnFailed | Literal["finish", "hold"] = "finish",
        on_complete: NewJob | None = None,
    ) -> BatchHandle:
        """Get a handle to the batch with this key. Nothing is stored until items are added.

        The `gate` is closed while the batch is unfinished. With `on_failed="finish"` the batch ends with errors if
        items failed; with `"hold"` it waits until they are retried or waived. The job `on_complete`, from
        `task.job(...)`, is enqueued once when the batch is done.
        """
        check_type(f"batch {shown(key)}: on_failed", on_failed, OnFailed | Literal["finish", "hold"])
        if on_complete is not None:
            check_job(f"batch {shown(key)}: on_complete", on_complete)
        check_type(f"batch {shown(key)}: gate", gate, str | Gate | None)
        named = Gate(self, gate) if isinstance(gate, str) else gate
        return BatchHandle(self, key, gate=named, on_failed=on_failed, on_complete=on_complete)

    def job(self, job_id: str) -> JobHandle[Any]:
        """Get a handle to the job with this id. The database is not asked until the handle is used."""
        return JobHandle(Enqueued(job_id, is_new=False), self)

    def gate(self, name: str, *, on_open: NewJob | None = None) -> Gate:
        """Get a handle to a gate, which is open while all its batches are done; each opening enqueues `on_open`."""
        if on_open is not None:
            check_job(f"gate {shown(name)}: on_open", on_open)
        return Gate(self, name, on_open=on_open)

    def rate_limiter(self, limit: RateLimit, *, shared: bool = True) -> RateLimiter:
        """Create a limiter for calls to a provider inside handlers; if `shared`, all processes share one limit."""
        check_type("rate_limiter: shared", shared, bool)
        if shared:
            return RateLimiter(limit, store=self.store, async_store=self.async_store)
        return RateLimiter(limit)

    def enqueue_many(self, jobs: Sequence[NewJob], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Enqueue many jobs from `task.job(...)` in one transaction."""
        check_jobs("enqueue_many", jobs)
        return [JobHandle(enqueued, self) for enqueued in self.client.enqueue_many(jobs, tx=tx)]

    async def enqueue_many_async(self, jobs: Sequence[NewJob], *, tx: Any = None) -> list[JobHandle[Any]]:
        """Enqueue many jobs without blocking the event loop."""
        check_jobs("enqueue_many", jobs)
        return [JobHandle(enqueued, self) for enqueued in await self.client.enqueue_many_async(jobs, tx=tx)]

    def transaction(self, *, read_only: bool = False) -> Transaction:
        """Provide a driver connection to the app's database, in a transaction that commits if the block returns.

        `with` gives a blocking connection (sqlite3, psycopg, PyMySQL), `async with` an asynchronous one (aiosqlite,
        psycopg, asyncmy). On SQLite, which allows only one writer, a `read_only` transaction does not take the write
        lock.
        """
        check_type("transaction: read_only", read_only, bool)
        return Transaction(self, read_only=read_only)

    if not TYPE_CHECKING:  # otherwise every misspelt attribute would pass type checks

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, APP_WORDS)

    def close(self) -> None:
        """Close every connection; the app opens new ones if it is used again."""
        for name in OPENED:
            opened = self.__dict__.pop(name, None)
            if hasattr(opened, "close"):
                opened.close()

    async def close_async(self) -> None:
        """Close every connection without blocking the event loop."""
        if opened := self.__dict__.get("async_transactions"):
            await opened.close_async()
        await asyncio.to_thread(self.close)


class TaskDecorator:
    """Registers functions with one set of options."""

    def __init__(
        self,
        app: App,
        name: str | None,
        options: TaskOptions,
        *,
        on_made: Callable[[AppTask[..., Any]], None] = lambda _task: None,
    ) -> None:
        """`on_made` is called with each task before it is registered, and may raise to reject it."""
        self._app, self._name, self._options, self._on_made = app, name, options, on_made

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncAppTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncAppTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> AppTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> AppTask[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> AppTask[..., Any]:
        check_function(function, name=self._name)
        kind = AsyncAppTask if inspect.iscoroutinefunction(function) else AppTask
        task: AppTask[..., Any] = kind(
            self._app,
            function,
            name=self._name or default_name(function),
            options=self._options,
            wants_context=wants_context(function),
        )
        self._on_made(task)
        self._app.registry.add(task)
        return task
