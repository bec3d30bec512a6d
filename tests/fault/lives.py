"""One job's whole life, step by step through the worker's own parts, with an error at one of its calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from stagepost.client import JobContext
from stagepost.config import Settings
from stagepost.database import Store
from stagepost.database.connection import database_at
from stagepost.errors import Retryable, StagepostError, StoreUnavailable
from stagepost.loops.signals import Signals
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.retry import RetryPolicy
from stagepost.store.jobs import enqueue
from stagepost.testing.clock import ManualClock
from stagepost.upkeep.rescuer import Rescuer
from stagepost.worker import Worker
from stagepost.worker.lease_keeper import LeaseKeeper
from tests.fault.backends import Backend, execute
from tests.fault.injection import Injector, Killed
from tests.fault.tasks import INSERT_EFFECT
from tests.fault.trapped import TrappedApp, TrappedDatabase

LEASE = timedelta(seconds=30)
MOST_ROUNDS = 12
LONGEST_SECONDS = 60.0
"""A deadline, not an expectation."""
TASK = "transfer_in_life"
at_once = RetryPolicy(first_delay=timedelta(0), minimum_delay=timedelta(0), jitter=0)


class InjectedApp(TrappedApp):
    """An app that retries without waiting, on a clock that stands still."""

    def open_store(self, *, pool_size: int | None = None, for_handlers: bool = False) -> Store:
        database = TrappedDatabase(database_at(self.settings.database_url, for_handlers=for_handlers), self.trap)
        return Store(database, clock=self.clock, pool_size=pool_size or 1, pause=lambda _seconds: None)


class Life:
    """Runs one job to its end despite an injected fault; a process that dies is replaced by one without faults."""

    def __init__(self, backend: Backend, injector: Injector) -> None:
        self.backend = backend
        self.injector = injector
        self.clock = ManualClock()
        backend.rows("delete from stagepost_leader")  # an earlier life's, which ended later on its own clock
        self.job = NewJob(id=new_id(), task_name=TASK, payload="{}")
        self.worker: Worker
        self._renewed = threading.Event()
        self._start(injector)

    async def run(self) -> None:
        """Fail once, then complete in a transaction of the handler's own."""
        await self._surviving(self._enqueue)
        for _ in range(MOST_ROUNDS):
            await self._surviving(self._round)
            if await asyncio.to_thread(self._has_ended):
                break
            self.clock.advance(1)
        self._renewed.set()
        self._stop()

    def _start(self, injector: Injector) -> None:
        settings = Settings(
            database_url=self.backend.url, concurrency=1, prefetch=0, lease_seconds=LEASE.total_seconds()
        )
        self.app = InjectedApp(settings=settings, auto_migrate=False)
        self.app.clock = self.clock
        self.app.trap = injector
        add_task(self.app, self._renewed)
        self.worker = Worker(self.app)
        self.keeper_store = self.app.open_store(pool_size=1)

    def _stop(self) -> None:
        self.pools_in_use = [store.pool.in_use for store in (self.app.store, self.app.users_store, self.keeper_store)]
        self.worker.parts.executor.close()
        self.worker.parts.store.close()
        self.keeper_store.close()
        self.app.close()

    async def _surviving(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Killed:
            self._stop()
            self._start(Injector(None, self.injector.dialect))
            await step()

    async def _enqueue(self) -> None:
        """As a careful producer does: the same id again until it is confirmed."""
        for _ in range(3):
            with contextlib.suppress(StoreUnavailable):
                await self.worker.parts.store.run(enqueue(self.job))
                return
        raise AssertionError("enqueue failed three times with one injected error")

    async def _round(self) -> None:
        """One pass of a worker's loops; a loop that fails is retried in the next pass, as in production."""
        worker = self.worker
        self._renewed.clear()
        await _try(worker.parts.claimer.run_once)
        if not len(worker.parts.attempts):
            await _try(worker.parts.claimer.run_once)  # its next pass gives back what it leased unknowingly
        if len(worker.parts.attempts):
            await _try(self._renew_and_drain)
            await _try(worker.parts.finisher.run_once)
        else:
            self.clock.advance(LEASE + timedelta(seconds=2))  # so that a lease nobody knows of ends
            rescuer = Rescuer(worker.parts.alerts, Signals(), margin=timedelta(seconds=1))
            await _try(worker.parts.leader.run_once)
            await _try(rescuer.run_once)
        await _try(worker.parts.promoter.run_once)

    async def _renew_and_drain(self) -> None:
        """Renew while the handler waits for it, so that calls come in the same order in every run."""
        try:
            await self._renew()
        finally:
            self._renewed.set()
            await self._drain()

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        keeper = LeaseKeeper(
            self.keeper_store,
            self.worker.parts.attempts,
            owner=self.worker.owner,
            lease=LEASE,
            clock=self.clock,
            loop=loop,
        )
        await loop.run_in_executor(None, keeper.run_once)

    async def _drain(self) -> None:
        await self.worker.parts.executor.drain(LONGEST_SECONDS)
        if self.injector.is_dead and self.app.trap is self.injector:
            raise Killed

    def _has_ended(self) -> bool:
        return bool(self.backend.rows("select id from stagepost_job_history where id = :id", id=self.job.id))


async def _try(step: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(StagepostError):
        await step()


def add_task(app: TrappedApp, renewed: threading.Event) -> None:
    def transfer(ctx: JobContext) -> None:
        renewed.wait(LONGEST_SECONDS)
        if ctx.failures == 0:
            raise Retryable("the first time", after=0)
        with app.transaction() as tx:
            execute(tx, INSERT_EFFECT, {"id": ctx.id, "attempt": ctx.attempt})
            ctx.complete(tx)

    app.task(name=TASK, retry=at_once)(transfer)


def facts_of(life: Life) -> dict[str, Any]:
    """How the life ended."""
    rows = life.backend.rows(
        "select state, attempts, failures, crashes from stagepost_job_history where id = :id", id=life.job.id
    )
    state, attempt, failures, crashes = rows[0] if rows else ("none", 0, 0, 0)
    effects = life.backend.rows("select attempt from ledger where job_id = :id", id=life.job.id)
    return {
        "state": state,
        "effects are of the last attempt": [effect == attempt for (effect,) in effects],
        "failures": failures,
        "errors": life.backend.rows("select error from stagepost_failure where job_id = :id", id=life.job.id),
        "crashes": crashes,
        "live": len(life.backend.rows("select id from stagepost_job where id = :id", id=life.job.id)),
        "pools in use": life.pools_in_use,
    }
