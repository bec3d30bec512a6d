"""The states of a job and all transitions, from which the diagram, the CHECK constraint and tests are derived."""

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

    BLOCK = "block"
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
    **{(state, C.BLOCK): S.BLOCKED for state in (S.QUEUED, S.RUNNING)},  # a claim found it over a limit
    (S.BLOCKED, C.UNBLOCK): S.QUEUED,  # or, with `defer`, scheduled for its token
    (S.SCHEDULED, C.PROMOTE): S.QUEUED,
    (S.RETRYING, C.PROMOTE): S.QUEUED,
    **{(state, C.DEFER): S.SCHEDULED for state in (S.BLOCKED, S.SCHEDULED, S.QUEUED, S.RETRYING)},  # debounced
    (S.QUEUED, C.CLAIM): S.RUNNING,
    (S.RUNNING, C.COMPLETE): S.COMPLETED,
    (S.RUNNING, C.RETRY): S.RETRYING,
    (S.RUNNING, C.SNOOZE): S.SCHEDULED,
    (S.RUNNING, C.REFUSE): S.FAILED,  # a permanent error
    (S.QUEUED, C.REFUSE): S.FAILED,  # its message has nowhere to go
    (S.QUEUED, C.EXHAUST): S.DEAD_LETTER,  # the broker dropped its message
    (S.RUNNING, C.EXHAUST): S.DEAD_LETTER,  # the last allowed failure or crash
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
"""Transitions for limited jobs of remote tasks: no worker claims them, so they are queued when a slot is free."""


def is_allowed(state: JobState, cause: Cause) -> bool:
    """Whether `cause` can move a job out of `state`."""
    return (state, cause) in TRANSITIONS


def next_state(state: JobState, cause: Cause) -> JobState:
    """Look up a transition. A caller that asks for one that does not exist has a bug."""
    return TRANSITIONS[state, cause]


ACTIVE = "active"
"""The class of queued and running jobs, so that a claim, by far the most frequent transition, changes no class."""


def class_of(state: str | None) -> str | None:
    """The class that counts jobs of a state; None stays None."""
    return ACTIVE if state in {S.QUEUED, S.RUNNING} else state
