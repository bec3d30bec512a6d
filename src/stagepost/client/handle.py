"""Handles to jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stagepost.errors import IllegalTransition
from stagepost.model.batch import Counts
from stagepost.model.job import Enqueued
from stagepost.model.lifecycle import JobState
from stagepost.model.other_libraries import HANDLE_WORDS, missing_attribute

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["JobHandle"]

R = TypeVar("R")


class JobHandle(Generic[R]):
    """A job: its id, whether this request created it, and what can be asked of it and done with it."""

    __slots__ = ("_app", "id", "is_new")

    def __init__(self, enqueued: Enqueued, app: App) -> None:
        self.id = enqueued.id
        self.is_new = enqueued.is_new
        self._app = app

    def state(self, *, tx: Any = None) -> JobState:
        """Read the job's current state from the database."""
        return self._app.client.job(self.id, tx=tx).state

    async def state_async(self, *, tx: Any = None) -> JobState:
        """Read the job's current state without blocking the event loop."""
        return (await self._app.client.job_async(self.id, tx=tx)).state

    def wait(self, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait until the job ends and return its state; raises WaitTimeout after `timeout`."""
        return self._app.client.wait(self.id, timeout=timeout)

    async def wait_async(self, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait like `wait`, without blocking the event loop."""
        return await self._app.client.wait_async(self.id, timeout=timeout)

    def result(self, *, timeout: timedelta | float | None = None) -> R:
        """Wait until the job ends; raises JobFailed if it ends without a result, or WaitTimeout after `timeout`."""
        result: R = self._app.client.result(self.id, timeout=timeout)
        return result

    async def result_async(self, *, timeout: timedelta | float | None = None) -> R:
        """Wait like `result`, without blocking the event loop."""
        result: R = await self._app.client.result_async(self.id, timeout=timeout)
        return result

    def cancel(self, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Cancel the job and its children, or ask a running one to stop; returns its state after the call."""
        return self._app.client.cancel(self.id, actor=actor, tx=tx)

    async def cancel_async(self, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Cancel the job without blocking the event loop."""
        return await self._app.client.cancel_async(self.id, actor=actor, tx=tx)

    def retry(self, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Queue the job again; raises IllegalTransition unless it has ended. Returns its state after the call."""
        queued = self._app.client.retry(self.id, actor=actor, tx=tx)
        return self._retried(queued, self.state(tx=tx))

    async def retry_async(self, *, actor: str | None = None, tx: Any = None) -> JobState:
        """Queue the job again without blocking the event loop."""
        queued = await self._app.client.retry_async(self.id, actor=actor, tx=tx)
        return self._retried(queued, await self.state_async(tx=tx))

    def children(self) -> Counts:
        """Count the job's children by state."""
        return self._app.client.children_of(self.id)

    async def children_async(self) -> Counts:
        """Count the job's children by state without blocking the event loop."""
        return await self._app.client.children_of_async(self.id)

    def progress(self) -> Any:
        """Return the latest progress that the job reported, as its task's `progress` type; None if there is none.

        The value may be a second or two old. A new attempt starts without progress, and an ended job has none.
        """
        return self._app.client.progress_of(self.id)

    async def progress_async(self) -> Any:
        """Return the latest progress that the job reported, without blocking the event loop."""
        return await self._app.client.progress_of_async(self.id)

    def _retried(self, queued: list[str], state: JobState) -> JobState:
        if not queued:
            raise IllegalTransition(self.id, state, "be retried")
        return state

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, is_new={self.is_new})"

    if not TYPE_CHECKING:  # otherwise every misspelt attribute would pass type checks

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, HANDLE_WORDS)
