"""Every state with every cause: allowed transitions lead to the right state, all others are refused."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from stagepost.model.lifecycle import (
    ACTIVE,
    FINAL,
    LIVE,
    TRANSITIONS,
    WHEN_LIMITED,
    Cause,
    JobState,
    class_of,
    is_allowed,
    next_state,
)
from stagepost.model.outcome import (
    CRASHES_ALLOWED,
    Abandoned,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Refused,
    Released,
    Snoozed,
    cause_of,
)

EXPECTED = """
blocked                unblock               queued
blocked                defer                 scheduled
blocked                wait                  waiting
blocked                cancel                cancelled
scheduled              promote               queued
scheduled              defer                 scheduled
scheduled              wait                  waiting
scheduled              cancel                cancelled
queued                 block                 blocked
queued                 claim                 running
queued                 defer                 scheduled
queued                 wait                  waiting
queued                 cancel                cancelled
queued                 refuse                failed
queued                 exhaust               dead_letter
running                block                 blocked
running                complete              completed
running                retry                 retrying
running                snooze                scheduled
running                refuse                failed
running                exhaust               dead_letter
running                release               queued
running                wait                  waiting
running                cancel                cancelled
retrying               promote               queued
retrying               defer                 scheduled
retrying               wait                  waiting
retrying               cancel                cancelled
waiting                resume                queued
waiting                complete              completed
waiting                complete_with_errors  completed_with_errors
waiting                refuse                failed
waiting                exhaust               dead_letter
waiting                cancel                cancelled
completed              restart               queued
completed_with_errors  restart               queued
failed                 restart               queued
failed                 waive                 waived
dead_letter            restart               queued
dead_letter            waive                 waived
cancelled              restart               queued
waived                 restart               queued
"""
LEGAL = {
    (JobState(state), Cause(cause)): JobState(after)
    for state, cause, after in (line.split() for line in EXPECTED.strip().splitlines())
}
EVERY_PAIR = list(product(JobState, Cause))


def by_name(value: object) -> str:
    return value.value if isinstance(value, JobState | Cause) else type(value).__name__


@pytest.mark.parametrize(("state", "cause"), [pair for pair in EVERY_PAIR if pair in LEGAL], ids=by_name)
def test_a_legal_change_leads_where_it_should(state: JobState, cause: Cause) -> None:
    assert is_allowed(state, cause)
    assert next_state(state, cause) is LEGAL[state, cause]


@pytest.mark.parametrize(("state", "cause"), [pair for pair in EVERY_PAIR if pair not in LEGAL], ids=by_name)
def test_any_other_change_is_refused(state: JobState, cause: Cause) -> None:
    assert not is_allowed(state, cause)
    with pytest.raises(KeyError):
        next_state(state, cause)


def test_every_state_is_either_live_or_final() -> None:
    assert set(JobState) == LIVE | FINAL
    assert not LIVE & FINAL


def test_only_an_operator_leaves_a_final_state() -> None:
    assert {cause for state, cause in TRANSITIONS if state in FINAL} == {Cause.RESTART, Cause.WAIVE}


def test_every_state_and_every_cause_is_used() -> None:
    assert {cause for _, cause in TRANSITIONS} == set(Cause)
    assert set(TRANSITIONS.values()) == set(JobState)


def test_every_live_state_can_end() -> None:
    for start in LIVE:
        reached, last = {start}, 0
        while len(reached) > last:
            last = len(reached)
            reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached - FINAL}
        assert reached & FINAL, start


@pytest.mark.parametrize(
    ("outcome", "failures", "crashes", "cause"),
    [
        (Completed(), 4, 2, Cause.COMPLETE),
        (Failed("no paper", timedelta(0)), 4, 0, Cause.RETRY),
        (Failed("no paper", timedelta(0)), 5, 0, Cause.EXHAUST),
        (Failed("no paper", timedelta(0)), 6, 0, Cause.EXHAUST),
        (Refused("no such letter"), 1, 0, Cause.REFUSE),
        (Snoozed(timedelta(0)), 9, 9, Cause.SNOOZE),
        (Abandoned("not wanted"), 9, 9, Cause.CANCEL),
        (Released(), 9, 9, Cause.RELEASE),
        (Crashed("died"), 9, CRASHES_ALLOWED - 1, Cause.RELEASE),
        (Crashed("died"), 0, CRASHES_ALLOWED, Cause.EXHAUST),
    ],
    ids=by_name,
)
def test_an_outcome_has_one_effect(outcome: Outcome, failures: int, crashes: int, cause: Cause) -> None:
    assert cause_of(outcome, failures=failures, crashes=crashes, max_attempts=5) is cause
    assert is_allowed(JobState.RUNNING, cause)


def test_a_limited_job_enters_the_queue_only_by_being_unblocked() -> None:
    entries = {pair for pair, after in LEGAL.items() if after is JobState.QUEUED}
    assert set(WHEN_LIMITED) == entries - {(JobState.BLOCKED, Cause.UNBLOCK)}
    assert set(WHEN_LIMITED.values()) == {JobState.BLOCKED}


def test_queued_and_running_jobs_are_one_class_and_every_other_state_is_its_own() -> None:
    assert class_of(JobState.QUEUED) == class_of(JobState.RUNNING) == ACTIVE
    assert {state: class_of(state) for state in set(JobState) - {JobState.QUEUED, JobState.RUNNING}} == {
        state: state for state in set(JobState) - {JobState.QUEUED, JobState.RUNNING}
    }
    assert class_of(None) is None
