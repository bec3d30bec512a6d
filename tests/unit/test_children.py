"""What the ends of its children make of a job."""

from __future__ import annotations

from itertools import product

import pytest

from stagepost.model.batch import Counts
from stagepost.model.children import DeferredOutcome, NewChild, OnChildFailed, cause_of_children, child_key, summary_of
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import Cause, JobState, is_allowed

JOB = NewJob(id="1", task_name="bind", payload="{}")
WELL = Counts(completed=3)
BADLY = Counts(completed=1, failed=1, dead_letter=1, cancelled=1)
HALF = Counts(completed=2, completed_with_errors=1)
FAIL = OnChildFailed.FAIL


@pytest.mark.parametrize(
    ("ending", "counts", "cause"),
    [
        (DeferredOutcome(), Counts(), Cause.COMPLETE),
        (DeferredOutcome(), WELL, Cause.COMPLETE),
        (DeferredOutcome(), Counts(waived=1), Cause.COMPLETE),
        (DeferredOutcome(), BADLY, Cause.COMPLETE_WITH_ERRORS),
        (DeferredOutcome(), HALF, Cause.COMPLETE_WITH_ERRORS),
        (DeferredOutcome(), Counts(dead_letter=1), Cause.COMPLETE_WITH_ERRORS),
        (DeferredOutcome(on_child_failed=FAIL), WELL, Cause.COMPLETE),
        (DeferredOutcome(on_child_failed=FAIL), BADLY, Cause.REFUSE),
        (DeferredOutcome(on_child_failed=FAIL), Counts(cancelled=1), Cause.REFUSE),
        (DeferredOutcome(on_child_failed=FAIL), HALF, Cause.COMPLETE_WITH_ERRORS),
        (DeferredOutcome(then=JOB), WELL, Cause.RESUME),
        (DeferredOutcome(then=JOB), BADLY, Cause.RESUME),
        (DeferredOutcome(then=JOB, on_child_failed=FAIL), BADLY, Cause.REFUSE),
        (DeferredOutcome(state=JobState.FAILED), WELL, Cause.REFUSE),
        (DeferredOutcome(state=JobState.DEAD_LETTER), BADLY, Cause.EXHAUST),
        (DeferredOutcome(state=JobState.CANCELLED), WELL, Cause.CANCEL),
    ],
)
def test_children_and_policy_decide_how_a_parent_ends(ending: DeferredOutcome, counts: Counts, cause: Cause) -> None:
    assert cause_of_children(ending, counts, is_cancelled=False) is cause


@pytest.mark.parametrize(
    "ending", [DeferredOutcome(), DeferredOutcome(then=JOB), DeferredOutcome(on_child_failed=FAIL)], ids=str
)
def test_a_cancelled_family_ends_its_parent_cancelled(ending: DeferredOutcome) -> None:
    for counts in (WELL, BADLY):
        assert cause_of_children(ending, counts, is_cancelled=True) is Cause.CANCEL


def test_a_parent_that_failed_stays_failed_though_its_children_were_cancelled() -> None:
    assert cause_of_children(DeferredOutcome(state=JobState.FAILED), BADLY, is_cancelled=True) is Cause.REFUSE
    assert cause_of_children(DeferredOutcome(state=JobState.DEAD_LETTER), BADLY, is_cancelled=True) is Cause.EXHAUST


def test_every_outcome_of_children_is_a_legal_change_of_a_waiting_job() -> None:
    states = [JobState.COMPLETED, JobState.FAILED, JobState.DEAD_LETTER, JobState.CANCELLED]
    for state, policy, then, counts, is_cancelled in product(
        states, OnChildFailed, [None, JOB], [Counts(), WELL, BADLY, HALF], [True, False]
    ):
        ending = DeferredOutcome(state=state, on_child_failed=policy, then=then)
        assert is_allowed(JobState.WAITING, cause_of_children(ending, counts, is_cancelled=is_cancelled))


def test_the_summary_counts_what_did_not_complete() -> None:
    assert summary_of(WELL) is None
    assert summary_of(BADLY) == "of 4 children 2 failed, 1 cancelled"
    assert summary_of(HALF) == "of 3 children 1 completed with errors"


@pytest.mark.parametrize(
    ("child", "part", "key"),
    [
        (NewChild(JOB, number=3), 0, "3"),
        (NewChild(JOB, number=3), 2, "2.3"),
        (NewChild(JOB, "chapter 3", 7), 0, "chapter 3"),
        (NewChild(JOB, "chapter 3", 7), 2, "chapter 3"),
    ],
)
def test_a_child_is_known_by_its_key_or_its_number(child: NewChild, part: int, key: str) -> None:
    assert child_key(child, part) == key
