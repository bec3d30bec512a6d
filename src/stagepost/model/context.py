"""Trace ids that travel with a job: from the original request, through its handler, to the jobs it enqueues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from stagepost.model.option_types import check_type

__all__ = [
    "FirstRequest",
    "JobIdentity",
    "ScheduleOrigin",
    "TraceContext",
    "current_identity",
    "current_trace",
    "identify",
    "traced",
]


class TraceContext(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Trace, correlation and user ids of a request; stored with every job as JSON."""

    trace_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
    """The job whose handler enqueued this one."""

    def encode(self) -> str | None:
        """Encode the ids as JSON; None if there are none."""
        return None if self == NOTHING else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str | None) -> TraceContext:
        """Decode the JSON that `encode` wrote."""
        return NOTHING if text is None else msgspec.json.decode(text, type=cls)


NOTHING = TraceContext()


class ScheduleOrigin(msgspec.Struct, frozen=True, gc=False):
    """The schedule that enqueued a job, and the due time in microseconds since 1970; stored with its trace ids."""

    schedule: str | None = None
    due_at: int | None = None

    @classmethod
    def decode(cls, text: str | None) -> ScheduleOrigin:
        """Decode a stored context; both fields are None for a job that no schedule enqueued."""
        return UNSCHEDULED if text is None else msgspec.json.decode(text, type=cls)


UNSCHEDULED = ScheduleOrigin()


class FirstRequest(msgspec.Struct, frozen=True, gc=False):
    """The task and arguments that a job was enqueued with, if it has continued with others; kept beside its trace."""

    first_task: str | None = None
    first_arguments: msgspec.Raw = msgspec.Raw(b"null")

    @classmethod
    def decode(cls, text: str | None) -> FirstRequest:
        """Decode a stored context; `first_task` is None for a job that has not continued."""
        return NOT_CONTINUED if text is None else msgspec.json.decode(text, type=cls)

    @classmethod
    def kept_in(cls, context: str | None, *, task_name: str, payload: str) -> str:
        """Add the request of a job that continues to its context, unless an earlier continuation did."""
        facts: dict[str, Any] = {} if context is None else msgspec.json.decode(context, type=dict[str, msgspec.Raw])
        first = {"first_task": task_name, "first_arguments": msgspec.Raw(payload.encode())}
        return msgspec.json.encode({**first, **facts}).decode()

    @staticmethod
    def text_of(task_name: str) -> str:
        """The part of a stored context that names a job's first task; a quote inside another value is escaped."""
        return f'"first_task":"{task_name}"'


NOT_CONTINUED = FirstRequest()


class JobIdentity(msgspec.Struct, gc=False):
    """Identifies the attempt that the current code runs for, and shows its worker what the handler waits for."""

    job_id: str
    task_name: str
    attempt: int
    queue_name: str
    waits_for: list[str] | None = None
    """Descriptions as in error messages, such as `job 0190…`; None if the handler has never waited."""


current_trace: ContextVar[TraceContext] = ContextVar("stagepost_trace", default=NOTHING)
current_identity: ContextVar[JobIdentity | None] = ContextVar("stagepost_identity", default=None)


@contextmanager
def traced(
    *, trace_id: str | None = None, correlation_id: str | None = None, user_id: str | None = None
) -> Iterator[TraceContext]:
    """Attach these ids to every job enqueued in the body; ids left out keep their outer values."""
    for what, given in (("trace_id", trace_id), ("correlation_id", correlation_id), ("user_id", user_id)):
        check_type(f"traced: {what}", given, str | None)
    outer = current_trace.get()
    inner = TraceContext(
        trace_id=trace_id or outer.trace_id,
        correlation_id=correlation_id or outer.correlation_id,
        user_id=user_id or outer.user_id,
        parent_id=outer.parent_id,
    )
    token = current_trace.set(inner)
    try:
        yield inner
    finally:
        current_trace.reset(token)


def identify(identity: JobIdentity, trace: TraceContext) -> None:
    """Make an attempt current, so that its ids appear in logs and in the jobs it enqueues."""
    current_identity.set(identity)
    current_trace.set(msgspec.structs.replace(trace, parent_id=identity.job_id))
