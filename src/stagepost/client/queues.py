"""The queues of an app: their counts and lag, pauses and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Literal

from stagepost.client.arguments import actor_of, check_progress
from stagepost.client.operator_records import Queue, queue_of
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.database.store import Store
from stagepost.errors import ConfigurationError
from stagepost.model.checks import check_name
from stagepost.model.lifecycle import LIVE
from stagepost.model.option_types import check_type
from stagepost.store import queues
from stagepost.store.counting import PARTS, Drift, find_drift, repair

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Queues"]

RECOUNT_SECONDS = 3600.0


class Unchanged(Enum):
    """A limit that keeps its value."""

    UNCHANGED = "unchanged"


UNCHANGED: Literal[Unchanged.UNCHANGED] = Unchanged.UNCHANGED


class Queues:
    """All queues, for operators. The name `*` stands for all queues together."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[Queue]:
        """List the queues that have live jobs or settings, by name."""
        return run_procedure(_listing(), self._app)

    async def list_async(self) -> Sequence[Queue]:
        """List the queues without blocking the event loop."""
        return await run_procedure_async(_listing(), self._app)

    def get(self, name: str) -> Queue:
        """Read one queue; one that has neither jobs nor settings is empty and without limits."""
        return run_procedure(_getting(name), self._app)

    async def get_async(self, name: str) -> Queue:
        """Read one queue without blocking the event loop."""
        return await run_procedure_async(_getting(name), self._app)

    def pause(self, name: str, *, actor: str | None = None) -> Queue:
        """Stop starting jobs of a queue; running jobs continue. The queue need not have jobs yet."""
        return run_procedure(_pausing(name, actor), self._app)

    async def pause_async(self, name: str, *, actor: str | None = None) -> Queue:
        """Stop starting jobs of a queue without blocking the event loop."""
        return await run_procedure_async(_pausing(name, actor), self._app)

    def resume(self, name: str, *, actor: str | None = None) -> Queue:
        """Start jobs of a paused queue again."""
        return run_procedure(_resuming(name, actor), self._app)

    async def resume_async(self, name: str, *, actor: str | None = None) -> Queue:
        """Start jobs of a paused queue again without blocking the event loop."""
        return await run_procedure_async(_resuming(name, actor), self._app)

    def limit(
        self,
        name: str,
        *,
        max_running: int | Unchanged | None = UNCHANGED,
        per_second: float | Unchanged | None = UNCHANGED,
        burst: int | Unchanged | None = UNCHANGED,
        actor: str | None = None,
    ) -> Queue:
        """Limit how many jobs of a queue run at once and start per second, across all workers; None removes a limit.

        `burst` is how many jobs may start at once after an idle period; None means one second's worth. Limits that are
        not given keep their values.
        """
        return run_procedure(_limiting(name, max_running, per_second, burst, actor), self._app)

    async def limit_async(
        self,
        name: str,
        *,
        max_running: int | Unchanged | None = UNCHANGED,
        per_second: float | Unchanged | None = UNCHANGED,
        burst: int | Unchanged | None = UNCHANGED,
        actor: str | None = None,
    ) -> Queue:
        """Limit a queue without blocking the event loop."""
        return await run_procedure_async(_limiting(name, max_running, per_second, burst, actor), self._app)

    def recount(self, *, on_progress: Callable[[int, int], None] | None = None) -> Sequence[Drift]:
        """Compare the stored counts with the rows of all jobs, correct them, and return what was wrong.

        Reads every job, which may take minutes. Workers do the same continuously. `on_progress` is called with the
        number of parts that are done, and of all parts.
        """
        check_progress(on_progress)
        drifts: list[Drift] = []
        with _long_calls(self._app) as store:
            for done, part in enumerate(PARTS, start=1):
                if store.run(find_drift(part)):  # without a lock, which only a repair needs
                    drifts += store.run(repair(part))
                if on_progress is not None:
                    on_progress(done, len(PARTS))
        return drifts

    async def recount_async(self, *, on_progress: Callable[[int, int], None] | None = None) -> Sequence[Drift]:
        """Compare the stored counts with the rows, and correct them, without blocking the event loop."""
        return await asyncio.to_thread(self.recount, on_progress=on_progress)


@contextmanager
def _long_calls(app: App) -> Iterator[Store]:
    """Provide a store whose calls may take an hour; a database in memory has only one."""
    if app.store.database.is_memory:
        yield app.store
        return
    with closing(app.open_store(pool_size=1)) as store:
        store.call_seconds = RECOUNT_SECONDS
        yield store


def _listing() -> Procedure[list[Queue]]:
    found: list[queues.Queue] = yield queues.list_queues()
    return [queue_of(queue) for queue in found]


def _getting(name: str) -> Procedure[Queue]:
    _check(name)
    for queue in (yield from _listing()):
        if queue.name == name:
            return queue
    empty = queues.Queue(name, dict.fromkeys(sorted(LIVE), 0), None, queues.QueueLimits(name))
    return queue_of(empty)


def _pausing(name: str, actor: str | None) -> Procedure[Queue]:
    _check(name)
    yield queues.pause(name, actor=actor_of(actor))
    return (yield from _getting(name))


def _resuming(name: str, actor: str | None) -> Procedure[Queue]:
    _check(name)
    yield queues.resume(name, actor=actor_of(actor))
    return (yield from _getting(name))


def _limiting(
    name: str,
    max_running: int | Unchanged | None,
    per_second: float | Unchanged | None,
    burst: int | Unchanged | None,
    actor: str | None,
) -> Procedure[Queue]:
    _check(name)
    if max_running is per_second is burst is UNCHANGED:
        raise ConfigurationError("give at least one limit: max_running, per_second or burst.")
    for option, limit in (("max_running", max_running), ("burst", burst)):
        check_type(f"queue limit {option}", None if limit is UNCHANGED else limit, int | None)
    check_type("queue limit per_second", None if per_second is UNCHANGED else per_second, float | None)
    known = yield from _getting(name)
    rate = known.per_second if isinstance(per_second, Unchanged) else per_second
    kept_burst = known.burst if isinstance(per_second, Unchanged) else None
    chosen_burst = kept_burst if isinstance(burst, Unchanged) else burst
    yield queues.set_limits(
        name,
        max_running=known.max_running if isinstance(max_running, Unchanged) else max_running,
        rate=rate,
        burst=None if rate is None else chosen_burst,
        actor=actor_of(actor),
    )
    return (yield from _getting(name))


def _check(name: str) -> None:
    if name != queues.ALL_QUEUES:
        check_name("queue", name)
