"""Tasks: functions registered by name, and the jobs made from them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, cast

import msgspec

from stagepost.errors import ConfigurationError, TaskError, UnknownTask, shown
from stagepost.model.checks import check_function, check_name
from stagepost.model.context import current_trace
from stagepost.model.identity import NO_ID, new_id
from stagepost.model.job import NewJob, OnConflict, microseconds
from stagepost.model.limits import LimitRules, TaskRule
from stagepost.model.option_types import check_type
from stagepost.model.options import NO_OPTIONS, REMOTE_TIMEOUT, JobOptions, TaskOptions
from stagepost.model.payload import Signature
from stagepost.model.schedule import CatchUp
from stagepost.model.series import Arguments, JobSeries, as_call

__all__ = [
    "Registry",
    "ScheduleSpec",
    "Task",
    "check_job",
    "check_jobs",
    "check_task",
    "default_name",
    "is_interactive",
]

P = ParamSpec("P")
R = TypeVar("R")

CHILD_MODULE = "__stagepost_child__"
"""Module name under which a child process loads a script that was the main program."""


class Task(Generic[P, R]):
    """A registered function; calling it runs the function directly, without a job."""

    def __init__(self, function: Callable[..., Any], *, name: str, options: TaskOptions, wants_context: bool) -> None:
        check_name("task", name)
        check_function(function, name)
        self.function = _run_elsewhere(function, name) if options.remote else function
        self.name = name
        self.options = options
        self.wants_context = wants_context
        self.is_async = inspect.iscoroutinefunction(self.function)
        if self.is_async and options.pool == "process":
            raise TaskError(
                f"task {name}: pool='process' runs plain functions. Declare it with `def`, not `async def`."
            )
        if wants_context and options.remote:
            raise TaskError(f"task {name} is remote: its program gets no JobContext. Remove that parameter.")
        self.signature = Signature.of(function, context_parameter=wants_context, name=name)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function directly, without a job."""
        result: R = self.function(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Build a job from checked and encoded arguments; it is not stored until a client enqueues it."""
        return self.build(NO_OPTIONS, args, kwargs)

    def build(
        self, job: JobOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, job_id: str | None = None
    ) -> NewJob:
        """Build a job from checked arguments, the task's options and the job's own; `job_id` replaces a new id."""
        payload = self.signature.encode(args, kwargs, limits=self.options.limits)
        return self._job(job, job_id, payload, self._limit_key(args, kwargs))

    def build_many(self, job: JobOptions, arguments: Sequence[Arguments]) -> Sequence[NewJob] | JobSeries:
        """Build one job per set of arguments; a series checks and encodes the arguments later, while it is stored."""
        if job.id is not None:
            raise ConfigurationError(f"task {self.name}: id={job.id!r} can identify only one job. Leave it out.")
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
        if job is NO_OPTIONS and options.max_running is None:  # a faster path for nearly every job
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
                f"task {self.name} is remote: its program takes jobs from queue {self.options.queue!r}, not from "
                f"{job.queue!r}. Leave `queue` out."
            )
        if job.on_conflict != OnConflict.KEEP:
            raise ConfigurationError(
                f"task {self.name} is remote: on_conflict={str(job.on_conflict)!r} would change arguments that may "
                f"already be sent. Use 'keep'."
            )

    @property
    def _limit_rule(self) -> TaskRule:
        """The limits that workers with this code apply, even to jobs that were enqueued under other limits."""
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
            raise ConfigurationError(f"task {self.name}: limit_by gave {len(key)} characters; the limit is 191.")
        return key


@dataclass(frozen=True)
class ScheduleSpec:
    """A schedule as declared in code; the store decides when it fires."""

    name: str
    rule: str
    time_zone: str
    catch_up: CatchUp
    template: NewJob

    def is_same(self, other: ScheduleSpec) -> bool:
        """Return whether both declare the same, as when a module is loaded twice; the id of a job is always new."""
        return replace(self, template=msgspec.structs.replace(self.template, id=other.template.id)) == other


class Registry:
    """The tasks that a process knows, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; the same function may be registered again when its module is loaded twice."""
        known = self._tasks.get(task.name)
        if known is not None and _place(known.function) != _place(task.function):
            raise TaskError(
                f"task {task.name!r} is registered twice: by {_place(known.function)} and {_place(task.function)}. "
                f"Give one of them another name."
            )
        self._check_queue(task)
        self._tasks[task.name] = task

    def _check_queue(self, task: Task[..., Any]) -> None:
        """Keep remote and local tasks in separate queues: a consumer must know every task in its queue."""
        queue, is_remote = task.options.queue, task.options.remote
        for other in self:
            if other.options.queue == queue and other.options.remote != is_remote and other.name != task.name:
                ours, remote = (other.name, task.name) if is_remote else (task.name, other.name)
                raise ConfigurationError(
                    f"queue {queue!r}: task {remote} is remote and {ours} is not. "
                    f"Give remote tasks a queue of their own."
                )

    def get(self, name: str) -> Task[..., Any]:
        """Look up a task by name; raises UnknownTask."""
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
        """The queues that its tasks use."""
        return sorted({task.options.queue for task in self})

    @property
    def limit_rules(self) -> LimitRules:
        """What its tasks' options say of limits and rates."""
        return LimitRules({task.name: task._limit_rule for task in self})  # noqa: SLF001 - not for applications

    @property
    def remote_queues(self) -> dict[str, timedelta]:
        """The queues of remote tasks, each with how long its program may be silent."""
        queues: dict[str, timedelta] = {}
        for task in self:
            if task.options.remote:
                timeout = task.options.timeout or REMOTE_TIMEOUT
                queues[task.options.queue] = max(timeout, queues.get(task.options.queue, timeout))
        return queues


def is_interactive() -> bool:
    """Return whether somebody types the code, as in a notebook, and may correct a declaration by typing it again."""
    return hasattr(sys, "ps1")


def default_name(function: Callable[..., Any]) -> str:
    """Name a task by its module and function; the name is the same whether its file was run or imported."""
    module = function.__module__
    if module in {"__main__", CHILD_MODULE}:
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        was_run_by_name = spec is not None and module == "__main__"
        file = Path(function.__code__.co_filename)
        if was_run_by_name:
            module = getattr(spec, "name", "")
        elif file.is_file():  # not so in a notebook, where each version of a cell has a file name of its own
            module = file.stem
    return f"{module}.{function.__qualname__}".replace(".<locals>", "")


def check_job(what: str, job: object) -> None:
    """Refuse what is not a job; a task is the likely mistake."""
    if isinstance(job, NewJob):
        return
    name = getattr(job, "__name__", "task") if isinstance(job, Task) or callable(job) else "task"
    what_it_is = f"task {job.name!r}" if isinstance(job, Task) else f"{type(job).__name__} {shown(job)}"
    raise ConfigurationError(
        f"{what} is {what_it_is}: it must be a job. Make one with {name}.job(…), with its arguments."
    )


def check_jobs(what: str, jobs: object) -> None:
    """Refuse what is not a list of jobs."""
    check_type(f"{what}: the jobs", jobs, Sequence, advice="Make a list, with task.job(…) for each.")
    for number, job in enumerate(cast("Sequence[object]", jobs)):
        check_job(f"{what}: number {number}", job)


def check_task(what: str, task: object) -> None:
    """Refuse what is not a task; a plain function is the likely mistake."""
    if not isinstance(task, Task):
        raise ConfigurationError(f"{what} is {shown(task)}: it must be a task. Register the function with @app.task.")


def _run_elsewhere(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Replace a remote task's function, which never runs in this process."""

    @wraps(function)
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaskError(
            f"task {name} is remote: another program runs it. Enqueue it and wait for its result; "
            f"in a test, replace its attribute `function` with a fake."
        )

    return refuse


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
