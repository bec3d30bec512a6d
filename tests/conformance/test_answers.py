"""Answers of external programs: each settles its job once, however late or often it arrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from stagepost.database.statement import Operation
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Refused
from stagepost.store import cancelling, jobs, leases
from stagepost.store.answers import NO_REPORTS, Accepted, accept_answers
from stagepost.store.queue_observations import note_active, observe_queue
from stagepost.store.queues import pause
from stagepost.store.sending import mark_sent, put_back, sent_jobs, unsent
from stagepost.store.settlement import Fence
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, TASK, claim, enqueue, held_by_another, running
from tests.limits import unblock

DONE = Completed('{"words":3}')
BUSY = Failed("busy", timedelta(seconds=8))


def accepting(
    answers: Sequence[Fence],
    outcome: Outcome = DONE,
    *,
    task_names: Sequence[str] = (TASK,),
    in_progress: Mapping[Fence, bytes] = NO_REPORTS,
) -> Operation[Accepted]:
    return accept_answers(
        answers,
        task_names=task_names,
        decide=lambda _job: outcome,
        in_progress=in_progress,
        read=lambda task_name, report: report.decode() if task_name == TASK else None,
    )


def progress(store: Bench, job_id: str) -> str | None:
    return store.run(jobs.get(job_id)).progress


def settled(accepted: Accepted) -> list[str]:
    return [one.job.id for one in accepted.settled]


def test_an_answer_completes_its_job(store: Bench) -> None:
    job_id, other = enqueue(store), enqueue(store)
    store.clock.advance(2)
    sent_at = store.now
    store.run(mark_sent([(job_id, 1), (other, 1)]))
    store.clock.advance(3)

    accepted = store.run(accepting([(job_id, 1)]))

    job = store.run(jobs.get(job_id))
    assert settled(accepted) == [job_id]
    assert accepted.seen == {TASK}
    assert (job.state, job.result, job.attempt, job.failures) == (JobState.COMPLETED, '{"words":3}', 1, 0)
    assert (job.locked_by, job.started_at, job.finished_at) == ("remote", sent_at, store.now)
    assert store.run(jobs.get(other)).state is JobState.QUEUED


def test_an_answer_may_come_before_its_request_is_marked_as_sent(store: Bench) -> None:
    job_id, failing = enqueue(store), enqueue(store)

    assert settled(store.run(accepting([(job_id, 1)]))) == [job_id]
    assert settled(store.run(accepting([(failing, 1)], BUSY))) == [failing]

    assert store.run(mark_sent([(job_id, 1), (failing, 1)])) == 0
    store.clock.advance(8)
    store.run(leases.promote_due())
    assert [(job.id, job.attempt) for job in store.run(unsent(QUEUE, most=9))] == [(failing, 2)]


def test_an_answer_counts_once_however_often_it_comes(store: Bench) -> None:
    job_id = enqueue(store, limit_key="model", limit=1)
    store.run(unblock())

    first = store.run(accepting([(job_id, 1)]))
    others = [store.run(accepting([(job_id, 1)], Refused("no"))) for _ in range(4)]

    assert settled(first) == [job_id]
    assert [(settled(other), other.ended) for other in others] == [([], [(job_id, 1)])] * 4
    assert store.run(jobs.get(job_id)).state is JobState.COMPLETED


def test_many_answers_are_settled_together_each_by_its_own_outcome(store: Bench) -> None:
    ids = [enqueue(store) for _ in range(3)]
    outcomes: dict[str, Outcome] = dict(zip(ids, [DONE, BUSY, Refused("no audio")], strict=True))

    def decide(job: LeasedJob) -> Outcome:
        return outcomes[job.id]

    accepted = store.run(accept_answers([(one, 1) for one in reversed(ids)], task_names=[TASK], decide=decide))

    assert sorted(settled(accepted)) == sorted(ids)
    states = [store.run(jobs.get(one)).state for one in ids]
    assert states == [JobState.COMPLETED, JobState.RETRYING, JobState.FAILED]


def test_answers_to_several_attempts_of_a_job_are_distinguished(store: Bench) -> None:
    done, failing = enqueue(store), enqueue(store)
    answers = [(job_id, attempt) for job_id in (done, failing) for attempt in (1, 2, 3)]

    def decide(job: LeasedJob) -> Outcome:
        return DONE if job.id == done else BUSY

    accepted = store.run(accept_answers(answers, task_names=[TASK], decide=decide))

    assert sorted(settled(accepted)) == sorted([done, failing])
    assert (accepted.ended, accepted.stale) == ([(done, 2), (done, 3)], [(failing, 2), (failing, 3)])


def test_a_failed_request_is_sent_again_as_the_next_attempt_and_its_old_answers_are_stale(store: Bench) -> None:
    job_id = enqueue(store)
    store.run(mark_sent([(job_id, 1)]))
    store.run(accepting([(job_id, 1)], BUSY))

    while_waiting = store.run(accepting([(job_id, 1)]))
    ahead_of_time = store.run(accepting([(job_id, 2)]))
    store.clock.advance(8)
    store.run(leases.promote_due())
    once_queued = store.run(accepting([(job_id, 1)]))

    for late, attempt in ((while_waiting, 1), (ahead_of_time, 2), (once_queued, 1)):
        assert (settled(late), late.stale, late.strange) == ([], [(job_id, attempt)], [])
    [failure] = store.run(jobs.failures_of(job_id))
    assert (failure.attempt, failure.kind, failure.error, failure.worker) == (1, "failed", "busy", "remote")
    assert settled(store.run(accepting([(job_id, 2)]))) == [job_id]
    assert store.run(jobs.get(job_id)).state is JobState.COMPLETED


def test_the_last_failure_makes_a_dead_letter(store: Bench) -> None:
    job_id = enqueue(store, max_attempts=1)

    store.run(accepting([(job_id, 1)], BUSY))

    assert store.run(jobs.get(job_id)).state is JobState.DEAD_LETTER


def test_answers_to_strangers_and_to_ended_or_running_jobs_change_nothing(store: Bench) -> None:
    at_work = running(store)
    cancelled, stranger = enqueue(store), new_id()
    store.run(mark_sent([(cancelled, 1)]))
    assert store.run(cancelling.cancel_job(cancelled, actor="ada")) is JobState.CANCELLED

    accepted = store.run(accepting([(cancelled, 1), (stranger, 1), (at_work.id, 1)]))

    assert settled(accepted) == []
    assert (accepted.ended, accepted.stale) == (sorted([(cancelled, 1), (stranger, 1)]), [(at_work.id, 1)])
    assert store.run(jobs.get(cancelled)).state is JobState.CANCELLED
    assert store.run(jobs.get(at_work.id)).state is JobState.RUNNING


def test_nobody_can_answer_for_a_task_that_is_not_remote(store: Bench) -> None:
    job_id = enqueue(store)

    accepted = store.run(accepting([(job_id, 1)], task_names=["recognise"]))

    assert (settled(accepted), accepted.strange, accepted.stale) == ([], [(job_id, 1)], [])
    assert [job.id for job in claim(store)] == [job_id]


def test_an_answer_is_taken_while_its_queue_is_paused(store: Bench) -> None:
    job_id = enqueue(store)
    store.run(mark_sent([(job_id, 1)]))
    store.run(pause(QUEUE, actor="ada"))

    assert settled(store.run(accepting([(job_id, 1)]))) == [job_id]


def test_progress_shows_that_a_program_is_alive_and_is_stored(store: Bench) -> None:
    sent, unsent_yet, silent = (enqueue(store) for _ in range(3))
    store.run(mark_sent([(sent, 1), (silent, 1)]))

    accepted = store.run(accepting([], in_progress={(sent, 1): b"0.4", (unsent_yet, 1): b'"x"', (new_id(), 1): b"1"}))

    assert accepted == Accepted([], seen=frozenset({TASK}))
    assert [progress(store, job_id) for job_id in (sent, unsent_yet, silent)] == ["0.4", '"x"', None]
    assert len(store.run(sent_jobs(QUEUE, older=timedelta(0), most=9))) == 2


def test_progress_comes_with_answers_to_other_requests(store: Bench) -> None:
    answered, slow = enqueue(store), enqueue(store)

    accepted = store.run(accepting([(answered, 1)], in_progress={(slow, 1): b"7", (answered, 1): b"9"}))

    assert settled(accepted) == [answered]
    assert [progress(store, job_id) for job_id in (answered, slow)] == [None, "7"]


def test_progress_of_another_attempt_is_not_stored(store: Bench) -> None:
    job_id = enqueue(store)
    store.run(accepting([], in_progress={(job_id, 1): b"0.9"}))
    store.run(accepting([(job_id, 1)], BUSY))
    assert progress(store, job_id) is None  # it ended with the attempt
    store.run(accepting([], in_progress={(job_id, 2): b"1"}))
    assert progress(store, job_id) is None  # it waits for its time
    store.clock.advance(8)
    store.run(leases.promote_due())

    store.run(accepting([], in_progress={(job_id, 1): b"0.99", (job_id, 3): b"0"}))
    assert progress(store, job_id) is None

    store.run(accepting([], in_progress={(job_id, 2): b"0.1"}))
    assert progress(store, job_id) == "0.1"


def test_an_external_program_cannot_report_progress_of_jobs_that_workers_run(store: Bench) -> None:
    ours, stranger = running(store), enqueue(store, task_name="unknown_here")

    store.run(accepting([], in_progress={(ours.id, 1): b"1", (ours.id, 2): b"2", (stranger, 1): b"3"}))

    assert [progress(store, job_id) for job_id in (ours.id, stranger)] == [None, None]


def test_progress_does_not_wait_for_locked_rows(blocking_store: Bench) -> None:
    store = blocking_store
    locked, free = enqueue(store), enqueue(store)
    with held_by_another(store, locked):
        accepted = store.run(accepting([], in_progress={(locked, 1): b"1", (free, 1): b"2"}))

    assert accepted == Accepted([], seen=frozenset({TASK}), passed_over=frozenset({(locked, 1)}))
    assert [progress(store, job_id) for job_id in (locked, free)] == [None, "2"]


def test_progress_is_not_stored_of_an_attempt_that_ends_meanwhile(blocking_store: Bench) -> None:
    store = blocking_store
    if not store.database.store.dialect.has_row_locks:
        pytest.skip("one writer at a time: nothing can end meanwhile")
    job_id = enqueue(store)
    [other] = store.database.racers(1)

    def overtaken(_task_name: str, report: bytes) -> str:
        other.run(accepting([(job_id, 1)], Failed("busy", timedelta(0))))
        other.run(leases.promote_due())
        return report.decode()

    store.run(
        accept_answers(
            [], task_names=[TASK], decide=lambda _job: DONE, in_progress={(job_id, 1): b"0.9"}, read=overtaken
        )
    )

    job = store.run(jobs.get(job_id))
    assert (job.state, job.attempt, job.progress) == (JobState.QUEUED, 1, None)


def test_a_request_that_is_sent_again_has_no_progress(store: Bench) -> None:
    job_id = enqueue(store)
    store.run(mark_sent([(job_id, 1)]))
    store.run(accepting([], in_progress={(job_id, 1): b"0.9"}))

    store.run(put_back([job_id]))

    assert progress(store, job_id) is None


def test_an_outcome_that_cannot_be_decided_changes_nothing(store: Bench) -> None:
    job_id = enqueue(store)

    def decide(_job: LeasedJob) -> Outcome:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        store.run(accept_answers([(job_id, 1)], task_names=[TASK], decide=decide))

    assert store.run(jobs.get(job_id)).state is JobState.QUEUED


def test_answers_that_come_to_several_workers_at_once_count_once(blocking_store: Bench) -> None:
    for _ in range(5):
        answers = [(enqueue(blocking_store), 1) for _ in range(20)]
        orders = (answers, answers[::-1], answers[::2])

        results = blocking_store.race(*(accepting(order) for order in orders))

        assert sorted(one for result in results for one in settled(result)) == sorted(one for one, _ in answers)
        known = [{*((one, 1) for one in settled(result)), *result.ended} for result in results]
        assert known == [set(order) for order in orders]


def test_a_cancellation_and_an_answer_at_once_end_the_job_once(blocking_store: Bench) -> None:
    for _ in range(10):
        job_id = enqueue(blocking_store)
        blocking_store.run(mark_sent([(job_id, 1)]))

        [accepted, cancelled] = blocking_store.race_to_end(
            accepting([(job_id, 1)]), cancelling.cancel_job(job_id, actor="ada")
        )

        state = blocking_store.run(jobs.get(job_id)).state
        assert state is (JobState.COMPLETED if settled(accepted) else JobState.CANCELLED)
        assert (cancelled is JobState.CANCELLED) == (not settled(accepted))


def test_a_queue_that_was_never_observed_is_not_known_to_be_empty(store: Bench) -> None:
    store.run(note_active(QUEUE))
    store.run(observe_queue(QUEUE, is_empty=True))
    store.clock.advance(9)
    assert store.run(observe_queue(QUEUE, is_empty=True, gap=timedelta(seconds=10))).empty_for_us == 9_000_000

    store.clock.advance(11)

    seen = store.run(observe_queue(QUEUE, is_empty=True, gap=timedelta(seconds=10)))
    assert (seen.empty_for_us, seen.idle_for_us) == (0, 20_000_000)
