"""Hooks: an app's functions that run around attempts, after failures, and when a worker starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

from stagepost.client.context import JobContext, current_job
from stagepost.errors import ConfigurationError, LeaseLost, TaskError
from stagepost.model.outcome import Failed, Outcome, Refused
from stagepost.task import Task

__all__ = ["AroundHook", "FailureHook", "Hooks", "WorkerHook", "fails_attempt", "hook_name"]

log = logging.getLogger(__name__)

Around = Callable[[JobContext], Iterator[None]] | Callable[[JobContext], AsyncIterator[None]]
OnFailure = (
    Callable[[JobContext, BaseException], None] | Callable[[JobContext, BaseException], Coroutine[Any, Any, None]]
)
OnWorker = Callable[[], None] | Callable[[], Coroutine[Any, Any, None]]
AroundHook = TypeVar("AroundHook", bound=Around)
FailureHook = TypeVar("FailureHook", bound=OnFailure)
WorkerHook = TypeVar("WorkerHook", bound=OnWorker)
AnyHook = TypeVar("AnyHook", bound=Callable[..., Any])

AROUND_LINE = "def {}(job: JobContext) -> Iterator[None]: …; yield; …"
FAILURE_LINE = "def {}(job: JobContext, error: BaseException) -> None: …"
WORKER_LINE = "def {}() -> None: …"


class Hooks:
    """The hooks of one app, in the order of their registration."""

    def __init__(self) -> None:
        self.around: list[Around] = []
        self.failure: list[OnFailure] = []
        self.worker_start: list[OnWorker] = []
        self.worker_stop: list[OnWorker] = []

    def add_around(self, hook: Around) -> None:
        """Register a generator function that yields once, where the handler runs."""
        _check("around_attempt", hook, parameters=1, yields=True, line=AROUND_LINE)
        _add(self.around, hook)

    def add_failure(self, hook: OnFailure) -> None:
        """Register a function that is called with each error that fails an attempt."""
        _check("on_failure", hook, parameters=2, yields=False, line=FAILURE_LINE)
        _add(self.failure, hook)

    def add_worker_start(self, hook: OnWorker) -> None:
        """Register a function that is called before a worker looks for jobs."""
        _check("on_worker_start", hook, parameters=0, yields=False, line=WORKER_LINE)
        _add(self.worker_start, hook)

    def add_worker_stop(self, hook: OnWorker) -> None:
        """Register a function that is called after a worker's last job."""
        _check("on_worker_stop", hook, parameters=0, yields=False, line=WORKER_LINE)
        _add(self.worker_stop, hook)

    def wrap(self, task: Task[..., Any]) -> Callable[..., Any]:
        """Return a function that calls the task's function inside the `around_attempt` hooks."""
        return partial(_call_within_async if task.is_async else _call_within, self.around, task.function)

    def report_failure(self, error: BaseException, *, run: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Call the `on_failure` hooks in this thread; `run` gets the coroutines of `async def` hooks."""
        job = current_job()
        for hook in self.failure:
            with _LoggedErrors(hook, job):
                called = hook(job, error)
                if inspect.iscoroutine(called):
                    run(called)

    async def report_failure_async(
        self, error: BaseException, *, call: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> None:
        """Call the `on_failure` hooks on the event loop; `call` gets the plain functions."""
        job = current_job()
        for hook in self.failure:
            with _LoggedErrors(hook, job):
                if inspect.iscoroutinefunction(hook):
                    await hook(job, error)
                else:
                    await call(partial(cast("Callable[..., None]", hook), job, error))


def fails_attempt(error: BaseException, outcome: Outcome) -> bool:
    """Whether `on_failure` hooks are called with an error: not for a snooze, a cancelled job or a lost lease."""
    return isinstance(outcome, Failed | Refused) and not isinstance(error, LeaseLost)


def _call_within(hooks: list[Around], function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    job = current_job()
    with contextlib.ExitStack() as stack:
        for hook in hooks:
            if inspect.isgeneratorfunction(hook):
                stack.enter_context(_Entered(hook, job))
        return function(*args, **kwargs)


async def _call_within_async(hooks: list[Around], function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    job = current_job()
    async with contextlib.AsyncExitStack() as stack:
        for hook in hooks:
            if inspect.isgeneratorfunction(hook):
                stack.enter_context(_Entered(hook, job))
            else:
                await stack.enter_async_context(_EnteredAsync(hook, job))
        return await function(*args, **kwargs)


class _Entered:
    """One hook during one attempt, as a context manager around the handler's call."""

    def __init__(self, hook: Callable[..., Any], job: JobContext) -> None:
        self._hook, self._generator = hook, hook(job)

    def __enter__(self) -> None:
        with _Beginning(self._hook):
            next(self._generator)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with _Ending(self._hook, error):
            if error is None:
                next(self._generator)
            else:
                self._generator.throw(error)


class _EnteredAsync:
    """The same for a hook that is an async generator."""

    def __init__(self, hook: Callable[..., Any], job: JobContext) -> None:
        self._hook, self._generator = hook, hook(job)

    async def __aenter__(self) -> None:
        with _Beginning(self._hook):
            await anext(self._generator)

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with _Ending(self._hook, error):
            if error is None:
                await anext(self._generator)
            else:
                await self._generator.athrow(error)


class _Beginning:
    """Refuses a hook that ends before it yields."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, raised: BaseException | None, _traceback: object) -> None:
        if isinstance(raised, StopIteration | StopAsyncIteration):
            raise TaskError(
                f"hook {hook_name(self._hook)} ended without a `yield`, so the handler did not run. Let it yield once "
                f"on every path, or raise Snooze, Cancelled or Permanent instead."
            ) from None


class _Ending:
    """Decides what the end of a hook means: it may replace the handler's error, but not hide it."""

    def __init__(self, hook: Callable[..., Any], error: BaseException | None) -> None:
        self._hook, self._error = hook, error
        self._traceback: TracebackType | None = None if error is None else error.__traceback__

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, raised: BaseException | None, _traceback: object) -> bool:
        if raised is None:
            raise TaskError(f"hook {hook_name(self._hook)} yielded twice. Let it yield once.") from self._error
        if self._is_handlers(raised):
            cast("BaseException", self._error).__traceback__ = self._traceback  # without the frames of the hook
            return True  # the caller raises it again
        return isinstance(raised, StopIteration | StopAsyncIteration)

    def _is_handlers(self, raised: BaseException) -> bool:
        if self._error is None:
            return False
        # A generator turns a StopIteration that passes through it into a RuntimeError.
        is_converted = isinstance(self._error, StopIteration | StopAsyncIteration) and raised.__cause__ is self._error
        return raised is self._error or is_converted


class _LoggedErrors:
    """Logs an error of an `on_failure` hook, which changes nothing else."""

    def __init__(self, hook: Callable[..., Any], job: JobContext) -> None:
        self._hook, self._job = hook, job

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, raised: BaseException | None, _traceback: object) -> bool:
        if raised is None or isinstance(raised, asyncio.CancelledError):
            return False
        log.error("job %s: its on_failure hook %s failed", self._job.id, hook_name(self._hook), exc_info=raised)
        return True


def _check(kind: str, hook: object, *, parameters: int, yields: bool, line: str) -> None:
    if not callable(hook):
        raise ConfigurationError(f"{kind} got {hook!r}, which is not a function. Write: {line.format('hook')}")
    write = f"Write: {line.format(getattr(hook, '__name__', 'hook'))}"
    if (inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)) != yields:
        inner = inspect.unwrap(hook)
        if yields and (inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)):
            raise ConfigurationError(f"{kind}: remove the other decorator of {hook_name(hook)}. {write}")
        what = "is not a generator function" if yields else "is a generator function"
        raise ConfigurationError(f"{kind}: {hook_name(hook)} {what}. {write}")
    try:
        inspect.signature(hook).bind(*range(parameters))
    except TypeError as error:
        wanted = ("no arguments", "one argument, the job", "two arguments, the job and the error")[parameters]
        raise ConfigurationError(f"{kind}: {hook_name(hook)} is called with {wanted}: {error}. {write}") from None


def _add(hooks: list[AnyHook], hook: AnyHook) -> None:
    """Add a hook. A function that is defined again, as in a notebook or a reloaded module, replaces the old one."""
    for place, known in enumerate(hooks):
        if known is hook or (_is_redefinable(hook) and _is_redefinable(known) and hook_name(known) == hook_name(hook)):
            hooks[place] = hook
            return
    hooks.append(hook)


def _is_redefinable(hook: Callable[..., Any]) -> bool:
    """Whether there can be only one function of its name: not for closures, methods and functions named `_`."""
    return inspect.isfunction(hook) and "<locals>" not in hook.__qualname__ and bool(hook.__name__.strip("_"))


def hook_name(hook: Callable[..., Any]) -> str:
    """Return the module and name of a hook, for messages."""
    return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', repr(hook))}".replace(".<locals>", "")
