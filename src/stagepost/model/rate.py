"""Rate limits: a token bucket kept as one stored instant (GCRA), so that many processes can share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stagepost.errors import ConfigurationError
from stagepost.model.option_types import check_types

__all__ = ["MOST_EARLY_US", "RateLimit", "TokenGrant", "due_times", "take", "token_times"]

FASTEST_RATE = 100_000.0
SLOWEST_RATE = 1 / (365 * 86_400)
LARGEST_BURST = 1_000_000
MOST_EARLY_US = 100_000
"""How long before it is valid a token may be taken, by a caller that waits until then to use it."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `per_second` tokens per second in the long run, and at most `burst` of them at once.

    Over any time t no more than per_second·t + burst tokens become valid, by the database's clock, and a job never
    starts before its token is valid. One token takes a whole number of microseconds to grow back, rounded up: never
    faster than asked, and at 10,000 per second up to 1 % slower.
    """

    name: str
    """Limits with the same name share their tokens."""
    per_second: float
    """Tokens per second in the long run; 30 per minute is `30 / 60`."""
    burst: int = 1
    """How many tokens may be taken at once after a quiet time."""

    def __post_init__(self) -> None:
        check_types("rate limit option", self)
        if not self.name:
            raise ConfigurationError("a rate limit needs a name; limits of the same name share their tokens.")
        if not SLOWEST_RATE <= self.per_second <= FASTEST_RATE:
            raise ConfigurationError(
                f"rate limit {self.name!r}: per_second is {self.per_second}; it must be from one per year to "
                f"{FASTEST_RATE:,.0f} per second. 30 per minute is `per_second=30 / 60`."
            )
        if not 1 <= self.burst <= LARGEST_BURST:
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


def take(full_at_us: int, now_us: int, wanted: int, limit: RateLimit, *, early_us: int = 0) -> TokenGrant:
    """Take up to `wanted` tokens; `full_at_us` is the stored instant when the bucket is full, initially 0.

    With `early_us`, tokens that are valid up to so much later are granted as well; `token_times` says when.
    """
    if wanted < 0:
        raise ValueError(f"rate limit {limit.name!r}: {wanted} tokens cannot be taken")
    full_at, empty_until = _full_at(full_at_us, now_us, limit), now_us + limit.capacity_us
    granted = min(wanted, max(0, empty_until + early_us - full_at) // limit.interval_us)
    full_at += granted * limit.interval_us
    return TokenGrant(granted, full_at, max(0, full_at + limit.interval_us - empty_until))


def token_times(full_at_us: int, now_us: int, limit: RateLimit, *, tokens: int, after: int = 0) -> list[int]:
    """Return when the next tokens become valid, after the first `after`, which are promised already.

    These are the theoretical arrival times of GCRA. They do not depend on when a token is taken, so a token that is
    taken late, but before it is valid, does not delay the next one.
    """
    first = _full_at(full_at_us, now_us, limit) - limit.capacity_us
    return [max(now_us, first + place * limit.interval_us) for place in range(after + 1, after + tokens + 1)]


def due_times(
    full_at_us: int, now_us: int, limit: RateLimit, *, after: int, until: int, most: int, early_us: int = 0
) -> list[int]:
    """Return when jobs should be claimed for the next tokens, each `early_us` before its token is valid, up to `until`.

    The first `after` tokens are promised already and are left out.
    """
    reach = until + early_us + limit.capacity_us - _full_at(full_at_us, now_us, limit)
    tokens = max(0, min(most, reach // limit.interval_us - after))
    times = token_times(full_at_us, now_us, limit, tokens=tokens, after=after)
    return [max(now_us, time - early_us) for time in times]


def _full_at(full_at_us: int, now_us: int, limit: RateLimit) -> int:
    # A later instant means that the clock was set back or the limit reduced: the bucket is empty, not in debt.
    return min(max(full_at_us, now_us), now_us + limit.capacity_us + MOST_EARLY_US)
