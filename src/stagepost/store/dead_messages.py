"""Operations on messages from the broker's dead letter queue: they end a job, or are stored if they belong to none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.model.dead_letter import DeadMessage, Undelivered, from_text, to_text
from stagepost.model.lifecycle import Cause, JobState, next_state
from stagepost.store.history import LAST_ID, LAST_INSTANT
from stagepost.store.jobs import audit, job_of
from stagepost.store.outbox import add_messages, headers_text
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle

__all__ = [
    "DeadMessageGroup",
    "EndedJobs",
    "KnownJobs",
    "add_dead_messages",
    "count_dead_messages",
    "dead_message_groups",
    "dead_messages",
    "discard_dead_messages",
    "end_undelivered",
    "find_dead_message",
    "known_jobs",
    "next_dead_messages",
    "retry_dead_messages",
]

FIRST_ID = "00000000-0000-0000-0000-000000000000"


class EndedJobs(msgspec.Struct, frozen=True):
    """The jobs that ended because the broker could not deliver their request."""

    ended: list[str]
    batches: list[str | None]
    """The batch of each ended job."""


@operation
def end_undelivered(requests: Iterable[Undelivered]) -> Statements[EndedJobs]:
    """End jobs whose request the broker dead-lettered, if they still wait for that same request."""
    state = next_state(JobState.QUEUED, Cause.EXHAUST)
    changes, batches = [], []
    # Sorted: transactions that lock the same rows in opposite order would deadlock.
    for request in sorted({request.job_id: request for request in requests}.values(), key=lambda one: one.job_id):
        locked = yield Statement("lock_job", {"id": request.job_id})
        if [(row[0], row[2]) for row in locked] != [(request.attempt - 1, JobState.QUEUED)]:
            continue
        [row] = yield Statement("live_job", {"id": request.job_id})
        job = job_of(row)
        changes.append(Settlement.of_state(job.id, job.attempt, job.locked_by, state, error=request.error))
        batches.append(job.batch_id)
    if changes:
        yield from settle(changes)  # their rows are locked: all fences hold
    return EndedJobs([change.id for change in changes], batches)


class KnownJobs(msgspec.Struct, frozen=True):
    """Which of the requested jobs exist."""

    live: frozenset[str]
    ended: frozenset[str]


@query
def known_jobs(ids: Sequence[str]) -> Statements[KnownJobs]:
    """Find out which of these jobs are live and which have ended. Ids that do not exist are in neither set."""
    listed = as_json(sorted(set(ids)))
    known = yield Statement("known_jobs", {"ids": listed})
    live = yield Statement("find_delivered", {"ids": listed})
    living = frozenset(str(row[0]) for row in live)
    return KnownJobs(living, frozenset(str(row[0]) for row in known) - living)


@operation
def add_dead_messages(messages: Iterable[DeadMessage]) -> Statements[None]:
    """Store messages that belong to no job. A message that arrives twice is stored once."""
    for message in sorted(messages, key=lambda one: one.id):
        encoding, body = to_text(message.body)
        yield Statement(
            "add_dead_message",
            {
                "id": message.id,
                "queue_name": message.queue,
                "routing_key": message.routing_key,
                "message_id": message.message_id,
                "correlation_id": message.correlation_id,
                "reason": message.reason,
                "error": message.error,
                "headers": headers_text(message.headers).replace("\\u0000", "�"),
                "encoding": encoding,
                "body": body,
            },
        )


@query
def find_dead_message(message_id: str) -> Statements[DeadMessage | None]:
    """Look up a dead message by its id."""
    rows = yield Statement("dead_message_of_id", {"id": message_id})
    return _message_of(rows[0]) if rows else None


@query
def dead_messages(
    *,
    queue: str | None = None,
    reason: str | None = None,
    before: tuple[int, str] | None = None,
    most: int = 50,
) -> Statements[list[DeadMessage]]:
    """List dead messages, last received first; `before` is (received_at, id) of the previous page's last message."""
    before_at, before_id = before or (LAST_INSTANT, LAST_ID)
    page = {"before_at": before_at, "before_id": before_id, "most": most, **_filters(queue, reason)}
    rows = yield Statement("list_dead_messages", page)
    return [_message_of(row) for row in rows]


@query
def next_dead_messages(
    *, queue: str | None = None, reason: str | None = None, after: tuple[int, str] | None = None, most: int
) -> Statements[list[DeadMessage]]:
    """List dead messages, first received first, so that messages sent again keep their order."""
    after_at, after_id = after or (0, FIRST_ID)
    page = {"after_at": after_at, "after_id": after_id, "most": most, **_filters(queue, reason)}
    rows = yield Statement("next_dead_messages", page)
    return [_message_of(row) for row in rows]


class DeadMessageGroup(msgspec.Struct, frozen=True):
    """Dead messages of one broker queue whose errors differ only in ids and numbers."""

    queue: str
    reason: str
    messages: int
    first_at: int
    last_at: int


@query
def dead_message_groups(*, most: int = 100) -> Statements[list[DeadMessageGroup]]:
    """Group dead messages by queue and reason, the largest group first."""
    rows = yield Statement("group_dead_messages", {"most": most})
    return [DeadMessageGroup(*row) for row in rows]


@query
def count_dead_messages() -> Statements[int]:
    """Count dead messages."""
    [(number,)] = yield Statement("count_dead_messages")
    return int(number)


@operation
def retry_dead_messages(ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    """Move dead messages to the outbox under their original routing key, first received first, and return their ids.

    Messages whose routing key is unknown stay where they are.
    """
    found = yield from _take(ids, actor=actor, action="retry")
    yield from add_messages([message.again() for message in found])
    return [message.id for message in found]


@operation
def discard_dead_messages(ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    """Delete dead messages permanently, and return the ids that existed."""
    found = yield from _take(ids, actor=actor, action="discard")
    return [message.id for message in found]


def _take(ids: Sequence[str], *, actor: str, action: str) -> Statements[list[DeadMessage]]:
    """Lock and delete messages and record the actor. A concurrent call for the same messages finds none."""
    found: list[DeadMessage] = []
    for message_id in sorted(set(ids)):  # locks in opposite order would deadlock
        rows = yield Statement("lock_dead_message", {"id": message_id})
        found += [message for row in rows if (message := _message_of(row)).routing_key or action != "retry"]
    for message in found:
        yield Statement("delete_dead_message", {"id": message.id})
        yield from audit(actor, action, message.id, detail=f"{message.queue}, {message.reason}")
    return sorted(found, key=lambda message: (message.received_at, message.id))


def _filters(queue: str | None, reason: str | None) -> dict[str, str]:
    given = {"queue_name": queue, "reason": reason}
    return {name: value for name, value in given.items() if value is not None}


def _message_of(row: tuple[Any, ...]) -> DeadMessage:
    identity, queue, routing_key, message_id, correlation_id, _, error, headers, encoding, body, received_at = row
    return DeadMessage(
        id=str(identity),
        queue=queue,
        routing_key=routing_key,
        message_id=message_id,
        correlation_id=correlation_id,
        error=error,
        headers=msgspec.json.decode(headers),
        body=from_text(encoding, body),
        received_at=received_at,
    )
