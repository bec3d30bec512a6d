"""All jobs of an app: pages, counts, timelines, and actions on many jobs at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from stagepost.client.arguments import actor_of, choices, filter_of, known_id, page_size, page_start
from stagepost.client.bulk import (
    PAGE,
    Act,
    NextPage,
    Report,
    cancel_page,
    discard_page,
    handle_all,
    pages_of,
    retry_page,
)
from stagepost.client.operator_records import BulkResult, JobPage
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.records import Job
from stagepost.errors import ConfigurationError, duration_of
from stagepost.model.job import FailureRecord, JobRow, microseconds
from stagepost.model.lifecycle import FINAL, LIVE, JobState
from stagepost.model.timeline import Action, Moment, timeline_of
from stagepost.store import jobs
from stagepost.store.activity import actions_on, ended_within
from stagepost.store.counting import count_by_state
from stagepost.store.health import ping
from stagepost.store.history import DEAD
from stagepost.store.listing import JobPage as StoredPage
from stagepost.store.listing import page_of_jobs

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Jobs"]


class Jobs:
    """All jobs, for operators.

    Actions on many jobs work in chunks, each in a transaction of its own. If one is interrupted, repeat it: it
    continues with the rest. They reach the jobs that exist when they start. `on_progress` is called after each chunk.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def page(
        self,
        *,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        parent_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """List a page of up to 1,000 jobs, newest first, in a short time however many jobs there are.

        A rare combination of filters is searched for only among the newest jobs; `next_before` continues the search.
        """
        return run_procedure(self._paging(states, task, queue, parent_id, before, limit), self._app)

    async def page_async(
        self,
        *,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        parent_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """List a page of jobs without blocking the event loop."""
        return await run_procedure_async(self._paging(states, task, queue, parent_id, before, limit), self._app)

    def counts(self) -> Mapping[JobState, int]:
        """Count all jobs by state, live and ended, exactly and without reading them."""
        return self._app.store.run(count_by_state())

    async def counts_async(self) -> Mapping[JobState, int]:
        """Count all jobs by state without blocking the event loop."""
        return await self._app.async_store.run(count_by_state())

    def ended(self, within: timedelta | float) -> Mapping[JobState, int]:
        """Count by state the jobs that ended within this time until now."""
        return self._app.store.run(ended_within(duration_of(within, "within")))

    async def ended_async(self, within: timedelta | float) -> Mapping[JobState, int]:
        """Count the jobs that ended within this time without blocking the event loop."""
        return await self._app.async_store.run(ended_within(duration_of(within, "within")))

    def timeline(self, job_id: str) -> list[Moment]:
        """List what happened to a job, by time: its attempts, failures, and what operators did."""
        return run_procedure(self._timing(job_id), self._app)

    async def timeline_async(self, job_id: str) -> list[Moment]:
        """List what happened to a job without blocking the event loop."""
        return await run_procedure_async(self._timing(job_id), self._app)

    def cancel_all(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Cancel the jobs with these ids, or all live jobs that match; running ones are asked to stop.

        `older_than` is the time since they were enqueued.
        """
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return run_procedure(self._cancelling(chosen, actor, on_progress), self._app)

    async def cancel_all_async(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Cancel many jobs without blocking the event loop."""
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return await run_procedure_async(self._cancelling(chosen, actor, on_progress), self._app)

    def retry_all(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Queue the jobs with these ids again, or all that match; without `states`, those that failed."""
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return run_procedure(_retrying(chosen, actor, on_progress), self._app)

    async def retry_all_async(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Queue many ended jobs again without blocking the event loop."""
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return await run_procedure_async(_retrying(chosen, actor, on_progress), self._app)

    def discard_all(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Delete the ended jobs with these ids, or all that match, permanently and with their history.

        Jobs that an unfinished batch, parent or run still needs are skipped.
        """
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return run_procedure(_discarding(chosen, actor, on_progress), self._app)

    async def discard_all_async(
        self,
        *ids: str,
        states: Iterable[JobState | str] = (),
        task: str | None = None,
        queue: str | None = None,
        older_than: timedelta | float | None = None,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Delete many ended jobs without blocking the event loop."""
        chosen = Selection(ids, choices("states", states, JobState), task, queue, older_than)
        return await run_procedure_async(_discarding(chosen, actor, on_progress), self._app)

    def _paging(
        self,
        states: Iterable[JobState | str],
        task: str | None,
        queue: str | None,
        parent_id: str | None,
        before: str | None,
        limit: int,
    ) -> Procedure[JobPage]:
        found: StoredPage = yield page_of_jobs(
            states=choices("states", states, JobState),
            task_name=filter_of("task", task),
            queue_name=filter_of("queue", queue),
            batch_id=None if parent_id is None else known_id(parent_id),
            before=page_start(before),
            most=page_size(limit),
        )
        return JobPage([Job(row) for row in found.jobs], found.next_before)

    def _timing(self, job_id: str) -> Procedure[list[Moment]]:
        job: JobRow = yield jobs.get(known_id(job_id))
        failures: list[FailureRecord] = yield jobs.failures_of(job.id)
        actions: list[Action] = yield actions_on(job.id)
        return timeline_of(job, failures, actions)

    def _cancelling(self, chosen: Selection, actor: str | None, report: Report | None) -> Procedure[BulkResult]:
        act = cancel_page(actor_of(actor), lambda state: self._app.waker.notify_stop(state, None))
        return _acting(chosen, act, usual=LIVE, allowed=LIVE, report=report)


class Selection(msgspec.Struct, frozen=True):
    """Which jobs to act on: these ids, or all that match the filters."""

    ids: tuple[str, ...]
    states: list[JobState]
    task: str | None
    queue: str | None
    older_than: timedelta | float | None

    @property
    def has_filter(self) -> bool:
        """Whether any filter is given."""
        return bool(self.states) or any(one is not None for one in (self.task, self.queue, self.older_than))


def _retrying(chosen: Selection, actor: str | None, report: Report | None) -> Procedure[BulkResult]:
    return _acting(chosen, retry_page(actor_of(actor)), usual=DEAD, allowed=FINAL, report=report)


def _discarding(chosen: Selection, actor: str | None, report: Report | None) -> Procedure[BulkResult]:
    return _acting(chosen, discard_page(actor_of(actor)), usual=FINAL, allowed=FINAL, report=report)


def _acting(
    chosen: Selection, act: Act, *, usual: Collection[JobState], allowed: Collection[JobState], report: Report | None
) -> Procedure[BulkResult]:
    """Act on the selected jobs; filters without states select the `usual` ones."""
    filter_of("task", chosen.task)
    filter_of("queue", chosen.queue)
    if bool(chosen.ids) is chosen.has_filter:
        raise ConfigurationError("select jobs either by their ids or by at least one filter, such as queue='mail'.")
    if useless := sorted(set(chosen.states) - set(allowed)):
        raise ConfigurationError(f"states include {', '.join(useless)}: allowed are {', '.join(sorted(allowed))}.")
    ids = [known_id(one) for one in chosen.ids]
    next_page = pages_of(ids) if ids else _matching(chosen, chosen.states or sorted(usual))
    return (yield from handle_all(next_page, act, report=report))


def _matching(chosen: Selection, states: Sequence[JobState]) -> NextPage:
    """Find all matching jobs, newest first: a job that changes meanwhile is not found twice."""
    age_us = None if chosen.older_than is None else microseconds(duration_of(chosen.older_than, "older_than"))

    def next_page(position: Any) -> Procedure[tuple[Sequence[str], Any]]:
        now: int = 0 if age_us is None else (yield ping())
        page: StoredPage = yield page_of_jobs(
            states=states, task_name=chosen.task, queue_name=chosen.queue, before=position, most=PAGE
        )
        found = [job.id for job in page.jobs if age_us is None or now - job.created_at >= age_us]
        return found, page.next_before

    return next_page
