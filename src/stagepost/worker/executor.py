"""Runs attempts: each claimed job once, at most so many at a time, whatever its handler does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from stagepost.client.context import JobContext, entered, outcome_of
from stagepost.client.limiter import RateLimiter
from stagepost.clock import Clock
from stagepost.errors import PayloadError, Permanent, Snooze, StoreError, TaskError, UnknownTask
from stagepost.model.context import JobIdentity, identified
from stagepost.model.outcome import Abandoned, Crashed, Outcome, Released, Snoozed
from stagepost.model.rate import RateLimit
from stagepost.task import Registry, Task
from stagepost.worker.children import Child, ChildPool, Reply
from stagepost.worker.finisher import Finisher
from stagepost.worker.flights import Flight
from stagepost.worker.threads import ThreadPool

__all__ = ["Executor"]

log = logging.getLogger(__name__)

LONGEST_WAIT_IN_SLOT = timedelta(seconds=1)
DEAF_SECONDS = 2.0
"""How long after its timeout an attempt that does not stop is waited for; then its job goes on without it."""


class Executor:
    """Starts flights in their order as slots come free, and hands what they gave to the finisher."""

    def __init__(
        self,
        registry: Registry,
        finisher: Finisher,
        *,
        concurrency: int,
        clock: Clock,
        new_limiter: Callable[[RateLimit], RateLimiter],
        longest_wait: timedelta = LONGEST_WAIT_IN_SLOT,
    ) -> None:
        self.concurrency = concurrency
        self.threads = ThreadPool(on_freed=self._fill)
        self.children = ChildPool()
        self._registry = registry
        self._finisher = finisher
        self._clock = clock
        self._new_limiter = new_limiter
        self._longest_wait = longest_wait
        self._limiters: dict[str, RateLimiter] = {}
        self._ready: deque[Flight] = deque()
        self._running: dict[asyncio.Task[None], Flight] = {}
        self._released: set[Flight] = set()

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return len(self._running)

    def start(self, flights: list[Flight]) -> None:
        """Take on claimed attempts."""
        self._ready.extend(flights)
        self._fill()

    def give_back_ready(self) -> None:
        """Release what has not started; nothing more is started until `start` is called again."""
        while self._ready:
            self._finisher.put(self._ready.popleft(), Released())

    async def drain(self, seconds: float) -> bool:
        """Wait for running attempts to end; False if some are still running after `seconds`."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)
        return not self._running

    def release_running(self, reason: str) -> None:
        """Give running attempts back: others may run them now. Their handlers are asked to stop."""
        for task, flight in list(self._running.items()):
            self._released.add(flight)
            flight.stop(reason)
            if not task.done():
                task.cancel()

    def abandon_running(self) -> None:
        """Give back attempts whose handlers would not stop; whatever they still do is fenced off."""
        for flight in self._running.values():
            log.warning("job %s: its handler would not stop; the job is given back", flight.job.id)
            self._finisher.put(flight, Released())

    def close(self) -> None:
        """End idle threads and processes."""
        self.threads.close()
        self.children.close()

    def _fill(self) -> None:
        while self._ready and len(self._running) + self.threads.stuck < self.concurrency:
            flight = self._ready.popleft()
            if flight.is_lost:
                self._finisher.put(flight, Released())
                continue
            task = asyncio.create_task(self._run(flight), name=f"stagepost-job-{flight.job.id}")
            self._running[task] = flight
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        flight = self._running.pop(task)
        if task.cancelled():  # before it had begun
            self._finisher.put(flight, Released())
        elif (error := task.exception()) is not None:
            log.error("job %s: its attempt ended in an error of the worker's own", flight.job.id, exc_info=error)
            is_passing = isinstance(error, StoreError)
            self._finisher.put(flight, Released() if is_passing else Crashed(f"the worker failed: {error!r}"))
        self._fill()

    async def _run(self, flight: Flight) -> None:
        try:
            task = self._registry.get(flight.job.task_name)
        except UnknownTask:
            log.warning("job %s: task %r is unknown here, giving it back", flight.job.id, flight.job.task_name)
            self._finisher.put(flight, Released())
            return
        context = JobContext(flight.job, task, self._clock)
        flight.may_be_settled = lambda: context.settled_in_transaction
        try:
            await self._wait_for_token(task)
            with entered(context), identified(_identity(flight), context.trace):
                outcome, settled = await self._attempt(flight, task, context)
        except Snooze as snooze:
            outcome, settled = Snoozed(snooze.delay), False
        except asyncio.CancelledError:
            # From outside, after the attempt itself was over; what it gave is lost with it.
            outcome, settled = Released(), context.settled_in_transaction
        self._finisher.put(flight, outcome, may_be_settled=settled)

    async def _wait_for_token(self, task: Task[..., Any]) -> None:
        """Keep to the task's rate: a short wait happens here, a longer one back in the queue."""
        if task.options.rate_limit is None:
            return
        limiter = self._limiters.get(task.name)
        if limiter is None:
            limiter = self._limiters[task.name] = self._new_limiter(task.options.rate_limit)
        while wait := await limiter.try_acquire_async():
            if wait > self._longest_wait:
                raise Snooze(wait)
            await asyncio.sleep(wait.total_seconds())

    async def _attempt(self, flight: Flight, task: Task[..., Any], context: JobContext) -> tuple[Outcome, bool]:
        """Decode, call within the timeout, and say what came of it."""
        seconds = task.options.timeout.total_seconds() if task.options.timeout else None
        deadline = asyncio.timeout(seconds)
        try:
            with self._giving_up_after(seconds, flight, task):
                async with deadline:
                    reply = await self._perform(flight, task, context)
        except asyncio.CancelledError as error:
            return self._interrupted(flight, context, error), context.settled_in_transaction
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome, never a dead worker
            if isinstance(error, TimeoutError) and deadline.expired():
                context.request_stop("it took too long")
                error = _took_too_long(seconds)
            outcome = outcome_of(error, flight.job, task)
            return outcome, context.settled_in_transaction
        return reply.outcome, reply.settled_in_transaction

    @contextlib.contextmanager
    def _giving_up_after(self, seconds: float | None, flight: Flight, task: Task[..., Any]) -> Iterator[None]:
        """Fail the job of a coroutine that ignores its timeout; its slot stays taken until it returns."""
        if seconds is None:
            yield
            return

        def give_up() -> None:
            log.error("job %s: its handler ignores its timeout; it holds a slot of this worker", flight.job.id)
            self._finisher.put(flight, outcome_of(_took_too_long(seconds), flight.job, task))

        timer = asyncio.get_running_loop().call_later(seconds + DEAF_SECONDS, give_up)
        try:
            yield
        finally:
            timer.cancel()

    async def _perform(self, flight: Flight, task: Task[..., Any], context: JobContext) -> Reply:
        if task.options.pool == "process":
            return await self._in_child(flight, task, context)
        try:
            args, kwargs = task.signature.decode(flight.job.payload)
        except PayloadError as error:
            raise Permanent(str(error)) from error
        if task.wants_context:
            args = (context, *args)
        if task.is_async:
            flight.stop = partial(_interrupt, context, asyncio.current_task())
            result = await task.function(*args, **kwargs)
        else:
            flight.stop = context.request_stop
            result = await self.threads.run(partial(task.function, *args, **kwargs))
        return Reply(context.completed(result), context.settled_in_transaction)

    async def _in_child(self, flight: Flight, task: Task[..., Any], context: JobContext) -> Reply:
        children: list[Child] = []
        flight.stop = partial(_interrupt, context, asyncio.current_task())
        try:
            return await self.threads.run(partial(self.children.run, flight.job, task, children))
        except asyncio.CancelledError:
            for child in children:
                child.kill()
            raise

    def _interrupted(self, flight: Flight, context: JobContext, error: BaseException) -> Outcome:
        if flight in self._released or flight.is_lost:
            self._released.discard(flight)
            return Released()
        if context.stop_reason is not None:
            return Abandoned(context.stop_reason)
        # The handler raised CancelledError itself: nobody asked it to.
        return outcome_of(TaskError(f"the handler raised {type(error).__name__}"), flight.job, context.task)


def _took_too_long(seconds: float | None) -> TimeoutError:
    return TimeoutError(f"the attempt took longer than its timeout of {seconds:g} s")


def _identity(flight: Flight) -> JobIdentity:
    return JobIdentity(flight.job.id, flight.job.task_name, flight.job.attempt)


def _interrupt(context: JobContext, task: asyncio.Task[Any] | None, reason: str) -> None:
    if not context.is_cancelled and task is not None:
        task.cancel(reason)
    context.request_stop(reason)
