"""The JSON that travels through a broker: requests to run a job, answers of foreign programs, and dead letters.

What is written here is a contract with programs in other languages. Readers pass over fields they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec

from stagepost.errors import BadMessage
from stagepost.model.context import TraceContext
from stagepost.model.job import to_datetime

__all__ = [
    "Answer",
    "DeadLetter",
    "Envelope",
    "Message",
    "decode_answer",
    "decode_envelope",
    "message_id_of",
    "request_for",
    "utc_text",
]

MOST_BYTES = 4 * 1024 * 1024
"""Larger messages are not even read."""
SHOWN_CHARACTERS = 200
SHORT_STRING_BYTES = 255
"""No property of a message can be longer."""

MOST_ATTEMPTS = 2**31 - 1
"""What databases can count up to."""

ID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""As databases write it: one in capitals would be found by PostgreSQL, and then be another text than what came."""

T = TypeVar("T")
Named = TypeVar("Named", "Envelope", "Answer")


class Message(msgspec.Struct, frozen=True, gc=False):
    """Something to publish: persistent, JSON, to one routing key."""

    routing_key: str
    body: bytes
    message_id: str
    correlation_id: str | None = None
    headers: Mapping[str, Any] = {}
    priority: int | None = None
    """The level at the broker, 0 to 255; None where all messages are equal."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request to run one attempt of a job."""

    task_id: Annotated[str, msgspec.Meta(pattern=ID, max_length=36)]
    """The job: a UUID. As text, which is read in half the time."""
    step: str
    """Its task."""
    attempt: int
    """From 1; an answer must name the same."""
    trace_id: str
    created_at: str
    """When the job was enqueued: UTC, with a Z."""
    payload: msgspec.Raw
    """Its arguments, by name."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a foreign program has to say of a request."""

    task_id: UUID
    attempt: int
    status: Literal["completed", "failed", "progress"]
    result: msgspec.Raw = msgspec.Raw(b"null")
    """Of a completed request."""
    error: str | None = None
    """Of a failed one: what happened, for people to read."""
    retryable: bool = True
    """Whether trying a failed one again can help."""
    progress: msgspec.Raw = msgspec.Raw(b"null")
    """How far it is. That it came at all shows that the program is alive."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What is published when a request has failed for good."""

    original_message: msgspec.Raw
    failed_at: str
    failure_reason: str
    attempt: int


def request_for(
    *,
    routing_key: str,
    job_id: str,
    task_name: str,
    attempt: int,
    created_at: int,
    payload: str,
    context: str | None,
    priority: int | None = None,
) -> Message:
    """Make the message that asks for one attempt of a job; `priority` is the broker's, not the job's."""
    trace = TraceContext.decode(context)
    submitted_at = utc_text(created_at)
    trace_id = trace.trace_id or job_id
    body = msgspec.json.encode(
        {
            "task_id": job_id,
            "step": task_name,
            "attempt": attempt,
            "trace_id": trace_id,
            "created_at": submitted_at,
            "payload": msgspec.Raw(payload.encode()),
        }
    )
    headers = {"taskId": job_id, "taskType": task_name, "submittedAt": submitted_at, "attempt": attempt}
    if trace.user_id is not None:
        headers["userId"] = trace.user_id
    correlation_id = (trace.correlation_id or trace_id).encode()[:SHORT_STRING_BYTES].decode(errors="ignore")
    return Message(routing_key, body, message_id_of(job_id, attempt), correlation_id, headers, priority)


def message_id_of(job_id: str, attempt: int) -> str:
    """Name the request for one attempt, the same however often it is published."""
    return f"{job_id}.{attempt}"


def decode_envelope(body: bytes) -> Envelope:
    """Read a request; what cannot be one is a `BadMessage` that says why."""
    return _checked(_decode(body, Envelope))


def decode_answer(body: bytes) -> Answer:
    """Read an answer; what cannot be one is a `BadMessage` that says why."""
    return _checked(_decode(body, Answer))


def utc_text(instant: int) -> str:
    """Write an instant, in microseconds since 1970, as UTC with a Z."""
    seconds, rest = divmod(instant, 1_000_000)
    return f"{_second(seconds)}.{rest // 1000:03}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return to_datetime(seconds * 1_000_000).isoformat(timespec="seconds").removesuffix("+00:00")


def _checked(message: Named) -> Named:
    if not 1 <= message.attempt <= MOST_ATTEMPTS:
        raise BadMessage(f"attempt is {message.attempt}: attempts are counted from 1")
    return message


def _decode(body: bytes, kind: type[T]) -> T:
    if len(body) > MOST_BYTES:
        raise BadMessage(f"{len(body):,} bytes: {MOST_BYTES:,} are possible")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = body[:SHOWN_CHARACTERS].decode(errors="replace")
        raise BadMessage(f"{str(error) or type(error).__name__}; it begins with {shown!r}") from error
