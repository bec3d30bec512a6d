"""What an attempt's outcome does to its job."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest

from stagepost.model.lifecycle import Cause, JobState, is_allowed
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

FAILED, CRASHED = Failed("ValueError: no", timedelta(seconds=1)), Crashed("its worker died")

TABLE: list[tuple[Outcome, int, int, Cause]] = [
    # outcome, failures, crashes, cause; of 5 attempts
    (Completed("1"), 0, 0, Cause.COMPLETE),
    (Completed(), 4, 2, Cause.COMPLETE),
    (FAILED, 1, 0, Cause.RETRY),
    (FAILED, 4, 0, Cause.RETRY),
    (FAILED, 5, 0, Cause.EXHAUST),
    (FAILED, 6, 0, Cause.EXHAUST),
    (FAILED, 1, 9, Cause.RETRY),
    (Refused("PayloadError: no"), 1, 0, Cause.REFUSE),
    (Snoozed(timedelta(hours=1)), 0, 0, Cause.SNOOZE),
    (Snoozed(timedelta(hours=1)), 4, 2, Cause.SNOOZE),
    (Abandoned("not wanted any more"), 0, 0, Cause.CANCEL),
    (Released(), 4, 2, Cause.RELEASE),
    (CRASHED, 0, 1, Cause.RELEASE),
    (CRASHED, 0, CRASHES_ALLOWED - 1, Cause.RELEASE),
    (CRASHED, 0, CRASHES_ALLOWED, Cause.EXHAUST),
    (CRASHED, 4, 1, Cause.RELEASE),
]


@pytest.mark.parametrize(("outcome", "failures", "crashes", "cause"), TABLE)
def test_an_outcome_has_one_cause(outcome: Outcome, failures: int, crashes: int, cause: Cause) -> None:
    assert cause_of(outcome, failures=failures, max_attempts=5, crashes=crashes) is cause


def test_the_table_covers_every_outcome() -> None:
    assert {type(outcome) for outcome, *_ in TABLE} == set(get_args(Outcome))


def test_the_only_attempt_is_the_last() -> None:
    assert cause_of(FAILED, failures=1, max_attempts=1, crashes=0) is Cause.EXHAUST


def test_every_cause_can_happen_to_a_running_job() -> None:
    assert all(is_allowed(JobState.RUNNING, cause) for *_, cause in TABLE)


def test_another_object_is_not_an_outcome() -> None:
    with pytest.raises(AssertionError):
        cause_of("completed", failures=0, max_attempts=5, crashes=0)  # type: ignore[arg-type]
