"""Lists the jobs that a test enqueued, and checks them against expectations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagepost.client.records import Job
from stagepost.database.statement import Statements, query
from stagepost.errors import PayloadError, UnknownTask
from stagepost.model.job import JobRow
from stagepost.model.lifecycle import JobState
from stagepost.model.payload import decode_plainly
from stagepost.store.listing import list_jobs
from stagepost.task import Registry, Task

__all__ = ["EnqueuedJob", "Expectation", "jobs_since"]

PAGE = 500
SHOWN = 20


@query
def jobs_since(since: str) -> Statements[list[JobRow]]:
    """List jobs with larger ids than `since`, live and ended, oldest first."""
    found: list[JobRow] = []
    before: str | None = None
    while True:
        page = yield from list_jobs(before=before, most=PAGE)
        found += [job for job in page if job.id > since]
        if len(page) < PAGE or page[-1].id <= since:
            return found[::-1]
        before = page[-1].id


@dataclass(frozen=True)
class EnqueuedJob:
    """A job that the test enqueued."""

    job: Job
    """The job, as it was when it was read."""
    arguments: Mapping[str, Any]
    """Arguments by name, as the task gets them, with defaults; plain JSON if the task is not known here."""

    @classmethod
    def of(cls, job: JobRow, registry: Registry) -> EnqueuedJob:
        """Create this from a stored job by decoding its arguments."""
        try:
            args, kwargs = registry.get(job.task_name).signature.decode(job.payload)
            bound = _signature(registry.get(job.task_name)).bind(*args, **kwargs)
        except (UnknownTask, PayloadError):
            return cls(Job(job), decode_plainly(job.payload))
        bound.apply_defaults()
        return cls(Job(job), bound.arguments)

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def state(self) -> JobState:
        """The job's state when it was read."""
        return self.job.state

    def __str__(self) -> str:
        return f"{self.job.task}({_shown(self.arguments)}) in queue {self.job.queue!r}, {self.job.state}"


class Expectation:
    """The jobs that a test expects; a count of None means one or more."""

    def __init__(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int | None
    ) -> None:
        self._task = task
        self._count = count
        self._arguments = _signature(task).bind_partial(*args, **kwargs).arguments

    def check(self, enqueued: list[EnqueuedJob]) -> list[EnqueuedJob]:
        """Return the matching jobs, or raise AssertionError that lists all enqueued jobs."""
        __tracebackhide__ = True
        matching = [job for job in enqueued if self._matches(job)]
        if bool(matching) if self._count is None else len(matching) == self._count:
            return matching
        expected = "at least 1" if self._count is None else str(self._count)
        lines = [f"  {job}" for job in enqueued[-SHOWN:]] or ["  nothing"]
        if len(enqueued) > SHOWN:
            lines.insert(0, f"  … and {len(enqueued) - SHOWN} before these")
        raise AssertionError(
            f"{len(matching)} jobs of {self._task.name}({_shown(self._arguments)}) were enqueued, "
            f"but {expected} expected. All enqueued jobs:\n" + "\n".join(lines)
        )

    def _matches(self, enqueued: EnqueuedJob) -> bool:
        if enqueued.job.task != self._task.name:
            return False
        given = enqueued.arguments
        return all(name in given and given[name] == value for name, value in self._arguments.items())


def _signature(task: Task[..., Any]) -> inspect.Signature:
    signature = inspect.signature(task.function)
    parameters = list(signature.parameters.values())
    return signature.replace(parameters=parameters[1:] if task.wants_context else parameters)


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
