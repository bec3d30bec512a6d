"""Settling: what each outcome does to its job, and that only the holder of the lease may settle."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from stagepost.model.job import FailureRecord, JobRow, LeasedJob, to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import (
    Abandoned,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Refused,
    Released,
    Snoozed,
)
from stagepost.store import cancelling, jobs, leases, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, enqueue, lose_lease, new_job, running, settle
from tests.limits import unblock

EVERY_OUTCOME: list[Outcome] = [
    Completed('{"pages":3}'),
    Failed("no paper", timedelta(seconds=5), "line 1"),
    Refused("no such letter", "line 2"),
    Snoozed(timedelta(minutes=2)),
    Abandoned("no longer wanted"),
    Released(),
    Crashed("worker died"),
]
every_outcome = pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=lambda outcome: type(outcome).__name__)


def test_every_column_of_an_ended_job_is_kept(store: Bench) -> None:
    created = store.now
    request = new_job(unique_key="letter:1", limit_key="printer", limit=2, available_at=created - 5)
    store.run(jobs.enqueue(request))
    store.run(unblock())
    store.clock.advance(2)
    [job] = claim(store)
    store.clock.advance(3)

    assert settle(store, job, Completed('{"pages":3}'))

    assert store.run(jobs.get(job.id)) == JobRow(
        id=job.id,
        task_name="send_letter",
        queue_name="mail",
        state=JobState.COMPLETED,
        priority=7,
        attempt=1,
        failures=0,
        crashes=0,
        max_attempts=4,
        unique_key="letter:1",
        limit_key="printer",
        batch_id=None,
        item_key=None,
        payload=request.payload,
        context=request.context,
        available_at=created - 5,
        lease_until=None,
        locked_by="worker-a",
        cancel_requested_at=None,
        created_at=created,
        updated_at=store.now,
        started_at=created + 2_000_000,
        finished_at=store.now,
        result='{"pages":3}',
        error=None,
        progress=None,
    )
    assert store.rows("select count(*) from stagepost_job") == [(0,)]
    assert store.rows("select limit_slots from stagepost_job_history") == [(2,)]


def test_a_job_completes_without_a_result(store: Bench) -> None:
    job = running(store)

    settle(store, job, Completed())

    assert store.run(jobs.get(job.id)).result is None


@pytest.mark.parametrize("result", ["null", '""', "0", "[]", '"Grüße 🚚"', '{"a":{"b":"\\"\\\\"}}'])
def test_any_json_is_a_result(store: Bench, result: str) -> None:
    job = running(store)

    settle(store, job, Completed(result))

    assert store.run(jobs.get(job.id)).result == result


def test_a_failure_is_tried_again_after_its_delay(store: Bench) -> None:
    job = running(store)
    store.clock.advance(1)

    assert settle(store, job, Failed("no paper", timedelta(seconds=5), "line 1"))

    stored = store.run(jobs.get(job.id))
    assert (stored.state, stored.failures, stored.crashes) == (JobState.RETRYING, 1, 0)
    assert (stored.available_at, stored.updated_at) == (store.now + 5_000_000, store.now)
    assert (stored.lease_until, stored.locked_by) == (None, None)
    assert store.run(jobs.failures_of(job.id)) == [
        FailureRecord(
            attempt=1,
            kind="failed",
            error="no paper",
            traceback="line 1",
            worker="worker-a",
            failed_at=to_datetime(store.now),
        )
    ]


def test_the_last_failure_makes_the_job_a_dead_letter(store: Bench) -> None:
    job = running(store, max_attempts=2)
    settle(store, job, Failed("first", timedelta(0)))
    store.run(leases.promote_due())
    [job] = claim(store, owner="worker-b")
    store.clock.advance(1)

    assert settle(store, job, Failed("second", timedelta(0)))

    buried = store.run(jobs.get(job.id))
    assert (buried.state, buried.failures, buried.attempt) == (JobState.DEAD_LETTER, 2, 2)
    assert (buried.error, buried.finished_at, buried.locked_by) == ("second", store.now, "worker-b")
    failures = store.run(jobs.failures_of(job.id))
    assert [(failure.attempt, failure.error, failure.worker) for failure in failures] == [
        (1, "first", "worker-a"),
        (2, "second", "worker-b"),
    ]


def test_a_permanent_error_fails_the_job_at_once(store: Bench) -> None:
    job = running(store)

    assert settle(store, job, Refused("no such letter", "line 2"))

    failed = store.run(jobs.get(job.id))
    assert (failed.state, failed.failures, failed.error) == (JobState.FAILED, 1, "no such letter")
    [failure] = store.run(jobs.failures_of(job.id))
    assert (failure.kind, failure.traceback) == ("refused", "line 2")


def test_a_snooze_counts_as_no_failure(store: Bench) -> None:
    job = running(store)

    assert settle(store, job, Snoozed(timedelta(minutes=2)))

    snoozed = store.run(jobs.get(job.id))
    assert (snoozed.state, snoozed.failures, snoozed.available_at) == (
        JobState.SCHEDULED,
        0,
        store.now + 120_000_000,
    )
    assert store.run(jobs.failures_of(job.id)) == []


def test_an_abandoned_job_is_cancelled_with_its_reason(store: Bench) -> None:
    job = running(store)

    assert settle(store, job, Abandoned("no longer wanted"))

    cancelled = store.run(jobs.get(job.id))
    assert (cancelled.state, cancelled.error) == (JobState.CANCELLED, "no longer wanted")
    assert store.run(jobs.failures_of(job.id)) == []


def test_a_released_job_keeps_its_place_and_counts_nothing(store: Bench) -> None:
    due = store.now - 5
    job = running(store, available_at=due)

    assert settle(store, job, Released())

    released = store.run(jobs.get(job.id))
    assert (released.state, released.available_at) == (JobState.QUEUED, due)
    assert (released.attempt, released.failures, released.crashes) == (1, 0, 0)
    assert (released.lease_until, released.locked_by) == (None, None)


def test_a_released_job_with_a_limit_waits_for_room_again(store: Bench) -> None:
    enqueue(store, limit_key="printer", limit=1)
    store.run(unblock())
    [job] = claim(store)

    settle(store, job, Released())

    assert store.run(jobs.get(job.id)).state is JobState.BLOCKED


@pytest.mark.parametrize(
    "outcome",
    [outcome for outcome in EVERY_OUTCOME if isinstance(outcome, Failed | Snoozed | Released | Crashed)],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_job_asked_to_stop_is_not_run_again(store: Bench, outcome: Outcome) -> None:
    job = running(store)
    store.run(cancelling.cancel_job(job.id, actor="ada"))
    store.clock.advance(1)

    assert settle(store, job, outcome) is True

    cancelled = store.run(jobs.get(job.id))
    assert (cancelled.state, cancelled.finished_at) == (JobState.CANCELLED, store.now)
    assert cancelled.error == (getattr(outcome, "error", None) or "cancelled while it ran")


def test_a_job_asked_to_stop_may_complete_all_the_same(store: Bench) -> None:
    job = running(store)
    store.run(cancelling.cancel_job(job.id, actor="ada"))

    assert settle(store, job, Completed()) is True

    assert store.run(jobs.get(job.id)).state is JobState.COMPLETED


def test_a_crash_is_counted_apart_from_failures(store: Bench) -> None:
    job = running(store)

    assert settle(store, job, Crashed("worker died"))

    crashed = store.run(jobs.get(job.id))
    assert (crashed.state, crashed.failures, crashed.crashes) == (JobState.QUEUED, 0, 1)
    [failure] = store.run(jobs.failures_of(job.id))
    assert (failure.kind, failure.error) == ("crashed", "worker died")


@every_outcome
def test_a_lost_lease_settles_nothing(store: Bench, outcome: Outcome) -> None:
    old = running(store)
    lose_lease(store)
    [new] = claim(store, owner="worker-b")
    before = store.run(jobs.get(old.id))

    assert settle(store, old, outcome) is False

    assert store.run(jobs.get(old.id)) == before
    assert [failure.attempt for failure in store.run(jobs.failures_of(old.id))] == [1]  # the crash
    assert settle(store, new, Completed()) is True


@every_outcome
def test_an_earlier_attempt_of_the_same_owner_settles_nothing(store: Bench, outcome: Outcome) -> None:
    old = running(store)
    lose_lease(store)
    [new] = claim(store, owner=old.owner)
    before = store.run(jobs.get(old.id))

    assert settle(store, old, outcome) is False

    assert store.run(jobs.get(old.id)) == before
    assert settle(store, new, Completed()) is True
    assert settle(store, old, outcome) is False


@every_outcome
def test_another_owner_settles_nothing(store: Bench, outcome: Outcome) -> None:
    job = running(store)
    before = store.run(jobs.get(job.id))
    stranger = LeasedJob(**{name: getattr(job, name) for name in job.__struct_fields__} | {"owner": "worker-b"})

    assert settle(store, stranger, outcome) is False

    assert store.run(jobs.get(job.id)) == before
    assert store.run(jobs.failures_of(job.id)) == []


@pytest.mark.parametrize(
    "outcome",
    [Completed('{"pages":3}'), Refused("no such letter"), Abandoned("no longer wanted")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_settlement_whose_reply_was_lost_can_be_repeated(store: Bench, outcome: Outcome) -> None:
    job = running(store)
    settle(store, job, outcome)
    ended = store.run(jobs.get(job.id))
    store.clock.advance(1)

    assert settle(store, job, outcome) is True

    assert store.run(jobs.get(job.id)) == ended
    assert len(store.run(jobs.failures_of(job.id))) == isinstance(outcome, Refused)


def test_only_the_attempt_that_ended_a_job_still_holds_it(store: Bench) -> None:
    old = running(store)
    lose_lease(store)
    [new] = claim(store, owner="worker-b")
    settle(store, new, Completed())

    assert settle(store, old, Completed()) is False
    assert settle(store, new, Completed()) is True


def test_many_outcomes_settle_together(store: Bench) -> None:
    leased = [running(store, payload=f'{{"number":{number}}}') for number in range(len(EVERY_OUTCOME))]
    lost = running(store)
    settle(store, lost, Released())

    held = store.run(
        settling.settle(
            [
                *(Settlement.of(job, outcome) for job, outcome in zip(leased, EVERY_OUTCOME, strict=True)),
                Settlement.of(lost, Completed()),
            ]
        )
    )

    assert held == {(job.id, 1): True for job in leased} | {(lost.id, 1): False}
    assert [store.run(jobs.get(job.id)).state for job in leased] == [
        JobState.COMPLETED,
        JobState.RETRYING,
        JobState.FAILED,
        JobState.SCHEDULED,
        JobState.CANCELLED,
        JobState.QUEUED,
        JobState.QUEUED,
    ]
    assert [len(store.run(jobs.failures_of(job.id))) for job in leased] == [0, 1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "outcome",
    [Completed(), Completed('{"pages":3}'), Refused("no such letter"), Abandoned("no longer wanted")],
    ids=["Nothing", "Result", "Refused", "Abandoned"],
)
def test_jobs_that_end_alike_end_as_each_would_alone(store: Bench, outcome: Outcome) -> None:
    alone, *alike = (running(store, unique_key=f"letter:{number}") for number in range(4))
    again, stolen = running(store), running(store)
    for job, owner in ((again, again.owner), (stolen, "worker-b")):
        settle(store, job, Released())
        claim(store, owner=owner)
    released = running(store)
    settle(store, released, Released())
    settle(store, alone, outcome)

    held = store.run(settling.settle([Settlement.of(job, outcome) for job in (*alike, again, stolen, released)]))

    assert [job_id for (job_id, _), is_held in held.items() if is_held] == [job.id for job in alike]
    expected = store.run(jobs.get(alone.id))
    for number, job in enumerate(alike, start=1):
        ended = store.run(jobs.get(job.id))
        assert ended == msgspec.structs.replace(expected, id=job.id, unique_key=f"letter:{number}")
        assert len(store.run(jobs.failures_of(job.id))) == len(store.run(jobs.failures_of(alone.id)))
    states = [store.run(jobs.get(job.id)).state for job in (again, stolen, released)]
    assert states == [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]


def test_of_two_changes_for_one_attempt_the_first_counts(store: Bench) -> None:
    job = running(store)

    held = store.run(
        settling.settle([Settlement.of(job, Completed('{"first":1}')), Settlement.of(job, Refused("second"))])
    )

    assert held == {(job.id, 1): True}
    ended = store.run(jobs.get(job.id))
    assert (ended.state, ended.result) == (JobState.COMPLETED, '{"first":1}')


def test_an_operators_edit_makes_the_lease_worthless(store: Bench) -> None:
    job = running(store)
    store.edit("delete from stagepost_job where id = :id", id=job.id)

    assert settle(store, job, Completed()) is False
    assert store.run(jobs.find(job.id)) is None


def test_an_error_of_any_length_is_kept_up_to_a_limit(store: Bench) -> None:
    job = running(store)

    settle(store, job, Refused("ü" * 20_000, "é" * 100_000))

    [failure] = store.run(jobs.failures_of(job.id))
    assert failure.error == "ü" * 8_000
    assert failure.traceback == "é" * 100_000
