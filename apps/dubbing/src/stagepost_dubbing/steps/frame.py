"""Runs an attempt of a step: starts or skips it, provides a directory and a deadline, and stores its outcome.

A step's writes, its row in `task_steps` and the end of its job are one transaction, so a step has succeeded exactly
when its job has.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from stagepost import Cancelled, JobContext, JobState, Permanent, Retryable, Snooze
from stagepost.errors import JobNotFound, LeaseLost
from stagepost_dubbing.services import Services
from stagepost_dubbing.steps.leftovers import directory_prefix
from stagepost_dubbing.tables import steps, tasks
from stagepost_dubbing.tables.connection import Connection
from stagepost_dubbing.tables.steps import StepRow
from stagepost_dubbing.tables.tasks import Task

__all__ = ["Attempt", "Finished", "Step"]

log = logging.getLogger(__name__)

R = TypeVar("R")

BUSY_SECONDS = 2.0
"""How long to wait before checking again a step that another job is running."""
REPORT_SECONDS = 1.0
"""Interval between updates of the stored progress."""


@dataclass
class Attempt:
    """One attempt of a step of a task."""

    services: Services
    job: JobContext
    task: Task
    row: StepRow
    directory: Path
    """Directory for temporary files, which is removed at the end."""
    seconds: float
    _begun: float = field(default_factory=time.perf_counter)
    _reported: float = 0.0

    def check(self) -> None:
        """Raise if the attempt was asked to stop or has exceeded its timeout."""
        self.job.raise_if_cancelled()
        if self.seconds_left <= 0:
            raise TimeoutError(f"step {self.row.step} took longer than its timeout of {self.seconds:g} s")

    @property
    def seconds_left(self) -> float:
        """Return the remaining time before the timeout."""
        return self.seconds - (time.perf_counter() - self._begun)

    def report(self, progress: float) -> None:
        """Report progress from 0 to 1; cheap enough for an engine to call often."""
        self.check()
        if self.seconds - self.seconds_left - self._reported >= REPORT_SECONDS:
            self._reported = self.seconds - self.seconds_left
            with self.services.database.transaction() as tx:
                steps.note_progress(tx, self.task.id, self.row, progress)

    def store(self, key: str, content: bytes | Path) -> None:
        """Store an object made by this step. Only an attempt that took over may overwrite an existing one."""
        self.check()
        if self.row.attempt == 1:
            self.services.objects.create(key, content)
            return
        # An attempt that was paused for long must not overwrite a newer video with an old one.
        with self.services.database.reading() as tx:
            last = steps.latest(tx, self.task.id, self.row.step, self.row.part)
        if last is None or (last.attempt, last.status) != (self.row.attempt, "running"):
            raise LeaseLost(self.job.id, self.job.attempt)
        self.services.objects.replace(key, content)


@dataclass(frozen=True)
class Finished(Generic[R]):
    """An attempt's result, and what it writes when its job completes."""

    result: R
    write: Callable[[Connection], None] = lambda _tx: None


class Step(Generic[R]):
    """A step, identified by its name; `run` makes one attempt, or skips a step that has succeeded."""

    def __init__(
        self,
        services: Services,
        name: str,
        *,
        on_final_failure: Callable[[Connection, Task, BaseException], None] = lambda _tx, _task, _error: None,
    ) -> None:
        self._services, self._name = services, name
        self._on_final_failure = on_final_failure

    def run(
        self,
        job: JobContext,
        task_id: str,
        work: Callable[[Attempt], Finished[R]],
        *,
        skipped: Callable[[Connection], R],
        part: str = "",
    ) -> R:
        """Make an attempt; if the step has already succeeded, `skipped` returns its result."""
        services = self._services
        variable, seconds = services.settings.timeout_variable(self._name), services.settings.timeout(self._name)
        log.info("step %s of task %s: %s=%g in force", self._name, task_id, variable, seconds)
        with services.database.transaction() as tx:
            begun = self._begin(tx, job, task_id, part)
            if begun is None:
                log.info("step %s of task %s has succeeded before, skipping it", self._name, task_id)
                result = skipped(tx)
                job.complete(tx.raw, result)
                return result
        task, row = begun
        with tempfile.TemporaryDirectory(
            prefix=directory_prefix(), dir=services.settings.work_directory or None, ignore_cleanup_errors=True
        ) as directory:
            attempt = Attempt(services, job, task, row, Path(directory), seconds)
            try:
                finished = work(attempt)
            except (LeaseLost, Snooze):
                raise
            except Exception as error:
                self._fail(attempt, error)
                raise
            with services.database.transaction() as tx:
                finished.write(tx)
                if not steps.end(tx, task.id, row, "succeeded"):
                    raise LeaseLost(job.id, job.attempt)
                job.complete(tx.raw, finished.result)
            return finished.result

    def _begin(self, tx: Connection, job: JobContext, task_id: str, part: str) -> tuple[Task, StepRow] | None:
        """Store the start of an attempt; returns None if the step has already succeeded."""
        task = tasks.lock(tx, task_id)
        if task is None:
            raise Permanent(f"there is no task {task_id}: it was deleted or never submitted.")
        last = steps.latest(tx, task_id, self._name, part)
        trace_id = job.trace.trace_id
        if last is not None:
            is_duplicate = last.status == "stale" and trace_id is not None and last.trace_id == trace_id
            if last.status == "succeeded" or is_duplicate:
                return None
            if last.status == "running":
                if self._is_live(tx, last, job):
                    raise Snooze(BUSY_SECONDS)
                steps.end(tx, task_id, last, "failed", error="its worker died; another attempt took over")
        if before := steps.unfinished_before(tx, task_id, self._name):
            raise Retryable(f"task {task_id}: step {before} has not succeeded, so {self._name} cannot begin.")
        row = StepRow(
            self._name, part, 1 if last is None else last.attempt + 1, "running", trace_id, job.id, 0, 0, None, None
        )
        steps.begin(tx, task_id, row)
        if task.status != "running":
            tasks.set_status(tx, task_id, "running")
        return task, row

    def _is_live(self, tx: Connection, last: StepRow, job: JobContext) -> bool:
        """Return whether another job is running this step; attempts of the same job never overlap."""
        if last.owner == job.id:
            return False
        try:
            return self._services.app.client.job(last.owner, tx=tx.raw).state is JobState.RUNNING
        except JobNotFound:
            return False

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        """Store the failure together with the end of the attempt; if that fails, the platform ends the attempt."""
        job, task = attempt.job, attempt.task
        text = f"{type(error).__name__}: {error}"
        try:
            with self._services.database.transaction() as tx:
                tasks.lock(tx, task.id)
                steps.end(tx, task.id, attempt.row, "failed", error=text)
                if isinstance(error, Cancelled):
                    return
                if not job.will_retry(error):
                    tasks.note_error(tx, task.id, f"{self._name}: {text}")
                    self._on_final_failure(tx, task, error)
                job.fail(tx.raw, error)
        except LeaseLost:
            raise
        except Exception:  # report the original error, not the failure to store it
            log.exception("step %s of task %s: its failure could not be stored", self._name, task.id)
