"""Operations on token buckets that all processes share."""

from __future__ import annotations

from stagepost.model.rate import RateLimit, Taken, take
from stagepost.store.statement import Statement, Steps, operation

__all__ = ["take_tokens"]


@operation
def take_tokens(name: str, limit: RateLimit, wanted: int) -> Steps[Taken]:
    """Take up to `wanted` tokens out of a bucket; buckets are full when they are first asked for."""
    yield Statement("add_rate", {"name": name})
    # Locked before reckoning: two that read the same fill would both take it.
    [(full_at, until_full)] = yield Statement("lock_rate", {"name": name})
    taken = take(limit, wanted, full_at=full_at, now=full_at - until_full)
    if taken.granted:
        yield Statement("fill_rate", {"name": name, "full_at": taken.full_at})
    return taken
