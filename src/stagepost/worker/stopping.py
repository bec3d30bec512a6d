"""How a worker ends: handlers finish or are given back, everything is written, and no wait lasts for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagepost.clock import monotonic
from stagepost.errors import StoreError
from stagepost.loops.service import Service
from stagepost.store.workers import forget_worker
from stagepost.upkeep.threads import in_thread
from stagepost.worker.lease_keeper import LeaseKeeper

if TYPE_CHECKING:
    from stagepost.worker.worker import Worker

__all__ = ["HURRIED", "UNHURRIED", "Patience", "Requests", "Shutdown"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01
REASON = "the worker is shutting down"


@dataclass(frozen=True)
class Patience:
    """How long the parts of a shutdown may take, in seconds."""

    stubborn: float
    """How long handlers that were told to stop may take to notice."""
    silence: float
    """How long the database has at least to answer before what is not written is left to the end of its lease."""
    writing: float
    """How long a database that does answer has to take everything, within a lease."""
    parting: float
    """How long threads and connections may take to end."""
    total: float
    """How long all of this may take, after the time that handlers have, while the database answers nothing."""


UNHURRIED = Patience(stubborn=2.0, silence=2.0, writing=float("inf"), parting=3.0, total=4.5)
HURRIED = Patience(stubborn=0.5, silence=0.75, writing=5.0, parting=0.25, total=1.8)
PARTING_FROM_SILENT = 0.25
"""How long threads and connections may take to end, twice, when the database has not answered."""


class Requests:
    """When a worker was asked to stop, and to hurry; and so how long it may still take."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.stopped_at = float("inf")
        self.hurried_at = float("inf")

    def note_stop(self) -> None:
        """Ask it to stop; a repeated request changes nothing."""
        if not self.stop.is_set():
            self.stopped_at = monotonic()
            self.stop.set()

    def note_hurry(self) -> None:
        """Ask it to end at once; a repeated request changes nothing."""
        self.note_stop()
        if not self.hurry.is_set():
            self.hurried_at = monotonic()
            self.hurry.set()

    @property
    def patience(self) -> Patience:
        """What applies at the moment."""
        return HURRIED if self.hurry.is_set() else UNHURRIED

    def seconds_left(self, shutdown_timeout: float) -> float:
        """Say how long the process may still take to end if nothing answers."""
        ends_at = min(self.hurried_at + HURRIED.total, self.stopped_at + shutdown_timeout + UNHURRIED.total)
        return ends_at - monotonic()


class Shutdown:
    """Takes a worker apart. Each step may be repeated: what interrupts one begins again from the start, in a hurry."""

    def __init__(self, worker: Worker, tasks: dict[Service, asyncio.Task[None]]) -> None:
        self._worker = worker
        self._requests = worker.requests
        self._tasks = tasks
        self._taking = worker.broker.taking if worker.broker else []
        self._lease_seconds = worker.lease.total_seconds()
        self._is_silent = False

    async def run(self) -> None:
        """Stop claiming, drain with leases kept, give back what is left, write it all, stop the rest."""
        worker, executor = self._worker, self._worker.executor
        log.info("stopping: %d jobs are running", executor.running)
        worker.claimer.stop()
        for taker in self._taking:
            taker.stop()
        self._give_back_waiting()
        if not await self._drain():
            executor.release_running(REASON)
            await self._for(lambda: not executor.running, lambda: self._requests.patience.stubborn)
            executor.abandon_running()
        self._give_back_waiting()
        self._revive(worker.finisher)
        if await self._while_answered(self._is_written):
            parting = asyncio.create_task(self._part())
            await self._while_answered(parting.done)
            parting.cancel()
        for service in worker.upkeep:
            service.stop()
        self._tell()

    async def close(self, keeper: LeaseKeeper, watch: asyncio.Task[None]) -> None:
        """End threads and connections; leave behind what does not end in time."""
        worker = self._worker
        worker.app.store.notifier.unsubscribe_from_stops(keeper.wake)
        for task in (*self._tasks.values(), watch):
            task.cancel()
        await self._end(
            *self._tasks.values(),
            watch,
            in_thread(worker.wakeups.stop),
            in_thread(keeper.stop),
            *(service.close() for service in self._taking),
        )
        keeper.abort()
        worker.executor.close()
        await self._end(in_thread(worker.store.close))
        worker.store.abort()

    def _give_back_waiting(self) -> None:
        self._worker.crash_isolation.stop()
        self._worker.crash_isolation.give_back()
        self._worker.executor.give_back_ready()

    async def _drain(self) -> bool:
        """Let handlers go on for as long as they may; says whether all have ended."""
        worker = self._worker
        left = self._requests.stopped_at + worker.shutdown_timeout - monotonic()
        drained = asyncio.create_task(worker.executor.drain(max(0.0, left)))
        hurried = asyncio.create_task(self._requests.hurry.wait())
        try:
            await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
            drained.cancel()
        return not worker.executor.running

    def _revive(self, service: Service) -> None:
        """Start a service again that was cancelled with everything else on a loop that is closing."""
        if self._tasks[service].done():
            self._tasks[service] = asyncio.create_task(service.run(), name=type(service).__name__)

    def _is_written(self) -> bool:
        """Whether no outcome is left, and no claim is under way that may bring more jobs to give back."""
        worker = self._worker
        worker.finisher.wake()
        is_claiming = any(not self._tasks[service].done() for service in (worker.claimer, *self._taking))
        return not worker.finisher.pending and not is_claiming

    async def _part(self) -> None:
        """Do what others would have to do later."""
        worker = self._worker
        receiver = worker.broker.receiver if worker.broker else None
        with contextlib.suppress(StoreError):  # upkeep of others does it otherwise
            await worker.limit_opener.run_once()
            await worker.concluder.flush()
        with contextlib.suppress(Exception):
            if worker.claimer.may_have_strays or (receiver is not None and receiver.may_have_strays):
                await worker.store.finish_calls()
                await worker.claimer.release_strays()
            for leader in (worker.leader, *([worker.broker.leader] if worker.broker else ())):
                await leader.resign()
            await worker.store.run(forget_worker(worker.owner), patience_seconds=1)

    async def _while_answered(self, is_over: Callable[[], bool]) -> bool:
        """Wait for something that the database has to do, as long as it answers at all; says whether it is done."""
        began = monotonic()
        while not is_over():
            now, patience = monotonic(), self._requests.patience
            silent = now - max(began, self._worker.store.answered_at)
            is_late = self._worker.seconds_left < 2 * PARTING_FROM_SILENT
            writing = now - max(began, self._requests.hurried_at if self._requests.hurry.is_set() else began)
            if (silent > patience.silence and is_late) or writing > min(patience.writing, self._lease_seconds):
                self._is_silent = True
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _for(self, is_over: Callable[[], bool], seconds: Callable[[], float]) -> None:
        """Wait for something, for a time that becomes shorter when the worker has to hurry."""
        began = monotonic()
        while not is_over() and monotonic() - began < seconds():  # noqa: ASYNC110 - as in `_while_answered`
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, *parts: Awaitable[Any]) -> None:
        """Wait for parts to end, each as it can, all of them in one time."""
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

    def _tell(self) -> None:
        finisher = self._worker.finisher
        if finisher.pending:
            log.warning(
                "%d jobs could not be written: the database did not answer. They run again when their leases end",
                finisher.pending,
            )
        log.info("stopped: %d jobs settled, %d lost to other workers", finisher.settled, finisher.lost)


def _ignore_errors(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Take note of errors that are nobody's concern at the end."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
