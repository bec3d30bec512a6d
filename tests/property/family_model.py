"""The expected final state of a job in a family, from its last attempt's outcome and its children's states."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stagepost.model.children import OnChildFailed
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused

NOT_COMPLETED = {JobState.FAILED, JobState.DEAD_LETTER, JobState.CANCELLED}


@dataclass(frozen=True)
class Verdict:
    """What an attempt made of its job, to take effect when the children have ended."""

    state: JobState
    fails_with_child: bool = False
    goes_on: bool = False
    heeds_children: bool = True
    """Whether it has any; those of the part before a continuation are no more its own."""

    def state_after(self, children: Collection[JobState], *, is_cancelled: bool) -> JobState:
        """Say what the job is once these have ended."""
        if self.state in {JobState.FAILED, JobState.DEAD_LETTER} or not self.heeds_children:
            return self.state
        if is_cancelled or self.state is JobState.CANCELLED:
            return JobState.CANCELLED
        is_spoilt = bool(NOT_COMPLETED.intersection(children))
        if is_spoilt and self.fails_with_child:
            return JobState.FAILED
        if self.goes_on:
            return JobState.QUEUED
        has_errors = is_spoilt or JobState.COMPLETED_WITH_ERRORS in children
        return JobState.COMPLETED_WITH_ERRORS if has_errors else JobState.COMPLETED


def verdict_on(outcome: Outcome, *, is_last: bool, is_asked_to_stop: bool, has_children: bool) -> Verdict | None:
    """Say what an outcome means for its job; None if that is to be tried again."""
    match outcome:
        case Completed(_, ending):
            goes_on = ending is not None and ending.then is not None
            waits = has_children or goes_on
            state = JobState.CANCELLED if is_asked_to_stop and waits else JobState.COMPLETED
            fails = ending is not None and ending.on_child_failed is OnChildFailed.FAIL
            return Verdict(state, fails_with_child=fails, goes_on=goes_on, heeds_children=waits)
        case Refused():
            return Verdict(JobState.FAILED)
        case Failed() if is_last:
            return Verdict(JobState.DEAD_LETTER)
        case Abandoned():
            return Verdict(JobState.CANCELLED)
        case _:
            return Verdict(JobState.CANCELLED) if is_asked_to_stop else None
