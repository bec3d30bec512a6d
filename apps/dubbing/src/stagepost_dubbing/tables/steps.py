"""Rows of `task_steps`: every attempt of every step, and what became of it."""

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
    """Which of several messages; empty if the step has one."""
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
    """The last attempt of a step's part."""
    row = tx.one("latest_step", task_id=task_id, step=step, part=part)
    return None if row is None else StepRow(*row)


def list_all(tx: Connection, task_id: str) -> list[StepRow]:
    """Every attempt of every step of a task, in order."""
    rows = [StepRow(*row) for row in tx.all("list_steps", task_id=task_id)]
    return sorted(rows, key=lambda row: STEPS.index(row.step))


def begin(tx: Connection, task_id: str, row: StepRow) -> None:
    """Store an attempt that begins; another one of the same number is refused by the table."""
    tx.change("begin_step", task_id=task_id, **msgspec.structs.asdict(row))


def end(tx: Connection, task_id: str, row: StepRow, status: str, *, error: str | None = None) -> bool:
    """Store how an attempt ended; False if it has been taken over."""
    values = msgspec.structs.asdict(row) | {"status": status, "error": shortened(error)}
    return tx.change("end_step", task_id=task_id, **values) > 0


def note_progress(tx: Connection, task_id: str, row: StepRow, progress: float) -> None:
    """Store how far an attempt is, 0 to 1."""
    tx.change("note_progress", task_id=task_id, **(msgspec.structs.asdict(row) | {"progress": progress}))


def mark_stale(tx: Connection, task_id: str, names: Sequence[str]) -> None:
    """Say that these steps are to be done again."""
    for step in names:
        tx.change("mark_stale", task_id=task_id, step=step)


def unfinished_before(tx: Connection, task_id: str, step: str) -> str | None:
    """The step right before this one, if it has not succeeded in all its parts."""
    place = STEPS.index(step)
    if place == 0:
        return None
    before = STEPS[place - 1]
    last = {row.part: row.status for row in list_all(tx, task_id) if row.step == before}
    has_all = bool(last) and all(status == "succeeded" for status in last.values())
    return None if has_all else before
