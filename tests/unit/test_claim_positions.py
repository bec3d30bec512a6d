"""Claims that start at marks: only while it pays, and never for long."""

from __future__ import annotations

import msgspec

from stagepost.model.job import LeasedJob
from stagepost.worker.claim_positions import COST_SHARE, COST_SHARE_WHEN_SHORT, ClaimPositions

JOB = LeasedJob("id", "task", "queue", 1, 0, 0, 5, 0, 100, 200, "{}", None, None, None, "owner")


def job(priority: int, available_at: int) -> LeasedJob:
    return msgspec.structs.replace(JOB, priority=priority, available_at=available_at)


def test_quick_claims_always_start_at_the_beginning() -> None:
    marks = ClaimPositions()
    marks.note([job(0, 200)], wanted=1, began=10.0, ended=10.001, marked=False)
    assert marks.at(10.002) is None


def test_after_a_slow_claim_the_next_starts_where_that_ended_in_each_priority() -> None:
    marks = ClaimPositions()
    marks.note([job(5, 300), job(0, 200), job(0, 250)], wanted=3, began=10.0, ended=10.5, marked=False)
    assert marks.at(10.6) == {5: 300, 0: 250}


def test_marks_move_on_with_claims_that_started_at_them() -> None:
    marks = ClaimPositions()
    marks.note([job(0, 200)], wanted=1, began=10.0, ended=10.5, marked=False)
    marks.note([job(0, 400), job(0, 300)], wanted=2, began=10.5, ended=10.6, marked=True)
    assert marks.at(10.7) == {0: 400}


def test_a_slow_claim_that_found_less_than_wanted_sets_no_marks() -> None:
    marks = ClaimPositions()
    marks.note([job(0, 200)], wanted=2, began=10.0, ended=10.5, marked=False)
    assert marks.at(10.6) is None


def test_a_claim_from_the_beginning_comes_at_the_latest_after_twenty_times_its_cost() -> None:
    marks = ClaimPositions()
    marks.note([job(0, 200)], wanted=1, began=10.0, ended=10.5, marked=False)
    for step in range(200):
        marks.note([job(0, 300 + step)], wanted=1, began=10.5, ended=10.6, marked=True)
    assert marks.at(10.5 + COST_SHARE * 0.5 - 0.01) is not None
    assert marks.at(10.5 + COST_SHARE * 0.5) is None


def test_when_marks_no_longer_fill_the_slots_the_beginning_is_looked_at_sooner() -> None:
    marks = ClaimPositions()
    marks.note([job(0, 200)], wanted=1, began=10.0, ended=10.1, marked=False)
    marks.note([], wanted=1, began=10.2, ended=10.2, marked=True)
    assert marks.at(10.1 + COST_SHARE_WHEN_SHORT * 0.1 - 0.01) is not None
    assert marks.at(10.1 + COST_SHARE_WHEN_SHORT * 0.1 + 0.01) is None
