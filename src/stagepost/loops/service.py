"""The one shape of every background loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from abc import ABC, abstractmethod

from stagepost.model.backoff import backoff_seconds

__all__ = ["Service"]

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.2, 5.0


class Service(ABC):
    """Does one pass in `run_once`; `run` adds the interval, jitter, errors and stopping between passes."""

    def __init__(self, *, interval: float) -> None:
        self.interval = interval
        """Seconds until the next pass, unless woken; `run_once` may change it."""
        self.failures_in_a_row = 0
        self._wake = asyncio.Event()
        self._stopping = False

    @abstractmethod
    async def run_once(self) -> object:
        """Do one pass and return what it did."""

    async def run(self) -> None:
        """Pass after pass until told to stop; an error is logged and the pass tried again, later and later."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self.run_once()
            except Exception:
                self.failures_in_a_row += 1
                log.exception("%s: pass failed, %d in a row", type(self).__name__, self.failures_in_a_row)
            else:
                self.failures_in_a_row = 0
            await self._pause()

    def wake(self) -> None:
        """Start the next pass at once, or right after the one that is running."""
        self._wake.set()

    def stop(self) -> None:
        """End after the pass that is running."""
        self._stopping = True
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    async def _pause(self) -> None:
        seconds = self.interval * random.uniform(0.9, 1.1)  # noqa: S311 - spreads the loops of many workers
        if self.failures_in_a_row:
            # Not cut short by a wake-up: a loop that fails must not spin.
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
