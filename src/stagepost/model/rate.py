"""Rate limits: a token bucket kept as one stored instant (GCRA), so that many processes can share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stagepost.errors import ConfigurationError

__all__ = ["RateLimit", "TokenGrant", "due_times", "take"]

FASTEST_RATE = 100_000.0
SLOWEST_RATE = 1 / (365 * 86_400)
LARGEST_BURST = 1_000_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `per_second` tokens per second in the long run, and at most `burst` of them at once.

    Over any time t no more than per_second·t + burst tokens are granted. One token takes a whole number of
    microseconds to grow back, rounded up: never faster than asked, and at 10,000 per second up to 1 % slower.
    """

    name: str
    """Limits with the same name share their tokens."""
    per_second: float
    """Tokens per second in the long run; 30 per minute is `30 / 60`."""
    burst: int = 1
    """How many tokens may be taken at once after a quiet time."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a rate limit needs a name; limits of the same name share their tokens.")
        if not SLOWEST_RATE <= self.per_second <= FASTEST_RATE:
            raise ConfigurationError(
                f"rate limit {self.name!r}: per_second is {self.per_second}; it must be from one per year to "
                f"{FASTEST_RATE:,.0f} per second. 30 per minute is `per_second=30 / 60`."
            )
        if type(self.burst) is not int or not 1 <= self.burst <= LARGEST_BURST:
            raise ConfigurationError(
                f"rate limit {self.name!r}: burst is {self.burst}; it must be a whole number from 1 to "
                f"{LARGEST_BURST:,}."
            )

    @property
    def interval_us(self) -> int:
        """How long one token takes to grow back."""
        return math.ceil(1_000_000 / self.per_second)

    @property
    def capacity_us(self) -> int:
        """How long an empty bucket takes to fill."""
        return self.burst * self.interval_us


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The result of `take`: granted tokens, the instant to store, and the time until the next token."""

    granted: int
    full_at: int
    wait_us: int


def take(full_at_us: int, now_us: int, wanted: int, limit: RateLimit) -> TokenGrant:
    """Take up to `wanted` tokens; `full_at_us` is the stored instant when the bucket is full, initially 0."""
    if wanted < 0:
        raise ValueError(f"rate limit {limit.name!r}: {wanted} tokens cannot be taken")
    empty_until = now_us + limit.capacity_us
    # A later instant means that the clock was set back or the limit reduced: the bucket is empty, not in debt.
    full_at = min(max(full_at_us, now_us), empty_until)
    granted = min(wanted, (empty_until - full_at) // limit.interval_us)
    full_at += granted * limit.interval_us
    return TokenGrant(granted, full_at, max(0, full_at + limit.interval_us - empty_until))


TICK_US = 10_000
"""The shortest interval at which due times are checked."""


def due_times(full_at_us: int, now_us: int, limit: RateLimit, *, after: int, until: int, most: int) -> list[int]:
    """Compute when the next tokens may be taken, up to `until`, if `after` of them are already promised.

    All due times between two checks become due at once, so they are spaced to stay within the burst.
    """
    full_at = min(max(full_at_us, now_us), now_us + limit.capacity_us)
    available = (now_us + limit.capacity_us - full_at) // limit.interval_us
    first_later = full_at + (available + 1) * limit.interval_us - limit.capacity_us
    step = max(limit.interval_us, TICK_US // limit.burst)
    dues: list[int] = []
    for place in range(after, after + most):
        due = now_us if place < available else first_later + (place - available) * step
        if due > until:
            break
        dues.append(due)
    return dues
