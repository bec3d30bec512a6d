"""Every error Stagepost raises.

StagepostError
├── ConfigurationError      settings, URLs and options that cannot work
├── TaskError               a task with an invalid declaration, or one that is not registered
│   └── UnknownTask
├── PayloadError            arguments or results that cannot be stored as JSON
│   ├── PayloadTooLarge
│   └── ValueTooLarge       storing it needs a longer statement than the database server accepts
├── StoreError              the database
│   ├── StoreUnavailable    it cannot be reached, or did not answer in time
│   │   └── StoreRefused    it answers, but refuses: wrong password, missing right, unknown database
│   │       └── StoreReadOnly   it is read-only
│   ├── SchemaError         its tables are missing, older or newer than this code
│   └── NoTransaction       the caller's connection has no open transaction
├── JobError                one job
│   ├── JobNotFound
│   ├── LeaseLost           another attempt has taken over the job
│   ├── IllegalTransition   the job's current state does not allow the operation
│   ├── UniqueKeyTaken
│   ├── JobFailed           the job you waited for ended without a result
│   ├── JobDiffers          a different job with the same chosen id exists
│   └── ChildDiffers        an earlier attempt submitted a different child at this position
├── PipelineError           an invalid pipeline declaration, or input that does not match it
├── RunError                one run of a pipeline
│   └── RunNotFound
├── BatchError              a batch
│   ├── BatchNotFound
│   ├── BatchClosed         it accepts no more items
│   └── SourceMismatch      the source is not the one that the producer was reading when it stopped
├── GateClosed              the gate has unfinished batches
├── GateNotFound
├── GroupNotFound           no dead letters have this reason any more
├── TransportError          the broker
│   ├── BrokerUnavailable   it cannot be reached, or did not answer in time
│   └── TopologyConflict    a queue or exchange exists there with different settings
├── BadMessage              a message that does not belong in its queue
├── ScheduleNotFound
├── EventsPruned            the events after the given number were deleted
├── NoSuchEvent             no event has the given number yet
├── WaitTimeout             what you waited for did not happen in time
├── Retryable               raise it in a handler: try again later
├── Permanent               raise it in a handler: never try again
├── Snooze                  raise it in a handler: run again later, without counting a failure
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
    "EventsPruned",
    "GateClosed",
    "GateNotFound",
    "GroupNotFound",
    "IllegalTransition",
    "JobDiffers",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "NoSuchEvent",
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
    "StoreReadOnly",
    "StoreRefused",
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
    """Base class of every error that Stagepost raises."""


class ConfigurationError(StagepostError):
    """A setting, URL or option is invalid; the message names it and says what would work."""


class TaskError(StagepostError):
    """A task's declaration or registration is invalid."""


class UnknownTask(TaskError):
    """No task with this name is registered in this process."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"task {name!r} is not registered in this process. Import the module that defines it "
            f"before the worker starts, or run a worker that knows it."
        )
        self.name = name


class PayloadError(StagepostError):
    """Arguments or a result cannot be stored as JSON, or do not match the task's signature."""


class PayloadTooLarge(PayloadError):
    """The encoded value exceeds its size limit."""

    def __init__(self, what: str, size: int, limit: int, *, can_be_raised: bool = True) -> None:
        remedy = ", or give the task `limits=PayloadLimits(max_bytes=…)`" if can_be_raised else ""
        super().__init__(
            f"{what}: {size:,} bytes of JSON; the limit is {limit:,}. "
            f"Store large values elsewhere and pass a key{remedy}."
        )
        self.size, self.limit = size, limit


class ValueTooLarge(PayloadError):
    """Storing the value needs a longer statement than the database server accepts."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the database would need a statement of {size:,} bytes for it; the server takes {limit:,}. Store large "
            f"values elsewhere and pass a key, or raise `max_allowed_packet` on the server."
        )
        self.size, self.limit = size, limit


class StoreError(StagepostError):
    """The database rejected a statement or failed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or did not answer in time."""


class StoreRefused(StoreUnavailable):
    """The database refuses to serve us, and a retry would fail again until somebody changes something there.

    The password is wrong, the user lacks a right, or the database or its host does not exist.
    """


class StoreReadOnly(StoreRefused):
    """The database is read-only: a replica, a server during a failover, or a file without the right to write."""


class SchemaError(StoreError):
    """Stagepost's tables are missing, or their version does not match this code."""


class NoTransaction(StoreError):
    """The connection passed in has no open transaction, so every statement would commit on its own."""

    def __init__(self, connection: object) -> None:
        super().__init__(
            f"{type(connection).__module__}.{type(connection).__qualname__} has no open transaction, "
            f"so each statement would commit on its own. Begin a transaction first, or leave out `tx`."
        )


class JobError(StagepostError):
    """Base class of errors about one job."""


class JobNotFound(JobError):
    """No job with this id is live or in history."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {shortened(job_id)}: there is no such job. The transaction that enqueued it is still open or was "
            f"rolled back, or its history was pruned. Run `stagepost jobs list` to see existing jobs."
        )
        self.job_id = job_id


class LeaseLost(JobError):
    """Another attempt took over the job while this one was running."""

    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(
            f"job {job_id}: attempt {attempt} lost its lease; its result was not saved. "
            f"If its handler blocks the event loop or the process for long, raise `lease_seconds`."
        )
        self.job_id, self.attempt = job_id, attempt


class IllegalTransition(JobError):
    """The job's current state does not allow this operation."""

    def __init__(self, job_id: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job_id} is {state}: it cannot {wanted} in that state.")
        self.job_id, self.state, self.wanted = job_id, state, wanted


class UniqueKeyTaken(JobError):
    """Another live job already holds the unique key."""

    def __init__(self, unique_key: str, holder: str) -> None:
        super().__init__(
            f"unique key {unique_key!r} is held by live job {holder}. Wait for that job, or cancel it first."
        )
        self.unique_key, self.holder = unique_key, holder


class JobFailed(JobError):
    """The job you waited for ended without a result."""

    def __init__(self, job_id: str, state: str, error: str | None) -> None:
        reason = f": {error}" if error else ""
        super().__init__(f"job {job_id} ended as {state}{reason}")
        self.job_id, self.state, self.error = job_id, state, error


class JobDiffers(JobError):
    """A job with the chosen id already exists, of another task or with other arguments."""

    def __init__(self, job_id: str, task_name: str, found_task: str) -> None:
        what = "with other arguments" if found_task == task_name else f"of task {found_task!r}, not {task_name!r}"
        super().__init__(
            f"job {job_id} already exists, {what}. Choose another id. Use the same id only to repeat a request for the "
            f"same task with the same arguments."
        )
        self.job_id = job_id


class ChildDiffers(JobError):
    """An attempt submitted a different child than an earlier attempt did at the same position."""

    def __init__(self, job_id: str, number: str, task_name: str) -> None:
        super().__init__(
            f"job {job_id}: an earlier attempt submitted child {number} as a job of {task_name!r} with other "
            f"arguments. Submit the same children in the same order in every attempt, or give each a key: "
            f"`using(key=…).submit(…)`."
        )
        self.job_id, self.number = job_id, number


class BatchError(StagepostError):
    """Base class of errors about one batch."""


class BatchNotFound(BatchError):
    """No batch with this key or id exists."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"batch {name!r} does not exist. A batch is created when its first item is added and committed."
        )
        self.name = name


class BatchClosed(BatchError):
    """The batch accepts no more items."""

    def __init__(self, key: str, state: str) -> None:
        super().__init__(f"batch {key!r} is {state} and accepts no more items. Add them to a batch with another key.")
        self.key, self.state = key, state


class SourceMismatch(BatchError):
    """The source given to `resume` is not the one that the producer was reading when it stopped."""

    def __init__(self, key: str, position: int, wanted: str | None, found: str | None) -> None:
        there = "this source ends before that" if found is None else f"in this source that item is {found!r}"
        super().__init__(
            f"batch {key!r}: its producer stopped after item {position:,} of its source, {wanted!r}, but {there}. "
            f"Pass `resume` the same source in the same order, or pass all of it to `add`, which skips existing items."
        )
        self.key, self.position, self.wanted, self.found = key, position, wanted, found


class GateClosed(StagepostError):
    """The gate still has unfinished batches."""

    def __init__(self, name: str, unfinished: Mapping[str, str], *, more: int = 0) -> None:
        batches = [f"batch {key!r}: {counts}" for key, counts in unfinished.items()]
        batches += [f"{more:,} more batches" if unfinished else f"{more:,} unfinished batches"] if more else []
        super().__init__(
            f"gate {name!r} is closed: {'; '.join(batches)}. Wait until these batches are done, or waive failed items."
        )
        self.name, self.unfinished = name, dict(unfinished)


class PipelineError(StagepostError):
    """A pipeline's declaration is invalid, or its input does not match the declaration."""


class RunError(StagepostError):
    """Base class of errors about one run of a pipeline."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {shortened(run_id)}: {why}")
        self.run_id = run_id


class RunNotFound(RunError):
    """No run with this id or key exists."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "there is no such run. Run `stagepost runs list` to see existing runs.")


class TransportError(StagepostError):
    """The broker rejected a request or failed."""


class BrokerUnavailable(TransportError):
    """The broker cannot be reached, or did not answer in time."""


class TopologyConflict(TransportError):
    """The broker already has a queue or exchange with this name, declared with different settings."""


class BadMessage(StagepostError):
    """A message does not belong in its queue; the error text says why."""


class GateNotFound(StagepostError):
    """No gate with this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"gate {name!r} does not exist. A gate is created when it is first used; until then it counts as open."
        )
        self.name = name


class GroupNotFound(StagepostError):
    """No group of dead letters with this id exists."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"there is no group {group_id!r} of dead letters. `app.dead_letters.groups()` and `stagepost dead list` "
            f"show all groups."
        )
        self.group_id = group_id


class ScheduleNotFound(StagepostError):
    """No schedule with this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"schedule {name!r} does not exist. A worker creates the schedules that its code declares when it starts."
        )
        self.name = name


class EventsPruned(StagepostError):
    """The events after the given number were deleted because they were too old or too many."""

    def __init__(self, after: int, *, oldest: int) -> None:
        super().__init__(
            f"the events after number {after} were deleted; the oldest that can be read is number {oldest}. Find out "
            f"from the jobs what you missed, then continue with after={oldest - 1}. To keep events longer, raise "
            f"`events_days` or `events_limit`."
        )
        self.after, self.oldest = after, oldest


class NoSuchEvent(StagepostError):
    """No event has the given number yet, so the number comes from another database or an older backup is restored."""

    def __init__(self, after: int, *, last: int) -> None:
        super().__init__(
            f"there is no event number {after}; the last one is number {last}. The number comes from another database, "
            f"or this one was restored from a backup. Start again with after=None, or with after={last} for new events "
            f"only."
        )
        self.after, self.last = after, last


class WaitTimeout(StagepostError):
    """What you waited for did not happen in time; the work itself continues."""


class Retryable(StagepostError):
    """A handler raises this to fail the attempt and try again; `after` overrides the retry policy's delay."""

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else duration_of(after, "`after` of Retryable")


class Permanent(StagepostError):
    """A handler raises this when no later attempt can succeed."""


class Snooze(StagepostError):
    """A handler raises this to run again after `delay`, without counting a failure."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = duration_of(delay, "the delay of Snooze")
        super().__init__(f"snoozed for {self.delay}")


class Cancelled(StagepostError):
    """A handler raises this to end its job as cancelled."""


LONGEST_DURATION = timedelta(days=36_525)
"""A hundred years. An instant plus this duration still fits into every database's integers."""
LONGEST_SHOWN = 80
"""How many characters of a caller's value an error shows."""


def shortened(text: str) -> str:
    """Cut a text that a caller gave, so that a message stays readable."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def shown(value: object) -> str:
    """Format a value for an error, however long it is and whatever its `__repr__` does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - somebody else's __repr__
        text = f"<{type(value).__name__}>"
    return shortened(text)


def duration_of(value: timedelta | float, what: str) -> timedelta:
    """Convert seconds or a timedelta to a timedelta; the error for an invalid value names `what`."""
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise ConfigurationError(f"{what} is {shown(value)}: give seconds as a number, or a timedelta.")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= LONGEST_DURATION.total_seconds():
        raise ConfigurationError(f"{what} is {value}: it must be between 0 and 100 years.")
    return value if isinstance(value, timedelta) else timedelta(seconds=value)
