"""Lets a handler submit children and read their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from stagepost.client.client import typed_result
from stagepost.client.handle import JobHandle
from stagepost.client.tasks import AppTask, app_of
from stagepost.database.statement import Operation
from stagepost.errors import ConfigurationError
from stagepost.model.batch import Item, new_item
from stagepost.model.children import NewChild
from stagepost.model.groups import groups_of
from stagepost.model.job import JobRow, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.options import NO_OPTIONS, JobOptions, with_changes
from stagepost.store.listing import list_jobs
from stagepost.task import Task

if TYPE_CHECKING:
    from stagepost.client.app import App
    from stagepost.client.running import RunningAttempt

__all__ = ["Child", "Submission", "read_children", "read_children_async", "submit_all", "submit_all_async"]

P = ParamSpec("P")
R = TypeVar("R")

CHUNK = 1000
PAGE = 500


class Child(msgspec.Struct, Generic[R], frozen=True):
    """A child's current state and result."""

    key: str
    """The key that it was submitted with, or its number."""
    state: JobState
    """Its current state; in a continuation, all children have ended."""
    result: R | None
    """Its task's return value, decoded as the return type; None unless it completed."""
    error: str | None
    """Its error, if it ended without a result."""
    job_id: str
    """The id of its job."""


class Submission:
    """Submits a child with a given transaction, key and options; its methods take a task and its arguments."""

    def __init__(self, running: RunningAttempt, tx: Any, key: str | None, options: dict[str, Any]) -> None:
        if options.keys() & NOT_FOR_CHILDREN:
            raise ConfigurationError("a child is identified by its `key`: leave out `id` and `unique_key`.")
        self._running, self._tx, self._key = running, tx, key
        self._options: JobOptions = with_changes(NO_OPTIONS, options) if options else NO_OPTIONS

    def submit(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child and return its handle."""
        [handle] = submit_all(self._running, [self._child(task, args, kwargs)], self._tx)
        return handle

    async def submit_async(self, task: AppTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a child without blocking the event loop."""
        [handle] = await submit_all_async(self._running, [self._child(task, args, kwargs)], self._tx)
        return handle

    def _child(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob | Item:
        job = task.build(self._options, args, kwargs)
        return job if self._key is None else new_item(self._key, job)


NOT_FOR_CHILDREN = frozenset({"id", "unique_key", "unique_for", "on_conflict"})


def submit_all(running: RunningAttempt, jobs: Iterable[NewJob | Item], tx: Any) -> list[JobHandle[Any]]:
    """Submit children, one transaction per chunk, or all in the caller's transaction."""
    app = app_of(running.task)
    handles: list[JobHandle[Any]] = []
    for chunk in _chunks(running, jobs, None if tx is not None else CHUNK):
        made = app.client.submit(running.job, chunk, tx=tx)
        handles += [JobHandle(enqueued, app) for enqueued in made]
    return handles


async def submit_all_async(running: RunningAttempt, jobs: Iterable[NewJob | Item], tx: Any) -> list[JobHandle[Any]]:
    """Submit children without blocking the event loop."""
    app = app_of(running.task)
    handles: list[JobHandle[Any]] = []
    for chunk in _chunks(running, jobs, None if tx is not None else CHUNK):
        made = await app.client.submit_async(running.job, chunk, tx=tx)
        handles += [JobHandle(enqueued, app) for enqueued in made]
    return handles


def _chunks(running: RunningAttempt, jobs: Iterable[NewJob | Item], most: int | None) -> Iterator[Sequence[NewChild]]:
    children = (_numbered(running, job) for job in jobs)
    if most is None:
        if chunk := list(children):
            yield chunk
        return
    yield from groups_of(children, size=lambda child: len(child.job.payload), most=most)


def _numbered(running: RunningAttempt, job: NewJob | Item) -> NewChild:
    if isinstance(job, Item):
        return NewChild(job.job, job.key)
    if job.unique_key is not None:
        raise ConfigurationError(f"a child has unique key {job.unique_key!r}. Use `task.item(key, …)` instead.")
    return NewChild(job, number=next(running.numbers))


def read_children(running: RunningAttempt, task: Task[..., Any] | None) -> Iterator[Child[Any]]:
    """Read children page by page."""
    app = app_of(running.task)
    before: str | None = None
    while True:
        page = app.store.run(_page(running.job.id, task, before))
        yield from (_child(app, job) for job in page)
        if len(page) < PAGE:
            return
        before = page[-1].id


async def read_children_async(running: RunningAttempt, task: Task[..., Any] | None) -> AsyncIterator[Child[Any]]:
    """Read children page by page without blocking the event loop."""
    app = app_of(running.task)
    before: str | None = None
    while True:
        page = await app.async_store.run(_page(running.job.id, task, before))
        for job in page:
            yield _child(app, job)
        if len(page) < PAGE:
            return
        before = page[-1].id


def _page(job_id: str, task: Task[..., Any] | None, before: str | None) -> Operation[list[JobRow]]:
    return list_jobs(batch_id=job_id, task_name=None if task is None else task.name, before=before, most=PAGE)


def _child(app: App, job: JobRow) -> Child[Any]:
    result = typed_result(job, app.registry)
    return Child(job.item_key or "", job.state, result, job.error, job.id)
