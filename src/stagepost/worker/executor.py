"""Runs attempts: each claimed job once, at most so many at a time, whatever its handler does."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from stagepost.client.context import current_job, enter
from stagepost.client.running import RunningAttempt, outcome_of
from stagepost.clock import Clock, monotonic
from stagepost.errors import Cancelled, PayloadError, Permanent, StoreError, TaskError, UnknownTask
from stagepost.model.outcome import Abandoned, Crashed, Outcome, Released
from stagepost.task import Registry, Task
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_attempts import LeasedAttempt
from stagepost.worker.own_context import in_own_context
from stagepost.worker.processes import Place, ProcessPool
from stagepost.worker.threads import ThreadPool

__all__ = ["Executor"]

log = logging.getLogger(__name__)

LONGEST_TURN_SECONDS = 0.001
"""How long jobs that end without waiting follow one another before the loop may do something else."""
DEAF_SECONDS = 2.0
"""How long after its timeout an attempt that does not stop is waited for; then its job goes on without it."""


class Executor:
    """Starts attempts in their order as slots come free, and hands what they gave to the finisher."""

    def __init__(
        self,
        registry: Registry,
        finisher: Finisher,
        *,
        concurrency: int,
        clock: Clock,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where the processes of handlers start; where this process is now, unless given."""
        self.concurrency = concurrency
        self.on_idle: Callable[[], None] = lambda: None
        """Called when an attempt is over and no other is ready to take its slot."""
        self.is_closing: Callable[[], bool] = lambda: False
        """Whether the event loop is closing, which cancels every task, also those of attempts."""
        self.threads = ThreadPool(on_freed=self._fill)
        self.children = ProcessPool(folder)
        self._registry = registry
        self._finisher = finisher
        self._clock = clock
        self.ended_at = monotonic()
        """When an attempt was last over, and so its slot free."""
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when attempts were taken on for which no slot is free yet."""
        self._ready: deque[LeasedAttempt] = deque()
        self._running: dict[asyncio.Task[None], LeasedAttempt] = {}
        self._released: set[LeasedAttempt] = set()

    @property
    def ready(self) -> int:
        """How many attempts wait for a slot."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return len(self._running)

    def start(self, attempts: list[LeasedAttempt]) -> None:
        """Take on claimed attempts."""
        now = monotonic()
        for attempt in attempts:
            attempt.waits_since = now
        self._ready.extend(attempts)
        self._fill()
        if self._ready:
            self.on_waiting()

    @property
    def waits_since(self) -> float | None:
        """Since when the attempt that is next has waited for a slot; None if none waits."""
        return self._ready[0].waits_since if self._ready else None

    def give_back_ready(self, *, keep_delivered: bool = False) -> int:
        """Release what has not started, and return how many; with `keep_delivered`, only what was claimed."""
        kept = [attempt for attempt in self._ready if keep_delivered and attempt.is_delivered]
        released = [attempt for attempt in self._ready if not (keep_delivered and attempt.is_delivered)]
        self._ready = deque(kept)
        for attempt in released:
            self._finisher.put(attempt, Released())
        return len(released)

    async def drain(self, seconds: float) -> bool:
        """Wait for running attempts to end; False if some are still running after `seconds`."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)
        return not self._running

    def release_running(self, reason: str) -> None:
        """Give running attempts back: others may run them now. Their handlers are asked to stop."""
        for task, attempt in list(self._running.items()):
            self._released.add(attempt)
            attempt.stop(reason)
            if not task.done():
                task.cancel()

    def abandon_running(self) -> None:
        """Give back attempts whose handlers would not stop; whatever they still do is fenced off."""
        for attempt in self._running.values():
            if not attempt.has_outcome:
                log.warning("job %s: its handler would not stop; the job is given back", attempt.job.id)
                self._finisher.put(attempt, Released())

    def close(self) -> None:
        """End idle threads and processes."""
        self.threads.close()
        self.children.close()

    @property
    def _free(self) -> int:
        """How many slots are free; less than none while a thread that was left behind has one and a task, too."""
        return self.concurrency - self.threads.stuck - len(self._running)

    def _fill(self, most: int = 1) -> None:
        """Start a task, or up to `most`, on what is ready; each goes on to the next job by itself."""
        for _ in range(min(most, self._free)):
            if (attempt := self._next()) is None:
                return
            task = asyncio.create_task(self._take_turn(attempt))
            self._running[task] = attempt
            task.add_done_callback(self._ended)

    def _next(self) -> LeasedAttempt | None:
        """Take the first that is ready; one that lost its lease meanwhile is let go."""
        while self._ready:
            attempt = self._ready.popleft()
            if not attempt.is_lost:
                return attempt
            self._finisher.put(attempt, Released())
        return None

    async def _take_turn(self, first: LeasedAttempt) -> None:
        """Run one attempt after the other, until the turn is over or a coroutine had to wait.

        That one has the task to itself from then on and is its last: what its handler asked of the task, such as to
        be cancelled later, must not reach another job.
        """
        task = cast("asyncio.Task[None]", asyncio.current_task())
        on_wait = partial(self._let_wait, task)
        ends_at = monotonic() + LONGEST_TURN_SECONDS
        attempt: LeasedAttempt | None = first
        while attempt is not None:
            self._running[task] = attempt
            runs_on_loop = await in_own_context(self._run(attempt), on_wait=on_wait)
            self.ended_at = now = monotonic()
            if attempt.waits_in is not None:
                if runs_on_loop:
                    return
                ends_at = now + LONGEST_TURN_SECONDS
            if task.cancelling() or self._free < 0 or now > ends_at:
                return
            attempt = self._next()

    def _let_wait(self, task: asyncio.Task[None]) -> None:
        """Start others while an attempt waits: two, so that many slots fill in a few turns of the loop."""
        attempt = self._running[task]
        attempt.waits_in = task
        task.set_name(f"stagepost-job-{attempt.job.id}")
        self._fill(2)

    def _ended(self, task: asyncio.Task[None]) -> None:
        attempt = self._running.pop(task)
        if task.cancelled():
            if not attempt.has_outcome:  # it had not begun
                self._finisher.put(attempt, Released())
        elif (error := task.exception()) is not None:
            log.error("job %s: its attempt ended in an error of the worker's own", attempt.job.id, exc_info=error)
            is_passing = isinstance(error, StoreError)
            self._finisher.put(attempt, Released() if is_passing else Crashed(f"the worker failed: {error!r}"))
        if self.is_closing():
            return
        self._fill()
        if not self._ready:
            self.on_idle()

    async def _run(self, attempt: LeasedAttempt) -> bool:
        """Run one attempt and hand on what it gave; says whether its handler was a coroutine."""
        try:
            task = self._registry.get(attempt.job.task_name)
        except UnknownTask:
            log.warning("job %s: task %r is unknown here, giving it back", attempt.job.id, attempt.job.task_name)
            self._finisher.put(attempt, Released())
            return False
        running = attempt.running = RunningAttempt(attempt.job, task, self._clock)
        enter(running)
        try:
            outcome = await self._attempt(attempt, task, running)
        except asyncio.CancelledError:
            # From outside, after the attempt itself was over; what it gave is lost with it.
            outcome = Released()
        self._finisher.put(attempt, outcome)
        return task.is_async

    async def _attempt(self, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt) -> Outcome:
        """Decode, call within the timeout, and say what came of it."""
        try:
            if task.options.timeout is None:
                return await self._perform(attempt, task, running)
            return await self._perform_within(task.options.timeout.total_seconds(), attempt, task, running)
        except asyncio.CancelledError as error:
            return self._interrupted(attempt, running, error)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome, never a dead worker
            if isinstance(error, Cancelled) and attempt.is_lost:
                # It stopped as it was asked to, for the sake of its lease: nobody wants the job to be cancelled.
                return Released()
            return outcome_of(error, attempt.job, task)

    async def _perform_within(
        self, seconds: float, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt
    ) -> Outcome:
        """Fail the job of a handler that takes longer; if it does not stop either, its slot alone stays taken."""

        def late() -> Outcome:
            error = TimeoutError(f"the attempt took longer than its timeout of {seconds:g} s")
            return outcome_of(error, attempt.job, task)

        def give_up() -> None:
            log.error("job %s: its handler ignores its timeout; it holds a slot of this worker", attempt.job.id)
            self._finisher.put(attempt, late())

        timer = asyncio.get_running_loop().call_later(seconds + DEAF_SECONDS, give_up)
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._perform(attempt, task, running)
        except TimeoutError:
            if not deadline.expired():
                raise
            running.request_stop("it took too long")
            return late()
        finally:
            timer.cancel()

    async def _perform(self, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt) -> Outcome:
        if task.options.pool == "process":
            return await self._in_child(running)
        try:
            args, kwargs = task.signature.decode(attempt.job.payload)
        except PayloadError as error:
            raise Permanent(str(error)) from error
        if task.wants_context:
            args = (current_job(), *args)
        if task.is_async:
            result = await task.function(*args, **kwargs)
        else:
            result = await self.threads.run(partial(task.function, *args, **kwargs))
        return running.completed(result)

    async def _in_child(self, running: RunningAttempt) -> Outcome:
        place = Place()
        try:
            reply = await self.threads.run(partial(self.children.run, running, place))
        except asyncio.CancelledError:
            place.kill()
            raise
        running.settled_in_transaction = reply.settled_in_transaction
        return reply.outcome

    def _interrupted(self, attempt: LeasedAttempt, running: RunningAttempt, error: BaseException) -> Outcome:
        if self.is_closing():
            running.request_stop("the worker is shutting down")  # a thread goes on until it looks
            return Released()
        if attempt in self._released or attempt.is_lost:
            self._released.discard(attempt)
            return Released()
        if running.stop_reason is not None:
            return Abandoned(running.stop_reason)
        # The handler raised CancelledError itself: nobody asked it to.
        return outcome_of(TaskError(f"the handler raised {type(error).__name__}"), attempt.job, running.task)
