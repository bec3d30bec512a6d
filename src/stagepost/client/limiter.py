"""Limits the rate of calls to a provider, with tokens shared through the store or kept in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from stagepost.clock import monotonic, sleep
from stagepost.database.async_store import AsyncStore
from stagepost.database.store import Store
from stagepost.errors import WaitTimeout, duration_of
from stagepost.model.option_types import check_type
from stagepost.model.rate import RateLimit, TokenGrant, take
from stagepost.store.rates import take_tokens

__all__ = ["RateLimiter"]


class RateLimiter:
    """Limits the rate of calls to a provider. Limiters with the same name and a store share their tokens."""

    def __init__(self, limit: RateLimit, *, store: Store | None = None, async_store: AsyncStore | None = None) -> None:
        check_type("rate_limiter: limit", limit, RateLimit, advice='Write RateLimit("provider", per_second=10).')
        self.limit = limit
        self._store = store
        self._async_store = async_store
        self._lock = threading.Lock()
        self._full_at = 0

    def acquire(self, *, timeout: timedelta | float | None = None) -> None:
        """Wait for one token; raises WaitTimeout after `timeout`."""
        left = _countdown(timeout)
        while (wait := self._wait(self.try_acquire(), left)) is not None:
            sleep(wait)

    async def acquire_async(self, *, timeout: timedelta | float | None = None) -> None:
        """Wait for one token without blocking the event loop."""
        left = _countdown(timeout)
        while (wait := self._wait(await self.try_acquire_async(), left)) is not None:  # noqa: ASYNC110
            await asyncio.sleep(wait)  # tokens appear with time, so there is no event to wait for

    def try_acquire(self) -> timedelta:
        """Take a token and return zero, or return how long to wait until one may be available."""
        taken = self._take_here() if self._store is None else self._store.run(take_tokens(self.limit, 1))
        return _wait_of(taken)

    async def try_acquire_async(self) -> timedelta:
        """Take a token like `try_acquire`, without blocking the event loop."""
        if self._async_store is None:
            return _wait_of(self._take_here())
        return _wait_of(await self._async_store.run(take_tokens(self.limit, 1)))

    def _take_here(self) -> TokenGrant:
        with self._lock:
            taken = take(self._full_at, round(monotonic() * 1_000_000), 1, self.limit)
            self._full_at = taken.full_at
            return taken

    def _wait(self, wait: timedelta, left: Callable[[], float]) -> float | None:
        """Return how long to wait before the next try; None if the token was taken."""
        if not wait:
            return None
        if left() < wait.total_seconds():
            raise WaitTimeout(f"rate limit {self.limit.name!r}: no token became available in time. Try again later.")
        return wait.total_seconds()


def _wait_of(taken: TokenGrant) -> timedelta:
    return timedelta(0) if taken.granted else timedelta(microseconds=max(1, taken.wait_us))


def _countdown(timeout: timedelta | float | None) -> Callable[[], float]:
    if timeout is None:
        return lambda: float("inf")
    give_up_at = monotonic() + duration_of(timeout, "timeout").total_seconds()
    return lambda: give_up_at - monotonic()
