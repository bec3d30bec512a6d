"""Handles to enqueued jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from stagepost.model.batch import Counts
from stagepost.model.job import Enqueued

__all__ = ["JobHandle", "ResultReader"]

R = TypeVar("R")


class ResultReader(Protocol):
    """Reads results, children and progress of jobs, for plain and for async code."""

    def result(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any: ...

    async def result_async(self, job_id: str, *, timeout: timedelta | float | None = None) -> Any: ...

    def children_of(self, job_id: str) -> Counts: ...

    async def children_of_async(self, job_id: str) -> Counts: ...

    def progress_of(self, job_id: str) -> Any: ...

    async def progress_of_async(self, job_id: str) -> Any: ...


class JobHandle(Generic[R]):
    """An enqueued job: its id, whether this request created it, and access to its result."""

    __slots__ = ("_reader", "id", "is_new")

    def __init__(self, enqueued: Enqueued, reader: ResultReader) -> None:
        self.id = enqueued.id
        self.is_new = enqueued.is_new
        self._reader = reader

    def result(self, *, timeout: timedelta | float | None = None) -> R:
        """Wait until the job ends; raises JobFailed if it ends without a result, or WaitTimeout after `timeout`."""
        result: R = self._reader.result(self.id, timeout=timeout)
        return result

    async def result_async(self, *, timeout: timedelta | float | None = None) -> R:
        """Wait like `result`, without blocking the event loop."""
        result: R = await self._reader.result_async(self.id, timeout=timeout)
        return result

    def children(self) -> Counts:
        """Count the job's children by state."""
        return self._reader.children_of(self.id)

    async def children_async(self) -> Counts:
        """Count the job's children by state without blocking the event loop."""
        return await self._reader.children_of_async(self.id)

    def progress(self) -> Any:
        """Return the latest progress that the job reported, as its task's `progress` type; None if there is none.

        The value may be a second or two old. A new attempt starts without progress, and an ended job has none.
        """
        return self._reader.progress_of(self.id)

    async def progress_async(self) -> Any:
        """Return the latest progress that the job reported, without blocking the event loop."""
        return await self._reader.progress_of_async(self.id)

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, is_new={self.is_new})"
