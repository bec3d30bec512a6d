"""Jobs that wait for their due time, or for a free slot under a limit."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.lifecycle import JobState
from stagepost.model.limits import NO_RULES
from stagepost.model.outcome import Completed, Failed
from stagepost.store import jobs, leases
from stagepost.store.unblocking import Swept, sweep
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, enqueue, running, settle
from tests.limits import unblock


def states(store: Bench, *job_ids: str) -> list[JobState]:
    return [store.run(jobs.get(job_id)).state for job_id in job_ids]


def test_jobs_whose_time_has_come_are_queued(store: Bench) -> None:
    at = store.now + 10
    early, exact, late = (enqueue(store, available_at=at + offset) for offset in (-1, 0, 1))
    store.clock.advance(timedelta(microseconds=10))

    assert store.run(leases.promote_due()) == 2

    assert states(store, early, exact, late) == [JobState.QUEUED, JobState.QUEUED, JobState.SCHEDULED]
    promoted = store.run(jobs.get(early))
    assert (promoted.available_at, promoted.updated_at) == (at - 1, store.now)


def test_a_job_that_retries_is_queued_when_its_delay_is_over(store: Bench) -> None:
    job = running(store)
    settle(store, job, Failed("no paper", timedelta(seconds=5)))
    store.clock.advance(5)

    assert store.run(leases.promote_due()) == 1

    assert states(store, job.id) == [JobState.QUEUED]


def test_the_longest_due_are_promoted_first(store: Bench) -> None:
    later, sooner = enqueue(store, delay_us=20), enqueue(store, delay_us=10)
    store.clock.advance(1)

    assert store.run(leases.promote_due(most=1)) == 1

    assert states(store, sooner, later) == [JobState.QUEUED, JobState.SCHEDULED]


def test_promoting_leaves_other_states_alone(store: Bench) -> None:
    blocked, job = enqueue(store, limit_key="printer", limit=1), running(store)
    store.clock.advance(1)

    assert store.run(leases.promote_due()) == 0

    assert states(store, blocked, job.id) == [JobState.BLOCKED, JobState.RUNNING]


def test_the_next_due_job_tells_how_long_to_sleep(store: Bench) -> None:
    assert store.run(leases.next_due()) is None
    enqueue(store)
    assert store.run(leases.next_due()) is None

    enqueue(store, delay_us=7_000_000)
    enqueue(store, delay_us=3_000_000)

    assert store.run(leases.next_due()) == timedelta(seconds=3)
    store.clock.advance(4)
    assert store.run(leases.next_due()) == timedelta(seconds=-1)


def test_blocked_jobs_are_queued_in_order_while_slots_are_free(store: Bench) -> None:
    low, high = (enqueue(store, limit_key="printer", limit=2, priority=priority) for priority in (1, 9))
    middle = enqueue(store, limit_key="printer", limit=2, priority=5)
    store.clock.advance(1)

    assert store.run(unblock()) == 2

    assert states(store, high, middle, low) == [JobState.QUEUED, JobState.QUEUED, JobState.BLOCKED]
    assert store.run(jobs.get(high)).updated_at == store.now


def test_queued_and_running_jobs_take_room(store: Bench) -> None:
    for _ in range(2):
        enqueue(store, limit_key="printer", limit=2)
        store.run(unblock())
    claim(store)
    third = enqueue(store, limit_key="printer", limit=2)

    assert store.run(unblock()) == 0

    assert states(store, third) == [JobState.BLOCKED]


def test_a_job_that_ends_makes_room(store: Bench) -> None:
    enqueue(store, limit_key="printer", limit=1)
    store.run(unblock())
    [job] = claim(store)
    waiting = enqueue(store, limit_key="printer", limit=1)
    settle(store, job, Completed())

    assert store.run(unblock()) == 1

    assert states(store, waiting) == [JobState.QUEUED]


def test_limits_are_kept_for_each_key_apart(store: Bench) -> None:
    printer = [enqueue(store, limit_key="printer", limit=1) for _ in range(2)]
    plotter = enqueue(store, limit_key="plotter", limit=1)

    assert store.run(unblock()) == 2

    assert states(store, printer[0], printer[1], plotter) == [JobState.QUEUED, JobState.BLOCKED, JobState.QUEUED]


def test_each_job_is_checked_against_its_own_limit(store: Bench) -> None:
    narrow = enqueue(store, limit_key="printer", limit=1, priority=1)
    wide = [enqueue(store, limit_key="printer", limit=3, priority=2) for _ in range(2)]

    assert store.run(unblock()) == 2

    assert states(store, *wide, narrow) == [JobState.QUEUED, JobState.QUEUED, JobState.BLOCKED]


def test_a_sweep_looks_at_no_more_names_than_asked_and_says_where_to_go_on(store: Bench) -> None:
    for number in range(3):
        enqueue(store, limit_key=f"printer-{number}", limit=1)

    first = store.run(sweep(NO_RULES, most=2))
    assert first == Swept(2, after="limit:printer-1")
    assert store.run(sweep(NO_RULES, after="limit:printer-1", most=2)) == Swept(1, after="limit:printer-2")
    assert store.run(sweep(NO_RULES, after="limit:printer-2", most=2)) == Swept(0, after=None)
