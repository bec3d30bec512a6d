"""Handles to batches: any number of items, added in chunks and counted together."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from stagepost.client.arguments import actor_of, choices, keys_of, page_size
from stagepost.client.item_feed import CHUNK, ItemFeed, check_chunk, read_all, read_all_async
from stagepost.client.item_pages import ItemPages, lines_of, writing_to
from stagepost.client.loading import load, load_async
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.records import Batch, batch_of
from stagepost.client.waiting import late, pauses
from stagepost.database.statement import Operation
from stagepost.errors import BatchNotFound, ConfigurationError
from stagepost.model.batch import (
    BatchRow,
    BatchState,
    Counts,
    Cursor,
    Item,
    NewBatch,
    OnFailed,
    Progress,
    StoredItem,
    check_key,
    progress_of,
)
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.option_types import check_type
from stagepost.store import batch_items, batches, cancelling, concluding, counting, listing
from stagepost.store.health import ping
from stagepost.store.listing import FailedGroup
from stagepost.store.wait_reasons import why_batch_waits

if TYPE_CHECKING:
    from stagepost.client.app import App
    from stagepost.client.gates import Gate

__all__ = ["BatchHandle"]

T = TypeVar("T")

ITEMS = "Make a list, with task.item(key, …) for each."
AT_ONCE = 500
"""Number of items that are retried, waived or cancelled in one transaction."""

Source = Iterable[Item] | Callable[[Cursor], Iterable[Item]]
AsyncSource = Source | AsyncIterable[Item] | Callable[[Cursor], AsyncIterable[Item]]


class BatchHandle:
    """A batch, identified by its key; it is stored when the first items are added or when it is sealed.

    As a context manager (`with` or `async with`) it seals the batch at the end, unless the body raised.
    """

    def __init__(
        self,
        app: App,
        key: str,
        *,
        gate: Gate | None = None,
        on_failed: str = OnFailed.FINISH,
        on_complete: NewJob | None = None,
    ) -> None:
        check_key("batch key", key)
        if on_failed not in tuple(OnFailed):
            raise ConfigurationError(f"on_failed is {on_failed!r}. Valid values are: {', '.join(OnFailed)}.")
        self.key = key
        self._app = app
        self._gate = None if gate is None else gate.name
        self._on_open = None if gate is None or gate.on_open is None else msgspec.json.encode(gate.on_open).decode()
        self._on_failed = OnFailed(on_failed)
        self._on_complete = None if on_complete is None else msgspec.json.encode(on_complete).decode()

    def __repr__(self) -> str:
        return f"BatchHandle({self.key!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.seal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            await self.seal_async()

    def add(self, items: Iterable[Item], *, tx: Any = None, chunk: int = CHUNK) -> int:
        """Add items from `task.item(...)`, one transaction per chunk; returns how many were new.

        There may be any number of items, and they are never all in memory at once. With `tx`, the caller's
        transaction holds all of them, up to 10,000.
        """
        check_type("items", items, Iterable, advice=ITEMS)
        if tx is not None:
            return self._run(self._adding(read_all(self.key, items), tx), tx)
        check_chunk(chunk)
        return load(self._app, self._feed(self._run(self._opening())), items, chunk=chunk)

    async def add_async(
        self, items: Iterable[Item] | AsyncIterable[Item], *, tx: Any = None, chunk: int = CHUNK
    ) -> int:
        """Add items like `add`, from a plain or an async iterable."""
        check_type("items", items, Iterable | AsyncIterable, advice=ITEMS)
        if tx is not None:
            return await self._run_async(self._adding(await read_all_async(self.key, items), tx), tx)
        check_chunk(chunk)
        feed = self._feed(await self._run_async(self._opening()))
        return await load_async(self._app, feed, items, chunk=chunk)

    def resume(self, source: Source, *, chunk: int = CHUNK) -> int:
        """Continue where a producer stopped, or start from the beginning; returns how many items were new.

        `source` must yield the same items in the same order as before. It is an iterable, whose stored items are
        skipped, or a function that takes the Cursor and returns the rest. Several producers may resume at once.
        """
        check_chunk(chunk)
        feed, rest = self._resuming(source, self._run(self._opening()))
        return load(self._app, feed, rest, chunk=chunk)

    async def resume_async(self, source: AsyncSource, *, chunk: int = CHUNK) -> int:
        """Continue like `resume`; `source` may be or return an async iterable."""
        check_chunk(chunk)
        feed, rest = self._resuming(source, await self._run_async(self._opening()))
        return await load_async(self._app, feed, rest, chunk=chunk)

    def seal(self, *, tx: Any = None) -> Batch:
        """Declare that no more items will be added, so that the batch is done when the last one has ended."""
        return batch_of(self._run(self._sealing(), tx))

    async def seal_async(self, *, tx: Any = None) -> Batch:
        """Declare that no more items will be added, so that the batch is done when the last one has ended."""
        return batch_of(await self._run_async(self._sealing(), tx))

    def stored(self, *, tx: Any = None) -> Batch:
        """Read the batch's current state from the database; raises BatchNotFound before the first item is added."""
        return batch_of(self._run(self._finding(), tx))

    async def stored_async(self, *, tx: Any = None) -> Batch:
        """Read the batch's current state from the database; raises BatchNotFound before the first item is added."""
        return batch_of(await self._run_async(self._finding(), tx))

    def state(self, *, tx: Any = None) -> BatchState:
        """Read from the database whether the batch is open, sealed or done."""
        return self.stored(tx=tx).state

    async def state_async(self, *, tx: Any = None) -> BatchState:
        """Read from the database whether the batch is open, sealed or done."""
        return (await self.stored_async(tx=tx)).state

    def counts(self, *, tx: Any = None) -> Counts:
        """Count the items by state; the counts are exact for one moment."""
        return self._run(self._counting(), tx)

    async def counts_async(self, *, tx: Any = None) -> Counts:
        """Count the items by state; the counts are exact for one moment."""
        return await self._run_async(self._counting(), tx)

    def progress(self, since: Progress | None = None) -> Progress:
        """Return the batch's progress, its ETA, and its rate since its start or `since` an earlier progress."""
        return self._run(self._measuring(since))

    async def progress_async(self, since: Progress | None = None) -> Progress:
        """Return the batch's progress, its ETA, and its rate since its start or `since` an earlier progress."""
        return await self._run_async(self._measuring(since))

    def recount(self) -> list[counting.Drift]:
        """Compare the batch's stored counts with its items, correct them, and return what was wrong."""
        return self._run(self._recounting())

    async def recount_async(self) -> list[counting.Drift]:
        """Compare the batch's stored counts with its items, and correct them, without blocking the event loop."""
        return await self._run_async(self._recounting())

    def wait(self, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait until the batch is done; returns completed, completed_with_errors, failed or cancelled."""
        return self._run(self._waiting(timeout))

    async def wait_async(self, *, timeout: timedelta | float | None = None) -> JobState:
        """Wait until the batch is done; returns completed, completed_with_errors, failed or cancelled."""
        return await self._run_async(self._waiting(timeout))

    def failed(self, *, limit: int = 100) -> list[FailedGroup]:
        """Group failed items by reason, most frequent first, up to `limit` groups."""
        return self._run(self._grouping(limit))

    async def failed_async(self, *, limit: int = 100) -> list[FailedGroup]:
        """Group failed items by reason, most frequent first, up to `limit` groups."""
        return await self._run_async(self._grouping(limit))

    def items(self, states: Iterable[JobState] = ()) -> Iterator[StoredItem]:
        """Iterate over the items, optionally only those in `states`, page by page and in no particular order."""
        pages = self._pages(self._run(self._finding()), states)
        for page in pages:
            yield from pages.take(self._app.store.run(page))

    async def items_async(self, states: Iterable[JobState] = ()) -> AsyncIterator[StoredItem]:
        """Iterate over the items, optionally only those in `states`, page by page and in no particular order."""
        pages = self._pages(await self._run_async(self._finding()), states)
        for page in pages:
            for item in pages.take(await self._app.async_store.run(page)):
                yield item

    def export(self, file: str | Path | IO[Any], states: Iterable[JobState] = ()) -> int:
        """Write items to a file, one JSON object per line (key, state, result, error); returns how many."""
        pages = self._pages(self._run(self._finding()), states)
        with writing_to(file) as write:
            return sum(write(lines_of(pages.jobs(self._app.store.run(page)))) for page in pages)

    async def export_async(self, file: str | Path | IO[Any], states: Iterable[JobState] = ()) -> int:
        """Write items to a file, one JSON object per line (key, state, result, error); returns how many."""
        pages = self._pages(await self._run_async(self._finding()), states)
        with writing_to(file) as write:
            return sum([write(lines_of(pages.jobs(await self._app.async_store.run(page)))) for page in pages])

    def retry(self, keys: Iterable[str] | None = None, *, actor: str | None = None) -> int:
        """Queue all failed items again, or only those with these keys; returns how many."""
        return self._run(self._retrying(keys, actor))

    async def retry_async(self, keys: Iterable[str] | None = None, *, actor: str | None = None) -> int:
        """Queue all failed items again, or only those with these keys; returns how many."""
        return await self._run_async(self._retrying(keys, actor))

    def waive(self, keys: Iterable[str] | None = None, *, why: str, actor: str | None = None) -> int:
        """Let the batch continue without its failed items, or those with these keys; records why, returns how many."""
        return self._run(self._waiving(keys, why, actor))

    async def waive_async(self, keys: Iterable[str] | None = None, *, why: str, actor: str | None = None) -> int:
        """Let the batch continue without its failed items, or those with these keys; records why, returns how many."""
        return await self._run_async(self._waiving(keys, why, actor))

    def cancel(self, *, actor: str | None = None) -> BatchState:
        """Accept no more items, cancel waiting ones and ask running ones to stop; returns the state after the call."""
        return self._run(self._cancelling(actor)).state

    async def cancel_async(self, *, actor: str | None = None) -> BatchState:
        """Accept no more items, cancel waiting ones and ask running ones to stop; returns the state after the call."""
        return (await self._run_async(self._cancelling(actor))).state

    def _run(self, procedure: Procedure[T], tx: Any = None) -> T:
        return run_procedure(procedure, self._app, tx)

    async def _run_async(self, procedure: Procedure[T], tx: Any = None) -> T:
        return await run_procedure_async(procedure, self._app, tx)

    def _new(self) -> NewBatch:
        return NewBatch(
            id=new_id(), key=self.key, gate=self._gate, on_failed=self._on_failed, on_complete=self._on_complete
        )

    def _opening(self) -> Procedure[BatchRow]:
        batch: BatchRow = yield batches.open_batch(self._new(), on_open=self._on_open)
        return batch

    def _feed(self, batch: BatchRow) -> ItemFeed:
        return ItemFeed(batch, notify=self._app.waker.to_others)

    def _resuming(self, source: Any, batch: BatchRow) -> tuple[ItemFeed, Any]:
        is_rest = callable(source)
        position = batch.position if is_rest else 0
        feed = ItemFeed(batch, position=position, resumes=True, notify=self._app.waker.to_others)
        return feed, source(batch.cursor) if is_rest else source

    def _adding(self, items: Sequence[Item], tx: Any) -> Procedure[int]:
        hints = self._app.waker
        added = yield batches.add_to(self._new(), items, on_open=self._on_open, notify=hints.to_others)
        hints.wake([item.job for item in items], tx)
        new: int = added.new
        return new

    def _sealing(self) -> Procedure[BatchRow]:
        batch: BatchRow = yield concluding.seal_key(self._new(), on_open=self._on_open)
        return batch

    def _finding(self) -> Procedure[BatchRow]:
        batch: BatchRow | None = yield batches.find(self.key)
        if batch is None:
            raise BatchNotFound(self.key)
        return batch

    def _counting(self) -> Procedure[Counts]:
        batch = yield from self._finding()
        counts: Counts = yield counting.count_items(batch.id)
        return counts

    def _measuring(self, since: Progress | None) -> Procedure[Progress]:
        check_type("since", since, Progress | None)
        batch = yield from self._finding()
        counts = yield counting.count_items(batch.id)
        return progress_of(batch, counts, now=(yield ping()), since=since)

    def _recounting(self) -> Procedure[list[counting.Drift]]:
        batch = yield from self._finding()
        drifts: list[counting.Drift] = yield counting.repair_batch(batch.id)
        return drifts

    def _waiting(self, timeout: timedelta | float | None) -> Procedure[JobState]:
        subject = f"batch {self.key!r}"
        for pause in pauses(timeout, subject):
            batch = yield from self._finding()
            if batch.outcome is not None:
                return batch.outcome
            yield pause
        raise late(timeout, subject, missing="was not done", why=(yield why_batch_waits(self.key)))

    def _grouping(self, limit: int) -> Procedure[list[FailedGroup]]:
        batch = yield from self._finding()
        groups: list[FailedGroup] = yield listing.failed_groups(batch.id, most=page_size(limit))
        return groups

    def _pages(self, batch: BatchRow, states: Iterable[JobState]) -> ItemPages:
        return ItemPages(batch, choices("states", states, JobState), self._app.registry)

    def _retrying(self, keys: Iterable[str] | None, actor: str | None) -> Procedure[int]:
        who = actor_of(actor)

        def retry(batch_id: str, **chosen: Any) -> Operation[list[str]]:
            return batch_items.retry_failed(batch_id, actor=who, **chosen)

        return self._for_each_failed(retry, keys)

    def _waiving(self, keys: Iterable[str] | None, why: str, actor: str | None) -> Procedure[int]:
        check_type(f"batch {self.key!r}: why", why, str)
        if not why.strip():
            raise ConfigurationError(f"batch {self.key!r}: give the reason as `why`. It is recorded with the items.")
        who = actor_of(actor)

        def waive(batch_id: str, **chosen: Any) -> Operation[list[str]]:
            return batch_items.waive(batch_id, actor=who, why=why, **chosen)

        return self._for_each_failed(waive, keys)

    def _for_each_failed(self, act: Callable[..., Operation[list[str]]], keys: Iterable[str] | None) -> Procedure[int]:
        """Act on failed items page by page until none is left."""
        batch = yield from self._finding()
        done = 0
        if keys is not None:
            asked = keys_of(f"batch {self.key!r}", keys) or []
            for start in range(0, len(asked), AT_ONCE):
                done += len((yield act(batch.id, keys=asked[start : start + AT_ONCE])))
            return done
        after = ""
        while ids := (yield act(batch.id, after=after, most=AT_ONCE)):
            done, after = done + len(ids), ids[-1]
        return done

    def _cancelling(self, actor: str | None) -> Procedure[BatchRow]:
        batch = yield from self._finding()
        yield cancelling.cancel_batch(batch.id, actor=actor_of(actor))
        after: str | None = ""
        while after is not None:
            after = yield cancelling.cancel_items(batch.id, after=after, most=AT_ONCE)
        return (yield from self._finding())
