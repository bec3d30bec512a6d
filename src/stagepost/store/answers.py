"""Accepts the answers of external programs in groups, at most one answer per attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Rows, Statement, Statements, as_json, operation
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Outcome
from stagepost.store.leases import leased
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle

__all__ = ["REMOTE", "Accepted", "Settled", "accept_answers"]

REMOTE = "remote"
"""The owner recorded for attempts that an external program ran."""

NO_REPORTS: Mapping[Fence, bytes] = {}


class Settled(msgspec.Struct, frozen=True):
    """A job that was waiting for its answer, and the change that the answer made."""

    job: LeasedJob
    change: Settlement


class Accepted(msgspec.Struct, frozen=True):
    """The result of accepting answers. An answer that settled no job appears as the job id and attempt it names."""

    settled: list[Settled]
    ended: list[Fence] = []
    """Answers to jobs that have ended or that never existed."""
    stale: list[Fence] = []
    """Answers to jobs that now wait for something else, such as the answer to a later attempt."""
    strange: list[Fence] = []
    """Answers that their jobs wait for, but whose task is not registered as remote in this process."""
    seen: frozenset[str] = frozenset()
    """The tasks of all live jobs that an answer or a progress report names."""
    passed_over: frozenset[Fence] = frozenset()
    """Progress reports that were not stored because another transaction held the job's row."""


@operation
def accept_answers(
    answers: Sequence[Fence],
    *,
    task_names: Sequence[str],
    decide: Callable[[LeasedJob], Outcome],
    in_progress: Mapping[Fence, bytes] = NO_REPORTS,
    read: Callable[[str, bytes], str | None] = lambda _task_name, _report: None,
) -> Statements[Accepted]:
    """Settle the jobs that wait for these answers, all in one transaction, and classify the remaining answers.

    An answer applies to a queued job that waits for the same attempt, even if its message is not yet marked as sent or
    its queue is paused. `decide` maps the job to an outcome. It must be pure, because the transaction may be retried.
    `in_progress` holds progress reports. `read` gets the task's name and a report, returns the progress to store, and
    must be pure as well.
    """
    # Sorted: transactions that lock the same rows in opposite order would deadlock.
    fences = [{"id": job_id, "attempt": attempt} for job_id, attempt in sorted(answers)]
    facts = {"answers": as_json(fences), "owner": REMOTE, "task_names": as_json(task_names)}
    jobs = leased((yield Statement("claim_answered", facts))) if answers else []
    changes = [Settled(job, Settlement.of(job, decide(job))) for job in jobs]
    if changes:
        yield from settle([settled.change for settled in changes])
    rest = sorted(set(answers) - {(job.id, job.attempt) for job in jobs})
    ids = sorted({job_id for job_id, _ in (*rest, *in_progress)})
    rows = (yield Statement("find_delivered", {"ids": as_json(ids)})) if ids else []
    live = {str(row[0]) for row in rows}
    waiting = {(str(job_id), attempts + 1): name for job_id, state, attempts, name in rows if state == JobState.QUEUED}
    reports = {fence: read(waiting[fence], in_progress[fence]) for fence in waiting.keys() & in_progress}
    passed_over = yield from _report({fence: text for fence, text in reports.items() if text is not None})
    return Accepted(
        changes,
        ended=[fence for fence in rest if fence[0] not in live],
        stale=[fence for fence in rest if fence[0] in live and fence not in waiting],
        strange=[fence for fence in rest if fence in waiting],
        seen=frozenset(job.task_name for job in jobs) | {task_name for *_, task_name in rows},
        passed_over=passed_over,
    )


def _report(progress: Mapping[Fence, str]) -> Statements[frozenset[Fence]]:
    """Store the progress of unanswered requests, and return those whose row another transaction had locked."""
    if not progress:
        return frozenset()
    reports = [
        {"id": job_id, "attempt": attempt, "progress": progress[job_id, attempt]}
        for job_id, attempt in sorted(progress)
    ]
    rows: Rows = []
    for piece in (yield from in_pieces("report_progress", "reports", reports)):
        rows += yield Statement("report_progress", {"reports": piece.text})
    return frozenset(progress.keys() - {(str(job_id), attempt) for job_id, attempt in rows})
