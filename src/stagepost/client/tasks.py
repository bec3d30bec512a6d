"""Tasks as applications use them: functions that can also be enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from stagepost.client.handle import JobHandle
from stagepost.errors import ConfigurationError, TaskError
from stagepost.model.batch import Item, new_item
from stagepost.model.identity import NO_ID
from stagepost.model.job import NewJob
from stagepost.model.series import Arguments
from stagepost.task import NO_OPTIONS, JobOptions, Task, with_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stagepost.client.app import App
    from stagepost.task import TaskOptions

__all__ = ["AppTask", "AsyncAppTask", "Request", "app_of"]

P = ParamSpec("P")
R = TypeVar("R")


class AppTask(Task[P, R]):
    """A task of an app."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        *,
        name: str,
        options: TaskOptions,
        wants_context: bool,
    ) -> None:
        super().__init__(function, name=name, options=options, wants_context=wants_context)
        self._app = app

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Ask for a job with these arguments, in a transaction of its own."""
        return JobHandle(self._app.client.enqueue(self.build(NO_OPTIONS, args, kwargs)), self._app)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Ask for a job without blocking the loop."""
        return JobHandle(await self._app.client.enqueue_async(self.build(NO_OPTIONS, args, kwargs)), self._app)

    def enqueue_many(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Ask for many jobs in one transaction: one for each tuple (by position) or dict (by name) of arguments."""
        return self.using().enqueue_many(arguments)

    async def enqueue_many_async(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Ask for many jobs without blocking the loop."""
        return await self.using().enqueue_many_async(arguments)

    def item(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> Item:
        """Make an item of a batch: a job with these arguments, of which there is one for this key."""
        return new_item(key, self.build(NO_OPTIONS, args, kwargs, job_id=NO_ID))

    def using(self, tx: Any = None, /, **options: Any) -> Request[P, R]:
        """Say in which transaction, and with which options of `JobOptions`, the next job is asked for."""
        queue = options.get("queue")
        if queue is not None and not self.options.remote and queue in self._app.registry.remote_queues:
            raise ConfigurationError(
                f"queue {queue!r} is for remote tasks: another program takes from it, and does not know {self.name}."
            )
        return Request(self._app, self, tx, with_changes(NO_OPTIONS, options) if options else NO_OPTIONS)


def app_of(task: Task[..., Any]) -> App:
    """Find the app that a task is registered in."""
    if not isinstance(task, AppTask):
        raise TaskError(f"task {task.name!r} belongs to no app, so its jobs have no children.")
    return task._app  # noqa: SLF001 - of this module


class AsyncAppTask(AppTask[P, R]):
    """A task of an app whose function is `async def`; R is what awaiting it gives."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Run the function here and now, once awaited."""
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class Request(Generic[P, R]):
    """A task with a transaction and options; its methods take nothing but the task's own arguments."""

    def __init__(self, app: App, task: Task[P, R], tx: Any, options: JobOptions) -> None:
        self._app, self._task, self._tx, self._options = app, task, tx, options

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Check and encode without enqueueing."""
        return self._task.build(self._options, args, kwargs)

    def item(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> Item:
        """Make an item of a batch: a job of which there is one for this key."""
        return new_item(key, self._task.build(self._options, args, kwargs, job_id=NO_ID))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Ask for the job."""
        return JobHandle(self._app.client.enqueue(self.job(*args, **kwargs), tx=self._tx), self._app)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Ask for the job without blocking the loop."""
        enqueued = await self._app.client.enqueue_async(self.job(*args, **kwargs), tx=self._tx)
        return JobHandle(enqueued, self._app)

    def enqueue_many(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Ask for many jobs: one for each tuple (by position) or dict (by name) of arguments."""
        asked = self._task.build_many(self._options, arguments)
        return [JobHandle(made, self._app) for made in self._app.client.enqueue_many(asked, tx=self._tx)]

    async def enqueue_many_async(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Ask for many jobs without blocking the loop."""
        asked = self._task.build_many(self._options, arguments)
        return [JobHandle(made, self._app) for made in await self._app.client.enqueue_many_async(asked, tx=self._tx)]
