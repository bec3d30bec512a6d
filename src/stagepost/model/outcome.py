"""Outcomes of an attempt, and what each one does to its job."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

import msgspec

from stagepost.model.children import DeferredOutcome
from stagepost.model.lifecycle import Cause

__all__ = [
    "CRASHES_ALLOWED",
    "SUSPECT_CRASHES",
    "Abandoned",
    "Completed",
    "Crashed",
    "Failed",
    "Outcome",
    "Refused",
    "Released",
    "Snoozed",
    "cause_of",
]

CRASHES_ALLOWED = 3
"""A job that crashes its worker this often becomes a dead letter."""
SUSPECT_CRASHES = CRASHES_ALLOWED - 1
"""A job with this many crashes becomes a dead letter at the next one."""


class Completed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; `result` is JSON."""

    result: str | None = None
    ending: DeferredOutcome | None = None
    """How the job continues or ends after its children; None means that it completes as usual."""


class Failed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler raised a temporary error; `delay` is the time until the next attempt, if there is one."""

    error: str
    delay: timedelta
    traceback: str | None = None


class Refused(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler raised an error that no later attempt can fix."""

    error: str
    traceback: str | None = None


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler asked to run again later."""

    delay: timedelta


class Abandoned(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The job ends as cancelled, because its handler or an operator asked for it."""

    reason: str


class Released(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker returned the job unfinished, for example because it is shutting down."""


class Crashed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker died or lost its lease while it ran this attempt."""

    error: str


Outcome = Completed | Failed | Refused | Snoozed | Abandoned | Released | Crashed


def cause_of(outcome: Outcome, *, failures: int, max_attempts: int, crashes: int) -> Cause:
    """Decide what an attempt's outcome does to its job; `failures` and `crashes` include this attempt."""
    match outcome:
        case Completed():
            return Cause.COMPLETE
        case Failed():
            return Cause.RETRY if failures < max_attempts else Cause.EXHAUST
        case Refused():
            return Cause.REFUSE
        case Snoozed():
            return Cause.SNOOZE
        case Abandoned():
            return Cause.CANCEL
        case Released():
            return Cause.RELEASE
        case Crashed():
            return Cause.RELEASE if crashes < CRASHES_ALLOWED else Cause.EXHAUST
        case _:
            assert_never(outcome)
