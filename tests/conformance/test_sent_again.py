"""Jobs of carried queues that are sent again: queued anew, put back, or lost; and what is known of what was sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.model.job import OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Refused, Released, Snoozed
from stagepost.store import jobs, leases, sending
from stagepost.store.listing import list_jobs
from stagepost.store.queues import list_queues
from stagepost.store.sending import ClaimedDeliveries, Sent, put_back, sent_jobs, sent_queues
from stagepost.store.workers import unknown_tasks
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, TASK, enqueue, lose_lease, new_job, settle
from tests.conformance.sending import send, sent, sent_job, started, taking, unsent
from tests.limits import unblock

AGAIN: list[tuple[str, Outcome, float]] = [
    ("retried", Failed("no paper", timedelta(seconds=9)), 9),
    ("snoozed", Snoozed(timedelta(seconds=4)), 4),
    ("released", Released(), 0),
]


@pytest.mark.parametrize(("outcome", "wait"), [case[1:] for case in AGAIN], ids=[case[0] for case in AGAIN])
def test_every_way_to_requeue_a_job_lets_it_be_sent_again(store: Bench, outcome: Outcome, wait: float) -> None:
    message = sent_job(store)
    [job] = started(store, [message])

    settle(store, job, outcome)
    if wait:
        assert unsent(store) == []
        store.clock.advance(wait)
        assert store.run(leases.promote_due()) == 1

    assert send(store) == [(job.id, 2)]
    assert [again.attempt for again in started(store, [(job.id, 2)])] == [2]


def test_a_job_of_a_dead_worker_is_sent_again(store: Bench) -> None:
    message = sent_job(store)
    started(store, [message])

    lose_lease(store)

    assert send(store) == [(message[0], 2)]
    [again] = started(store, [(message[0], 2)])
    assert (again.attempt, again.crashes) == (2, 1)


def test_a_job_that_an_operator_restarts_is_sent_again(store: Bench) -> None:
    message = sent_job(store)
    [job] = started(store, [message])
    settle(store, job, Refused("no such letter"))

    store.run(jobs.restart([job.id], actor="ada"))

    assert send(store) == [(job.id, 2)]
    assert [again.attempt for again in started(store, [(job.id, 2)])] == [2]


def test_a_job_that_is_let_through_a_limit_is_sent(store: Bench) -> None:
    first, second = (enqueue(store, limit_key="printer", limit=1) for _ in range(2))
    store.run(unblock())
    [job] = started(store, send(store))
    assert job.id == first

    settle(store, job, Completed())
    store.run(unblock())

    assert send(store) == [(second, 1)]


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.DEBOUNCE])
def test_new_arguments_of_a_sent_job_are_sent_too(store: Bench, on_conflict: OnConflict) -> None:
    payload = '{"to":"Grace"}'
    job_id = enqueue(store, unique_key="letter")
    send(store)
    delay = 3_000_000 if on_conflict is OnConflict.DEBOUNCE else 0

    again = new_job(unique_key="letter", on_conflict=on_conflict, payload=payload, delay_us=delay)
    assert store.run(jobs.enqueue(again)).id == job_id
    if delay:
        assert store.run(taking([(job_id, 1)])) == ClaimedDeliveries([], stale=[job_id])
        store.clock.advance(3)
        store.run(leases.promote_due())

    [found] = store.run(sending.unsent(QUEUE, most=10))
    assert (found.id, found.attempt, found.payload) == (job_id, 1, payload)
    [job] = started(store, [(job_id, 1)])
    assert job.payload == payload


def test_a_job_whose_message_is_lost_is_sent_again_as_the_same_attempt(store: Bench) -> None:
    message = sent_job(store)
    store.clock.advance(1)

    assert store.run(put_back([message[0]])) == [message[0]]

    stored = store.run(jobs.get(message[0]))
    assert (stored.state, stored.attempt, stored.updated_at) == (JobState.QUEUED, 0, store.now)
    assert send(store) == [message]
    assert len(started(store, [message])) == 1


def test_a_message_that_was_thought_lost_may_still_come(store: Bench) -> None:
    """The broker comes back with it, after another one was sent."""
    message = sent_job(store)
    store.run(put_back([message[0]]))
    [job] = started(store, [message])

    assert unsent(store) == []
    settle(store, job, Completed())
    assert store.run(taking([message])) == ClaimedDeliveries([], unknown=[job.id])


def test_only_queued_jobs_are_put_back(store: Bench) -> None:
    claimed, ended, waiting = sent_job(store), sent_job(store), enqueue(store, delay_us=5)
    [_, job] = sorted(started(store, [claimed, ended]), key=lambda job: job.id)
    settle(store, job, Completed())
    message = sent_job(store)

    assert store.run(put_back([claimed[0], ended[0], waiting, message[0]])) == [message[0]]

    assert store.run(jobs.get(claimed[0])).state is JobState.RUNNING
    assert store.run(jobs.get(waiting)).state is JobState.SCHEDULED


def test_sent_jobs_are_found_by_how_long_they_have_waited(store: Bench) -> None:
    first = sent_job(store)
    store.clock.advance(10)
    second, elsewhere = enqueue(store, priority=99), enqueue(store, queue_name="other")
    send(store)
    send(store, "other")
    enqueue(store)
    store.clock.advance(5)

    def waiting(seconds: float, most: int = 10) -> list[Sent]:
        return store.run(sent_jobs(QUEUE, older=timedelta(seconds=seconds), most=most))

    assert waiting(0) == [Sent(first[0], 1, 15_000_000), Sent(second, 1, 5_000_000)]
    assert waiting(0, most=1) == waiting(15) == [Sent(first[0], 1, 15_000_000)]
    assert waiting(15.000001) == []
    assert store.run(sent_jobs("other", older=timedelta(0), most=10)) == [Sent(elsewhere, 1, 5_000_000)]


def test_a_sent_job_is_listed_with_the_number_of_its_next_attempt(store: Bench) -> None:
    [job] = started(store, [sent_job(store)])
    settle(store, job, Released())
    send(store)

    assert store.run(sent_jobs(QUEUE, older=timedelta(0), most=10)) == [Sent(job.id, 2, 0)]


def test_queues_with_sent_jobs_are_named_once(store: Bench) -> None:
    for queue_name in ("letters", "cards", "letters", "parcels"):
        enqueue(store, queue_name=queue_name)
    for queue_name in ("letters", "cards"):
        send(store, queue_name)

    assert store.run(sent_queues()) == ["cards", "letters"]


def test_sent_jobs_are_counted_listed_and_waited_for_like_other_queued_ones(store: Bench) -> None:
    message = sent_job(store)
    store.clock.advance(3)
    fresh = enqueue(store)
    store.clock.advance(2)

    [queue] = store.run(list_queues())

    assert (queue.counts[JobState.QUEUED], queue.lag_us) == (2, 5_000_000)
    listed = store.run(list_jobs(states=[JobState.QUEUED]))
    assert [job.id for job in listed] == [fresh, message[0]]
    assert store.run(list_jobs(states=[JobState.QUEUED], queue_name="other")) == []
    [unserved] = store.run(unknown_tasks(timedelta(0)))
    assert (unserved.task_name, unserved.jobs, unserved.oldest_us) == (TASK, 2, 5_000_000)


def test_an_ended_job_has_a_history_like_any_other(store: Bench) -> None:
    [job] = started(store, [sent_job(store)])
    settle(store, job, Failed("no paper", timedelta(0)))
    store.run(leases.promote_due())
    [again] = started(store, send(store))
    settle(store, again, Completed("7"))

    stored = store.run(jobs.get(job.id))

    assert (stored.state, stored.attempt, stored.failures, stored.result) == (JobState.COMPLETED, 2, 1, "7")
    assert [failure.attempt for failure in store.run(jobs.failures_of(job.id))] == [1]
    assert sent(store) == set()
