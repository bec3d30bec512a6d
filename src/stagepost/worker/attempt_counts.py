"""Counts how attempts end, for metrics: once for each group whose outcomes are written together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stagepost.database.process_counts import CountedAttempt, ProcessCounts
from stagepost.model.lifecycle import JobState
from stagepost.store.settlement import Fence, Settlement
from stagepost.worker.leased_attempts import LeasedAttempt

__all__ = ["count_ends", "count_failure"]

LOST = "lost"
WORDS = {JobState.SCHEDULED: "snoozed", JobState.QUEUED: "released"}
"""What an attempt did whose job goes on; otherwise the status is the job's next state."""
DEAD = (JobState.FAILED, JobState.DEAD_LETTER)


def count_ends(
    counts: ProcessCounts, ends: Iterable[tuple[LeasedAttempt, Settlement]], held: Mapping[Fence, bool]
) -> None:
    """Count attempts, each with the outcome to be written for it; `held` says which outcomes were accepted."""
    counted: list[CountedAttempt] = []
    for attempt, written in ends:
        running, change, is_held = attempt.running, written, held.get(attempt.fence, False)
        settlement = None if running is None else running.settlement
        if settlement is not None and (attempt.is_settled or not is_held):
            change, is_held = settlement, True  # its handler ended the job in a transaction
        if is_held and change.kind is not None:
            count_failure(counts, attempt.job.task_name, change)
        if running is not None:
            counted.append((attempt.job.task_name, _status(change) if is_held else LOST, running.seconds))
    counts.note_attempts(counted)


def count_failure(counts: ProcessCounts, task: str, change: Settlement) -> None:
    """Count a retry or a dead letter, if a failed attempt leads to one."""
    if change.state is JobState.RETRYING:
        counts.note_retry(task)
    elif change.state in DEAD:
        counts.note_dead_letter(task)


def _status(change: Settlement) -> str:
    if change.kind == "crashed" and change.state is JobState.QUEUED:
        return "crashed"
    return WORDS.get(change.state, change.state)
