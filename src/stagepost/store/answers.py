"""What foreign programs answer to requests: taken in by groups, each job's at most once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Outcome
from stagepost.store.leases import leased
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle

__all__ = ["REMOTE", "Accepted", "Settled", "accept_answers"]

REMOTE = "remote"
"""The owner of attempts that foreign programs made."""

NO_REPORTS: Mapping[Fence, bytes] = {}


class Settled(msgspec.Struct, frozen=True):
    """A job that was waiting for its answer, and what that did to it."""

    job: LeasedJob
    change: Settlement


class Accepted(msgspec.Struct, frozen=True):
    """What became of answers; those that settled nothing are given as what they answered."""

    settled: list[Settled]
    ended: list[Fence] = []
    """To jobs that are not live: they have ended, were cancelled, or never were."""
    stale: list[Fence] = []
    """To jobs that wait for something else, such as the answer to a later attempt."""
    strange: list[Fence] = []
    """To jobs that wait for just this, but whose task is not known here to be remote."""
    seen: frozenset[str] = frozenset()
    """The tasks of all live jobs that were answered, or of which progress was reported."""
    passed_over: frozenset[Fence] = frozenset()
    """Reports on jobs that somebody had locked just then: nothing of them is stored."""


@operation
def accept_answers(
    answers: Sequence[Fence],
    *,
    task_names: Sequence[str],
    decide: Callable[[LeasedJob], Outcome],
    in_progress: Mapping[Fence, bytes] = NO_REPORTS,
    read: Callable[[str, bytes], str | None] = lambda _task_name, _report: None,
) -> Statements[Accepted]:
    """Settle the jobs that wait for these answers, all in one transaction; what waits for none is told apart.

    An answer counts for a queued job of the same attempt, whether or not its message was marked as sent by now, and
    whether or not its queue is paused. `decide` says what it means, and must be pure: the transaction may be repeated.
    `in_progress` are reports on requests; `read`, with the name of the task and a report, says what progress to store,
    and must be as pure.
    """
    # Sorted: two that lock the same rows in opposite order would deadlock.
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
    """Store how far requests are whose answer is still waited for; returns those whose row was locked."""
    if not progress:
        return frozenset()
    reports = [
        {"id": job_id, "attempt": attempt, "progress": progress[job_id, attempt]}
        for job_id, attempt in sorted(progress)
    ]
    rows = yield Statement("report_progress", {"reports": reports}, split="reports")
    return frozenset(progress.keys() - {(str(job_id), attempt) for job_id, attempt in rows})
