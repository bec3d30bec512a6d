"""A job's history in order."""

from __future__ import annotations

from stagepost.model.job import FailureRecord, JobRow, to_datetime, to_instant
from stagepost.model.lifecycle import JobState
from stagepost.model.timeline import Action, timeline_of


def job(state: JobState, **facts: object) -> JobRow:
    given: dict[str, object] = {
        "id": "j", "task_name": "t", "queue_name": "q", "state": state, "priority": 0, "attempt": 2, "failures": 1,
        "crashes": 0, "max_attempts": 5, "unique_key": None, "limit_key": None, "batch_id": None, "item_key": None,
        "payload": "{}", "context": None,
        "available_at": 900, "lease_until": None, "locked_by": "w2", "cancel_requested_at": None, "created_at": 100,
        "updated_at": 700, "started_at": 600, "finished_at": None, "result": None, "error": None,
        "progress": None,
    }  # fmt: skip
    return JobRow(**(given | facts))  # type: ignore[arg-type]


FIRST_FAILURE = FailureRecord(1, "failed", "ValueError: no", None, "w1", to_datetime(300))


def test_events_are_listed_in_order() -> None:
    ended = job(JobState.COMPLETED, finished_at=700)

    moments = timeline_of(ended, [FIRST_FAILURE], [Action("ada", "restart", "failed", 500)])

    assert [(to_instant(moment.at), moment.what) for moment in moments] == [
        (100, "enqueued"),
        (300, "attempt 1 failed"),
        (500, "restart by ada"),
        (600, "attempt 2 started"),
        (700, "ended completed"),
    ]


def test_a_failed_attempt_is_listed_once() -> None:
    retrying = job(JobState.RETRYING, attempt=1, started_at=200)

    moments = timeline_of(retrying, [FIRST_FAILURE], [])

    assert [moment.what for moment in moments] == ["enqueued", "attempt 1 failed", "due"]


def test_future_events_are_listed_last() -> None:
    scheduled = job(JobState.SCHEDULED, attempt=0, started_at=None)

    assert [(to_instant(moment.at), moment.what) for moment in timeline_of(scheduled, [], [])] == [
        (100, "enqueued"),
        (900, "due"),
    ]


def test_a_request_to_stop_is_listed() -> None:
    running = job(JobState.RUNNING, cancel_requested_at=650)

    assert [moment.what for moment in timeline_of(running, [], [])] == [
        "enqueued",
        "attempt 2 started",
        "asked to stop",
    ]


def test_a_job_ends_after_the_failure_that_ended_it_though_that_is_recorded_a_moment_later() -> None:
    dead = job(JobState.DEAD_LETTER, attempt=1, started_at=200, finished_at=299)

    assert [moment.what for moment in timeline_of(dead, [FIRST_FAILURE], [])] == [
        "enqueued",
        "attempt 1 failed",
        "ended dead_letter",
    ]
