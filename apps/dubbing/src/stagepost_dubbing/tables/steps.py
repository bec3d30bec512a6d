"""Rows of `task_steps`: every attempt of every step, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.tables.connection import Connection, shortened

__all__ = ["StepRow", "begin", "end", "latest", "list_all", "mark_stale", "note_progress", "unfinished_before"]


class StepRow(msgspec.Struct, frozen=True):
    """One attempt of a step, or of a part of it. Times are microseconds since 1970, UTC."""

    step: str
    part: str
    """Identifies one of several messages; empty if the step has only one."""
    attempt: int
    status: str
    trace_id: str | None
    owner: str
    """The job that makes the attempt."""
    progress: float
    started_at: int
    finished_at: int | None
    error: str | None


def latest(tx: Connection, task_id: str, step: str, part: str) -> StepRow | None:
    """Return the last attempt of a step's part."""
    row = tx.one("latest_step", task_id=task_id, step=step, part=part)
    return None if row is None else StepRow(*row)


def list_all(tx: Connection, task_id: str) -> list[StepRow]:
    """List every attempt of every step of a task, in order."""
    rows = [StepRow(*row) for row in tx.all("list_steps", task_id=task_id)]
    return sorted(rows, key=lambda row: STEPS.index(row.step))


def begin(tx: Connection, task_id: str, row: StepRow) -> None:
    """Store the start of an attempt; the table refuses a second one with the same number."""
    tx.change("begin_step", task_id=task_id, **msgspec.structs.asdict(row))


def end(tx: Connection, task_id: str, row: StepRow, status: str, *, error: str | None = None) -> bool:
    """Store how an attempt ended; returns False if another attempt has taken over."""
    values = msgspec.structs.asdict(row) | {"status": status, "error": shortened(error)}
    return tx.change("end_step", task_id=task_id, **values) > 0


def note_progress(tx: Connection, task_id: str, row: StepRow, progress: float) -> None:
    """Store an attempt's progress, from 0 to 1."""
    tx.change("note_progress", task_id=task_id, **(msgspec.structs.asdict(row) | {"progress": progress}))


def mark_stale(tx: Connection, task_id: str, names: Sequence[str]) -> None:
    """Mark these steps to be run again."""
    for step in names:
        tx.change("mark_stale", task_id=task_id, step=step)


def unfinished_before(tx: Connection, task_id: str, step: str) -> str | None:
    """Return the previous step if it has not succeeded in all its parts."""
    place = STEPS.index(step)
    if place == 0:
        return None
    before = STEPS[place - 1]
    last = {row.part: row.status for row in list_all(tx, task_id) if row.step == before}
    has_all = bool(last) and all(status == "succeeded" for status in last.values())
    return None if has_all else before
