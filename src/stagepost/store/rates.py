"""Operations on token buckets that all processes share."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.job import microseconds
from stagepost.model.rate import RateLimit, Taken, take
from stagepost.store.statement import Statement, Steps, operation

__all__ = ["prune_rates", "take_tokens"]

KEPT_US = microseconds(timedelta(hours=1))
"""How long a full bucket stays, though one that is not there is as full."""


@operation
def take_tokens(limit: RateLimit, wanted: int) -> Steps[Taken]:
    """Take up to `wanted` tokens out of the bucket of this name, which is full when first asked for."""
    # Locked before reckoning: two that see the same tokens would both take them.
    while not (found := (yield Statement("lock_rate", {"name": limit.name}))):
        yield Statement("add_rate", {"name": limit.name})
    [(full_at, until_full)] = found
    taken = take(full_at, full_at - until_full, wanted, limit)
    if taken.granted:
        yield Statement("fill_rate", {"name": limit.name, "full_at": taken.full_at})
    return taken


@operation
def prune_rates(*, after: str = "", most: int = 1000) -> Steps[str | None]:
    """Delete buckets that are full for long, among the `most` next ones; returns where to go on, None at the end."""
    names = yield Statement("prunable_rates", {"after": after, "most": most})
    if not names:
        return None
    until: str = names[-1][0]
    yield Statement("prune_rates", {"after": after, "until": until, "full_us": KEPT_US})
    return until
