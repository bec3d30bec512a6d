"""Jobs of queues that a broker carries: what is to be sent, what was sent, what a delivery starts."""

from __future__ import annotations

import pytest

from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Released
from stagepost.store import cancelling, jobs, leases, sending
from stagepost.store.queues import ALL_QUEUES, pause, resume, set_limits
from stagepost.store.sending import ClaimedDeliveries, Unsent, mark_sent, put_back
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, enqueue, new_job, running, settle
from tests.conformance.sending import send, sent, sent_job, started, taking, unsent
from tests.limits import unblock


def test_an_unsent_job_has_all_that_its_message_needs(store: Bench) -> None:
    created = store.now
    job = new_job()
    store.run(jobs.enqueue(job))
    store.clock.advance(3)

    [found] = store.run(sending.unsent(QUEUE, most=10))

    assert found == Unsent(
        id=job.id,
        task_name=TASK,
        attempt=1,
        created_at=created,
        payload=job.payload,
        context=job.context,
        priority=job.priority,
        read_at=found.read_at,
    )


def test_the_larger_priority_is_sent_first_then_the_longer_due_then_the_smaller_id(store: Bench) -> None:
    earlier, later = new_id(), new_id()
    last = enqueue(store, priority=-1, available_at=store.now - 90)
    expected = [
        enqueue(store, priority=9, available_at=store.now - 10),
        enqueue(store, priority=5, available_at=store.now - 30),
        enqueue(store, priority=5, available_at=store.now - 20, id=earlier),
        enqueue(store, priority=5, available_at=store.now - 20, id=later),
        last,
    ]

    first = store.run(sending.unsent(QUEUE, most=2))

    assert [job.id for job in first] == expected[:2]
    assert [job_id for job_id, _ in unsent(store)] == expected


def test_only_queued_jobs_of_the_queue_are_sent(store: Bench) -> None:
    running(store)
    enqueue(store, delay_us=1)
    enqueue(store, limit_key="printer", limit=1)
    enqueue(store, queue_name="other")
    wanted = enqueue(store)

    assert unsent(store) == [(wanted, 1)]


@pytest.mark.parametrize("name", [QUEUE, ALL_QUEUES], ids=["the-queue", "all-queues"])
def test_nothing_of_a_paused_queue_is_sent(store: Bench, name: str) -> None:
    job_id = enqueue(store)
    store.run(pause(name, actor="olga"))

    assert unsent(store) == []
    store.run(resume(name, actor="olga"))
    assert unsent(store) == [(job_id, 1)]


def test_a_paused_queue_does_not_stop_another(store: Bench) -> None:
    job_id = enqueue(store)
    store.run(pause("other", actor="olga"))

    assert unsent(store) == [(job_id, 1)]


def test_a_sent_job_is_neither_sent_again_nor_claimed_from_the_database(store: Bench) -> None:
    job_id = enqueue(store)
    store.clock.advance(1)

    assert store.run(mark_sent([(job_id, 1)])) == 1

    assert store.rows("select sent_at, state, attempts from stagepost_job") == [(store.now, "queued", 0)]
    assert unsent(store) == []
    assert claim(store, slots=10) == []
    assert store.run(leases.claim(QUEUE, owner="b", task_names=[TASK], slots=1, lease=LEASE, marks={7: 0})) == []


def test_only_the_attempt_that_was_sent_is_marked(store: Bench) -> None:
    claimed, ended, cancelled, other = enqueue(store), enqueue(store), enqueue(store), enqueue(store)
    messages = unsent(store)
    [one, two] = claim(store, slots=2)
    assert {one.id, two.id} == {claimed, ended}
    assert settle(store, two, Completed())
    store.run(cancelling.cancel_job(cancelled, actor="ada"))

    assert store.run(mark_sent([*messages, (new_id(), 1), (other, 2)])) == 1

    assert sent(store) == {other}


def test_a_late_mark_does_not_hide_a_job_that_was_queued_again(store: Bench) -> None:
    """A relay that was paused between the confirm and the mark wakes up after a worker took and failed the job."""
    job_id = enqueue(store)
    messages = unsent(store)
    [job] = started(store, messages)
    settle(store, job, Released())

    assert store.run(mark_sent(messages)) == 0

    assert unsent(store) == [(job_id, 2)]


def test_marking_or_putting_back_no_jobs_is_allowed(store: Bench) -> None:
    assert store.run(mark_sent([])) == 0
    assert store.run(put_back([])) == []
    assert store.run(taking([])) == ClaimedDeliveries([])


def test_a_delivery_leases_the_job_and_returns_all_a_worker_needs(store: Bench) -> None:
    created = store.now
    job = new_job(limit_key="printer", limit=2, available_at=created - 5)
    store.run(jobs.enqueue(job))
    store.run(unblock())
    send(store)
    store.clock.advance(2)

    taken = store.run(taking([(job.id, 1)]))

    assert taken == ClaimedDeliveries(
        [
            LeasedJob(
                id=job.id,
                task_name=TASK,
                queue_name=QUEUE,
                attempt=1,
                failures=0,
                crashes=0,
                max_attempts=4,
                priority=7,
                created_at=created,
                available_at=created - 5,
                payload=job.payload,
                context=job.context,
                limit_key="printer",
                batch_id=None,
                owner="worker-a",
                blocked_on="limit:printer",
            )
        ]
    )
    stored = store.run(jobs.get(job.id))
    assert (stored.state, stored.attempt, stored.locked_by) == (JobState.RUNNING, 1, "worker-a")
    assert (stored.started_at, stored.updated_at) == (store.now, store.now)
    assert stored.lease_until == store.now + 30_000_000
    assert sent(store) == set()


def test_a_delivery_that_comes_before_its_mark_starts_the_job(store: Bench) -> None:
    job_id = enqueue(store)

    [job] = started(store, [(job_id, 1)])

    assert store.run(mark_sent([(job_id, 1)])) == 0
    assert settle(store, job, Completed())


def test_a_delivery_that_comes_twice_starts_one_attempt(store: Bench) -> None:
    message = sent_job(store)
    [job] = started(store, [message])

    assert store.run(taking([message], owner="worker-b")) == ClaimedDeliveries([], stale=[job.id])
    stored = store.run(jobs.get(job.id))
    assert (stored.attempt, stored.locked_by) == (1, "worker-a")


def test_a_message_that_is_named_twice_at_once_starts_one_attempt(store: Bench) -> None:
    message = sent_job(store)

    taken = store.run(taking([message, message]))

    assert [job.attempt for job in taken.jobs] == [1]
    assert taken == ClaimedDeliveries(taken.jobs)


def test_a_stale_attempt_starts_nothing_and_leaves_the_mark_alone(store: Bench) -> None:
    message = sent_job(store)
    [job] = started(store, [message])
    settle(store, job, Released())
    assert send(store) == [(job.id, 2)]

    for attempt in (0, 1, 3):
        assert store.run(taking([(job.id, attempt)])) == ClaimedDeliveries([], stale=[job.id])

    assert sent(store) == {job.id}
    assert [again.attempt for again in started(store, [(job.id, 2)])] == [2]


def test_messages_of_jobs_that_do_not_exist_are_unknown(store: Bench) -> None:
    completed, cancelled = sent_job(store), sent_job(store)
    [job] = started(store, [completed])
    settle(store, job, Completed())
    store.run(cancelling.cancel_job(cancelled[0], actor="ada"))
    never = new_id()

    taken = store.run(taking([completed, cancelled, (never, 1)]))

    assert taken == ClaimedDeliveries([], unknown=sorted([completed[0], cancelled[0], never]))
    assert store.run(jobs.get(job.id)).state is JobState.COMPLETED


def test_a_job_that_waits_for_something_else_is_not_started(store: Bench) -> None:
    later, blocked = enqueue(store, delay_us=1), enqueue(store, limit_key="printer", limit=1)

    taken = store.run(taking([(later, 1), (blocked, 1)]))

    assert taken == ClaimedDeliveries([], stale=sorted([later, blocked]))


def test_one_delivery_of_many_does_not_hinder_the_others(store: Bench) -> None:
    good = [enqueue(store) for _ in range(3)]
    stranger = enqueue(store, task_name="unknown_here")
    messages = send(store)
    [first] = started(store, [(good[0], 1)])

    taken = store.run(taking([*messages, (new_id(), 1)]))

    assert {job.id for job in taken.jobs} == set(good[1:])
    assert (taken.stale, taken.put_back, len(taken.unknown)) == ([first.id], [stranger], 1)


def test_a_job_of_an_unknown_task_waits_a_moment_in_the_store(store: Bench) -> None:
    job_id = enqueue(store, task_name="unknown_here")
    send(store)

    taken = store.run(taking([(job_id, 1)]))

    assert taken == ClaimedDeliveries([], put_back=[job_id])
    stored = store.run(jobs.get(job_id))
    assert (stored.state, stored.attempt, stored.available_at) == (JobState.SCHEDULED, 0, store.now + 5_000_000)
    assert (sent(store), unsent(store)) == (set(), [])
    store.clock.advance(5)
    assert store.run(leases.promote_due()) == 1
    assert unsent(store) == [(job_id, 1)]


@pytest.mark.parametrize("name", [QUEUE, ALL_QUEUES], ids=["the-queue", "all-queues"])
def test_deliveries_of_a_paused_queue_are_put_back_until_it_is_resumed(store: Bench, name: str) -> None:
    message = sent_job(store)
    store.run(pause(name, actor="olga"))

    assert store.run(taking([message], is_limited=True)) == ClaimedDeliveries([], put_back=[message[0]])

    assert unsent(store) == []
    store.run(resume(name, actor="olga"))
    assert send(store) == [message]
    assert len(started(store, [message])) == 1


def test_a_pause_holds_for_a_worker_that_has_not_heard_of_it(store: Bench) -> None:
    message = sent_job(store)
    store.run(pause(QUEUE, actor="olga"))

    assert store.run(taking([message])) == ClaimedDeliveries([], put_back=[message[0]])


def test_no_more_jobs_start_than_the_queue_allows_and_the_rest_goes_back(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(5)]))
    store.run(set_limits(QUEUE, max_running=3, rate=None, actor="olga"))
    messages = send(store)

    first = store.run(taking(messages[:2], is_limited=True))
    second = store.run(taking(messages[2:], owner="worker-b", is_limited=True))

    assert (len(first.jobs), len(second.jobs), len(second.put_back)) == (2, 1, 2)
    assert {job_id for job_id, _ in unsent(store)} == set(second.put_back)
    for job in first.jobs:
        settle(store, job, Completed())
    assert len(store.run(taking(send(store), is_limited=True)).jobs) == 2


def test_a_stale_message_beside_the_right_one_does_not_keep_a_job_from_going_back(store: Bench) -> None:
    """Both are acknowledged: if the job were not put back, nobody would hear of it again."""
    [job] = started(store, [sent_job(store)])
    settle(store, job, Released())
    send(store)
    store.run(pause(QUEUE, actor="olga"))

    taken = store.run(taking([(job.id, 2), (job.id, 1)]))

    assert taken == ClaimedDeliveries([], put_back=[job.id])
    assert sent(store) == set()


def test_deliveries_start_within_the_rate(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(9)]))
    store.run(set_limits(QUEUE, max_running=None, rate=2, burst=3, actor="olga"))
    counts = []

    for _ in range(4):
        counts.append(len(store.run(taking(send(store), is_limited=True)).jobs))
        store.clock.advance(0.5)

    assert counts == [3, 1, 1, 1]


def test_a_sent_job_can_be_cancelled(store: Bench) -> None:
    message = sent_job(store)

    assert store.run(cancelling.cancel_job(message[0], actor="ada")) is JobState.CANCELLED

    assert store.run(jobs.get(message[0])).state is JobState.CANCELLED
    assert store.run(taking([message])) == ClaimedDeliveries([], unknown=[message[0]])
