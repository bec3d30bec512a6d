"""Reads the items of a batch page by page, and writes them to files."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from stagepost.client.client import typed_result
from stagepost.database.statement import Operation
from stagepost.model.batch import BatchRow, StoredItem
from stagepost.model.job import JobRow
from stagepost.model.lifecycle import JobState
from stagepost.store.listing import list_items
from stagepost.task import Registry

__all__ = ["ItemPages", "lines_of", "writing_to"]

PAGE = 500


class ItemPages:
    """Yields operations that each read a page; pass every result to `take` or `jobs` before the next iteration."""

    def __init__(self, batch: BatchRow, states: Sequence[JobState], registry: Registry, *, size: int = PAGE) -> None:
        self._batch = batch
        self._states = states
        self._registry = registry
        self._size = size
        self._last: str | None = None
        self._is_over = False

    def __iter__(self) -> Iterator[Operation[list[JobRow]]]:
        while not self._is_over:
            self._is_over = True  # unless the page turns out to be full
            yield list_items(self._batch.id, states=self._states, before=self._last, most=self._size)

    def jobs(self, page: list[JobRow]) -> list[JobRow]:
        """Process a page; an item that ended during the read appears twice, and counts as ended."""
        if page:
            self._last = page[-1].id
            self._is_over = len(page) < self._size
        return list({job.id: job for job in page}.values())

    def take(self, page: list[JobRow]) -> list[StoredItem]:
        """Process a page, and decode results as their tasks' return types."""
        return [
            StoredItem(job.item_key or "", job.state, typed_result(job, self._registry), job.error, job.id)
            for job in self.jobs(page)
        ]


def lines_of(jobs: Sequence[JobRow]) -> list[bytes]:
    """Format each item as a line of JSON."""
    return [
        msgspec.json.encode(
            {
                "key": job.item_key,
                "state": job.state,
                "result": None if job.result is None else msgspec.Raw(job.result.encode()),
                "error": job.error,
            }
        )
        + b"\n"
        for job in jobs
    ]


@contextlib.contextmanager
def writing_to(file: str | Path | IO[Any]) -> Iterator[Callable[[list[bytes]], int]]:
    """Provide a function that writes lines to a path or an open file, and returns how many."""
    with contextlib.ExitStack() as stack:
        target: Any = stack.enter_context(Path(file).open("wb")) if isinstance(file, str | Path) else file

        def write(lines: list[bytes]) -> int:
            text = b"".join(lines)
            target.write(text.decode() if isinstance(target, io.TextIOBase) else text)
            return len(lines)

        yield write
