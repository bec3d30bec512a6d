"""The public API: submit videos, inspect them, wait for them, edit and retry them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid5

import msgspec

from stagepost import App, RunState, Settings, StagepostError
from stagepost.errors import JobNotFound, RunError, WaitTimeout
from stagepost_dubbing import keys
from stagepost_dubbing.engines.languages import tidy_language
from stagepost_dubbing.media.ffmpeg import whole_file
from stagepost_dubbing.pipeline import CARRIED, DubPipeline
from stagepost_dubbing.progress import StepProgress, progress_of
from stagepost_dubbing.services import Services
from stagepost_dubbing.settings import DubbingSettings
from stagepost_dubbing.tables import segments, steps, tasks
from stagepost_dubbing.tables.connection import Connection
from stagepost_dubbing.tables.segments import Segment
from stagepost_dubbing.tables.steps import StepRow
from stagepost_dubbing.tables.tasks import DubOptions, Task

__all__ = ["Dubbing", "DubbingError", "TaskView"]

NAMESPACE = UUID("6f1f3a52-5d0c-4d0e-9a53-6a3a3b0f8a11")
LONGEST_TEXT = 5_000
"""Maximum characters in one segment; saying that many already takes minutes."""
LOWEST_DB = -100.0
LOOK_SECONDS = 0.2
"""Interval between checks of a task while a caller waits for it."""


class DubbingError(StagepostError):
    """A request cannot be carried out for this task; the message says what is possible."""


class TaskView(msgspec.Struct, frozen=True):
    """A task and the progress of each of its steps."""

    task: Task
    steps: list[StepProgress]


class Dubbing:
    """Dubs videos. `app` is an ordinary Stagepost app: run workers for it, or inspect its jobs."""

    def __init__(
        self,
        settings: DubbingSettings | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        app: App | None = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        self.settings = DubbingSettings.load(environment) if settings is None else settings
        self.app = app or App(settings=_platform_settings(self.settings, environment))
        self.services = Services(self.app, self.settings, environment)
        self._database = self.services.database
        self._pipeline = DubPipeline(self.app, self.services, requeue=self._requeue_by_schedule)
        if self.settings.database_url.startswith("sqlite:"):
            Path(self.settings.home).mkdir(parents=True, exist_ok=True)
            self.migrate()

    def migrate(self) -> None:
        """Create missing tables. They are created automatically in a SQLite file; on a server, call this once."""
        self._database.migrate()

    def submit(
        self,
        video: Path,
        *,
        to: str,
        source: str = "en",
        id: str | None = None,  # noqa: A002 - it is
        options: DubOptions | None = None,
    ) -> Task:
        """Store a video and start dubbing it; a repeated request, or one with the same id, returns the existing task.

        Without an `id`, it is derived from the video's content, the languages and the options.
        """
        options = options or DubOptions()
        source, to = tidy_language(source), tidy_language(to)
        if source == to:
            raise DubbingError(
                f"{_name(video)} is in {source!r} and should be dubbed into {to!r}: there is nothing to do."
            )
        _check_options(options)
        digest = _digest(video)
        chosen = msgspec.json.encode(options, order="sorted").decode()
        made_of = msgspec.json.encode([digest, source, to, chosen]).decode()
        task_id = str(uuid5(NAMESPACE, made_of)) if id is None else keys.checked_id(id)
        task = Task(
            task_id, "queued", None, source, to, _name(video), digest, keys.video_key(task_id),
            keys.output_key(task_id), chosen, 1, 0, None, None, None, 0, 0, None,
        )  # fmt: skip
        known = self._find(task_id)
        if known is None:
            self.services.objects.create(task.source_video_key, video)
            known = self._add(task)
        return _same(known, task)

    def task(self, task_id: str) -> Task:
        """Find a task; raises DubbingError if it does not exist."""
        task = self._find(keys.checked_id(task_id))
        if task is None:
            raise DubbingError(f"there is no task {task_id}. Run `stagepost-dubbing list` to see existing tasks.")
        return task

    def tasks(self, *, status: str | None = None, most: int = 50) -> list[Task]:
        """List the newest tasks."""
        with self._database.reading() as tx:
            return tasks.list_page(tx, status=status, most=most)

    def view(self, task_id: str) -> TaskView:
        """Read a task and the progress of its steps."""
        task = self.task(task_id)
        with self._database.reading() as tx:
            rows, counts = steps.list_all(tx, task.id), segments.count(tx, task.id)
        return TaskView(task, progress_of(rows, counts))

    def segments(self, task_id: str) -> list[Segment]:
        """List what is said in a task's video, in both languages."""
        task = self.task(task_id)
        with self._database.reading() as tx:
            return segments.list_all(tx, task.id)

    def attempts(self, task_id: str) -> list[StepRow]:
        """List every attempt of every step."""
        task = self.task(task_id)
        with self._database.reading() as tx:
            return steps.list_all(tx, task.id)

    def held(self, task_id: str) -> dict[str, float]:
        """Return the steps that a process is running, each with the remaining seconds of its lease.

        No other process takes a step over during its lease. If the process was killed, a worker takes over soon after.
        """
        task = self.task(task_id)
        with self._database.reading() as tx:
            [(now,)] = tx.all("now")
            running = [row for row in steps.list_all(tx, task.id) if row.status == "running"]
            leases = [(row.step, self._lease_until(tx, row)) for row in running]
        return {step: max(0.0, until.timestamp() - now / 1e6) for step, until in leases if until is not None}

    def wait(
        self, task_id: str, *, timeout: float | None = None, on_look: Callable[[TaskView], None] = lambda _view: None
    ) -> Task:
        """Wait until a task has ended, which needs a running worker; `on_look` is called at every check."""
        begun = time.perf_counter()
        while True:
            view = self.view(task_id)
            on_look(view)
            if view.task.has_ended:
                return view.task
            if timeout is not None and not time.perf_counter() - begun <= timeout:  # also true for NaN
                raise WaitTimeout(f"task {task_id} did not end within {timeout:g} s; it is {view.task.status}.")
            time.sleep(LOOK_SECONDS)

    def save(self, task_id: str, file: Path, *, key: str | None = None) -> Path:
        """Write the dubbed video (or another object of the task) to a file."""
        task = self.task(task_id)
        if key is None and task.status != "done":
            raise DubbingError(f"task {task.id} is {task.status}: there is no dubbed video yet.")
        try:
            with whole_file(file) as part:
                self.services.objects.fetch(key or task.output_video_key, part)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DubbingError(f"{_name(file)} cannot be written: {reason}. Name another file.") from error
        return file

    def edit(self, task_id: str, idx: int, text: str) -> Task:
        """Change a segment's translation; only that segment is spoken again, and the video is rebuilt."""
        task_id = keys.checked_id(task_id)
        _check_text("text", text, longest=LONGEST_TEXT)
        with self._changing(task_id) as (tx, task):
            known = segments.count(tx, task_id).total
            if idx not in range(known):
                raise DubbingError(f"task {task_id} has no segment {idx}: they are numbered from 0 to {known - 1}.")
            segments.change_text(tx, task_id, idx, text)
            steps.mark_stale(tx, task_id, ("tts", "mux_video"))
            revision = task.revision + 1
            run = self._pipeline.start(tx, task, revision=revision)
            tasks.begin_run(tx, task_id, run_id=run.id, revision=revision)
        return self.task(task_id)

    def retry(self, task_id: str) -> Task:
        """Continue a task that failed or was cancelled; completed work is not repeated."""
        task_id = keys.checked_id(task_id)
        with self._changing(task_id) as (tx, task):
            if task.status == "done":
                raise DubbingError(f"task {task_id} is done: there is nothing to retry.")
            self._retry(tx, task)
        return self.task(task_id)

    def cancel(self, task_id: str) -> None:
        """Cancel a task: waiting jobs end, and running ones are asked to stop."""
        task = self.task(task_id)
        with self._database.reading() as tx:
            run = self._pipeline.find(tx, task)
        if task.has_ended or run is None:
            raise DubbingError(f"task {task.id} is {task.status}: there is nothing to cancel.")
        run.cancel()

    def requeue_speech(self, *, limit: int = 100, most_requeues: int | None = None) -> list[str]:
        """Retry tasks that have unspoken segments, up to `limit` segments in total; returns the tasks' ids."""
        with self._database.reading() as tx:
            found = tasks.without_speech(tx, most=limit, most_requeues=most_requeues)
        sent: list[str] = []
        for task_id in found:
            with contextlib.suppress(DubbingError), self._changing(task_id) as (tx, task):
                if task.status == "failed":
                    tasks.count_requeue(tx, task_id)
                    self._retry(tx, task)
                    sent.append(task_id)
        return sent

    def close(self) -> None:
        """Close every connection."""
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def _requeue_by_schedule(self, limit: int) -> int:
        return len(self.requeue_speech(limit=limit, most_requeues=self.settings.most_requeues))

    @contextlib.contextmanager
    def _changing(self, task_id: str) -> Iterator[tuple[Connection, Task]]:
        """Open a transaction that locks an ended task."""
        with self._database.transaction() as tx:
            task = tasks.lock(tx, task_id)
            if task is None:
                raise DubbingError(f"there is no task {task_id}. Run `stagepost-dubbing list` to see existing tasks.")
            # A task is done with its last job, before its run has recorded its own end.
            run = None if task.status == "done" else self._pipeline.find(tx, task)
            if run is not None and run.graph(tx=tx.raw).state is RunState.RUNNING:
                raise DubbingError(f"task {task_id} is {task.status}. Wait until it has ended, or cancel it first.")
            yield tx, task

    def _retry(self, tx: Connection, task: Task) -> None:
        run = self._pipeline.find(tx, task)
        if run is None:
            raise DubbingError(f"the run of task {task.id} was pruned from history. Submit the video again.")
        tasks.set_status(tx, task.id, "queued")
        try:
            run.retry(tx=tx.raw)
        except RunError as error:
            raise DubbingError(f"task {task.id} cannot be retried now: {error}") from error

    def _lease_until(self, tx: Connection, row: StepRow) -> datetime | None:
        try:
            return self.app.client.job(row.owner, tx=tx.raw).lease_until
        except JobNotFound:
            return None

    def _find(self, task_id: str) -> Task | None:
        with self._database.reading() as tx:
            return tasks.get(tx, task_id)

    def _add(self, task: Task) -> Task:
        """Store the task and start its run in one transaction; if another process was faster, use its task."""
        try:
            with self._database.transaction() as tx:
                run = self._pipeline.start(tx, task, revision=1)
                tasks.add(tx, msgspec.structs.replace(task, run_id=run.id))
        except Exception:
            known = self._find(task.id)
            if known is None:
                raise
            return known
        return self.task(task.id)


def _same(known: Task, wanted: Task) -> Task:
    """Refuse an id that belongs to a different task."""
    for field, what in (
        ("source_sha256", "another video"),
        ("source_language", "another source language"),
        ("target_language", "another target language"),
        ("options_json", "other options"),
    ):
        if getattr(known, field) != getattr(wanted, field):
            raise DubbingError(f"task {known.id} already exists with {what}. Use another id.")
    return known


def _check_options(options: DubOptions) -> None:
    _check_text("speaker", options.speaker, longest=100)
    if options.duck_db is not None and not LOWEST_DB <= options.duck_db <= 0:
        raise DubbingError(f"the original cannot be at {options.duck_db:g} dB: use {LOWEST_DB:g} to 0.")


def _check_text(what: str, text: str, *, longest: int) -> None:
    """Refuse text that some database cannot store or no voice can speak."""
    if len(text) > longest:
        raise DubbingError(f"the {what} has {len(text):,} characters; the limit is {longest:,}. Shorten it.")
    for character in text:
        if unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t":
            raise DubbingError(f"the {what} contains {character!r}, which is not valid text. Remove it.")


def _name(video: Path) -> str:
    """Return a video's file name as text, because file names can contain any bytes."""
    return video.name.encode(errors="replace").decode()[:255]


def _digest(video: Path) -> str:
    try:
        if video.exists() and not (video.is_file() or video.is_dir()):
            raise DubbingError(f"{_name(video)} is not a regular file: reading might never end. Name a video file.")
        with video.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DubbingError(f"{_name(video)} cannot be read: {reason}. Name a video file.") from error


def _platform_settings(settings: DubbingSettings, environment: Mapping[str, str]) -> Settings:
    """Build Stagepost's own settings, with this app's database and queues."""
    platform = Settings.load(environment=environment, database_url=settings.database_url)
    rabbitmq = platform.rabbitmq
    changes: dict[str, Any] = {
        "rabbitmq": msgspec.structs.replace(
            rabbitmq,
            queues=list(CARRIED) if rabbitmq.queues is None else rabbitmq.queues,
            prefetch=1 if rabbitmq.prefetch is None else rabbitmq.prefetch,
        )
    }
    if "STAGEPOST_CONCURRENCY" not in environment and "STAGEPOST_CONFIG" not in environment:
        # Steps are heavy: running more of them than there are cores only uses more memory.
        changes["concurrency"] = max(2, os.cpu_count() or 2)
    return msgspec.structs.replace(platform, **changes)
