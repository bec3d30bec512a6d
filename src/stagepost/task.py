"""Tasks: registered functions, by name, and how their jobs are asked for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar

import msgspec

from stagepost.errors import ConfigurationError, TaskError, UnknownTask, duration_of
from stagepost.model.checks import check_function, check_name, check_priority, check_unique_key, checked_id
from stagepost.model.children import OnChildFailed
from stagepost.model.context import TraceContext, current_trace
from stagepost.model.identity import NO_ID, new_id
from stagepost.model.job import DEFAULT_QUEUE, NewJob, OnConflict, microseconds
from stagepost.model.json_values import name_of, trouble_with
from stagepost.model.limits import LimitRules, TaskRule
from stagepost.model.payload import Limits, Signature
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy
from stagepost.model.schedule import CatchUp
from stagepost.model.series import Arguments, JobSeries, as_call

__all__ = [
    "NO_OPTIONS",
    "JobOptions",
    "Registry",
    "ScheduleSpec",
    "Task",
    "TaskOptions",
    "default_name",
    "with_changes",
]

P = ParamSpec("P")
R = TypeVar("R")

REMOTE_TIMEOUT = timedelta(minutes=5)
CHILD_MODULE = "__stagepost_child__"
"""What a script that was the main program is called where a handler's process loads it again."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How jobs of a task are run, unless one job says otherwise."""

    queue: str = DEFAULT_QUEUE
    """The queue its jobs go to."""
    priority: int = 0
    """Larger first, from -32768 to 32767."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How often and how soon a failed attempt is tried again."""
    timeout: timedelta | None = None
    """An attempt that takes longer fails; None lets it run as long as its lease is kept. Of a remote task: how long
    a program may be silent that has taken requests, before those are sent again; 5 minutes unless given."""
    pool: Literal["auto", "process"] = "auto"
    """`auto`: `async def` on the loop, `def` in a thread. `process`: one process per slot, for CPU and risky code."""
    max_running: int | None = None
    """How many jobs of this task (per `limit_by`, if given) may run at once, over all workers."""
    limit_by: Callable[..., str] | None = None
    """Called with the job's arguments; jobs with the same text share one `max_running`."""
    rate_limit: RateLimit | None = None
    """How many attempts may start per second, over all workers; tasks that name the same one share it."""
    limits: Limits = field(default_factory=Limits)
    """How large arguments and results may be."""
    progress: Any = Any
    """The type of what its handler, or its program, reports as progress; anything that JSON can hold unless given."""
    on_child_failed: OnChildFailed | Literal["finish", "fail"] = OnChildFailed.FINISH
    """What children that did not complete make of its job: `finish`, with errors, or `fail`."""
    remote: bool = False
    """Another program runs it, which a broker brings its jobs to. The function says what goes in and what comes out."""

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        check_priority(self.priority)
        if self.max_running is not None and self.max_running < 1:
            raise ConfigurationError(f"max_running is {self.max_running}: it must be 1 or more.")
        if self.limit_by is not None and self.max_running is None:
            raise ConfigurationError("limit_by needs max_running: say how many jobs may run per key.")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ConfigurationError(f"timeout is {self.timeout}: it must be longer than nothing.")
        if self.on_child_failed not in tuple(OnChildFailed):
            raise ConfigurationError(
                f"on_child_failed is {self.on_child_failed!r}. Known are: {', '.join(OnChildFailed)}."
            )
        if (trouble := trouble_with(self.progress)) is not None:
            raise ConfigurationError(
                f"progress is {name_of(self.progress)}, which cannot come from JSON: {trouble}. "
                f"Give a type such as a dataclass of what is reported."
            )
        if self.remote:
            self._check_remote()

    def _check_remote(self) -> None:
        for name in ("pool", "rate_limit"):
            if getattr(self, name) != TaskOptions.__dataclass_fields__[name].default:
                raise ConfigurationError(
                    f"{name} is for tasks that our workers run. Leave it out: another program runs a remote task."
                )
        if self.timeout is None:
            object.__setattr__(self, "timeout", REMOTE_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What one job asks for beyond its arguments."""

    id: str | None = None
    """A UUID of your own; the same one again makes no second job."""
    queue: str | None = None
    """Another queue than the task's."""
    priority: int | None = None
    """Another priority than the task's."""
    delay: timedelta | float | None = None
    """Run it no sooner than this long from now; a number is seconds."""
    at: datetime | None = None
    """Run it no sooner than this instant, which needs a time zone."""
    max_attempts: int | None = None
    """Another number than that of the task's retry policy."""
    unique_key: str | None = None
    """Make no second live job with this text, whatever its task and queue; up to 191 characters."""
    unique_for: timedelta | float | None = None
    """Hold the unique key for this long instead of as long as the job lives; a number is seconds."""
    on_conflict: OnConflict | Literal["keep", "replace", "debounce"] = OnConflict.KEEP
    """What becomes of the job that holds the unique key: `keep`, `replace` or `debounce`."""
    longest_wait: timedelta | float | None = None
    """With `debounce`: start it at the latest this long after the first request; ten times the delay unless given."""
    trace: TraceContext | None = None
    """Ids to carry instead of those that `traced` set."""

    def __post_init__(self) -> None:
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
            raise ConfigurationError("unique_for needs a unique_key to hold for that long.")
        if self.on_conflict not in tuple(OnConflict):
            raise ConfigurationError(f"on_conflict is {self.on_conflict!r}. Known are: {', '.join(OnConflict)}.")

    def _check_times(self) -> None:
        if self.delay is not None and self.at is not None:
            raise ConfigurationError("give `delay` or `at`, not both.")
        if self.longest_wait is not None and self.on_conflict != OnConflict.DEBOUNCE:
            raise ConfigurationError("longest_wait limits on_conflict='debounce': give both, or neither.")
        for name in ("delay", "unique_for", "longest_wait"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, duration_of(given, name))
        if self.at is not None and self.at.tzinfo is None:
            raise ConfigurationError(f"at={self.at.isoformat()} has no time zone: add one, such as datetime.UTC.")


class Task(Generic[P, R]):
    """A registered function; calling it runs it here and now, as if it were not registered."""

    def __init__(self, function: Callable[..., Any], *, name: str, options: TaskOptions, wants_context: bool) -> None:
        check_name("task", name)
        check_function(function, name)
        self.function = _run_elsewhere(function, name) if options.remote else function
        self.name = name
        self.options = options
        self.wants_context = wants_context
        self.is_async = inspect.iscoroutinefunction(self.function)
        if self.is_async and options.pool == "process":
            raise TaskError(f"task {name}: pool='process' runs plain functions; make it `def`, not `async def`.")
        if wants_context and options.remote:
            raise TaskError(f"task {name}: the program that runs a remote task gets its arguments, but no JobContext.")
        self.signature = Signature.of(function, context_parameter=wants_context)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now."""
        result: R = self.function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Check and encode the arguments; the job exists once a client has enqueued it."""
        return self.build(NO_OPTIONS, args, kwargs)

    def build(
        self, job: JobOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, job_id: str | None = None
    ) -> NewJob:
        """Make a job of checked arguments, the task's options and the job's own; `job_id` replaces a new one."""
        payload = self.signature.encode(args, kwargs, limits=self.options.limits)
        return self._job(job, job_id, payload, self._limit_key(args, kwargs))

    def build_many(self, job: JobOptions, arguments: Sequence[Arguments]) -> Sequence[NewJob] | JobSeries:
        """Make a job of each, with the same options; arguments of a series are checked and encoded later."""
        if job.id is not None:
            raise ConfigurationError(f"task {self.name}: id={job.id!r} can be that of one job only. Leave it out.")
        options = self.options
        encode = partial(self.signature.encode, limits=options.limits)
        shared_key = self._limit_key((), {}) if options.limit_by is None else None
        series = JobSeries(self._job(job, NO_ID, "", shared_key), arguments, encode)
        if options.limit_by is None:
            return series if job.unique_key is None else list(series)
        keyed = ((one, self._limit_key(*as_call(given))) for one, given in zip(series, arguments, strict=True))
        return [msgspec.structs.replace(one, limit_key=key) for one, key in keyed]

    def _job(self, job: JobOptions, job_id: str | None, payload: str, limit_key: str | None) -> NewJob:
        options = self.options
        if options.remote and job is not NO_OPTIONS:
            self._check_remote(job)
        trace = (job.trace or current_trace.get()).encode()
        if job is NO_OPTIONS and options.max_running is None:  # nearly every job, and there may be very many
            return NewJob(
                id=new_id() if job_id is None else job_id,
                task_name=self.name,
                payload=payload,
                queue_name=options.queue,
                priority=options.priority,
                max_attempts=options.retry.max_attempts,
                context=trace,
            )
        return NewJob(
            id=job_id or job.id or new_id(),
            task_name=self.name,
            payload=payload,
            queue_name=job.queue or options.queue,
            priority=options.priority if job.priority is None else job.priority,
            max_attempts=job.max_attempts or options.retry.max_attempts,
            delay_us=0 if job.delay is None else microseconds(job.delay),
            available_at=None if job.at is None else round(job.at.timestamp() * 1_000_000),
            unique_key=job.unique_key,
            unique_for_us=None if job.unique_for is None else microseconds(job.unique_for),
            on_conflict=OnConflict(job.on_conflict),
            longest_wait_us=None if job.longest_wait is None else microseconds(job.longest_wait),
            limit_key=limit_key,
            limit=options.max_running if options.remote else None,
            context=trace,
            has_chosen_id=job.id is not None,
        )

    def _check_remote(self, job: JobOptions) -> None:
        if job.queue not in {None, self.options.queue}:
            raise ConfigurationError(
                f"task {self.name} is remote: its jobs go to queue {self.options.queue!r}, where its program "
                f"takes them from, and not to {job.queue!r}."
            )
        if job.on_conflict != OnConflict.KEEP:
            raise ConfigurationError(
                f"task {self.name} is remote: on_conflict={str(job.on_conflict)!r} would change arguments that may be "
                f"on their way. Leave it at 'keep'."
            )

    @property
    def _limit_rule(self) -> TaskRule:
        """What workers with this code keep to, whatever was in force when a job was enqueued."""
        options = self.options
        if options.max_running is None:
            return TaskRule(rate=options.rate_limit, is_remote=options.remote)
        return TaskRule(
            max_running=options.max_running,
            rate=options.rate_limit,
            is_remote=options.remote,
            needs_payload=options.limit_by is not None and not options.remote,
            key_of=self._key_in_force,
        )

    def _key_in_force(self, limit_key: str | None, payload: str | None) -> str:
        """Keep the key of a job that was enqueued with one like it; otherwise make it from the arguments."""
        if self.options.limit_by is None:
            return self.name
        if limit_key is not None and limit_key.startswith(f"{self.name}:"):
            return limit_key
        try:
            args, kwargs = self.signature.decode(payload or "")
            return self._limit_key(args, kwargs) or self.name
        except Exception:  # noqa: BLE001 - the attempt will fail and say why; until then these share a limit
            return self.name

    def _limit_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        if self.options.max_running is None:
            return None
        if self.options.limit_by is None:
            return self.name
        key = f"{self.name}:{self.options.limit_by(*args, **kwargs)}"
        if len(key) > 191:
            raise ConfigurationError(f"task {self.name}: limit_by gave {len(key)} characters: 191 are possible.")
        return key


@dataclass(frozen=True)
class ScheduleSpec:
    """A schedule as code declares it; the store decides when it fires."""

    name: str
    rule: str
    time_zone: str
    catch_up: CatchUp
    template: NewJob


class Registry:
    """The tasks a process knows, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; the same function may come again when its module is loaded twice."""
        known = self._tasks.get(task.name)
        if known is not None and _place(known.function) != _place(task.function):
            raise TaskError(
                f"task {task.name!r} is registered twice: by {_place(known.function)} and {_place(task.function)}. "
                f"Give one of them another name."
            )
        self._check_queue(task)
        self._tasks[task.name] = task

    def _check_queue(self, task: Task[..., Any]) -> None:
        """Keep tasks that other programs run apart from ours: who takes from a queue must know all that is in it."""
        queue, is_remote = task.options.queue, task.options.remote
        for other in self:
            if other.options.queue == queue and other.options.remote != is_remote and other.name != task.name:
                ours, remote = (other.name, task.name) if is_remote else (task.name, other.name)
                raise ConfigurationError(
                    f"queue {queue!r}: task {remote} is remote and {ours} is not. "
                    f"Give remote tasks a queue of their own."
                )

    def get(self, name: str) -> Task[..., Any]:
        """Look a task up by name."""
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(name) from None

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def queues(self) -> list[str]:
        """The queues that its tasks name."""
        return sorted({task.options.queue for task in self})

    @property
    def limit_rules(self) -> LimitRules:
        """What its tasks' options say of limits and rates."""
        return LimitRules({task.name: task._limit_rule for task in self})  # noqa: SLF001 - not for applications

    @property
    def remote_queues(self) -> dict[str, timedelta]:
        """The queues that other programs take from, and how long those may be silent."""
        queues: dict[str, timedelta] = {}
        for task in self:
            if task.options.remote:
                timeout = task.options.timeout or REMOTE_TIMEOUT
                queues[task.options.queue] = max(timeout, queues.get(task.options.queue, timeout))
        return queues


def default_name(function: Callable[..., Any]) -> str:
    """Name a task by its module and function, the same whether its file was run or imported."""
    module = function.__module__
    if module in {"__main__", CHILD_MODULE}:
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        was_run_by_name = spec is not None and module == "__main__"
        module = getattr(spec, "name", "") if was_run_by_name else Path(function.__code__.co_filename).stem
    return f"{module}.{function.__qualname__}".replace(".<locals>", "")


def with_changes(options: JobOptions, changes: Mapping[str, Any]) -> JobOptions:
    """Change some options; an unknown one is a clear error."""
    fields = JobOptions.__dataclass_fields__
    try:
        return replace(options, **changes)
    except TypeError:
        known, unknown = ", ".join(fields), ", ".join(sorted(set(changes) - set(fields)))
        raise ConfigurationError(f"unknown job option {unknown}. Known are: {known}.") from None


def _run_elsewhere(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Stand in for a function that is never run here."""

    @wraps(function)
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaskError(
            f"task {name} is remote: another program runs it. Enqueue it and wait for its result; "
            f"in a test, replace its attribute `function` by a stand-in."
        )

    return refuse


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


NO_OPTIONS = JobOptions()
