"""Stops a worker: jobs finish or return to their queues, outcomes are written, and every wait has a limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from stagepost.clock import monotonic
from stagepost.errors import StoreError
from stagepost.loops.service import Service
from stagepost.store.workers import forget_worker
from stagepost.upkeep.threads import in_thread
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.loop import Stage
from stagepost.worker.parts import Parts

__all__ = ["Shutdown"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01
REASON = "the worker is shutting down"


PARTING_FROM_SILENT = 0.25
"""How long threads, and after them connections, may take to end when the database does not answer."""


class Shutdown:
    """Stops the parts of a worker in order. Each step may be repeated: an interrupted one starts again, in a hurry."""

    def __init__(self, parts: Parts, tasks: dict[Service, asyncio.Task[None]], *, shutdown_timeout: float) -> None:
        self._parts = parts
        self._requests = parts.requests
        self._tasks = tasks
        self._shutdown_timeout = shutdown_timeout
        self._ingesters = parts.broker.ingesters if parts.broker else []
        self._lease_seconds = parts.lease.total_seconds()
        self._is_silent = False

    async def run(self) -> None:
        """Stop claiming, let jobs finish, return the rest to their queues, write all outcomes and stop the loops."""
        executor = self._parts.executor
        log.info("stopping: %d jobs are running", executor.running)
        for service in self._parts.loops_of(Stage.INTAKE):
            service.stop()
        self._give_back_waiting()
        if not await self._drain():
            executor.release_running(REASON)
            await self._wait_until(lambda: not executor.running, lambda: self._requests.patience.stubborn)
            executor.abandon_running()
        self._give_back_waiting()
        self._restart(self._parts.finisher)
        if await self._while_answered(self._is_written):
            parting = asyncio.create_task(self._leave())
            await self._while_answered(parting.done)
            parting.cancel()
        for service in self._parts.loops_of(Stage.UPKEEP):
            service.stop()
        self._log_result()

    async def close(self, keeper: LeaseKeeper, watch: asyncio.Task[None]) -> None:
        """End threads and connections, and abandon those that do not end in time."""
        parts = self._parts
        parts.app.store.notifier.unsubscribe_from_stops(keeper.wake)
        for task in (*self._tasks.values(), watch):
            task.cancel()
        await self._end(
            *self._tasks.values(),
            watch,
            in_thread(parts.wakeups.stop),
            in_thread(keeper.stop),
            *(service.close() for service in self._ingesters),
        )
        keeper.abort()
        parts.executor.close()
        await self._end(in_thread(parts.store.close))
        parts.store.abort()

    def _give_back_waiting(self) -> None:
        self._parts.crash_isolation.stop()
        self._parts.crash_isolation.give_back()
        self._parts.executor.give_back_ready()

    async def _drain(self) -> bool:
        """Let handlers continue for up to `shutdown_timeout`; returns whether all have ended."""
        executor = self._parts.executor
        left = self._requests.stopped_at + self._shutdown_timeout - monotonic()
        drained = asyncio.create_task(executor.drain(max(0.0, left)))
        hurried = asyncio.create_task(self._requests.hurry.wait())
        try:
            await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
            drained.cancel()
        return not executor.running

    def _restart(self, service: Service) -> None:
        """Start a loop again that a closing event loop has cancelled."""
        if self._tasks[service].done():
            self._tasks[service] = asyncio.create_task(service.run(), name=type(service).__name__)

    def _is_written(self) -> bool:
        """Whether all outcomes are written, and no claim is in progress that may lease more jobs."""
        finisher = self._parts.finisher
        finisher.wake()
        is_claiming = any(not self._tasks[service].done() for service in self._parts.loops_of(Stage.INTAKE))
        return not finisher.pending and not is_claiming

    async def _leave(self) -> None:
        """Do what other workers would have to do later, and remove this worker's row."""
        parts = self._parts
        receiver = parts.broker.receiver if parts.broker else None
        with contextlib.suppress(StoreError):  # otherwise the upkeep of other workers does it
            await parts.limit_opener.run_once()
            await parts.concluder.flush()
        with contextlib.suppress(Exception):
            if parts.claimer.may_have_unknown_leases or (receiver is not None and receiver.may_have_unknown_leases):
                await parts.store.finish_calls()
                await parts.claimer.release_unknown_leases()
            for leader in parts.leaders:
                await leader.resign()
            await parts.store.run(forget_worker(parts.owner), patience_seconds=1)

    async def _while_answered(self, is_over: Callable[[], bool]) -> bool:
        """Wait for work of the database while it answers at all; returns whether the work is done."""
        began = monotonic()
        while not is_over():
            now, patience = monotonic(), self._requests.patience
            silent = now - max(began, self._parts.store.answered_at)
            is_late = self._requests.seconds_left(self._shutdown_timeout) < 2 * PARTING_FROM_SILENT
            writing = now - max(began, self._requests.hurried_at if self._requests.hurry.is_set() else began)
            if (silent > patience.silence and is_late) or writing > min(patience.writing, self._lease_seconds):
                self._is_silent = True
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _wait_until(self, is_over: Callable[[], bool], seconds: Callable[[], float]) -> None:
        """Wait for a condition, for a time that becomes shorter when the worker has to hurry."""
        began = monotonic()
        while not is_over() and monotonic() - began < seconds():  # noqa: ASYNC110 - as in `_while_answered`
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, *parts: Awaitable[Any]) -> None:
        """Wait for parts to end, all at the same time."""
        tasks = {asyncio.ensure_future(part) for part in parts}
        seconds = self._requests.patience.parting
        if self._is_silent:
            seconds = min(seconds, PARTING_FROM_SILENT)
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LOOK_SECONDS)
        _ignore_errors(tasks)

    def _log_result(self) -> None:
        finisher = self._parts.finisher
        if finisher.pending:
            log.warning(
                "%d outcomes could not be written because the database did not answer. Their jobs run again when the "
                "leases end",
                finisher.pending,
            )
        log.info("stopped: %d jobs settled, %d lost to other workers", finisher.settled, finisher.lost)


def _ignore_errors(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Retrieve errors, so that asyncio does not log them: they do not matter any more."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
