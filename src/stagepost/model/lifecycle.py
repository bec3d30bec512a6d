"""The states of a job and every change there is: diagram, CHECK constraint and tests derive from here."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "ACTIVE",
    "FINAL",
    "LIVE",
    "TRANSITIONS",
    "WHEN_LIMITED",
    "Cause",
    "JobState",
    "class_of",
    "is_allowed",
    "next_state",
]


class JobState(StrEnum):
    """Where a job is in its life."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    WAITING = "waiting"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    WAIVED = "waived"


class Cause(StrEnum):
    """Why a job changes its state."""

    HOLD = "hold"
    UNBLOCK = "unblock"
    PROMOTE = "promote"
    DEFER = "defer"
    CLAIM = "claim"
    COMPLETE = "complete"
    COMPLETE_WITH_ERRORS = "complete_with_errors"
    RETRY = "retry"
    SNOOZE = "snooze"
    REFUSE = "refuse"
    EXHAUST = "exhaust"
    RELEASE = "release"
    WAIT = "wait"
    RESUME = "resume"
    CANCEL = "cancel"
    RESTART = "restart"
    WAIVE = "waive"


S, C = JobState, Cause

FINAL: frozenset[JobState] = frozenset(
    {S.COMPLETED, S.COMPLETED_WITH_ERRORS, S.FAILED, S.DEAD_LETTER, S.CANCELLED, S.WAIVED}
)
LIVE: frozenset[JobState] = frozenset(S) - FINAL

TRANSITIONS: dict[tuple[JobState, Cause], JobState] = {
    **{(state, C.HOLD): S.BLOCKED for state in (S.QUEUED, S.RUNNING)},  # a claim found it over a limit
    (S.BLOCKED, C.UNBLOCK): S.QUEUED,  # or, by `defer`, scheduled for when its token grows back
    (S.SCHEDULED, C.PROMOTE): S.QUEUED,
    (S.RETRYING, C.PROMOTE): S.QUEUED,
    **{(state, C.DEFER): S.SCHEDULED for state in (S.BLOCKED, S.SCHEDULED, S.QUEUED, S.RETRYING)},  # debounced
    (S.QUEUED, C.CLAIM): S.RUNNING,
    (S.RUNNING, C.COMPLETE): S.COMPLETED,
    (S.RUNNING, C.RETRY): S.RETRYING,
    (S.RUNNING, C.SNOOZE): S.SCHEDULED,
    (S.RUNNING, C.REFUSE): S.FAILED,  # a permanent error
    (S.QUEUED, C.REFUSE): S.FAILED,  # its message has nowhere to go
    (S.QUEUED, C.EXHAUST): S.DEAD_LETTER,  # the broker gave its message up
    (S.RUNNING, C.EXHAUST): S.DEAD_LETTER,  # the last failure or crash that is allowed
    (S.RUNNING, C.RELEASE): S.QUEUED,  # shutdown or rescue
    **{(state, C.WAIT): S.WAITING for state in S if state not in FINAL | {S.WAITING}},  # for its children
    (S.WAITING, C.RESUME): S.QUEUED,
    (S.WAITING, C.COMPLETE): S.COMPLETED,
    (S.WAITING, C.COMPLETE_WITH_ERRORS): S.COMPLETED_WITH_ERRORS,
    (S.WAITING, C.REFUSE): S.FAILED,
    (S.WAITING, C.EXHAUST): S.DEAD_LETTER,
    **{(state, C.CANCEL): S.CANCELLED for state in S if state not in FINAL},
    **{(state, C.WAIVE): S.WAIVED for state in (S.FAILED, S.DEAD_LETTER)},  # its batch goes on without it; recorded
    **{(state, C.RESTART): S.QUEUED for state in S if state in FINAL},  # an operator's action, recorded
}

WHEN_LIMITED: dict[tuple[JobState, Cause], JobState] = {
    pair: S.BLOCKED for pair, after in TRANSITIONS.items() if after is S.QUEUED and pair[1] is not C.UNBLOCK
}
"""What differs for a job of a remote task with a limit: nobody claims it, so it is queued when the limit has room."""


def is_allowed(state: JobState, cause: Cause) -> bool:
    """Say whether `cause` can move a job out of `state`."""
    return (state, cause) in TRANSITIONS


def next_state(state: JobState, cause: Cause) -> JobState:
    """Look the change up; asking for one that does not exist is a bug in the caller."""
    return TRANSITIONS[state, cause]


ACTIVE = "active"
"""The class of jobs that are queued or running: by far the most frequent change, a claim, is none of class."""


def class_of(state: str | None) -> str | None:
    """Name the class in which jobs of a state are counted; None, for no job, is none."""
    return ACTIVE if state in {S.QUEUED, S.RUNNING} else state
