"""What one attempt gave, and what that does to its job."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

import msgspec

from stagepost.model.children import Ending
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
"""A job that kills its worker this often is parked as a dead letter."""
SUSPECT_CRASHES = CRASHES_ALLOWED - 1
"""One more crash would be the last of a job that has so many."""


class Completed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; `result` is JSON."""

    result: str | None = None
    ending: Ending | None = None
    """What is to become of the job when its children have ended, if that is not the usual."""


class Failed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler raised something that may pass; `delay` until the next attempt, if there is one."""

    error: str
    delay: timedelta
    traceback: str | None = None


class Refused(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler raised something no later attempt can mend."""

    error: str
    traceback: str | None = None


class Snoozed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler asked to be run again later."""

    delay: timedelta


class Abandoned(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler, or the one who asked it to stop, ended the job as cancelled."""

    reason: str


class Released(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker gave the job back unfinished: it is shutting down."""


class Crashed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The worker died, or lost its lease, while it ran this attempt."""

    error: str


Outcome = Completed | Failed | Refused | Snoozed | Abandoned | Released | Crashed


def cause_of(outcome: Outcome, *, failures: int, max_attempts: int, crashes: int) -> Cause:
    """Say what an attempt's outcome does to its job; `failures` and `crashes` include this one."""
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
