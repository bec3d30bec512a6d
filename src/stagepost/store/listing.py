"""Operations that list jobs and batch items in pages, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from stagepost.database.statement import Rows, Statement, Statements, as_json, query
from stagepost.model.batch import id_range
from stagepost.model.context import FirstRequest
from stagepost.model.job import JobRow, to_datetime
from stagepost.model.lifecycle import FINAL, LIVE, JobState
from stagepost.store.counting import count_by_queue
from stagepost.store.jobs import job_of

__all__ = ["FailedGroup", "JobPage", "failed_groups", "list_items", "list_jobs", "page_of_jobs", "range_of"]

FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FEW = 5_000
"""States with up to this many jobs are searched completely."""
LOOK = 10_000
"""How many of the newest jobs are searched for jobs in more frequent states."""


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs, and where the next page starts."""

    jobs: list[JobRow]
    next_before: str | None
    """None at the end. More jobs may follow a page that is not full: each call searches a limited number of jobs."""


@query
def page_of_jobs(
    *,
    states: Iterable[JobState] = (),
    queue_name: str | None = None,
    task_name: str | None = None,
    batch_id: str | None = None,
    before: str | None = None,
    most: int = 50,
    look: int | None = LOOK,
) -> Statements[JobPage]:
    """List a page of jobs in a short time, however many jobs exist. With `look=None`, search until the page is full.

    No index covers every combination of filters. So jobs in rare states are found by an index on their state, and
    others by searching the newest jobs. The counts tell which states are rare, and which are empty.
    """
    wanted = set(states) or set(JobState)
    filters = {"queue_name": queue_name, "task_name": task_name}
    given = {name: value for name, value in filters.items() if value is not None}
    if task_name is not None:
        given["first_task"] = FirstRequest.text_of(task_name)
    page: dict[str, Any] = {**given, "before": before or LAST_ID, "most": most}
    if batch_id is not None:
        page |= range_of(batch_id)
    is_choosy = batch_id is None and (bool(given) or wanted != set(JobState))
    few, many = (yield from _by_frequency(wanted, queue_name)) if is_choosy else (set(), wanted)
    rows: Rows = []
    for state in sorted(few):
        for statement in _few(state, page):
            rows += yield statement
    until = FIRST_ID
    for kind, those in (("live", many & LIVE), ("ended", many & FINAL)):
        if those:
            end = (yield from _end_of_look(kind, page["before"], look)) if is_choosy and look else FIRST_ID
            found = yield Statement(f"list_{kind}_jobs", {**page, "states": as_json(sorted(those)), "until": end})
            rows += found
            until = max(until, end if len(found) < most else FIRST_ID)
    jobs = sorted((job_of(row) for row in rows), key=lambda job: job.id, reverse=True)
    shown = [job for job in jobs if job.id >= until][:most]  # older ones may have unread jobs between them
    if len(shown) == most:
        return JobPage(shown, shown[-1].id)
    return JobPage(shown, None if until == FIRST_ID else until)


@query
def list_jobs(
    *,
    states: Iterable[JobState] = (),
    queue_name: str | None = None,
    task_name: str | None = None,
    batch_id: str | None = None,
    before: str | None = None,
    most: int = 50,
) -> Statements[list[JobRow]]:
    """List a full page of jobs, newest first, however long that takes; `before` is the last id of the previous page."""
    page = yield from page_of_jobs(
        states=states,
        queue_name=queue_name,
        task_name=task_name,
        batch_id=batch_id,
        before=before,
        most=most,
        look=None,
    )
    return page.jobs


@query
def list_items(
    batch_id: str, *, states: Sequence[JobState] = (), before: str | None = None, most: int = 50
) -> Statements[list[JobRow]]:
    """List a page of a batch's items; `before` is the last id of the previous page."""
    return (yield from list_jobs(states=states, batch_id=batch_id, before=before, most=most))


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed items of a batch with the same reason."""

    reason: str | None
    """Their error, without the parts that differ."""
    task: str
    """Name of their task."""
    state: JobState
    """`failed` or `dead_letter`."""
    items: int
    """Number of items."""
    example_key: str
    """Key of one of them."""
    last_at: datetime
    """When the latest of them failed, in UTC."""


@query
def failed_groups(batch_id: str, *, most: int = 100) -> Statements[list[FailedGroup]]:
    """Group a batch's failed items by reason, most frequent first."""
    rows = yield Statement("group_failed_items", {**range_of(batch_id), "most": most})
    return [
        FailedGroup(reason, task, JobState(state), items, example_key, to_datetime(last_at))
        for reason, task, state, items, example_key, last_at in rows
    ]


def range_of(batch_id: str) -> dict[str, str]:
    """The parameters that select a batch's items, whose ids form a range."""
    first_id, last_id = id_range(batch_id)
    return {"batch_id": batch_id, "first_id": first_id, "last_id": last_id}


def _by_frequency(wanted: set[JobState], queue_name: str | None) -> Statements[tuple[set[JobState], set[JobState]]]:
    """Split states into rare and frequent ones, without those that no job is in."""
    counted = yield from count_by_queue()
    everywhere = {state: sum(counts[state] for counts in counted.values()) for state in JobState}
    here: Mapping[JobState, int] = everywhere if queue_name is None else counted.get(queue_name, {})
    present = {state for state in wanted if here.get(state)}
    # How many rows a state's index holds: queued jobs are indexed by queue; scheduled and retrying jobs share an index.
    later = everywhere[JobState.SCHEDULED] + everywhere[JobState.RETRYING]
    looked_at = {**everywhere, JobState.QUEUED: here.get(JobState.QUEUED, 0)}
    looked_at |= dict.fromkeys((JobState.SCHEDULED, JobState.RETRYING), later)
    few = {state for state in present if looked_at[state] <= FEW} - {JobState.WAITING}  # has no index
    return few, present - few


def _few(state: JobState, page: Mapping[str, Any]) -> list[Statement]:
    """The statements that list the jobs of a rare state. The SQL spells out the state if a partial index needs it."""
    at = {**page, "state": state}
    if state in FINAL:
        return [Statement("list_few_ended_jobs", at)]
    if state in {JobState.RETRYING, JobState.SCHEDULED}:
        return [Statement("list_few_live_jobs", {**at, "due": state})]
    # Queued jobs are in two indexes: one for jobs to be claimed or sent, one for jobs whose message was sent.
    kinds = ("queued", "sent") if state is JobState.QUEUED else (str(state),)
    return [Statement("list_few_live_jobs", {**at, kind: 1}) for kind in kinds]


def _end_of_look(kind: str, before: str, look: int) -> Statements[str]:
    rows = yield Statement(f"look_until_{kind}", {"before": before, "look": look})
    return str(rows[0][0]) if rows else FIRST_ID
