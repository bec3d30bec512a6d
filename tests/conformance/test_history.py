"""Ended jobs: their results, dead letters in groups, and removing what is old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stagepost.database.statement import Statement
from stagepost.errors import JobNotFound
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused
from stagepost.store import jobs, leases, settling
from stagepost.store.counting import count_by_state
from stagepost.store.history import (
    DeadLetterGroup,
    Discarded,
    JobResult,
    dead_letter_groups,
    dead_letters,
    discard,
    prune,
    result_of,
)
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.plans import analyze, plan_of
from tests.conformance.samples import LEASE, claim, new_job

DAY = timedelta(days=1)


def end(store: Bench, *outcomes: Outcome, **changes: Any) -> list[str]:
    """Run one job per outcome to its end, a second apart; returns their ids."""
    ended = []
    for outcome in outcomes:
        job = new_job(**changes)
        store.run(jobs.enqueue(job))
        claimed = leases.claim(job.queue_name, owner="worker-a", task_names=[job.task_name], slots=1, lease=LEASE)
        [leased] = store.run(claimed)
        store.run(settling.settle([Settlement.of(leased, outcome)]))
        store.clock.advance(1)
        ended.append(job.id)
    return ended


def exhausted(error: str) -> Failed:
    return Failed(error, delay=timedelta(0), traceback="line 1")


def test_a_result_is_found_while_the_job_waits_and_after_it_ended(store: Bench) -> None:
    waiting = new_job()
    store.run(jobs.enqueue(waiting))
    done, failed = end(store, Completed('{"pages":3}'), Refused("no such file"), task_name="print", queue_name="paper")

    assert store.run(result_of(waiting.id)) == JobResult(JobState.QUEUED, None, None)
    assert store.run(result_of(done)) == JobResult(JobState.COMPLETED, '{"pages":3}', None)
    assert store.run(result_of(failed)) == JobResult(JobState.FAILED, None, "no such file")
    assert store.run(result_of(done)).is_final


def test_the_result_of_no_job_is_an_error(store: Bench) -> None:
    with pytest.raises(JobNotFound):
        store.run(result_of(new_id()))


def test_jobs_are_counted_by_state_live_and_ended(store: Bench) -> None:
    end(store, Completed(), Completed(), Abandoned("not needed"), exhausted("boom"), max_attempts=1)
    store.run(jobs.enqueue_many([new_job(), new_job(), new_job(), new_job(delay_us=1_000_000)]))

    counts = store.run(count_by_state())

    assert {state: number for state, number in counts.items() if number} == {
        JobState.COMPLETED: 2,
        JobState.CANCELLED: 1,
        JobState.DEAD_LETTER: 1,
        JobState.QUEUED: 3,
        JobState.SCHEDULED: 1,
    }
    assert set(counts) == set(JobState)


def test_dead_letters_come_last_ended_first_and_page_by_page(store: Bench) -> None:
    ended = end(store, *(outcome for _ in range(3) for outcome in (Refused("bad"), exhausted("boom"))), max_attempts=1)
    end(store, Completed())

    first = store.run(dead_letters(most=4))
    last = first[-1]
    assert last.finished_at is not None
    second = store.run(dead_letters(before=(last.finished_at, last.id), most=4))

    assert [job.id for job in first + second] == list(reversed(ended))
    assert (last.state, last.error) == (JobState.FAILED, "bad")


def test_dead_letters_that_ended_at_the_same_time_are_each_listed_once(store: Bench) -> None:
    new_jobs = [new_job(id=new_id()) for _ in range(5)]
    store.run(jobs.enqueue_many(new_jobs))
    leased = store.run(leases.claim("mail", owner="a", task_names=["send_letter"], slots=5, lease=LEASE))
    store.run(settling.settle([Settlement.of(job, Refused("bad")) for job in leased]))

    pages = [store.run(dead_letters(most=2))]
    while pages[-1]:
        last = pages[-1][-1]
        assert last.finished_at is not None
        pages.append(store.run(dead_letters(before=(last.finished_at, last.id), most=2)))

    assert sorted(job.id for page in pages for job in page) == sorted(job.id for job in new_jobs)


def test_dead_letters_are_found_by_task_queue_and_reason(store: Bench) -> None:
    [letter] = end(store, Refused("code 404"))
    [page] = end(store, Refused("code 500"), task_name="print", queue_name="paper")
    [other] = end(store, Refused("jam"), task_name="print")

    def found(**filters: Any) -> set[str]:
        return {job.id for job in store.run(dead_letters(**filters))}

    assert found(task_name="print") == {page, other}
    assert found(queue_name="paper") == {page}
    assert found(reason="code #") == {letter, page}
    assert found(reason="code #", task_name="print") == {page}


def test_dead_letters_are_grouped_by_task_and_by_error_without_ids_and_numbers(store: Bench) -> None:
    first_at = store.now
    end(
        store,
        exhausted("TimeoutError: no answer from 10.0.0.7:8080 in 30 s\nmore"),
        exhausted("TimeoutError: no answer from 10.0.0.9:8081 in 31.5 s"),
        Refused("KeyError: 'colour'"),
        Completed(),
        max_attempts=1,
    )
    end(store, exhausted("KeyError: 'colour'"), task_name="print", max_attempts=1)

    groups = store.run(dead_letter_groups())

    assert groups == [
        DeadLetterGroup("send_letter", "TimeoutError: no answer from # in # s", 2, first_at, first_at + 1_000_000),
        DeadLetterGroup("print", "KeyError: 'colour'", 1, first_at + 4_000_000, first_at + 4_000_000),
        DeadLetterGroup("send_letter", "KeyError: 'colour'", 1, first_at + 2_000_000, first_at + 2_000_000),
    ]


def test_a_worker_that_dies_too_often_leaves_a_dead_letter_with_a_reason(store: Bench) -> None:
    store.run(jobs.enqueue(new_job()))
    for number in range(3):
        claim(store, owner=f"{number}")
        store.clock.advance(LEASE * 2)
        store.run(leases.rescue_expired(grace=timedelta(0)))

    [group] = store.run(dead_letter_groups())

    assert group.reason == "worker # died or lost its lease during attempt #"


def test_discarding_deletes_ended_jobs_for_good_and_is_recorded(store: Bench) -> None:
    [dead, kept] = end(store, exhausted("boom"), exhausted("boom"), max_attempts=1)
    live = new_job()
    store.run(jobs.enqueue(live))

    discarded = store.run(discard([dead, live.id, new_id()], actor="olga"))

    assert discarded == Discarded([dead], {})
    assert store.run(jobs.find(dead)) is None
    assert store.run(jobs.failures_of(dead)) == []
    assert store.run(jobs.get(live.id)).state is JobState.QUEUED
    assert len(store.run(jobs.failures_of(kept))) == 1
    assert store.rows("select actor, action, subject, detail from stagepost_audit") == [
        ("olga", "discard", dead, "send_letter, dead_letter")
    ]


def test_only_what_ended_long_enough_ago_in_the_given_states_is_pruned(store: Bench) -> None:
    [old_done, old_dead] = end(store, Completed(), exhausted("boom"), max_attempts=1)
    store.clock.advance(DAY)
    [young] = end(store, Completed())

    removed = store.run(prune(DAY, states=[JobState.COMPLETED]))

    assert removed == 1
    assert store.run(jobs.find(old_done)) is None
    assert store.run(jobs.get(old_dead)).state is JobState.DEAD_LETTER
    assert store.run(jobs.get(young)).state is JobState.COMPLETED
    assert store.run(prune(DAY)) == 1
    assert store.run(jobs.failures_of(old_dead)) == []


def test_pruning_goes_chunk_by_chunk_oldest_first(store: Bench) -> None:
    outcomes: list[Outcome] = [Completed(), Refused("bad")] * 3
    ended = end(store, *outcomes)
    store.clock.advance(DAY)

    assert store.run(prune(DAY, states=[JobState.COMPLETED], most=2)) == 2
    assert [store.run(jobs.find(job_id)) is None for job_id in ended] == [True, False, True, False, False, False]
    assert store.run(prune(DAY, most=2)) == 2
    assert store.run(prune(DAY, most=2)) == 2
    assert store.run(prune(DAY, most=2)) == 0


def test_live_jobs_and_their_failures_are_never_pruned(store: Bench) -> None:
    job = new_job()
    store.run(jobs.enqueue(job))
    [leased] = store.run(leases.claim("mail", owner="a", task_names=["send_letter"], slots=1, lease=LEASE))
    store.run(settling.settle([Settlement.of(leased, exhausted("boom"))]))
    store.clock.advance(DAY * 9)

    assert store.run(prune(DAY)) == 0
    assert len(store.run(jobs.failures_of(job.id))) == 1


def test_expired_unique_keys_are_pruned(store: Bench) -> None:
    store.run(jobs.enqueue(new_job(unique_key="short", unique_for_us=1_000_000)))
    store.run(jobs.enqueue(new_job(unique_key="long", unique_for_us=3_600_000_000)))
    store.clock.advance(timedelta(minutes=2))

    assert store.run(prune(DAY)) == 1
    assert store.rows("select unique_key from stagepost_unique_key") == [("long",)]


def test_pruners_at_once_delete_each_job_once_and_do_not_fail(blocking_store: Bench) -> None:
    _fill(blocking_store, 60)
    blocking_store.clock.advance(DAY + timedelta(seconds=1))

    removed = 0
    for _ in range(12 // 2):  # who comes too late may find nothing, but not everybody does
        removed += sum(blocking_store.race(*(prune(DAY, states=[JobState.COMPLETED], most=2) for _ in range(3))))

    assert blocking_store.run(count_by_state())[JobState.COMPLETED] == 0
    assert removed >= 12


PAGE = {"before_at": 2**62, "before_id": new_id(), "most": 50, "task_name": "", "queue_name": "", "reason": ""}
OFTEN = (
    Statement("lock_prunable_jobs", {"state": "completed", "older_us": 86_400_000_000, "most": 100}),
    Statement("delete_ended_jobs", {"ids": f'["{new_id()}"]'}),
    Statement("prunable_runs", {"older_us": 86_400_000_000, "most": 100}),
    Statement("prune_runs", {"until": 1}),
    Statement("prunable_unique_keys", {"older_us": 60_000_000, "most": 100}),
    Statement("prune_unique_keys", {"until": 1}),
    Statement("prunable_rates", {"after": "key-7", "most": 10}),
    Statement("prune_rates", {"after": "key-7", "until": "key-8", "full_us": 60_000_000}),
    Statement("list_dead_letters", {"state": "failed", **PAGE}),
    Statement("result_of_job", {"id": new_id()}),
)
ALIASES = ("stagepost_", "ended", "failure")


def test_no_frequent_statement_scans_a_whole_table(blocking_store: Bench) -> None:
    _fill(blocking_store, 400)

    plans = {statement.name: plan_of(blocking_store, statement) for statement in OFTEN}

    assert {
        name: plan.text for name, plan in plans.items() if any(table.startswith(ALIASES) for table in plan.read_whole)
    } == {}


def _fill(store: Bench, number: int) -> None:
    """Put rows a microsecond apart into the tables that are pruned, and let the database count them."""
    tables = {
        "stagepost_job_history (id, queue_name, task_name, state, priority, available_at, attempts, failures, crashes, "
        "max_attempts, payload, created_at, finished_at)": [
            f"('{new_id()}', 'mail', 'print', '{sorted(FINAL)[n % 5]}', 1, 2, 3, 4, 5, 6, '{{}}', 7, {store.now + n})"
            for n in range(number)
        ],
        "stagepost_schedule_run": [f"('nightly', {n}, '{new_id()}', {store.now + n})" for n in range(number)],
        "stagepost_unique_key": [f"('key-{n}', '{new_id()}', {store.now + n})" for n in range(number)],
        "stagepost_rate": [f"('key-{n}', {n})" for n in range(number)],
        "stagepost_failure": [f"('{new_id()}', 1, 'failed', 'no', null, 'w', {n})" for n in range(number)],
    }
    for table, rows in tables.items():
        store.edit(f"insert into {table} values {', '.join(rows)}")
    store.run(jobs.enqueue_many([new_job(limit_key=f"key-{n}", limit=1) for n in range(number)]))
    analyze(store, "stagepost_job", *(table.partition(" ")[0] for table in tables))
