"""Every error Stagepost raises.

StagepostError
├── ConfigurationError      settings, URLs and options that cannot work
├── TaskError               a task that is registered wrongly or not at all
│   └── UnknownTask
├── PayloadError            arguments or results that cannot be stored as JSON
│   └── PayloadTooLarge
├── StoreError              the database
│   ├── StoreUnavailable    it cannot be reached, or did not answer in time
│   ├── SchemaError         its tables are missing, older or newer than this code
│   └── NoTransaction       the connection handed over has no transaction open
├── JobError                one job
│   ├── JobNotFound
│   ├── LeaseLost           another attempt took over
│   ├── IllegalTransition   the job's state does not allow it
│   ├── UniqueKeyTaken
│   └── JobFailed           waited for a result, the job ended without one
├── ScheduleNotFound
├── WaitTimeout             waited for something, it did not come in time
├── Retryable               raise it in a handler: try again later
├── Permanent               raise it in a handler: never try again
├── Snooze                  raise it in a handler: run again later, not counted as a failure
└── Cancelled               raise it in a handler: end the job as cancelled
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "Cancelled",
    "ConfigurationError",
    "IllegalTransition",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "NoTransaction",
    "PayloadError",
    "PayloadTooLarge",
    "Permanent",
    "Retryable",
    "ScheduleNotFound",
    "SchemaError",
    "Snooze",
    "StagepostError",
    "StoreError",
    "StoreUnavailable",
    "TaskError",
    "UniqueKeyTaken",
    "UnknownTask",
    "WaitTimeout",
]


class StagepostError(Exception):
    """The base of all of them."""


class ConfigurationError(StagepostError):
    """A setting, URL or option cannot work; the message names it and what would."""


class TaskError(StagepostError):
    """A task is registered wrongly."""


class UnknownTask(TaskError):
    """No task of this name is registered in this process."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"task {name!r} is not registered in this process. Import the module that defines it "
            f"before the worker starts, or run a worker that knows it."
        )
        self.name = name


class PayloadError(StagepostError):
    """Arguments or a result cannot be stored as JSON, or do not fit the task's signature."""


class PayloadTooLarge(PayloadError):
    """The encoded value is over the limit."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size:,} bytes of JSON, the limit is {limit:,}. "
            f"Store large values elsewhere and pass a key, or raise `max_payload_bytes`."
        )
        self.size, self.limit = size, limit


class StoreError(StagepostError):
    """The database refused or failed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or did not answer in time."""


class SchemaError(StoreError):
    """Stagepost's tables are missing, or of another version than this code."""


class NoTransaction(StoreError):
    """The connection handed over commits every statement by itself."""

    def __init__(self, connection: object) -> None:
        super().__init__(
            f"{type(connection).__module__}.{type(connection).__qualname__} has no transaction open, "
            f"so each statement would commit on its own. Begin a transaction first, or leave out `tx`."
        )


class JobError(StagepostError):
    """Something about one job."""


class JobNotFound(JobError):
    """Neither live nor in history."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id}: there is no such job; its history may have been pruned. "
            f"`stagepost jobs list` shows those that exist."
        )
        self.job_id = job_id


class LeaseLost(JobError):
    """Another attempt took over while this one was running."""

    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(
            f"job {job_id}: attempt {attempt} lost its lease; its result was not saved. "
            f"If jobs of this kind run long without yielding, raise `lease`."
        )
        self.job_id, self.attempt = job_id, attempt


class IllegalTransition(JobError):
    """The job's state does not allow this."""

    def __init__(self, job_id: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job_id} is {state}: it cannot {wanted} from there.")
        self.job_id, self.state, self.wanted = job_id, state, wanted


class UniqueKeyTaken(JobError):
    """Another live job holds the unique key."""

    def __init__(self, unique_key: str, holder: str) -> None:
        super().__init__(
            f"unique key {unique_key!r} is held by live job {holder}. Wait for that job, or cancel it first."
        )
        self.unique_key, self.holder = unique_key, holder


class JobFailed(JobError):
    """A job that was waited for ended without a result."""

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        reason = f": {error}" if error else ""
        super().__init__(f"job {job_id} ended {state}{reason}")
        self.job_id, self.state, self.error = job_id, state, error


class ScheduleNotFound(StagepostError):
    """No schedule of this name is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"schedule {name!r}: there is no such schedule. It is stored when a worker starts whose code declares it."
        )
        self.name = name


class WaitTimeout(StagepostError):
    """What was waited for did not come in time; the work itself goes on."""


class Retryable(StagepostError):
    """Raised by a handler: this attempt failed, try again; `after` overrides the retry policy's delay."""

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = timedelta(seconds=after) if isinstance(after, int | float) else after


class Permanent(StagepostError):
    """Raised by a handler: no later attempt can succeed."""


class Snooze(StagepostError):
    """Raised by a handler: not now, run again after `delay`; counts as no failure."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        super().__init__(f"snoozed for {self.delay}")


class Cancelled(StagepostError):
    """Raised by a handler: end the job as cancelled."""
