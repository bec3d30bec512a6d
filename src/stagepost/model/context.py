"""The ids that travel with a job: from the request that asked for it, through its handler, to the jobs it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec

__all__ = [
    "JobIdentity",
    "TraceContext",
    "Waits",
    "current_identity",
    "current_trace",
    "current_waits",
    "identify",
    "traced",
]


class TraceContext(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who asked, and as part of what; stored with every job as JSON."""

    trace_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
    """The job whose handler asked for this one."""

    def encode(self) -> str | None:
        """Turn it into JSON, or None if there is nothing in it."""
        return None if self == NOTHING else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str | None) -> TraceContext:
        """Read what `encode` wrote."""
        return NOTHING if text is None else msgspec.json.decode(text, type=cls)


NOTHING = TraceContext()


class JobIdentity(msgspec.Struct, frozen=True, gc=False):
    """Which attempt of which job this code runs for."""

    job_id: str
    task_name: str
    attempt: int


@dataclass(slots=True)
class Waits:
    """What a handler waits for at the moment, for its worker to see."""

    subjects: list[str] = field(default_factory=list)
    """In the words of an error message, such as `job 0190…`."""
    has_warned: bool = False


current_trace: ContextVar[TraceContext] = ContextVar("stagepost_trace", default=NOTHING)
current_identity: ContextVar[JobIdentity | None] = ContextVar("stagepost_identity", default=None)
current_waits: ContextVar[Waits | None] = ContextVar("stagepost_waits", default=None)


@contextmanager
def traced(
    *, trace_id: str | None = None, correlation_id: str | None = None, user_id: str | None = None
) -> Iterator[TraceContext]:
    """Give every job enqueued in the body these ids; what is left out stays as it is outside."""
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
    """Make the current context an attempt's: logs show its ids, and jobs it enqueues carry them on."""
    current_identity.set(identity)
    current_trace.set(msgspec.structs.replace(trace, parent_id=identity.job_id))
