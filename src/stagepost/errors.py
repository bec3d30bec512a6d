"""Every error Stagepost raises.

StagepostError
├── ConfigurationError      settings, URLs and options that cannot work
├── TaskError               a task that is registered wrongly or not at all
│   └── UnknownTask
├── PayloadError            arguments or results that cannot be stored as JSON
│   ├── PayloadTooLarge
│   └── ValueTooLarge       the database server takes no statement as long as it would need
├── StoreError              the database
│   ├── StoreUnavailable    it cannot be reached, or did not answer in time
│   ├── SchemaError         its tables are missing, older or newer than this code
│   └── NoTransaction       the connection handed over has no transaction open
├── JobError                one job
│   ├── JobNotFound
│   ├── LeaseLost           another attempt took over
│   ├── IllegalTransition   the job's state does not allow it
│   ├── UniqueKeyTaken
│   ├── JobFailed           waited for a result, the job ended without one
│   ├── JobDiffers          another job under the same chosen id
│   └── ChildDiffers        another attempt submitted another child under the same number
├── PipelineError           a pipeline that is declared wrongly, or input that does not fit it
├── RunError                one run of a pipeline
│   └── RunNotFound
├── BatchError              a batch
│   ├── BatchNotFound
│   ├── BatchClosed         it takes no more items
│   └── SourceMismatch      the source is not the one that a producer stopped in
├── GateClosed              batches under a gate are unfinished
├── TransportError          the broker
│   ├── BrokerUnavailable   it cannot be reached, or did not answer in time
│   └── TopologyConflict    it has a queue or exchange of that name that is made otherwise
├── BadMessage              a message that is not what its queue is for
├── ScheduleNotFound
├── WaitTimeout             waited for something, it did not come in time
├── Retryable               raise it in a handler: try again later
├── Permanent               raise it in a handler: never try again
├── Snooze                  raise it in a handler: run again later, not counted as a failure
└── Cancelled               raise it in a handler: end the job as cancelled
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

__all__ = [
    "BadMessage",
    "BatchClosed",
    "BatchError",
    "BatchNotFound",
    "BrokerUnavailable",
    "Cancelled",
    "ChildDiffers",
    "ConfigurationError",
    "GateClosed",
    "IllegalTransition",
    "JobDiffers",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "NoTransaction",
    "PayloadError",
    "PayloadTooLarge",
    "Permanent",
    "PipelineError",
    "Retryable",
    "RunError",
    "RunNotFound",
    "ScheduleNotFound",
    "SchemaError",
    "Snooze",
    "SourceMismatch",
    "StagepostError",
    "StoreError",
    "StoreUnavailable",
    "TaskError",
    "TopologyConflict",
    "TransportError",
    "UniqueKeyTaken",
    "UnknownTask",
    "ValueTooLarge",
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

    def __init__(self, what: str, size: int, limit: int, *, can_be_raised: bool = True) -> None:
        remedy = ", or raise `max_payload_bytes`" if can_be_raised else ""
        super().__init__(
            f"{what}: {size:,} bytes of JSON, the limit is {limit:,}. "
            f"Store large values elsewhere and pass a key{remedy}."
        )
        self.size, self.limit = size, limit


class ValueTooLarge(PayloadError):
    """The database server takes no statement as long as the one that this value needs."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the database would need a statement of {size:,} bytes for it; the server takes {limit:,}. Store large "
            f"values elsewhere and pass a key, or raise `max_allowed_packet` on the server."
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


class JobDiffers(JobError):
    """A job of the chosen id is there already, of another task or with other arguments."""

    def __init__(self, job_id: str, task_name: str, found_task: str) -> None:
        what = "with other arguments" if found_task == task_name else f"of task {found_task!r}, not {task_name!r}"
        super().__init__(
            f"job {job_id} is there already, {what}. Choose another id for another job. The same id is for asking "
            f"again for the same task with the same arguments."
        )
        self.job_id = job_id


class ChildDiffers(JobError):
    """An attempt submits another child than the one that an earlier attempt submitted in its place."""

    def __init__(self, job_id: str, number: str, task_name: str) -> None:
        super().__init__(
            f"job {job_id}: its child {number} is a job of {task_name!r} with other arguments, submitted by an earlier "
            f"attempt. Submit the same children in the same order every time, or give each a key: "
            f"`using(key=…).submit(…)`."
        )
        self.job_id, self.number = job_id, number


class BatchError(StagepostError):
    """Something about a batch."""


class BatchNotFound(BatchError):
    """No batch of this key or id is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(f"batch {name!r}: there is no such batch. It is stored when its first item is added.")
        self.name = name


class BatchClosed(BatchError):
    """The batch takes no more items."""

    def __init__(self, key: str, state: str) -> None:
        super().__init__(f"batch {key!r} is {state}: it takes no more items. Add them to a batch with another key.")
        self.key, self.state = key, state


class SourceMismatch(BatchError):
    """What is to be resumed is not the source that its producer stopped in."""

    def __init__(self, key: str, position: int, wanted: str | None, found: str | None) -> None:
        there = "the source ends before that" if found is None else f"here that one is {found!r}"
        super().__init__(
            f"batch {key!r}: its producer stopped after item {position:,} of its source, {wanted!r}; {there}. "
            f"Give `resume` the same source in the same order, or give it all to `add`, which leaves out what is in."
        )
        self.key, self.position, self.wanted, self.found = key, position, wanted, found


class GateClosed(StagepostError):
    """Batches under the gate are unfinished."""

    def __init__(self, name: str, unfinished: Mapping[str, str], *, more: int = 0) -> None:
        batches = [f"batch {key!r}: {counts}" for key, counts in unfinished.items()]
        batches += [f"{more:,} more batches" if unfinished else f"{more:,} unfinished batches"] if more else []
        super().__init__(
            f"gate {name!r} is closed: {'; '.join(batches)}. Wait until all is done, or waive what failed."
        )
        self.name, self.unfinished = name, dict(unfinished)


class PipelineError(StagepostError):
    """A pipeline is declared wrongly, or started with input that does not fit."""


class RunError(StagepostError):
    """Something about a run of a pipeline."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id}: {why}")
        self.run_id = run_id


class RunNotFound(RunError):
    """No run has this id or key."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "there is no such run. `stagepost runs list` shows those that exist.")


class TransportError(StagepostError):
    """The broker refused or failed."""


class BrokerUnavailable(TransportError):
    """The broker cannot be reached, or did not answer in time."""


class TopologyConflict(TransportError):
    """The broker has a queue or exchange of this name that was declared otherwise."""


class BadMessage(StagepostError):
    """A message is not what its queue is for; the message says why."""


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
        self.after = None if after is None else duration_of(after, "`after` of Retryable")


class Permanent(StagepostError):
    """Raised by a handler: no later attempt can succeed."""


class Snooze(StagepostError):
    """Raised by a handler: not now, run again after `delay`; counts as no failure."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = duration_of(delay, "the delay of Snooze")
        super().__init__(f"snoozed for {self.delay}")


class Cancelled(StagepostError):
    """Raised by a handler: end the job as cancelled."""


LONGEST_DURATION = timedelta(days=36_525)
"""A hundred years: with what is added to it, an instant still fits into every database's integers."""


def duration_of(value: timedelta | float, what: str) -> timedelta:
    """Read a duration given as seconds or as a timedelta; `what` names it if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise ConfigurationError(f"{what} is {value!r}: give seconds as a number, or a timedelta.")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= LONGEST_DURATION.total_seconds():
        raise ConfigurationError(f"{what} is {value}: it must be between 0 and 100 years.")
    return value if isinstance(value, timedelta) else timedelta(seconds=value)
