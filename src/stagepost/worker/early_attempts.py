"""Holds attempts that were claimed shortly before the tokens of their rates are valid."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from stagepost.clock import monotonic
from stagepost.worker.leased_attempts import LeasedAttempt

__all__ = ["EarlyAttempts"]


class EarlyAttempts:
    """Hands attempts over at the instants of their tokens, never before, in the order of these instants."""

    def __init__(self, start: Callable[[list[LeasedAttempt]], None]) -> None:
        self._start = start
        self._heap: list[tuple[float, int, LeasedAttempt]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, attempt: LeasedAttempt, *, starts_at: float) -> None:
        """Hold an attempt until an instant on the local monotonic clock."""
        heapq.heappush(self._heap, (starts_at, next(self._numbers), attempt))
        if self._heap[0][2] is attempt:
            self._set_timer()

    def take_all(self) -> list[LeasedAttempt]:
        """Remove all attempts that are held, and return them."""
        attempts = [attempt for _, _, attempt in sorted(self._heap)]
        self._heap.clear()
        self._set_timer()
        return attempts

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_later(self._heap[0][0] - monotonic(), self._hand_over)

    def _hand_over(self) -> None:
        now = monotonic()
        attempts: list[LeasedAttempt] = []
        while self._heap and self._heap[0][0] <= now:
            attempts.append(heapq.heappop(self._heap)[2])
        self._set_timer()
        if attempts:
            self._start(attempts)
