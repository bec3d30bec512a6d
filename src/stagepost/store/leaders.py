"""Operations on leadership: rights that one process holds at a time, with a term number to fence by."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from stagepost.database.statement import Statement, Statements, operation, query
from stagepost.model.job import microseconds

__all__ = ["Leadership", "lead", "list_leaders", "resign"]


class Leadership(msgspec.Struct, frozen=True):
    """One owner's time-limited right; whoever acts by it is fenced by `term`, which only grows."""

    name: str
    owner: str
    term: int
    expires_at: int
    """By the database's clock. The holder must stop earlier: count from before its call, on its own monotonic clock."""


@operation
def lead(name: str, *, owner: str, term: timedelta) -> Statements[Leadership | None]:
    """Take the lead if nobody holds it, renew it if this owner does; None if another one leads.

    An owner that let its lead expire gets a new term number even if nobody took over meanwhile.
    """
    rows = yield Statement("lead", {"name": name, "owner": owner, "term_us": microseconds(term)})
    return Leadership(name, owner, *rows[0]) if rows else None


@operation
def resign(name: str, *, owner: str) -> Statements[None]:
    """Give up the lead, if this owner has it, so that another one need not wait for its end."""
    yield Statement("resign", {"name": name, "owner": owner})


@query
def list_leaders() -> Statements[list[Leadership]]:
    """List who leads what at the moment."""
    rows = yield Statement("list_leaders")
    return [Leadership(*row) for row in rows]
