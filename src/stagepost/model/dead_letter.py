"""Dead letters at the broker: their formats, what each one means, and how unusable messages are stored."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from stagepost.errors import BadMessage
from stagepost.model.envelope import DeadLetter, Message, decode_envelope, message_id_of, request_for, utc_text
from stagepost.model.reason import reason_of

__all__ = [
    "DeadMessage",
    "Letter",
    "Notice",
    "Undelivered",
    "Unreadable",
    "from_text",
    "notice_id_of",
    "notice_of",
    "sort_letter",
    "stray",
    "to_text",
    "wrap_unreadable",
]

MOST_BYTES = 4 * 1024 * 1024
"""Only the beginning of a larger message is kept."""
KEPT_BYTES = 64 * 1024
MOST_CHARACTERS = 255
"""Maximum length of a name at the broker."""
MOST_ERROR_CHARACTERS = 8_000
QUEUE, ROUTING_KEY, MESSAGE_ID, ENCODING = (
    "originalQueue",
    "originalRoutingKey",
    "originalMessageId",
    "originalEncoding",
)
"""Headers of a wrapped message, which are needed to send the original again."""
ENDS_JOB = frozenset({"expired", "rejected", "delivery_limit"})
"""Reasons for dropping a request that end its job; one dropped from a full queue is found missing and sent again."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message as found in the dead-letter queue."""

    body: bytes
    headers: Mapping[str, Any] = {}
    message_id: str | None = None
    correlation_id: str | None = None

    def __post_init__(self) -> None:
        headers = {_readable(name): value for name, value in self.headers.items()}
        msgspec.structs.force_setattr(self, "headers", headers)
        _make_readable(self)


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A message that its receiver could not read, and the reason."""

    queue: str
    """The queue's name at the broker."""
    routing_key: str
    body: bytes
    error: str
    message_id: str | None = None
    correlation_id: str | None = None

    def __post_init__(self) -> None:
        _make_readable(self)

    def shortened(self, why: str) -> Unreadable:
        """The same with as much of the body as every database takes."""
        body, error = _beginning(self.body, f"{self.error}; {why}")
        return msgspec.structs.replace(self, body=body, error=error)


class Notice(msgspec.Struct, frozen=True):
    """Announces that a job failed permanently."""

    job_id: str
    is_ours: bool
    """Whether Stagepost published the notice; the job's row then already records the failure."""


class Undelivered(msgspec.Struct, frozen=True):
    """A request that the broker dropped."""

    job_id: str
    attempt: int
    why: str
    queue: str

    @property
    def ends_job(self) -> bool:
        """Whether the job ends, instead of being sent again."""
        return self.why in ENDS_JOB

    @property
    def error(self) -> str:
        """The error to record for its job."""
        return f"{WHY_DROPPED.get(self.why, self.why)}: the broker dropped the message from queue {self.queue}"


WHY_DROPPED = {
    "expired": "expired before a consumer took it",
    "rejected": "rejected by its consumer",
    "delivery_limit": "delivered too often to workers that crashed",
    "maxlen": "dropped from a full queue",
}


class DeadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that belongs to no job, with all that is needed to send it again."""

    id: str
    queue: str
    """The broker's queue in which it failed."""
    routing_key: str
    """The routing key for sending it again; empty if unknown."""
    message_id: str
    correlation_id: str | None
    error: str
    headers: Mapping[str, Any]
    body: bytes
    received_at: int = 0

    def shortened(self, why: str) -> DeadMessage:
        """The same with as much of the body as every database takes; its id still follows from the whole."""
        body, error = _beginning(self.body, f"{self.error}; {why}")
        return msgspec.structs.replace(self, body=body, error=_plain(error, most=MOST_ERROR_CHARACTERS))

    @property
    def reason(self) -> str:
        """The error without ids and numbers, for grouping."""
        return reason_of(self.error)

    @classmethod
    def of(cls, message: Message, error: str) -> DeadMessage:
        """Store a message of our own that could not be delivered."""
        letter = Letter(body=message.body, headers=message.headers, correlation_id=message.correlation_id)
        return _dead(
            letter, queue="", routing_key=message.routing_key, error=error, body=message.body,
            message_id=message.message_id,
        )  # fmt: skip

    def again(self) -> Message:
        """Build the message that sends it again, without the headers that the broker added."""
        kept = {name: value for name, value in self.headers.items() if not name.startswith("x-")}
        return Message(self.routing_key, self.body, self.message_id, self.correlation_id, kept)


def notice_of(
    *,
    routing_key: str,
    asked_by: str,
    job_id: str,
    task_name: str,
    attempt: int,
    created_at: int,
    payload: str,
    context: str | None,
    finished_at: int,
    error: str | None,
) -> Message:
    """Build the notice that a job failed permanently; `asked_by` is the routing key of its request."""
    attempt = max(1, attempt)  # a job whose request was never taken has made no attempt
    request = request_for(
        routing_key=routing_key,
        job_id=job_id,
        task_name=task_name,
        attempt=attempt,
        created_at=created_at,
        payload=payload,
        context=context,
    )
    letter = DeadLetter(
        original_message=msgspec.Raw(request.body),
        failed_at=utc_text(finished_at),
        failure_reason=error or "no message",
        attempt=attempt,
    )
    body = msgspec.json.encode(letter)
    headers = {**request.headers, ROUTING_KEY: asked_by}
    return Message(routing_key, body, notice_id_of(job_id, attempt), request.correlation_id, headers)


def notice_id_of(job_id: str, attempt: int) -> str:
    """Return the id of the notice for a job's last attempt; it is the same each time it is published."""
    return f"{message_id_of(job_id, attempt)}.dead"


def wrap_unreadable(bad: Unreadable, *, routing_key: str, at: int) -> Message:
    """Wrap an unreadable message, with the reason, for the dead-letter queue."""
    body, error = _kept(bad.body, bad.error)
    encoding, text = to_text(body)
    original: Any = text
    if encoding == "text" and _is_json(body):
        encoding, original = "json", msgspec.Raw(body)
    letter = DeadLetter(
        original_message=msgspec.Raw(msgspec.json.encode(original)),
        failed_at=utc_text(at),
        failure_reason=error,
        attempt=1,
    )
    headers = {QUEUE: bad.queue, ROUTING_KEY: bad.routing_key, ENCODING: encoding}
    if bad.message_id:
        headers[MESSAGE_ID] = _plain(bad.message_id)
    name = f"{_identity(bad.message_id, body)}.parked"
    correlation_id = bad.correlation_id and _plain(bad.correlation_id)
    return Message(routing_key, msgspec.json.encode(letter), name, correlation_id, headers)


def sort_letter(letter: Letter) -> Notice | Undelivered | None:
    """Classify a message in the dead-letter queue; None if it belongs to no job."""
    if (death := _first_death(letter.headers)) is not None:
        try:
            envelope = decode_envelope(letter.body)
        except BadMessage:
            return None
        why, queue = str(death.get("reason", "dead-lettered")), str(death.get("queue", "?"))
        return Undelivered(str(envelope.task_id), envelope.attempt, why, queue)
    try:
        notice = msgspec.json.decode(letter.body, type=DeadLetter)
        envelope = decode_envelope(bytes(notice.original_message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadMessage):
        return None
    job_id = str(envelope.task_id)
    return Notice(job_id, is_ours=letter.message_id == notice_id_of(job_id, envelope.attempt))


def stray(letter: Letter) -> DeadMessage:
    """Describe a message that belongs to no job: the original, its queue, and what happened to it."""
    death = _first_death(letter.headers)
    if death is None and (found := _unwrapped(letter)) is not None:
        return found
    queue, routing_key, error = "", "", "published directly to the dead-letter queue by another program"
    if death is not None:
        queue = str(death.get("queue", ""))
        keys = death.get("routing-keys") or [queue]
        why = str(death.get("reason", "dead-lettered"))
        routing_key, error = str(keys[0]), WHY_DROPPED.get(why, why)
    body, error = _kept(letter.body, error)
    return _dead(letter, queue=queue, routing_key=routing_key, error=error, body=body, message_id=letter.message_id)


def to_text(body: bytes) -> tuple[str, str]:
    """Encode a body as text that every database can store; returns the encoding and the text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(msgspec.json.encode(text)) > 2 * len(body) + 2:
        return "base64", base64.b64encode(body).decode()
    return "text", text


def from_text(encoding: str, text: str) -> bytes:
    """Decode the text that `to_text` returned."""
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def _unwrapped(letter: Letter) -> DeadMessage | None:
    """Extract the original of a wrapped message."""
    try:
        notice = msgspec.json.decode(letter.body, type=DeadLetter)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    headers = letter.headers
    body = bytes(notice.original_message)
    encoding = str(headers.get(ENCODING, "json"))
    if encoding != "json":
        try:
            body = from_text(encoding, msgspec.json.decode(body, type=str))
        except ValueError:
            return None
    message_id = headers.get(MESSAGE_ID)
    queue, routing_key = str(headers.get(QUEUE, "")), str(headers.get(ROUTING_KEY, ""))
    kept, error = _kept(body, notice.failure_reason or "no reason given")
    return _dead(letter, queue=queue, routing_key=routing_key, error=error, body=kept, message_id=message_id)


def _dead(
    letter: Letter, *, queue: str, routing_key: str, error: str, body: bytes, message_id: str | None
) -> DeadMessage:
    own = (QUEUE, ROUTING_KEY, MESSAGE_ID, ENCODING)
    identity = _identity(message_id, body)
    return DeadMessage(
        id=str(identity),
        queue=_plain(queue),
        routing_key=_plain(routing_key),
        message_id=_plain(message_id or str(identity)),
        correlation_id=letter.correlation_id and _plain(letter.correlation_id),
        error=_plain(error, most=MOST_ERROR_CHARACTERS),
        headers={name: value for name, value in letter.headers.items() if name not in own},
        body=body,
    )


def _make_readable(message: Letter | Unreadable) -> None:
    """Convert ids from the sender to text; the driver gives bytes if they are not UTF-8."""
    for name in ("message_id", "correlation_id"):
        value = getattr(message, name)
        if value is not None:
            msgspec.structs.force_setattr(message, name, _readable(value))


def _readable(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _plain(text: str, *, most: int = MOST_CHARACTERS) -> str:
    """Convert text from outside so that every database can store it."""
    return text.replace("\0", "�")[:most]


def _kept(body: bytes, error: str) -> tuple[bytes, str]:
    return (body, error) if len(body) <= MOST_BYTES else _beginning(body, error)


def _beginning(body: bytes, error: str) -> tuple[bytes, str]:
    return body[:KEPT_BYTES], f"{error}; it has {len(body):,} bytes, of which the first {KEPT_BYTES:,} are kept"


def _identity(message_id: str | None, body: bytes) -> UUID:
    """Derive an id from a message, so that the same message always has the same id."""
    return UUID(bytes=sha256((message_id or "").encode() + b"\0" + body).digest()[:16], version=5)


def _first_death(headers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[-1], dict):
        return None
    return deaths[-1]


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
