"""Retries and discards many dead letters (jobs and messages) page by page, and reports each page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from stagepost.database.store import Store
from stagepost.errors import IllegalTransition, UniqueKeyTaken
from stagepost.model.dead_letter import DeadMessage
from stagepost.model.job import JobRow
from stagepost.model.lifecycle import JobState
from stagepost.store.dead_messages import (
    DeadMessageGroup,
    discard_dead_messages,
    find_dead_message,
    next_dead_messages,
    retry_dead_messages,
)
from stagepost.store.history import DeadLetterGroup, dead_letters, discard
from stagepost.store.jobs import get, restart

__all__ = [
    "Handled",
    "discard_each",
    "discard_messages",
    "group_id",
    "message_pages_matching",
    "pages_matching",
    "pages_of",
    "require_dead",
    "retry_each",
    "retry_messages",
]

PAGE = 500
DEAD = frozenset({JobState.FAILED, JobState.DEAD_LETTER})


@dataclass(frozen=True)
class Handled:
    """The result of handling one page."""

    done: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons for refusal, by id."""
    missing: Sequence[str] = ()
    """Ids that do not exist, or whose job has not ended."""


def group_id(group: DeadLetterGroup | DeadMessageGroup) -> str:
    """Return a short name for a group, which depends only on its reason and its task or queue."""
    scope = group.task_name if isinstance(group, DeadLetterGroup) else f"\0{group.queue}"
    return sha256(f"{scope}\0{group.reason}".encode()).hexdigest()[:8]


def retry_each(store: Store, pages: Iterator[list[str]], *, actor: str) -> Iterator[Handled]:
    """Queue ended jobs again, page by page."""
    for page in pages:
        try:
            done = store.run(restart(page, actor=actor))
            yield _handled(page, done)
        except UniqueKeyTaken:
            yield _one_by_one(page, lambda job_id: store.run(restart([job_id], actor=actor)))


def discard_each(store: Store, pages: Iterator[list[str]], *, actor: str) -> Iterator[Handled]:
    """Delete ended jobs permanently, page by page; refuse those that an unfinished batch, parent or run needs."""
    for page in pages:
        discarded = store.run(discard(page, actor=actor))
        missing = sorted(set(page) - set(discarded.ids) - discarded.kept.keys())
        yield Handled(discarded.ids, discarded.kept, missing)


def retry_messages(store: Store, pages: Iterator[list[str]], *, actor: str) -> Iterator[Handled]:
    """Send dead messages again, in order and page by page; refuse those whose original queue is unknown."""
    for page in pages:
        done = set(store.run(retry_dead_messages(page, actor=actor)))
        rest = [message_id for message_id in page if message_id not in done]
        refused = {
            message_id: NOWHERE.format(message_id) for message_id in rest if store.run(find_dead_message(message_id))
        }
        yield Handled(sorted(done), refused, missing=[message_id for message_id in rest if message_id not in refused])


NOWHERE = (
    "Message {} cannot be sent again: it was published directly to the dead-letter queue, so its original queue is "
    "unknown. Use `stagepost dead show` to see it."
)


def discard_messages(store: Store, pages: Iterator[list[str]], *, actor: str) -> Iterator[Handled]:
    """Delete dead messages permanently, page by page."""
    for page in pages:
        yield _handled(page, store.run(discard_dead_messages(page, actor=actor)))


def require_dead(store: Store, job_ids: Sequence[str]) -> None:
    """Refuse ids of jobs that are live or completed: a typing mistake must not run or delete them."""
    for job_id in job_ids:
        job = store.run(get(job_id))
        if job.state not in DEAD:
            raise IllegalTransition(job_id, job.state, "be handled as a dead letter")


def pages_of(job_ids: Sequence[str]) -> Iterator[list[str]]:
    """Split a list of ids into pages."""
    for start in range(0, len(job_ids), PAGE):
        yield list(job_ids[start : start + PAGE])


def pages_matching(
    store: Store, *, task_name: str | None = None, queue_name: str | None = None, reason: str | None = None
) -> Iterator[list[str]]:
    """Find all matching dead letters, most recently ended first.

    A job that is retried and fails again during the iteration ends later than all jobs still to come, so no job is
    returned twice.
    """
    last: JobRow | None = None
    while True:
        page = store.run(
            dead_letters(
                task_name=task_name,
                queue_name=queue_name,
                reason=reason,
                before=None if last is None else (last.finished_at or 0, last.id),
                most=PAGE,
            )
        )
        if not page:
            return
        last = page[-1]
        yield [job.id for job in page]


def message_pages_matching(store: Store, *, queue: str | None = None, reason: str | None = None) -> Iterator[list[str]]:
    """Find all matching dead messages, oldest first."""
    last: DeadMessage | None = None
    while True:
        after = None if last is None else (last.received_at, last.id)
        page = store.run(next_dead_messages(queue=queue, reason=reason, after=after, most=PAGE))
        if not page:
            return
        last = page[-1]
        yield [message.id for message in page]


def _handled(asked: Sequence[str], done: Sequence[str]) -> Handled:
    return Handled(done, missing=sorted(set(asked) - set(done)))


def _one_by_one(page: Sequence[str], act: Callable[[str], Sequence[str]]) -> Handled:
    """Handle a page one id at a time, so that a refused id does not affect the others."""
    done: list[str] = []
    refused: dict[str, str] = {}
    for job_id in page:
        try:
            done += act(job_id)
        except UniqueKeyTaken as error:
            refused[job_id] = str(error)
    return Handled(done, refused, missing=sorted(set(page) - set(done) - set(refused)))
