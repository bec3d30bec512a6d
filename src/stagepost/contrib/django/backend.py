"""The backend of Django's tasks that stores them as jobs.

TASKS = {"default": {"BACKEND": "stagepost.contrib.django.backend.StagepostBackend"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.core import checks
from django.utils import timezone
from django.utils.module_loading import import_string

from stagepost.client.records import Job
from stagepost.client.tasks import AppTask
from stagepost.contrib.django import app
from stagepost.contrib.django.task_api import (
    BaseTaskBackend,
    DjangoTask,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from stagepost.contrib.django.task_attempts import register
from stagepost.contrib.django.task_results import new_result, stored_result
from stagepost.errors import ConfigurationError, JobNotFound
from stagepost.model.retry import RetryPolicy

__all__ = ["StagepostBackend"]

OPTIONS = ("retry", "timeout", "pool", "limits", "rate_limit", "max_running")
"""Options of Stagepost's tasks that a backend can set for all its tasks."""


class StagepostBackend(BaseTaskBackend):
    """Stores tasks in the project's Stagepost database; `manage.py stagepost worker` runs them.

    Inside `transaction.atomic`, a task is enqueued if the transaction commits. A task that fails is not tried again,
    unless `OPTIONS` has a `retry` policy.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in OPTIONS:
                raise ConfigurationError(
                    f"TASKS[{alias!r}]: option {name!r} does not exist. Valid OPTIONS are: {', '.join(OPTIONS)}."
                )
        self._task_options = {"retry": RetryPolicy(max_attempts=1), **self.options}
        app.registry.more_queues.update(self.queues)

    def validate_task(self, task: DjangoTask) -> None:
        """Check a task when it is declared or changed, and make it known to workers."""
        super().validate_task(task)
        register(task, self._task_options)

    def enqueue(self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store a job, in the caller's transaction if there is one."""
        self.validate_task(task)
        arguments: dict[str, Any] = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        if self.alias != "default":
            arguments["backend"] = self.alias
        due = _aware(task.run_after)
        if due is not None:
            arguments["run_after"] = due
        registered = app.registry.get(task.module_path)
        assert isinstance(registered, AppTask)  # noqa: S101 - `register` makes no other
        request = registered.using(
            queue=task.queue_name,
            priority=int(task.priority),
            at=due,
            max_attempts=self._task_options["retry"].max_attempts,
        )
        job = request.enqueue(**arguments)
        result = new_result(task, job.id, arguments, backend=self.alias)
        # The job is stored: an error of a receiver must not look as if it were not.
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Read a job as the result of a task."""
        try:
            job = app.client.job(result_id)
            failures = app.client.failures(result_id) if job.failures or job.crashes else []
        except JobNotFound as error:
            raise TaskResultDoesNotExist(result_id) from error
        return stored_result(self._task_of(job), job, failures)

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        """Report that the app is not installed."""
        if not apps.is_installed("stagepost.contrib.django"):
            yield checks.Error(
                f"TASKS[{self.alias!r}] uses Stagepost, which is not in INSTALLED_APPS.",
                hint="Add 'stagepost.contrib.django' to INSTALLED_APPS and run `manage.py migrate`.",
                id="stagepost.E001",
            )

    def _task_of(self, job: Job) -> DjangoTask:
        """Find the task that a job runs; a job of a task of Stagepost's own is not a result of a Django task."""
        try:
            task = import_string(job.task)
        except ImportError as error:
            raise TaskResultDoesNotExist(job.id) from error
        if not isinstance(task, self.task_class):
            raise TaskResultDoesNotExist(job.id)
        return task


def _aware(time: datetime | None) -> datetime | None:
    return timezone.make_aware(time) if time is not None and timezone.is_naive(time) else time
