"""The batches, gates and runs of an app, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from stagepost.client.arguments import choice, filter_of, id_text, page_size, page_start
from stagepost.client.operator_records import GateStatus, RunSummary, gate_status_of, run_summary_of
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.records import Batch, batch_of
from stagepost.client.runs import RunHandle
from stagepost.errors import ConfigurationError, GateNotFound, RunNotFound
from stagepost.model.batch import BatchRow, BatchState, Progress, check_key, progress_of, summary_of
from stagepost.model.checks import checked_id
from stagepost.model.pipeline import Run, RunState
from stagepost.store import gates
from stagepost.store.batches import list_batches
from stagepost.store.counting import count_items
from stagepost.store.health import ping
from stagepost.store.runs import get, list_runs

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["BatchProgress", "Batches", "Gates", "Runs"]


class BatchProgress(msgspec.Struct, frozen=True):
    """A batch of a list, and its progress."""

    batch: Batch
    progress: Progress


class Batches:
    """All batches, for operators."""

    def __init__(self, app: App) -> None:
        self._app = app

    def page(
        self,
        *,
        state: BatchState | Literal["open", "sealed", "done"] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[BatchProgress]:
        """List a page of up to 1,000 batches with their progress, newest first; `before` is the last id so far."""
        return run_procedure(_paging_batches(state, before, limit), self._app)

    async def page_async(
        self,
        *,
        state: BatchState | Literal["open", "sealed", "done"] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[BatchProgress]:
        """List a page of batches without blocking the event loop."""
        return await run_procedure_async(_paging_batches(state, before, limit), self._app)


class Gates:
    """All gates, for operators."""

    def __init__(self, app: App) -> None:
        self._app = app

    def page(self, *, after: str = "", limit: int = 50) -> Sequence[GateStatus]:
        """List a page of up to 1,000 gates by name; `after` is the last name of the previous page."""
        return run_procedure(_paging_gates(after, limit), self._app)

    async def page_async(self, *, after: str = "", limit: int = 50) -> Sequence[GateStatus]:
        """List a page of gates without blocking the event loop."""
        return await run_procedure_async(_paging_gates(after, limit), self._app)

    def get(self, name: str) -> GateStatus:
        """Read a gate and the first batches that keep it closed; raises GateNotFound."""
        return run_procedure(_getting_gate(name), self._app)

    async def get_async(self, name: str) -> GateStatus:
        """Read a gate without blocking the event loop."""
        return await run_procedure_async(_getting_gate(name), self._app)


class Runs:
    """All runs of pipelines, for operators."""

    def __init__(self, app: App) -> None:
        self._app = app

    def page(
        self,
        *,
        pipeline: str | None = None,
        state: RunState | str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[RunSummary]:
        """List a page of up to 1,000 runs, newest first; `before` is the last id of the previous page."""
        return run_procedure(_paging_runs(pipeline, state, before, limit), self._app)

    async def page_async(
        self,
        *,
        pipeline: str | None = None,
        state: RunState | str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[RunSummary]:
        """List a page of runs without blocking the event loop."""
        return await run_procedure_async(_paging_runs(pipeline, state, before, limit), self._app)

    def get(self, run_id: str) -> RunHandle:
        """Get a handle to a run, to watch, retry or cancel it; raises RunNotFound."""
        return RunHandle(self._app, self._app.store.run(get(_known(run_id))), is_new=False)

    async def get_async(self, run_id: str) -> RunHandle:
        """Get a handle to a run without blocking the event loop."""
        return RunHandle(self._app, await self._app.async_store.run(get(_known(run_id))), is_new=False)


def _paging_batches(state: BatchState | str | None, before: str | None, limit: int) -> Procedure[list[BatchProgress]]:
    wanted = choice("state", state, BatchState)
    found: list[BatchRow] = yield list_batches(state=wanted, before=page_start(before), most=page_size(limit))
    now: int = yield ping()
    page: list[BatchProgress] = []
    for row in found:
        counts = yield count_items(row.id)
        page.append(BatchProgress(batch_of(row), progress_of(row, counts, now=now)))
    return page


def _paging_gates(after: str, limit: int) -> Procedure[list[GateStatus]]:
    start = "" if after == "" else filter_of("after", after)
    found: list[gates.StoredGate] = yield gates.list_gates(after=start or "", most=page_size(limit))
    return [gate_status_of(gate, {}) for gate in found]


def _getting_gate(name: str) -> Procedure[GateStatus]:
    check_key("gate name", name)
    gate: gates.StoredGate | None = yield gates.find_gate(name)
    if gate is None:
        raise GateNotFound(name)
    status: gates.GateStatus = yield gates.status(name)
    batches: Mapping[str, str] = {one.batch.key: summary_of(one.batch.state, one.counts) for one in status.batches}
    return gate_status_of(gate, batches)


def _paging_runs(
    pipeline: str | None, state: RunState | str | None, before: str | None, limit: int
) -> Procedure[list[RunSummary]]:
    found: list[Run] = yield list_runs(
        pipeline=filter_of("pipeline", pipeline),
        state=choice("state", state, RunState),
        before=page_start(before),
        most=page_size(limit),
    )
    return [run_summary_of(run) for run in found]


def _known(run_id: str) -> str:
    """Normalize the id of a run; no run has an id that is not a UUID."""
    text = id_text(run_id)
    try:
        return checked_id(text)
    except ConfigurationError:
        raise RunNotFound(text) from None
