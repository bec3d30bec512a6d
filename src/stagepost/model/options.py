"""Options of tasks and of single jobs, checked by name, type and value where they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from stagepost.errors import ConfigurationError, duration_of
from stagepost.model.checks import check_name, check_priority, check_unique_key, checked_id
from stagepost.model.children import OnChildFailed
from stagepost.model.constraints import enforceable
from stagepost.model.context import TraceContext
from stagepost.model.event_level import EventLevel
from stagepost.model.job import DEFAULT_QUEUE, OnConflict
from stagepost.model.json_values import PayloadLimits, name_of, why_not_decodable
from stagepost.model.option_types import check_known, check_type, check_types
from stagepost.model.other_libraries import JOB_OPTION_WORDS, TASK_OPTION_WORDS
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy

__all__ = [
    "NO_OPTIONS",
    "REMOTE_TIMEOUT",
    "JobKeywords",
    "JobOptions",
    "TaskKeywords",
    "TaskOptions",
    "task_options",
    "with_changes",
]

REMOTE_TIMEOUT = timedelta(minutes=5)
TASK_ADVICE = {
    "retry": "For three attempts, write retry=RetryPolicy(max_attempts=3).",
    "rate_limit": 'For ten per minute, write rate_limit=RateLimit("provider", per_second=10 / 60).',
    "limits": "Write limits=PayloadLimits(max_bytes=…).",
}


class TaskKeywords(TypedDict, total=False):
    """The options of `@app.task`, for editors and type checkers."""

    queue: str
    priority: int
    retry: RetryPolicy
    timeout: timedelta | float | None
    pool: Literal["auto", "process"]
    max_running: int | None
    limit_by: Callable[..., str] | None
    rate_limit: RateLimit | None
    limits: PayloadLimits
    progress: Any
    on_child_failed: OnChildFailed | Literal["finish", "fail"]
    events: EventLevel | Literal["off", "final"] | None
    remote: bool


class JobKeywords(TypedDict, total=False):
    """The options of `task.using`, for editors and type checkers."""

    id: str | None
    queue: str | None
    priority: int | None
    delay: timedelta | float | None
    at: datetime | None
    max_attempts: int | None
    unique_key: str | None
    unique_for: timedelta | float | None
    on_conflict: OnConflict | Literal["keep", "replace", "debounce"]
    longest_wait: timedelta | float | None
    trace: TraceContext | None
    patience: timedelta | float | None


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How a task's jobs run, unless a job overrides it."""

    queue: str = DEFAULT_QUEUE
    """The queue for the task's jobs."""
    priority: int = 0
    """Jobs with a larger priority run first; from -32768 to 32767."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How often, and after which delay, a failed attempt is tried again."""
    timeout: timedelta | None = None
    """An attempt that takes longer fails; None sets no limit. For a remote task: how long the program may be silent
    after it took requests before they are sent again; the default is 5 minutes."""
    pool: Literal["auto", "process"] = "auto"
    """`auto` runs `async def` on the event loop and `def` in a thread. `process` uses one process per slot, for
    CPU-bound or unsafe code."""
    max_running: int | None = None
    """Maximum number of this task's jobs (per `limit_by` key, if given) running at once, over all workers."""
    limit_by: Callable[..., str] | None = None
    """Called with the job's arguments to get a key; jobs with the same key share one `max_running`."""
    rate_limit: RateLimit | None = None
    """Maximum number of attempts started per second, across all workers; tasks with the same limit name share it."""
    limits: PayloadLimits = field(default_factory=PayloadLimits)
    """Maximum sizes of arguments and results."""
    progress: Any = Any
    """The type of the progress that its handler or remote program reports; the default is any JSON value."""
    on_child_failed: OnChildFailed | Literal["finish", "fail"] = OnChildFailed.FINISH
    """How the job ends if a child did not complete: `finish` (completed with errors) or `fail`."""
    events: EventLevel | Literal["off", "final"] | None = None
    """Which events of its jobs are recorded: `final` records how they end, `off` nothing; None means the setting
    `events`. Workers store it when they start."""
    remote: bool = False
    """Another program runs the task and gets its jobs through the broker. The function only declares the argument and
    result types."""

    def __post_init__(self) -> None:
        check_types("task option", self, advice=TASK_ADVICE)
        check_name("queue", self.queue)
        check_priority(self.priority)
        if self.max_running is not None and self.max_running < 1:
            raise ConfigurationError(f"max_running is {self.max_running}: it must be 1 or more.")
        if self.limit_by is not None and self.max_running is None:
            raise ConfigurationError("limit_by needs max_running: set how many jobs may run per key.")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ConfigurationError(f"timeout is {self.timeout}: it must be more than 0.")
        object.__setattr__(self, "progress", enforceable(self.progress))
        if (trouble := why_not_decodable(self.progress)) is not None:
            raise ConfigurationError(
                f"progress is {name_of(self.progress)}, which cannot be decoded from JSON: {trouble}. "
                f"Use a type such as a dataclass of the reported values."
            )
        if self.remote:
            self._check_remote()

    def _check_remote(self) -> None:
        for name in ("pool", "rate_limit"):
            if getattr(self, name) != TaskOptions.__dataclass_fields__[name].default:
                raise ConfigurationError(
                    f"{name} does not apply to a remote task, because another program runs it. Leave it out."
                )
        if self.timeout is None:
            object.__setattr__(self, "timeout", REMOTE_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of one job, which override those of its task."""

    id: str | None = None
    """A UUID that you choose; enqueuing the same id again creates no second job."""
    queue: str | None = None
    """Use this queue instead of the task's."""
    priority: int | None = None
    """Use this priority instead of the task's."""
    delay: timedelta | float | None = None
    """Run the job no earlier than this long from now; a number means seconds."""
    at: datetime | None = None
    """Run the job no earlier than this time, which must have a time zone."""
    max_attempts: int | None = None
    """Use this number of attempts instead of the retry policy's."""
    unique_key: str | None = None
    """Allow only one live job with this key, in any task and queue; up to 191 characters."""
    unique_for: timedelta | float | None = None
    """Hold the unique key for this long instead of until the job ends; a number means seconds."""
    on_conflict: OnConflict | Literal["keep", "replace", "debounce"] = OnConflict.KEEP
    """What to do with the job that already holds the unique key: `keep`, `replace` or `debounce`."""
    longest_wait: timedelta | float | None = None
    """With `debounce`: latest start, counted from the first request; the default is ten times the delay."""
    trace: TraceContext | None = None
    """Trace ids to attach instead of those set by `traced`."""
    patience: timedelta | float | None = None
    """How long `enqueue` tries again while the database is away, instead of the setting `patience_seconds`; a number
    means seconds."""

    def __post_init__(self) -> None:
        check_types("job option", self)
        if self.id is not None:
            object.__setattr__(self, "id", checked_id(self.id))
        if self.queue is not None:
            check_name("queue", self.queue)
        if self.priority is not None:
            check_priority(self.priority)
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigurationError(f"max_attempts is {self.max_attempts}: it must be 1 or more.")
        self._check_times()
        if self.unique_key is not None:
            check_unique_key(self.unique_key)
        elif self.unique_for is not None:
            raise ConfigurationError("unique_for needs a unique_key: set both, or neither.")

    def _check_times(self) -> None:
        if self.delay is not None and self.at is not None:
            raise ConfigurationError("set either `delay` or `at`, not both.")
        if self.longest_wait is not None and self.on_conflict != OnConflict.DEBOUNCE:
            raise ConfigurationError("longest_wait works only with on_conflict='debounce': set both, or neither.")
        for name in ("delay", "unique_for", "longest_wait", "patience"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, duration_of(given, name))
        if self.at is not None and self.at.tzinfo is None:
            raise ConfigurationError(f"at={self.at.isoformat()} has no time zone: add one, such as datetime.UTC.")


def task_options(given: Mapping[str, Any]) -> TaskOptions:
    """Check the options of a task by name, type and value; a `timeout` may be seconds."""
    check_known("task option", given, ["name", *TaskOptions.__dataclass_fields__], words=TASK_OPTION_WORDS)
    timeout = given.get("timeout")
    check_type("task option timeout", timeout, timedelta | float | None)
    return TaskOptions(**{**given, "timeout": None if timeout is None else duration_of(timeout, "task option timeout")})


def with_changes(options: JobOptions, changes: Mapping[str, Any]) -> JobOptions:
    """Replace some options; a wrong name, type or value raises ConfigurationError."""
    check_known("job option", changes, JobOptions.__dataclass_fields__, words=JOB_OPTION_WORDS)
    return replace(options, **changes)


NO_OPTIONS = JobOptions()
