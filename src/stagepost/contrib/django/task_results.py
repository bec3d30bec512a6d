"""Jobs as Django's task results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from stagepost.client.records import Job
from stagepost.contrib.django.task_api import DjangoTask, TaskError, TaskResult, TaskResultStatus
from stagepost.model.job import FailureRecord
from stagepost.model.lifecycle import FINAL, JobState

__all__ = ["error_of", "new_result", "now", "stored_result", "workers_of"]

RUNNING = frozenset({JobState.RUNNING, JobState.WAITING})
SUCCESSFUL = frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.WAIVED})
WITHOUT_EXCEPTION = "stagepost.errors.JobFailed"
"""The class that is shown for an attempt which ended without raising anything, because its worker died."""


def new_result(task: DjangoTask, job_id: str, arguments: Mapping[str, Any], *, backend: str) -> TaskResult:
    """Build the result of a job that has just been stored, or is about to run for the first time."""
    return TaskResult(
        task=task,
        id=job_id,
        status=TaskResultStatus.READY,
        enqueued_at=_enqueued_at(job_id),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=arguments["args"],
        kwargs=arguments["kwargs"],
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def stored_result(task: DjangoTask, job: Job, failures: Sequence[FailureRecord]) -> TaskResult:
    """Build the result of a job as it was read; `started_at` is when its latest attempt started."""
    arguments = job.arguments
    due = arguments.get("run_after")
    backend = arguments.get("backend", "default")
    called = task.using(
        priority=job.priority,
        queue_name=job.queue,
        run_after=None if due is None else _in_django(datetime.fromisoformat(due)),
        backend=backend,
    )
    result = new_result(called, job.id, arguments, backend=backend)
    started_at = None if job.started_at is None else _in_django(job.started_at)
    known = [failure for failure in failures if failure.attempt <= job.attempt]
    has_run = started_at is not None and (job.state in RUNNING or job.state in FINAL)
    changes = {
        "status": _status(job.state),
        "started_at": started_at,
        "last_attempted_at": started_at,
        "finished_at": None if job.finished_at is None else _in_django(job.finished_at),
        "errors": [error_of(failure) for failure in known],
        "worker_ids": workers_of(known, {job.attempt: job.worker} if has_run else {}),
        "_return_value": job.result,
    }
    for name, value in changes.items():
        object.__setattr__(result, name, value)
    return result


def workers_of(failures: Iterable[FailureRecord], others: Mapping[int, str | None]) -> list[str]:
    """List the workers of all attempts in order, one entry for each attempt."""
    workers = {**others, **{failure.attempt: failure.worker for failure in failures}}
    return [workers[attempt] or "" for attempt in sorted(workers)]


def error_of(failure: FailureRecord) -> TaskError:
    """Build the error of one attempt."""
    trace = failure.traceback
    if trace is None:
        return TaskError(exception_class_path=WITHOUT_EXCEPTION, traceback=failure.error)
    return TaskError(exception_class_path=_class_path(failure.error, trace), traceback=trace)


def now() -> datetime:
    """Return the time in the form that the project uses."""
    time: datetime = timezone.now()
    return time


def _class_path(error: str, trace: str) -> str:
    """Find the error's class with its module in the last lines of the traceback, as Python prints it there."""
    name = error.partition(":")[0]
    found = re.findall(rf"^[ |]*((?:\w+\.)*){re.escape(name)}(?::|$)", trace, flags=re.MULTILINE)
    return f"{found[-1] or 'builtins.'}{name}" if found else WITHOUT_EXCEPTION


def _status(state: JobState) -> TaskResultStatus:
    if state in RUNNING:
        return TaskResultStatus.RUNNING
    if state in SUCCESSFUL:
        return TaskResultStatus.SUCCESSFUL
    return TaskResultStatus.FAILED if state in FINAL else TaskResultStatus.READY


def _enqueued_at(job_id: str) -> datetime:
    """Read the time at which an id was made, so that it is known without another query and never differs."""
    milliseconds = int(job_id.replace("-", "")[:12], 16)
    return _in_django(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _in_django(time: datetime) -> datetime:
    """Convert a time to the form that the project uses: aware, or naive in the project's time zone."""
    converted: datetime = time if settings.USE_TZ else timezone.make_naive(time)
    return converted
