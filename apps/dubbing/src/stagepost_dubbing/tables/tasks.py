"""Rows of `tasks`: what is to be dubbed, and how far that is."""

from __future__ import annotations

import msgspec

from stagepost_dubbing.tables.connection import Connection

__all__ = [
    "ENDED",
    "DubOptions",
    "Task",
    "add",
    "get",
    "list_page",
    "lock",
    "note_duration",
    "note_error",
    "set_status",
]

ENDED = frozenset({"done", "failed", "cancelled"})

COLUMNS = (
    "id, status, error, source_language, target_language, title, source_sha256, source_video_key, output_video_key, "
    "options_json, revision, requeues, run_id, duration_ms, created_at, updated_at, finished_at"
)


class DubOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one may choose for a task."""

    speaker: str = "default"
    keep_original: bool = False
    """Keep the original sound as a second track."""
    duck_db: float | None = None
    """Keep the original sound under the voice, this much quieter (such as -18); not at all unless given."""


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
    created_at: int
    updated_at: int
    finished_at: int | None

    @property
    def options(self) -> DubOptions:
        """What was chosen for it."""
        return msgspec.json.decode(self.options_json, type=DubOptions)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.status in ENDED


def add(tx: Connection, task: Task) -> None:
    """Store a new task; its times are the database's."""
    tx.execute(
        "insert into tasks (id, status, source_language, target_language, title, source_sha256, source_video_key,"
        " output_video_key, options_json, revision, requeues, run_id, created_at, updated_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, now_us(), now_us())",
        (
            task.id, task.status, task.source_language, task.target_language, task.title, task.source_sha256,
            task.source_video_key, task.output_video_key, task.options_json, task.revision, task.requeues, task.run_id,
        ),
    )  # fmt: skip


def get(tx: Connection, task_id: str) -> Task | None:
    """Look a task up."""
    row = tx.one("select " + COLUMNS + " from tasks where id = ?", (task_id,))
    return None if row is None else Task(*row)


def lock(tx: Connection, task_id: str) -> Task | None:
    """Look a task up, and keep others from changing it until the transaction ends."""
    row = tx.one("select " + COLUMNS + " from tasks where id = ?" + tx.locking, (task_id,))
    return None if row is None else Task(*row)


def by_run(tx: Connection, run_id: str) -> Task | None:
    """Find the task that a run belongs to, and lock it; None if it has another run by now."""
    row = tx.one("select " + COLUMNS + " from tasks where run_id = ?" + tx.locking, (run_id,))
    return None if row is None else Task(*row)


def list_page(tx: Connection, *, status: str | None, most: int) -> list[Task]:
    """The newest tasks."""
    where, parameters = ("", ()) if status is None else (" where status = ?", (status,))
    sql = "select " + COLUMNS + " from tasks" + where + " order by created_at desc, id limit ?"
    return [Task(*row) for row in tx.all(sql, (*parameters, most))]


def set_status(tx: Connection, task_id: str, status: str, *, error: str | None = None) -> None:
    """Say how a task is; an error that is left out stays only if the task has failed."""
    tx.execute(
        "update tasks set status = ?, error = case when ? = 'failed' then coalesce(?, error) else ? end,"
        " finished_at = case when ? in ('done', 'failed', 'cancelled') then now_us() else null end,"
        " updated_at = now_us() where id = ?",
        (status, status, error, error, status, task_id),
    )


def note_error(tx: Connection, task_id: str, error: str) -> None:
    """Keep why a step failed for good; the end of the run makes the task failed."""
    tx.execute("update tasks set error = ?, updated_at = now_us() where id = ?", (error, task_id))


def note_duration(tx: Connection, task_id: str, duration_ms: int) -> None:
    """Keep how long the video is."""
    tx.execute("update tasks set duration_ms = ?, updated_at = now_us() where id = ?", (duration_ms, task_id))


def begin_run(tx: Connection, task_id: str, *, run_id: str, revision: int) -> None:
    """Say which run works on a task from now on."""
    tx.execute(
        "update tasks set run_id = ?, revision = ?, status = 'queued', error = null, finished_at = null,"
        " updated_at = now_us() where id = ?",
        (run_id, revision, task_id),
    )


def count_requeue(tx: Connection, task_id: str) -> None:
    """Count that its speech is tried again."""
    tx.execute("update tasks set requeues = requeues + 1 where id = ?", (task_id,))


def without_speech(tx: Connection, *, most: int, most_requeues: int | None) -> list[tuple[str, int]]:
    """Failed tasks with translated segments that nobody spoke, oldest first, and how many; of `most` segments."""
    limit = "" if most_requeues is None else " and tasks.requeues < ?"
    parameters = () if most_requeues is None else (most_requeues,)
    rows = tx.all(
        "select tasks.id, count(*) from tasks join segments on segments.task_id = tasks.id"
        " where tasks.status = 'failed' and segments.tts_audio_key is null and segments.mt_text is not null"
        " and exists (select 1 from task_steps where task_steps.task_id = tasks.id and task_steps.step = 'tts')"
        + limit
        + " group by tasks.id, tasks.updated_at order by tasks.updated_at, tasks.id limit ?",
        (*parameters, most),
    )
    found: list[tuple[str, int]] = []
    total = 0
    for task_id, segments in rows:
        if total >= most:
            break
        found.append((str(task_id), int(segments)))
        total += int(segments)
    return found
