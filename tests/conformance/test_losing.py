"""Messages that are lost or cannot be sent, as distinguished from messages that are merely late."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import jobs, queue_observations, queues, sending
from stagepost.store.answers import accept_answers
from stagepost.store.counting import count_by_queue
from stagepost.store.sending import PutBack
from tests.conformance.batches import filled
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, enqueue

SECOND = timedelta(seconds=1)


def take(store: Bench, job_id: str, *, attempt: int = 1, is_limited: bool = False) -> sending.ClaimedDeliveries:
    return store.run(
        sending.take_delivered(
            QUEUE, [(job_id, attempt)], owner="worker-a", task_names=[TASK], lease=LEASE, is_limited=is_limited
        )
    )


def unsent(store: Bench) -> list[str]:
    return [job.id for job in store.run(sending.unsent(QUEUE, most=10))]


def test_marking_a_job_as_sent_after_it_was_put_back_is_refused(store: Bench) -> None:
    """The relay is slow: a worker has taken the message and could not start the job before the mark arrives."""
    job_id = enqueue(store)
    [found] = store.run(sending.unsent(QUEUE, most=1))
    store.clock.advance(SECOND)
    store.run(queues.pause(QUEUE, actor="ada"))
    assert take(store, job_id, is_limited=True).put_back == [job_id]
    store.run(queues.resume(QUEUE, actor="ada"))

    assert store.run(sending.mark_sent([(job_id, 1)], read_at=found.read_at)) == 0
    assert unsent(store) == [job_id]
    [again] = store.run(sending.unsent(QUEUE, most=1))
    assert store.run(sending.mark_sent([(job_id, 1)], read_at=again.read_at)) == 1


def test_only_messages_sent_before_the_look_are_lost(store: Bench) -> None:
    early, late = enqueue(store), enqueue(store)
    elsewhere = enqueue(store, queue_name="post")
    store.run(sending.mark_sent([(early, 1), (elsewhere, 1)]))
    look = store.run(sending.read_clock())
    store.clock.advance(SECOND)
    store.run(sending.mark_sent([(late, 1)]))

    assert store.run(sending.put_back_lost(QUEUE, sent_before=look, most=10)) == PutBack([early])
    assert unsent(store) == [early]
    assert store.run(jobs.get(early)).crashes == 0, "the broker lost it, nobody crashed"


def test_a_queue_remembers_when_jobs_of_it_were_last_sent_again(store: Bench) -> None:
    for queue in (QUEUE, "post"):
        store.run(queue_observations.begin_carrying(queue))
    job_id = enqueue(store)
    store.run(sending.put_back_lost(QUEUE, sent_before=store.now, most=10))
    assert store.run(queue_observations.resent_queues()) == {}, "nothing was sent yet"

    for _ in range(2):
        store.run(sending.mark_sent([(job_id, 1)]))
        store.clock.advance(SECOND)
        store.run(sending.put_back_lost(QUEUE, sent_before=store.now, most=10))
        assert store.run(queue_observations.resent_queues()) == {QUEUE: store.now}
        store.clock.advance(SECOND)


def swallow(store: Bench, *, sends: int) -> PutBack:
    """Send all that is to be sent to a program that never answers, and find out after a while."""
    for job in store.run(sending.unsent(QUEUE, most=10)):
        assert store.run(sending.mark_sent([(job.id, job.attempt)])) == 1
    store.clock.advance(SECOND)
    look = store.run(sending.read_clock())
    return store.run(sending.put_back_lost(QUEUE, sent_before=look, most=10, sends=sends))


def test_a_request_that_is_sent_often_enough_and_never_answered_makes_a_dead_letter(store: Bench) -> None:
    job_id = enqueue(store)

    for number in (1, 2):
        assert swallow(store, sends=3) == PutBack([job_id])
        stored = store.run(jobs.get(job_id))
        assert (stored.state, stored.attempt, stored.failures, stored.crashes) == (JobState.QUEUED, 0, 0, number)
    assert swallow(store, sends=3) == PutBack(unanswered=[job_id], batches=[None])

    dead = store.run(jobs.get(job_id))
    assert (dead.state, dead.crashes) == (JobState.DEAD_LETTER, 3)
    assert "sent 3 times and never answered" in (dead.error or "")
    assert unsent(store) == []


def test_an_answer_before_the_last_send_still_counts(store: Bench) -> None:
    job_id, patient = enqueue(store), enqueue(store)
    swallow(store, sends=3)
    swallow(store, sends=3)
    answers = accept_answers([(job_id, 1)], task_names=[TASK], decide=lambda _: Completed("7"))

    assert [settled.job.id for settled in store.run(answers).settled] == [job_id]
    assert swallow(store, sends=3) == PutBack(unanswered=[patient], batches=[None])

    assert store.run(jobs.get(job_id)).state is JobState.COMPLETED


def test_retrying_a_request_that_was_never_answered_starts_over(store: Bench) -> None:
    job_id = enqueue(store)
    swallow(store, sends=1)

    store.run(jobs.restart([job_id], actor="ada"))

    assert swallow(store, sends=2) == PutBack([job_id])
    assert store.run(jobs.get(job_id)).crashes == 1


def test_an_item_that_is_never_answered_is_reported_with_its_batch(store: Bench) -> None:
    batch = filled(store, 1)
    [job_id] = unsent(store)

    assert swallow(store, sends=1) == PutBack(unanswered=[job_id], batches=[batch.id])


def test_jobs_that_cannot_be_sent_fail_with_the_reason(store: Bench) -> None:
    job_id, other = enqueue(store), enqueue(store, priority=1)

    assert store.run(sending.refuse_unsent([(job_id, 1)], error="nowhere to go")) == [job_id]

    failed = store.run(jobs.get(job_id))
    assert (failed.state, failed.error, failed.attempt) == (JobState.FAILED, "nowhere to go", 0)
    counts = store.run(count_by_queue())[QUEUE]
    assert (counts[JobState.FAILED], counts[JobState.QUEUED]) == (1, 1)
    assert unsent(store) == [other]


def test_a_job_that_got_through_after_all_is_not_refused(store: Bench) -> None:
    job_id = enqueue(store)
    assert [job.id for job in take(store, job_id).jobs] == [job_id]

    assert store.run(sending.refuse_unsent([(job_id, 1)], error="nowhere to go")) == []
    assert store.run(jobs.get(job_id)).state is JobState.RUNNING
