"""Rows of `task_steps`: every attempt of every step, and what became of it."""

from __future__ import annotations

import msgspec

from stagepost_dubbing.settings import STEPS
from stagepost_dubbing.tables.connection import Connection

__all__ = ["StepRow", "begin", "end", "latest", "list_all", "mark_stale", "note_progress", "unfinished_before"]

COLUMNS = "step, part, attempt, status, trace_id, owner, progress, started_at, finished_at, error"


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
    row = tx.one(
        "select " + COLUMNS + " from task_steps where task_id = ? and step = ? and part = ?"
        " order by attempt desc limit 1",
        (task_id, step, part),
    )
    return None if row is None else StepRow(*row)


def list_all(tx: Connection, task_id: str) -> list[StepRow]:
    """Every attempt of every step of a task, in order."""
    sql = "select " + COLUMNS + " from task_steps where task_id = ? order by part, attempt"
    rows = [StepRow(*row) for row in tx.all(sql, (task_id,))]
    return sorted(rows, key=lambda row: STEPS.index(row.step))


def begin(tx: Connection, task_id: str, row: StepRow) -> None:
    """Store an attempt that begins; another one of the same number is refused by the table."""
    tx.execute(
        "insert into task_steps (task_id, step, part, attempt, status, trace_id, owner, progress, started_at)"
        " values (?, ?, ?, ?, 'running', ?, ?, 0, now_us())",
        (task_id, row.step, row.part, row.attempt, row.trace_id, row.owner),
    )


def end(tx: Connection, task_id: str, row: StepRow, status: str, *, error: str | None = None) -> bool:
    """Store how an attempt ended; False if it has been taken over."""
    return (
        tx.execute(
            "update task_steps set status = ?, error = ?, finished_at = now_us(),"
            " progress = case when ? = 'succeeded' then 1 else progress end"
            " where task_id = ? and step = ? and part = ? and attempt = ? and status = 'running'",
            (status, error, status, task_id, row.step, row.part, row.attempt),
        )
        > 0
    )


def note_progress(tx: Connection, task_id: str, row: StepRow, progress: float) -> None:
    """Store how far an attempt is, 0 to 1."""
    tx.execute(
        "update task_steps set progress = ? where task_id = ? and step = ? and part = ? and attempt = ?",
        (progress, task_id, row.step, row.part, row.attempt),
    )


def mark_stale(tx: Connection, task_id: str, steps: tuple[str, ...]) -> None:
    """Say that these steps are to be done again."""
    for step in steps:
        tx.execute(
            "update task_steps set status = 'stale' where task_id = ? and step = ? and status = 'succeeded'",
            (task_id, step),
        )


def unfinished_before(tx: Connection, task_id: str, step: str) -> str | None:
    """The step right before this one, if it has not succeeded in all its parts."""
    place = STEPS.index(step)
    if place == 0:
        return None
    before = STEPS[place - 1]
    last: dict[str, str] = {}
    for row in list_all(tx, task_id):
        if row.step == before:
            last[row.part] = row.status
    has_all = bool(last) and all(status == "succeeded" for status in last.values())
    return None if has_all else before
