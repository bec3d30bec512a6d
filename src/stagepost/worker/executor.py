"""Runs attempts, each once, in a limited number of slots; no handler can make the worker fail."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from stagepost.client.context import current_job, enter
from stagepost.client.hooks import Hooks, fails_attempt
from stagepost.client.running import RunningAttempt
from stagepost.clock import Clock, monotonic
from stagepost.config.logging import job_fields
from stagepost.errors import Cancelled, PayloadError, Permanent, StoreError, TaskError, UnknownTask
from stagepost.loops.signals import Signals
from stagepost.model.outcome import Abandoned, Crashed, Outcome, Released
from stagepost.task import Registry, Task
from stagepost.worker.early_attempts import EarlyAttempts
from stagepost.worker.finisher import Finisher
from stagepost.worker.isolated_context import run_in_own_context
from stagepost.worker.leased_attempts import LeasedAttempt
from stagepost.worker.processes import ProcessPool, RunningChild
from stagepost.worker.threads import ThreadPool

__all__ = ["Executor"]

log = logging.getLogger(__name__)

LONGEST_TURN_SECONDS = 0.001
"""How long jobs that end without waiting may run one after another before other tasks get their turn."""
UNRESPONSIVE_SECONDS = 2.0
"""How long after its timeout an attempt may take to stop; after that its job is settled without it."""
LONGEST_REPORT_SECONDS = 10.0
"""How long the `on_failure` hooks of one attempt may take; after that its outcome is written without them."""


class Executor:
    """Starts attempts in order as slots become free, and passes their outcomes to the finisher."""

    def __init__(
        self,
        registry: Registry,
        finisher: Finisher,
        signals: Signals,
        *,
        concurrency: int,
        clock: Clock,
        is_loop_closing: Callable[[], bool] = lambda: False,
        children: ProcessPool | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.concurrency = concurrency
        self.threads = ThreadPool(on_freed=self._fill)
        self.children = children or ProcessPool()
        self._registry = registry
        self._hooks = hooks or Hooks()
        self._finisher = finisher
        self._signals = signals
        self._is_loop_closing = is_loop_closing
        self._clock = clock
        self.ended_at = monotonic()
        """When an attempt last ended, on the local monotonic clock."""
        self._ready: deque[LeasedAttempt] = deque()
        self._early = EarlyAttempts(self._make_ready)
        self._running: dict[asyncio.Task[None], LeasedAttempt] = {}
        self._released: set[LeasedAttempt] = set()

    @property
    def ready(self) -> int:
        """Number of attempts that wait for a slot."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """Number of attempts that are running."""
        return len(self._running)

    def start(self, attempts: list[LeasedAttempt]) -> None:
        """Take on claimed attempts; one whose token is not valid yet is ready when it is."""
        now = monotonic()
        if early := [attempt for attempt in attempts if attempt.job.starts_in_us]:
            attempts = [attempt for attempt in attempts if not attempt.job.starts_in_us]
            for attempt in early:
                self._early.add(attempt, starts_at=now + attempt.job.starts_in_us / 1_000_000)
        self._make_ready(attempts)

    def _make_ready(self, attempts: list[LeasedAttempt]) -> None:
        now = monotonic()
        for attempt in attempts:
            attempt.waits_since = now
        self._ready.extend(attempts)
        self._fill()
        if self._ready:
            self._signals.attempts_waiting.send()

    @property
    def waits_since(self) -> float | None:
        """When the next attempt began to wait for a slot; None if no attempt waits."""
        return self._ready[0].waits_since if self._ready else None

    def give_back_ready(self) -> int:
        """Return attempts that have not started to their queues; returns how many."""
        self._ready.extend(self._early.take_all())
        return self._release_ready()

    def give_back_late(self) -> int:
        """Return attempts that wait for a slot to their queues; returns how many.

        Attempts whose token is not valid yet stay, because they do not wait for a slot.
        """
        for attempt in self._ready:
            attempt.is_late = True
        return self._release_ready()

    def _release_ready(self) -> int:
        released, self._ready = self._ready, deque()
        for attempt in released:
            self._finisher.put(attempt, Released())
        return len(released)

    async def drain(self, seconds: float) -> bool:
        """Wait for running attempts to end; False if some are still running after `seconds`."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)
        return not self._running

    def release_running(self, reason: str) -> None:
        """Return running attempts to their queues, for other workers, and ask their handlers to stop."""
        for task, attempt in list(self._running.items()):
            self._released.add(attempt)
            attempt.stop(reason)
            if not task.done():
                task.cancel()

    def abandon_running(self) -> None:
        """Return attempts whose handlers did not stop to their queues; the fence rejects what they still write."""
        for attempt in self._running.values():
            if not attempt.has_outcome:
                log.warning(
                    "job %s: its handler did not stop; the job returns to its queue",
                    attempt.job.id, extra=job_fields(attempt.job),
                )  # fmt: skip
                self._finisher.put(attempt, Released())

    def close(self) -> None:
        """End idle threads and processes."""
        self.threads.close()
        self.children.close()

    @property
    def _free(self) -> int:
        """Number of free slots; negative while stuck threads and tasks together hold more than there are."""
        return self.concurrency - self.threads.stuck - len(self._running)

    def _fill(self, most: int = 1) -> None:
        """Start up to `most` tasks for waiting attempts. Each continues with the next attempt by itself."""
        for _ in range(min(most, self._free)):
            if (attempt := self._next()) is None:
                return
            task = asyncio.create_task(self._take_turn(attempt))
            self._running[task] = attempt
            task.add_done_callback(self._ended)

    def _next(self) -> LeasedAttempt | None:
        """Take the first waiting attempt that has not lost its lease."""
        while self._ready:
            attempt = self._ready.popleft()
            if not attempt.is_lost:
                return attempt
            self._finisher.put(attempt, Released())
        return None

    async def _take_turn(self, first: LeasedAttempt) -> None:
        """Run attempts one after another until the turn is over or a coroutine has to wait.

        A coroutine that waits is the last attempt of its task: what its handler requested of the task, such as a later
        cancellation, must not reach another job.
        """
        task = cast("asyncio.Task[None]", asyncio.current_task())
        on_wait = partial(self._let_wait, task)
        ends_at = monotonic() + LONGEST_TURN_SECONDS
        attempt: LeasedAttempt | None = first
        while attempt is not None:
            self._running[task] = attempt
            runs_on_loop = await run_in_own_context(self._run(attempt), on_wait=on_wait)
            self.ended_at = now = monotonic()
            if attempt.waits_in is not None:
                if runs_on_loop:
                    return
                ends_at = now + LONGEST_TURN_SECONDS
            if task.cancelling() or self._free < 0 or now > ends_at:
                return
            attempt = self._next()

    def _let_wait(self, task: asyncio.Task[None]) -> None:
        """Start two other attempts while this one waits, so that many slots fill in a few turns of the loop."""
        attempt = self._running[task]
        attempt.waits_in = task
        task.set_name(f"stagepost-job-{attempt.job.id}")
        self._fill(2)

    def _ended(self, task: asyncio.Task[None]) -> None:
        attempt = self._running.pop(task)
        if task.cancelled():
            if not attempt.has_outcome:  # it had not started
                self._finisher.put(attempt, Released())
        elif (error := task.exception()) is not None:
            log.error(
                "job %s: the worker failed while it ran this attempt",
                attempt.job.id, extra=job_fields(attempt.job), exc_info=error,
            )  # fmt: skip
            is_passing = isinstance(error, StoreError)
            self._finisher.put(attempt, Released() if is_passing else Crashed(f"the worker failed: {error!r}"))
        if self._is_loop_closing():
            return
        self._fill()
        if not self._ready:
            self._signals.slot_idle.send()

    async def _run(self, attempt: LeasedAttempt) -> bool:
        """Run one attempt and pass on its outcome; returns whether its handler is a coroutine."""
        try:
            task = self._registry.get(attempt.job.task_name)
        except UnknownTask:
            log.warning(
                "job %s: this worker does not know task %r; the job returns to its queue",
                attempt.job.id, attempt.job.task_name, extra=job_fields(attempt.job),
            )  # fmt: skip
            self._finisher.put(attempt, Released())
            return False
        running = attempt.running = RunningAttempt(attempt.job, task, self._clock)
        enter(running)
        try:
            outcome = await self._attempt(attempt, task, running)
        except asyncio.CancelledError:
            # Cancelled from outside after the attempt itself ended, so its outcome is lost.
            outcome = Released()
        running.ended_at = monotonic()
        self._finisher.put(attempt, outcome)
        return task.is_async

    async def _attempt(self, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt) -> Outcome:
        """Call the handler within its timeout, and convert what it returns or raises to an outcome."""
        try:
            if task.options.timeout is None:
                return await self._perform(attempt, task, running)
            return await self._perform_within(task.options.timeout.total_seconds(), attempt, task, running)
        except asyncio.CancelledError as error:
            if (stopped := self._interrupted(attempt, running)) is not None:
                return stopped
            return await self._failed(TaskError(f"the handler raised {type(error).__name__}"), attempt, running)
        except BaseException as error:  # noqa: BLE001 - anything that a handler raises is an outcome
            if isinstance(error, Cancelled) and attempt.is_lost:
                # The handler stopped because its lease was lost. Nobody asked to cancel the job.
                return Released()
            return await self._failed(error, attempt, running)

    async def _failed(self, error: BaseException, attempt: LeasedAttempt, running: RunningAttempt) -> Outcome:
        """Convert an error to an outcome, and call the `on_failure` hooks, which cannot change it."""
        outcome = running.raised(error)
        if self._hooks.failure and fails_attempt(error, outcome) and not (attempt.is_lost or running.is_settled):
            await self._report(error, attempt)
        return outcome

    async def _report(self, error: BaseException, attempt: LeasedAttempt) -> None:
        try:
            async with asyncio.timeout(LONGEST_REPORT_SECONDS):
                await self._hooks.report_failure_async(error, call=self.threads.run)
        except TimeoutError:
            log.warning(
                "job %s: its on_failure hooks did not end in time and were abandoned",
                attempt.job.id, extra=job_fields(attempt.job),
            )  # fmt: skip
        except asyncio.CancelledError:
            return  # the attempt has ended: its outcome is written all the same

    async def _perform_within(
        self, seconds: float, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt
    ) -> Outcome:
        """Fail the job of a handler that takes longer. If the handler does not stop, it keeps only its slot."""

        late = TimeoutError(f"the attempt took longer than its timeout of {seconds:g} s")

        def abandon() -> None:
            log.error(
                "job %s: its handler ignores its timeout and keeps a slot of this worker",
                attempt.job.id, extra=job_fields(attempt.job),
            )  # fmt: skip
            self._finisher.put(attempt, running.raised(late))

        timer = asyncio.get_running_loop().call_later(seconds + UNRESPONSIVE_SECONDS, abandon)
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._perform(attempt, task, running)
        except TimeoutError:
            if not deadline.expired():
                raise
        finally:
            timer.cancel()
        running.request_stop("it took too long")
        return await self._failed(late, attempt, running)

    async def _perform(self, attempt: LeasedAttempt, task: Task[..., Any], running: RunningAttempt) -> Outcome:
        if task.options.pool == "process":
            return await self._in_child(running)
        try:
            args, kwargs = task.signature.decode(attempt.job.payload)
        except PayloadError as error:
            raise Permanent(str(error)) from error
        if task.wants_context:
            args = (current_job(), *args)
        function = self._hooks.wrap(task) if self._hooks.around else task.function
        if task.is_async:
            result = await function(*args, **kwargs)
        else:
            result = await self.threads.run(partial(function, *args, **kwargs))
        return running.completed(result)

    async def _in_child(self, running: RunningAttempt) -> Outcome:
        child = RunningChild()
        try:
            reply = await self.threads.run(partial(self.children.run, running, child))
        except asyncio.CancelledError:
            child.kill()
            raise
        running.settlement = reply.settlement
        return reply.outcome

    def _interrupted(self, attempt: LeasedAttempt, running: RunningAttempt) -> Outcome | None:
        """Say why the attempt was cancelled; None if its handler raised CancelledError by itself."""
        if self._is_loop_closing():
            running.request_stop("the worker is shutting down")  # a thread continues until it checks
            return Released()
        if attempt in self._released or attempt.is_lost:
            self._released.discard(attempt)
            return Released()
        if running.stop_reason is not None:
            return Abandoned(running.stop_reason)
        return None
