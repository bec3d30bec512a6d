"""Rows of `tasks`: the videos to dub, and their status."""

from __future__ import annotations

import msgspec

from stagepost_dubbing.tables.connection import Connection, shortened

__all__ = [
    "ENDED",
    "DubOptions",
    "Task",
    "add",
    "begin_run",
    "count_requeue",
    "get",
    "list_page",
    "lock",
    "lock_by_run",
    "note_error",
    "note_sound",
    "set_status",
    "without_speech",
]

ENDED = frozenset({"done", "failed", "cancelled"})
NO_LIMIT = 2**31 - 1


class DubOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a task."""

    speaker: str = "default"
    keep_original: bool = False
    """Keep the original sound as a second track."""
    duck_db: float | None = None
    """Keep the original sound under the voice, lowered by this many decibels (such as -18); None removes it."""


class Task(msgspec.Struct, frozen=True):
    """One video that is dubbed into one language. Times are microseconds since 1970, UTC."""

    id: str
    status: str
    error: str | None
    source_language: str
    target_language: str
    title: str
    source_sha256: str
    source_video_key: str
    output_video_key: str
    options_json: str
    revision: int
    requeues: int
    run_id: str | None
    duration_ms: int | None
    speech_db: float | None
    """Loudness of the original outside silence, in decibels relative to full scale."""
    created_at: int
    updated_at: int
    finished_at: int | None

    @property
    def options(self) -> DubOptions:
        """The task's options."""
        return msgspec.json.decode(self.options_json, type=DubOptions)

    @property
    def has_ended(self) -> bool:
        """Whether the task is done, failed or cancelled."""
        return self.status in ENDED


def add(tx: Connection, task: Task) -> None:
    """Store a new task, with times from the database's clock."""
    tx.change("add_task", **msgspec.structs.asdict(task))


def get(tx: Connection, task_id: str) -> Task | None:
    """Find a task by its id."""
    row = tx.one("get_task", id=task_id)
    return None if row is None else Task(*row)


def lock(tx: Connection, task_id: str) -> Task | None:
    """Find a task and lock it until the transaction ends."""
    row = tx.one("lock_task", id=task_id)
    return None if row is None else Task(*row)


def lock_by_run(tx: Connection, run_id: str) -> Task | None:
    """Find and lock the task of a run; None if the task has a newer run."""
    row = tx.one("lock_task_by_run", run_id=run_id)
    return None if row is None else Task(*row)


def list_page(tx: Connection, *, status: str | None, most: int) -> list[Task]:
    """List the newest tasks."""
    if status is None:
        return [Task(*row) for row in tx.all("list_tasks", most=most)]
    return [Task(*row) for row in tx.all("list_tasks_by_status", status=status, most=most)]


def set_status(tx: Connection, task_id: str, status: str, *, error: str | None = None) -> None:
    """Set a task's status; without `error`, a stored error is kept only if the task has failed."""
    tx.change("set_task_status", id=task_id, status=status, error=shortened(error))


def note_error(tx: Connection, task_id: str, error: str) -> None:
    """Store why a step failed permanently; the task itself fails when its run ends."""
    tx.change("note_task_error", id=task_id, error=shortened(error))


def note_sound(tx: Connection, task_id: str, *, duration_ms: int, speech_db: float | None) -> None:
    """Store the video's duration and loudness."""
    tx.change("note_task_sound", id=task_id, duration_ms=duration_ms, speech_db=speech_db)


def begin_run(tx: Connection, task_id: str, *, run_id: str, revision: int) -> None:
    """Set the run that works on a task."""
    tx.change("begin_task_run", id=task_id, run_id=run_id, revision=revision)


def count_requeue(tx: Connection, task_id: str) -> None:
    """Count a retry of the task's speech."""
    tx.change("count_requeue", id=task_id)


def without_speech(tx: Connection, *, most: int, most_requeues: int | None) -> list[str]:
    """List failed tasks with translated but unspoken segments, oldest first, up to `most` segments in total."""
    limit = NO_LIMIT if most_requeues is None else most_requeues
    found: list[str] = []
    total = 0
    for task_id, count in tx.all("list_tasks_without_speech", most=most, most_requeues=limit):
        if total >= most:
            break
        found.append(str(task_id))
        total += int(count)
    return found
