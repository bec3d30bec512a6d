"""Operations on gates, which the first batch closes and the last one opens when it is done."""

from __future__ import annotations

from typing import Any

import msgspec

from stagepost.database.statement import Statement, Statements, operation, query
from stagepost.model.batch import BatchRow, Counts
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store.batch_locks import batch_of
from stagepost.store.counting import count_items
from stagepost.store.jobs import enqueue_many

__all__ = [
    "GateCount",
    "GateStatus",
    "StoredGate",
    "Unfinished",
    "close_gate",
    "count_gates",
    "count_started",
    "declare",
    "find_gate",
    "list_gates",
    "locked_status",
    "open_gate",
    "repair_gate",
    "status",
]

MOST_NAMED = 10
"""How many of the batches that keep a gate closed are listed with their counts."""


class StoredGate(msgspec.Struct, frozen=True):
    """A gate's current state; it is open if no batch under it is unfinished. Times are microseconds since 1970, UTC."""

    name: str
    unfinished: int
    openings: int
    opened_at: int | None


class GateCount(msgspec.Struct, frozen=True):
    """A gate's counter beside the number of unfinished batches, which differs only if rows were changed by hand."""

    name: str
    counted: int
    found: int

    @property
    def is_right(self) -> bool:
        """Whether the counter equals the number of unfinished batches."""
        return self.counted == self.found


class Unfinished(msgspec.Struct, frozen=True):
    """A batch that keeps a gate closed."""

    batch: BatchRow
    counts: Counts


class GateStatus(msgspec.Struct, frozen=True):
    """How many batches keep a gate closed, and the first of them."""

    unfinished: int
    batches: tuple[Unfinished, ...] = ()


def close_gate(name: str, *, on_open: str | None = None) -> Statements[None]:
    """Lock the gate until the end of this transaction, which starts a batch under it."""
    yield Statement("add_gate", {"name": name})
    yield Statement("lock_gate", {"name": name})
    if on_open is not None:
        yield Statement("set_gate", {"name": name, "on_open": on_open})


def count_started(name: str) -> Statements[None]:
    """Count a batch that starts under the gate, in the transaction that called `close_gate`."""
    yield Statement("move_gate", {"name": name, "by": 1})


def open_gate(name: str) -> Statements[bool]:
    """Count a batch as done. After the last one, open the gate, enqueue its `on_open` job and return True."""
    [(unfinished, on_open)] = yield Statement("lock_gate", {"name": name})
    if unfinished > 1:
        yield Statement("move_gate", {"name": name, "by": -1})
        return False
    yield from _open(name, on_open)
    return True


def _open(name: str, on_open: str | None) -> Statements[None]:
    yield Statement("open_gate", {"name": name})
    if on_open is not None:
        job = msgspec.structs.replace(msgspec.json.decode(on_open, type=NewJob), id=new_id())
        yield from enqueue_many([job], notify=True)


@operation
def declare(name: str, *, on_open: str | None) -> Statements[None]:
    """Set the job to enqueue whenever the gate opens."""
    yield Statement("add_gate", {"name": name})
    yield Statement("set_gate", {"name": name, "on_open": on_open})


@operation
def locked_status(name: str) -> Statements[GateStatus]:
    """Read a gate's status and hold it: no batch can start or end under it before the transaction ends."""
    # Add it only if it is missing: adding an existing gate would lock out others that only pass.
    if not (yield Statement("list_gates", {"after": "", "name": name, "most": 1})):
        yield Statement("add_gate", {"name": name})
    [(unfinished, _)] = yield Statement("hold_gate", {"name": name})
    return (yield from _status(name, unfinished))


@query
def status(name: str) -> Statements[GateStatus]:
    """Read a gate's status without a lock. A gate that was never used is open."""
    gate = yield from find_gate(name)
    return (yield from _status(name, 0 if gate is None else gate.unfinished))


@query
def find_gate(name: str) -> Statements[StoredGate | None]:
    """Look up a gate by its name."""
    rows = yield Statement("list_gates", {"after": "", "name": name, "most": 1})
    return StoredGate(*rows[0]) if rows else None


@query
def list_gates(*, after: str = "", most: int = 50) -> Statements[list[StoredGate]]:
    """List gates by name; `after` is the last name of the previous page."""
    rows = yield Statement("list_gates", {"after": after, "most": most})
    return [StoredGate(*row) for row in rows]


@query
def count_gates(*, after: str = "", most: int = 100) -> Statements[list[GateCount]]:
    """Compare gates' counters with their unfinished batches; `after` is the last name of the previous page."""
    rows = yield Statement("count_gates", {"after": after, "most": most})
    return [GateCount(*row) for row in rows]


@operation
def repair_gate(name: str) -> Statements[GateCount]:
    """Set a gate's counter to the number of unfinished batches, open the gate if that is 0, and return both numbers."""
    # Lock first, so that no batch can start or end under the gate between the count and the change.
    [(counted, on_open)] = yield Statement("lock_gate", {"name": name})
    [(found,)] = yield Statement("count_unfinished", {"gate": name})
    if counted != found and found:
        yield Statement("move_gate", {"name": name, "by": found - counted})
    elif counted != found:
        yield from _open(name, on_open)
    return GateCount(name, counted, found)


def _status(name: str, unfinished: int) -> Statements[GateStatus]:
    if not unfinished:
        return GateStatus(0)
    rows: list[tuple[Any, ...]] = yield Statement("unfinished_batches", {"gate": name, "most": MOST_NAMED})
    batches = []
    for batch in map(batch_of, rows):
        counts = yield from count_items(batch.id)
        batches.append(Unfinished(batch, counts))
    return GateStatus(unfinished, tuple(batches))
