"""Operations on token buckets that all processes share."""

from __future__ import annotations

from stagepost.model.rate import RateLimit, Taken, take
from stagepost.store.statement import Statement, Steps, operation

__all__ = ["take_tokens"]


@operation
def take_tokens(limit: RateLimit, wanted: int) -> Steps[Taken]:
    """Take up to `wanted` tokens out of the bucket of this name, which is full when first asked for."""
    yield Statement("add_rate", {"name": limit.name})
    # Locked before reckoning: two that see the same tokens would both take them.
    [(full_at, until_full)] = yield Statement("lock_rate", {"name": limit.name})
    taken = take(full_at, full_at - until_full, wanted, limit)
    if taken.granted:
        yield Statement("fill_rate", {"name": limit.name, "full_at": taken.full_at})
    return taken
