"""Dead letters: jobs that failed permanently, and messages of the broker that belong to no job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from stagepost.client.arguments import actor_of, filter_of, known_id, page_size
from stagepost.client.bulk import (
    PAGE,
    Act,
    NextPage,
    Report,
    discard_message_page,
    discard_page,
    handle_all,
    pages_of,
    retry_message_page,
    retry_page,
)
from stagepost.client.operator_records import BulkResult, DeadLetterGroup, DeadMessage, dead_message_of, group_of
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.records import Job
from stagepost.errors import ConfigurationError, GroupNotFound, IllegalTransition
from stagepost.model.dead_letter import DeadMessage as StoredMessage
from stagepost.model.job import JobRow, to_instant
from stagepost.model.lifecycle import JobState
from stagepost.model.option_types import check_type
from stagepost.store.counting import count_by_state
from stagepost.store.dead_messages import (
    count_dead_messages,
    dead_message_groups,
    dead_messages,
    find_dead_message,
    next_dead_messages,
)
from stagepost.store.history import DEAD, dead_letter_groups, dead_letters
from stagepost.store.jobs import get

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["DeadLetters"]

MOST_GROUPS = 10_000
NEITHER = "select dead letters with either ids, group=…, task=… or queue=…, or everything=True."


class DeadLetters:
    """All dead letters, for operators.

    Actions on many of them work in chunks, each in a transaction of its own. If one is interrupted, repeat it: it
    continues with the rest. `on_progress` is called after each chunk.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def groups(self, *, limit: int = 50) -> list[DeadLetterGroup]:
        """Group dead letters by reason and by task (jobs) or queue (messages), largest group first."""
        return run_procedure(_grouping(limit), self._app)

    async def groups_async(self, *, limit: int = 50) -> list[DeadLetterGroup]:
        """Group dead letters without blocking the event loop."""
        return await run_procedure_async(_grouping(limit), self._app)

    def group(self, group_id: str) -> DeadLetterGroup:
        """Find a group by its id; raises GroupNotFound."""
        return run_procedure(_finding(group_id), self._app)

    async def group_async(self, group_id: str) -> DeadLetterGroup:
        """Find a group by its id without blocking the event loop."""
        return await run_procedure_async(_finding(group_id), self._app)

    def count(self) -> int:
        """Count all dead letters without reading them."""
        return run_procedure(_counting(), self._app)

    async def count_async(self) -> int:
        """Count all dead letters without blocking the event loop."""
        return await run_procedure_async(_counting(), self._app)

    def page(self, *, group: str | None = None, before: str | None = None, limit: int = 50) -> list[Job | DeadMessage]:
        """List a page of up to 1,000 dead letters, last ended first; `before` is the last id of the previous page."""
        return run_procedure(_paging(group, before, limit), self._app)

    async def page_async(
        self, *, group: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[Job | DeadMessage]:
        """List a page of dead letters without blocking the event loop."""
        return await run_procedure_async(_paging(group, before, limit), self._app)

    def get(self, letter_id: str) -> Job | DeadMessage:
        """Read one dead letter; raises JobNotFound, or IllegalTransition for a job that is not dead."""
        return run_procedure(_getting(letter_id), self._app)

    async def get_async(self, letter_id: str) -> Job | DeadMessage:
        """Read one dead letter without blocking the event loop."""
        return await run_procedure_async(_getting(letter_id), self._app)

    def retry(
        self,
        *ids: str,
        group: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        everything: bool = False,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Queue jobs again with a full set of attempts; send messages back to the queue they came from.

        Select them by ids, by group, by the task or queue of jobs, or all of them.
        """
        chosen = Selection(ids, group, task, queue, everything)
        return run_procedure(_retrying(chosen, actor, on_progress), self._app)

    async def retry_async(
        self,
        *ids: str,
        group: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        everything: bool = False,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Queue dead letters again without blocking the event loop."""
        chosen = Selection(ids, group, task, queue, everything)
        return await run_procedure_async(_retrying(chosen, actor, on_progress), self._app)

    def discard(
        self,
        *ids: str,
        group: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        everything: bool = False,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Delete dead letters and their history permanently; skip those that unfinished work depends on."""
        chosen = Selection(ids, group, task, queue, everything)
        return run_procedure(_discarding(chosen, actor, on_progress), self._app)

    async def discard_async(
        self,
        *ids: str,
        group: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        everything: bool = False,
        actor: str | None = None,
        on_progress: Report | None = None,
    ) -> BulkResult:
        """Delete dead letters without blocking the event loop."""
        chosen = Selection(ids, group, task, queue, everything)
        return await run_procedure_async(_discarding(chosen, actor, on_progress), self._app)


def _grouping(limit: int) -> Procedure[list[DeadLetterGroup]]:
    most = page_size(limit, most=MOST_GROUPS)
    of_jobs = yield dead_letter_groups(most=most)
    of_messages = yield dead_message_groups(most=most)
    found = [group_of(one) for one in (*of_jobs, *of_messages)]
    return sorted(found, key=lambda group: group.number, reverse=True)[:most]


def _finding(group_id: str) -> Procedure[DeadLetterGroup]:
    check_type("group", group_id, str)
    for group in (yield from _grouping(MOST_GROUPS)):
        if group.id == group_id:
            return group
    raise GroupNotFound(group_id)


def _counting() -> Procedure[int]:
    counts: dict[JobState, int] = yield count_by_state()
    messages: int = yield count_dead_messages()
    return sum(counts[state] for state in DEAD) + messages


def _paging(group: str | None, before: str | None, limit: int) -> Procedure[list[Job | DeadMessage]]:
    chosen = None if group is None else (yield from _finding(group))
    most = page_size(limit)
    position = None if before is None else _moment((yield from _reading(before)))
    found: list[Job | DeadMessage] = []
    if chosen is None or chosen.kind == "jobs":
        task, reason = (None, None) if chosen is None else (chosen.task, chosen.reason)
        rows = yield dead_letters(task_name=task, reason=reason, before=position, most=most)
        found += [Job(row) for row in rows]
    if chosen is None or chosen.kind == "messages":
        queue, reason = (None, None) if chosen is None else (chosen.queue, chosen.reason)
        messages = yield dead_messages(queue=queue, reason=reason, before=position, most=most)
        found += [dead_message_of(message) for message in messages]
    return sorted(found, key=_moment, reverse=True)[:most]


def _moment(letter: Job | DeadMessage) -> tuple[int, str]:
    ended_at = letter.finished_at if isinstance(letter, Job) else letter.received_at
    return 0 if ended_at is None else to_instant(ended_at), letter.id


def _reading(letter_id: str) -> Procedure[Job | DeadMessage]:
    message: StoredMessage | None = yield find_dead_message(known_id(letter_id))
    if message is not None:
        return dead_message_of(message)
    job: JobRow = yield get(known_id(letter_id))
    return Job(job)


def _getting(letter_id: str) -> Procedure[Job | DeadMessage]:
    letter = yield from _reading(letter_id)
    if isinstance(letter, Job) and letter.state not in DEAD:
        raise IllegalTransition(letter.id, letter.state, "be handled as a dead letter")
    return letter


class Selection(msgspec.Struct, frozen=True):
    """Which dead letters to act on: these ids, one group, the jobs of a task or queue, or all."""

    ids: tuple[str, ...]
    group: str | None
    task: str | None
    queue: str | None
    everything: bool

    @property
    def ways(self) -> int:
        """In how many ways the selection is made; one is right."""
        has_filter = self.task is not None or self.queue is not None
        return sum((bool(self.ids), self.group is not None, has_filter, self.everything))


def _retrying(chosen: Selection, actor: str | None, report: Report | None) -> Procedure[BulkResult]:
    who = actor_of(actor)
    return _acting(chosen, retry_page(who), retry_message_page(who), report)


def _discarding(chosen: Selection, actor: str | None, report: Report | None) -> Procedure[BulkResult]:
    who = actor_of(actor)
    return _acting(chosen, discard_page(who), discard_message_page(who), report)


def _acting(chosen: Selection, on_jobs: Act, on_messages: Act, report: Report | None) -> Procedure[BulkResult]:
    check_type("everything", chosen.everything, bool)
    filter_of("task", chosen.task)
    filter_of("queue", chosen.queue)
    if chosen.ways != 1:
        raise ConfigurationError(NEITHER)
    jobs, messages = yield from _selecting(chosen)
    done = BulkResult()
    for next_page, act in ((jobs, on_jobs), (messages, on_messages)):
        if next_page is not None:
            done = yield from handle_all(next_page, act, report=report, before=done)
    return done


def _selecting(chosen: Selection) -> Procedure[tuple[NextPage | None, NextPage | None]]:
    """Find the pages of jobs and of messages to act on; None if there can be none."""
    if chosen.ids:  # a typing mistake must not run or delete jobs that are live or completed
        letters = []
        for one in chosen.ids:
            letters.append((yield from _getting(one)))
        jobs = [letter.id for letter in letters if isinstance(letter, Job)]
        return pages_of(jobs), pages_of([letter.id for letter in letters if not isinstance(letter, Job)])
    if chosen.group is not None:
        found = yield from _finding(chosen.group)
        if found.kind == "messages":
            return None, _messages_matching(found.queue, found.reason)
        return _jobs_matching(found.task, None, found.reason), None
    if not chosen.everything:
        return _jobs_matching(chosen.task, chosen.queue, None), None
    return _jobs_matching(None, None, None), _messages_matching(None, None)


def _jobs_matching(task: str | None, queue: str | None, reason: str | None) -> NextPage:
    """Find all matching jobs, most recently ended first.

    A job that is retried and fails again meanwhile ends later than all jobs still to come, so no job is found twice.
    """

    def next_page(position: Any) -> Procedure[tuple[Sequence[str], Any]]:
        page: list[JobRow] = yield dead_letters(
            task_name=task, queue_name=queue, reason=reason, before=position, most=PAGE
        )
        return [job.id for job in page], (page[-1].finished_at or 0, page[-1].id) if page else None

    return next_page


def _messages_matching(queue: str | None, reason: str | None) -> NextPage:
    """Find all matching messages, oldest first."""

    def next_page(position: Any) -> Procedure[tuple[Sequence[str], Any]]:
        page: list[StoredMessage] = yield next_dead_messages(queue=queue, reason=reason, after=position, most=PAGE)
        return [message.id for message in page], (page[-1].received_at, page[-1].id) if page else None

    return next_page
