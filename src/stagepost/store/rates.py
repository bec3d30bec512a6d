"""Operations on token buckets that all processes share."""

from __future__ import annotations

from datetime import timedelta

from stagepost.database.statement import Statement, Statements, operation
from stagepost.model.job import microseconds
from stagepost.model.rate import RateLimit, TokenGrant, take

__all__ = ["lock_bucket", "prune_rates", "take_tokens"]

KEPT_US = microseconds(timedelta(hours=1))
"""How long a full bucket is kept. A bucket without a row counts as full."""


@operation
def take_tokens(limit: RateLimit, wanted: int) -> Statements[TokenGrant]:
    """Take up to `wanted` tokens from the bucket of this name, which is full at its first use."""
    full_at, now = yield from lock_bucket(limit.name)
    taken = take(full_at, now, wanted, limit)
    if taken.granted:
        yield Statement("fill_rate", {"name": limit.name, "full_at": taken.full_at})
    return taken


def lock_bucket(name: str) -> Statements[tuple[int, int]]:
    """Lock a bucket; returns when it is full, and the database's clock, in microseconds."""
    # Locked before computing: two transactions that see the same tokens would both take them.
    while not (found := (yield Statement("lock_rate", {"name": name}))):
        yield Statement("add_rate", {"name": name})
    [(full_at, until_full)] = found
    return full_at, full_at - until_full


@operation
def prune_rates(*, after: str = "", most: int = 1000) -> Statements[str | None]:
    """Delete buckets that were full for long, among the next `most`; returns where to continue, None at the end."""
    names = yield Statement("prunable_rates", {"after": after, "most": most})
    if not names:
        return None
    until: str = names[-1][0]
    yield Statement("prune_rates", {"after": after, "until": until, "full_us": KEPT_US})
    return until
