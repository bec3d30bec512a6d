"""Tasks of an app: functions that can also be enqueued as jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from stagepost.client.handle import JobHandle
from stagepost.errors import ConfigurationError, TaskError
from stagepost.model.batch import Item, new_item
from stagepost.model.identity import NO_ID
from stagepost.model.job import NewJob
from stagepost.model.options import NO_OPTIONS, JobKeywords, JobOptions, with_changes
from stagepost.model.other_libraries import REQUEST_WORDS, TASK_WORDS, missing_attribute
from stagepost.model.series import Arguments
from stagepost.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stagepost.client.app import App
    from stagepost.client.client import Client
    from stagepost.model.options import TaskOptions

__all__ = ["AppTask", "AsyncAppTask", "Request", "app_of"]

P = ParamSpec("P")
R = TypeVar("R")


class AppTask(Task[P, R]):
    """A task of an app, which can be called directly or enqueued."""

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
        """Enqueue a job with these arguments, in a separate transaction."""
        return JobHandle(self._app.client.enqueue(self.build(NO_OPTIONS, args, kwargs)), self._app)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job without blocking the event loop."""
        return JobHandle(await self._app.client.enqueue_async(self.build(NO_OPTIONS, args, kwargs)), self._app)

    def enqueue_many(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Enqueue many jobs in one transaction, one for each tuple (by position) or dict (by name) of arguments."""
        return self.using().enqueue_many(arguments)

    async def enqueue_many_async(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Enqueue many jobs without blocking the event loop."""
        return await self.using().enqueue_many_async(arguments)

    def item(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> Item:
        """Create an item of a batch: a job with these arguments, at most one per key."""
        return new_item(key, self.build(NO_OPTIONS, args, kwargs, job_id=NO_ID))

    def using(self, tx: Any = None, /, **options: Unpack[JobKeywords]) -> Request[P, R]:
        """Choose the transaction and the `JobOptions` for the next job."""
        chosen = with_changes(NO_OPTIONS, options) if options else NO_OPTIONS
        queue = chosen.queue
        if queue is not None and not self.options.remote and queue in self._app.registry.remote_queues:
            raise ConfigurationError(
                f"queue {queue!r} is for remote tasks: its program does not know {self.name}. Use another queue."
            )
        return Request(self._app, self, tx, chosen)

    if not TYPE_CHECKING:  # otherwise every misspelt attribute would pass type checks

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, TASK_WORDS, written=self.__dict__.get("__name__", "task"))


def app_of(task: Task[..., Any]) -> App:
    """Return the app that a task belongs to."""
    if not isinstance(task, AppTask):
        raise TaskError(f"task {task.name!r} belongs to no app, so its jobs cannot have children.")
    return task._app  # noqa: SLF001 - of this module


class AsyncAppTask(AppTask[P, R]):
    """A task of an app whose function is `async def`; R is the type of the awaited result."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """Run the function directly, without a job, when awaited."""
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class Request(Generic[P, R]):
    """A task with a chosen transaction and options; its methods take only the task's own arguments."""

    def __init__(self, app: App, task: Task[P, R], tx: Any, options: JobOptions) -> None:
        self._app, self._task, self._tx, self._options = app, task, tx, options

    @property
    def _client(self) -> Client:
        patience = self._options.patience
        return self._app.client if patience is None else self._app.client.using(patience=patience)

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Check and encode the arguments without enqueuing the job."""
        return self._task.build(self._options, args, kwargs)

    def item(self, key: str, /, *args: P.args, **kwargs: P.kwargs) -> Item:
        """Create an item of a batch: a job with these options, at most one per key."""
        return new_item(key, self._task.build(self._options, args, kwargs, job_id=NO_ID))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue the job."""
        return JobHandle(self._client.enqueue(self.job(*args, **kwargs), tx=self._tx), self._app)

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue the job without blocking the event loop."""
        enqueued = await self._client.enqueue_async(self.job(*args, **kwargs), tx=self._tx)
        return JobHandle(enqueued, self._app)

    def enqueue_many(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Enqueue many jobs, one for each tuple (by position) or dict (by name) of arguments."""
        asked = self._task.build_many(self._options, arguments)
        return [JobHandle(made, self._app) for made in self._client.enqueue_many(asked, tx=self._tx)]

    async def enqueue_many_async(self, arguments: Sequence[Arguments]) -> list[JobHandle[R]]:
        """Enqueue many jobs without blocking the event loop."""
        asked = self._task.build_many(self._options, arguments)
        return [JobHandle(made, self._app) for made in await self._client.enqueue_many_async(asked, tx=self._tx)]

    if not TYPE_CHECKING:  # otherwise every misspelt attribute would pass type checks

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, REQUEST_WORDS, written="task.using(…)")
