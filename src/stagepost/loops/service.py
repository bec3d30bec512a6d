"""Base class of all background loops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod

from stagepost.loops.failure_log import FailureLog
from stagepost.model.backoff import backoff_seconds

__all__ = ["Service"]

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.2, 5.0


class Service(ABC):
    """Does one pass in `run_once`; `run` adds the interval, jitter, errors and stopping between passes."""

    def __init__(self, *, interval: float) -> None:
        self.interval = interval
        """Seconds until the next pass, unless woken; `run_once` may change it."""
        self.failures_in_a_row = 0
        self.failure_log = FailureLog()
        self._loop_name = type(self).__name__
        self._wake = asyncio.Event()
        self._stopping = False

    @abstractmethod
    async def run_once(self) -> object:
        """Do one pass and return what it did."""

    def report_to(self, failure_log: FailureLog, *, name: str) -> None:
        """Share a log with other loops, which then log a common cause once; `name` is this loop's name there."""
        self.failure_log, self._loop_name = failure_log, name

    async def run(self) -> None:
        """Run passes until stopped; an error is logged, and each failure in a row makes the next pause longer."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - logged, and the next pass tries again
                self.failures_in_a_row += 1
                self.failure_log.failed(self._loop_name, error)
            else:
                self.failures_in_a_row = 0
                self.failure_log.worked(self._loop_name)
            await self._pause()

    def wake(self) -> None:
        """Start the next pass at once, or right after the current one."""
        self._wake.set()

    def stop(self) -> None:
        """Stop after the current pass."""
        self._stopping = True
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    async def _pause(self) -> None:
        seconds = self.interval * random.uniform(0.9, 1.1)  # noqa: S311 - spreads the loops of many workers
        if self.failures_in_a_row:
            # A wake-up does not shorten this pause, because a failing loop must not spin.
            seconds = backoff_seconds(
                self.failures_in_a_row, first=FIRST_BACKOFF_SECONDS, longest=LONGEST_BACKOFF_SECONDS
            )
            await asyncio.sleep(0 if self._stopping else seconds)
            return
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
