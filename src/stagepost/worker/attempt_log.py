"""Logs how attempts end: failures with their error, all others at `info`."""

from __future__ import annotations

import logging
from types import TracebackType

from stagepost.config.logging import ATTEMPTS, job_fields
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.store.settlement import Settlement
from stagepost.worker.leased_attempts import LeasedAttempt

__all__ = ["ATTEMPTS", "log_attempt", "log_end", "logs_all_ends"]

log = logging.getLogger(ATTEMPTS)

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
WORDS = {JobState.COMPLETED: "completed", JobState.SCHEDULED: "snoozed"}
"""What a handler did to its job in a transaction; everything else is a failure."""


class ReportedError(Exception):
    """An error of which only texts are known, because it was raised in another process; its note is the traceback."""

    def __init__(self, change: Settlement) -> None:
        super().__init__(change.error)
        if change.traceback is not None:
            self.add_note(change.traceback)


def logs_all_ends() -> bool:
    """Whether ends are logged that are not failures."""
    return log.isEnabledFor(logging.INFO)


def log_attempt(attempt: LeasedAttempt, change: Settlement) -> None:
    """Log the end of an attempt that ran in this worker."""
    job, running = attempt.job, attempt.running
    if running is None:  # it did not start
        if change.kind is not None:
            log_end(job, change)
        return
    error, running.error = running.error, None  # its frames hold the handler's variables
    settlement = running.settlement if attempt.is_settled else None
    if settlement is None:
        log_end(job, change, seconds=running.seconds, error=error)
        return
    if change.kind is None or settlement.kind is not None:
        log_end(job, settlement, seconds=running.seconds)
    if change.kind is not None:
        log.warning(
            "job %s (%s) was %s in attempt %d, then its handler raised %s. The job is not affected",
            job.id, job.task_name, WORDS.get(settlement.state, "failed"), job.attempt, change.error,
            extra=job_fields(job), exc_info=_exc_info(error, change),
        )  # fmt: skip


def log_end(
    job: LeasedJob, change: Settlement, *, seconds: float | None = None, error: BaseException | None = None
) -> None:
    """Log a failed attempt as a warning, the last one as an error, and any other at `info`."""
    took = "" if seconds is None else f" after {seconds:.3f} s"
    facts = (job.attempt, job.id, job.task_name)
    fields = job_fields(job)
    delay = change.delay_us / 1_000_000
    if change.kind is None:
        if change.state is JobState.COMPLETED:
            log.info("attempt %d of job %s (%s) completed%s", *facts, took, extra=fields)
        elif change.state is JobState.SCHEDULED:
            log.info("attempt %d of job %s (%s) snoozed%s, next in %.1f s", *facts, took, delay, extra=fields)
        elif change.state is JobState.QUEUED:
            log.info("attempt %d of job %s (%s) ended%s: the job returns to its queue", *facts, took, extra=fields)
        else:
            log.info("attempt %d of job %s (%s) ended%s: %s", *facts, took, change.error, extra=fields)
        return
    word = "crashed" if change.kind == "crashed" else "failed"
    exc_info = _exc_info(error, change)
    if change.is_final:
        log.error(
            "attempt %d of job %s (%s) %s%s, and the job ended as %s: %s",
            *facts, word, took, change.state, change.error, extra=fields, exc_info=exc_info,
        )  # fmt: skip
    else:
        log.warning(
            "attempt %d of job %s (%s) %s%s, next in %.1f s: %s",
            *facts, word, took, delay, change.error, extra=fields, exc_info=exc_info,
        )  # fmt: skip


def _exc_info(error: BaseException | None, change: Settlement) -> ExcInfo | None:
    if error is None and change.traceback is not None:
        error = ReportedError(change)
    # Not the error itself, which may be false: logging would ignore it.
    return None if error is None else (type(error), error, error.__traceback__)
