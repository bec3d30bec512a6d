"""Operations on the outbox, which holds messages other than requests, and on notices of failed jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stagepost.database.statement import (
    Statement,
    Statements,
    as_json,
    operation,
    query,
    single_statement,
)
from stagepost.model.dead_letter import Unreadable, from_text, notice_of, to_text, wrap_unreadable
from stagepost.model.envelope import Message
from stagepost.model.lifecycle import JobState
from stagepost.store.settlement import Fence

__all__ = [
    "OutboxMessage",
    "Unannounced",
    "add_messages",
    "add_unreadable",
    "delete_messages",
    "headers_text",
    "mark_announced",
    "next_messages",
    "unannounced",
]


class OutboxMessage(msgspec.Struct, frozen=True):
    """A message in the outbox."""

    id: int
    message: Message


@operation
def add_messages(messages: Sequence[Message]) -> Statements[None]:
    """Put messages into the outbox, to be published in this order after the commit."""
    # One statement each: there are few messages, and a joint statement could exceed the server's size limit.
    for message in messages:
        encoding, body = to_text(message.body)
        yield Statement(
            "add_message",
            {
                "routing_key": message.routing_key,
                "message_id": message.message_id,
                "correlation_id": message.correlation_id,
                "headers": headers_text(message.headers),
                "encoding": encoding,
                "body": body,
            },
        )


@query
def next_messages(*, after: int = 0, most: int) -> Statements[list[OutboxMessage]]:
    """List messages in the outbox in order, starting after the id `after`."""
    rows = yield Statement("next_messages", {"after": after, "most": most})
    return [
        OutboxMessage(
            number, Message(key, from_text(encoding, body), name, correlation_id, msgspec.json.decode(headers))
        )
        for number, key, name, correlation_id, headers, encoding, body in rows
    ]


@operation
def delete_messages(ids: Sequence[int]) -> Statements[None]:
    """Delete messages that the broker has confirmed."""
    for number in sorted(ids):
        yield Statement("delete_message", {"id": number})


@operation
def add_unreadable(bad: Sequence[Unreadable], *, routing_key: str) -> Statements[None]:
    """Put unreadable messages and their reasons into the outbox, to be published to the dead letter queue."""
    [(now,)] = yield Statement("read_clock")
    yield from add_messages([wrap_unreadable(one, routing_key=routing_key, at=int(now)) for one in bad])


class Unannounced(msgspec.Struct, frozen=True):
    """Failed jobs and dead letters whose notice has not been published yet."""

    now: int
    """The database's time of the query."""
    notices: list[Message]
    fences: list[Fence]
    finished_at: list[int]


@query
def unannounced(
    queue_name: str, state: JobState, *, since: int, routing_key: str, asked_by: str, most: int
) -> Statements[Unannounced]:
    """List jobs of a queue that ended in `state` at `since` or later and have no notice yet, first ended first.

    Notices are published with `routing_key`. `asked_by` is the routing key of the queue's requests.
    """
    [(now,)] = yield Statement("read_clock")
    page = {"queue_name": queue_name, "state": state, "since": since, "most": most}
    rows = yield Statement("unannounced_jobs", page)
    return Unannounced(
        now=int(now),
        notices=[_notice(routing_key, asked_by, *row) for row in rows],
        fences=[(str(row[0]), row[3]) for row in rows],
        finished_at=[row[7] for row in rows],
    )


@single_statement
def mark_announced(fences: Sequence[Fence]) -> Statements[None]:
    """Record that the broker has confirmed the notices of these jobs. Skips a job that was restarted meanwhile."""
    # Sorted: transactions that lock the same rows in opposite order would deadlock.
    told = as_json([{"id": job_id, "attempt": attempt} for job_id, attempt in sorted(fences)])
    yield Statement("mark_announced", {"told": told})


def headers_text(headers: Any) -> str:
    """Encode headers as JSON, with other types as strings."""
    return msgspec.json.encode(dict(headers), enc_hook=str).decode()


def _notice(
    routing_key: str,
    asked_by: str,
    job_id: Any,
    task_name: str,
    _queue_name: str,
    attempt: int,
    created_at: int,
    payload: str,
    context: str | None,
    finished_at: int,
    error: str | None,
) -> Message:
    return notice_of(
        routing_key=routing_key,
        asked_by=asked_by,
        job_id=str(job_id),
        task_name=task_name,
        attempt=attempt,
        created_at=created_at,
        payload=payload,
        context=context,
        finished_at=finished_at,
        error=error,
    )
