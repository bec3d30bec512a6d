"""Attempts of Django's tasks: the handlers that workers call, one for each task."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async

from stagepost.client.context import JobContext
from stagepost.contrib.django import app
from stagepost.contrib.django.task_api import (
    DjangoTask,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from stagepost.contrib.django.task_results import error_of, new_result, now, workers_of
from stagepost.errors import UnknownTask
from stagepost.model.retry import RetryPolicy

__all__ = ["register"]


def register(task: DjangoTask, options: Mapping[str, Any]) -> None:
    """Register a Django task under the path of its function, once."""
    with contextlib.suppress(UnknownTask):
        app.registry.get(task.module_path)
        return
    handler = _async_handler if iscoroutinefunction(task.func) else _handler
    declare = app.task(name=task.module_path, queue=task.queue_name, priority=int(task.priority), **options)
    declare(handler(task, options["retry"]))


def _handler(task: DjangoTask, retry: RetryPolicy) -> Any:
    def run(
        job: JobContext,
        args: list[Any],
        kwargs: dict[str, Any],
        backend: str = "default",
        run_after: datetime | None = None,
    ) -> Any:
        attempt = Attempt(task.using(backend=backend, run_after=run_after), job, args, kwargs)
        attempt.begin()
        try:
            value = normalize_json(task.func(*attempt.positional, **kwargs))
        except BaseException as error:
            attempt.fail(error, retry)
            raise
        attempt.succeed(value)
        return value

    return run


def _async_handler(task: DjangoTask, retry: RetryPolicy) -> Any:
    async def run(
        job: JobContext,
        args: list[Any],
        kwargs: dict[str, Any],
        backend: str = "default",
        run_after: datetime | None = None,
    ) -> Any:
        attempt = Attempt(task.using(backend=backend, run_after=run_after), job, args, kwargs)
        await sync_to_async(attempt.begin)()
        try:
            value = normalize_json(await task.func(*attempt.positional, **kwargs))
        except BaseException as error:
            await sync_to_async(attempt.fail)(error, retry)
            raise
        await sync_to_async(attempt.succeed)(value)
        return value

    return run


class Attempt:
    """One attempt, as the task and the receivers of signals see it. An error of a receiver does not fail the task."""

    def __init__(self, task: DjangoTask, job: JobContext, args: list[Any], kwargs: dict[str, Any]) -> None:
        called = task.using(priority=job.priority, queue_name=job.queue)
        self.result: TaskResult = new_result(called, job.id, {"args": args, "kwargs": kwargs}, backend=task.backend)
        self._job = job
        self._sender = type(called.get_backend())

    @property
    def positional(self) -> list[Any]:
        """The positional arguments of the task's function."""
        context = [TaskContext(task_result=self.result)] if self.result.task.takes_context else []
        return [*context, *self.result.args]

    def begin(self) -> None:
        """Note and announce that the task runs."""
        job = self._job
        failures = app.client.failures(job.id) if job.failures or job.crashes else []
        started_at = now()
        self._change(
            status=TaskResultStatus.RUNNING,
            started_at=started_at,
            last_attempted_at=started_at,
            errors=[error_of(failure) for failure in failures],
            worker_ids=workers_of(failures, {job.attempt: job.worker}),
        )
        task_started.send_robust(self._sender, task_result=self.result)

    def succeed(self, value: Any) -> None:
        """Note and announce the value that the task returned."""
        self._change(status=TaskResultStatus.SUCCESSFUL, finished_at=now(), _return_value=value)
        task_finished.send_robust(self._sender, task_result=self.result)

    def fail(self, error: BaseException, retry: RetryPolicy) -> None:
        """Note an exception, and announce the end of the task unless it is tried again."""
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        trace = "".join(traceback.format_exception(error))
        self.result.errors.append(TaskError(exception_class_path=path, traceback=trace))
        if self._job.failures + 1 < self._job.max_attempts and retry.is_retryable(error):
            self._change(status=TaskResultStatus.READY)
            return
        self._change(status=TaskResultStatus.FAILED, finished_at=now())
        task_finished.send_robust(self._sender, task_result=self.result)

    def _change(self, **changes: Any) -> None:
        for name, value in changes.items():
            object.__setattr__(self.result, name, value)
