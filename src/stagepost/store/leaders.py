"""Operations on leadership: one process at a time leads, fenced by a term number."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from stagepost.database.statement import Statement, Statements, operation, query
from stagepost.model.job import microseconds

__all__ = ["Leadership", "lead", "list_leaders", "resign"]


class Leadership(msgspec.Struct, frozen=True):
    """One owner's time-limited lead. `term` only grows and fences the leader's writes."""

    name: str
    owner: str
    term: int
    expires_at: int
    """By the database's clock. The owner must stop earlier, measured on its monotonic clock from before its call."""


@operation
def lead(name: str, *, owner: str, term: timedelta) -> Statements[Leadership | None]:
    """Take or renew the lead for `term`, or return None if another owner leads.

    An owner whose lead expired gets a new term number even if no other owner has led since.
    """
    rows = yield Statement("lead", {"name": name, "owner": owner, "term_us": microseconds(term)})
    return Leadership(name, owner, *rows[0]) if rows else None


@operation
def resign(name: str, *, owner: str) -> Statements[None]:
    """End this owner's lead, if it has it, so that another owner can lead at once."""
    yield Statement("resign", {"name": name, "owner": owner})


@query
def list_leaders() -> Statements[list[Leadership]]:
    """List the current leaders."""
    rows = yield Statement("list_leaders")
    return [Leadership(*row) for row in rows]
