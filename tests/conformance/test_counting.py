"""Counts: after every kind of operation they equal the rows, folded or not, and drift is found and repaired.

The fixture `store` compares counts with rows at the end of every other test of this folder, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stagepost.database.statement import Operation
from stagepost.model.identity import new_id
from stagepost.model.job import OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused, Released, Snoozed
from stagepost.store import cancelling, history, jobs, leases, settling
from stagepost.store.activity import purge_queue
from stagepost.store.counting import count_by_queue, drop_empty, fold
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.counts import counted, kept
from tests.conformance.samples import QUEUE, claim, enqueue, finish, lose_lease, new_job, running, settle
from tests.limits import unblock

SCOPE = f"queue:{QUEUE}"
LIMITED = {"limit_key": "printer", "limit": 1}
FAILED = Failed("no paper", timedelta(seconds=5))


def enqueue_again(store: Bench) -> None:
    job = new_job()
    for _ in range(2):
        store.run(jobs.enqueue(job))


def enqueue_many_again(store: Bench) -> None:
    request = [new_job(), new_job(queue_name="fax"), new_job(delay_us=5), new_job(**LIMITED)]
    for jobs_asked_for in (request[:2], request, [*request, new_job()]):
        store.run(jobs.enqueue_many(jobs_asked_for))


def load_again(store: Bench) -> None:
    request = [new_job() for _ in range(150)]
    for jobs_asked_for in (request, [*request, new_job()]):
        store.run(jobs.enqueue_many(jobs_asked_for))


def enqueue_a_held_key(store: Bench) -> None:
    for _ in range(2):
        enqueue(store, unique_key="letter:1")


def debounce(store: Bench) -> None:
    for _ in range(3):
        enqueue(store, unique_key="letter:1", on_conflict=OnConflict.DEBOUNCE, delay_us=5)
        store.clock.advance(1)
        store.run(leases.promote_due())
    enqueue(store, unique_key="letter:1", on_conflict=OnConflict.DEBOUNCE, delay_us=5)


def settled_with(outcome: Outcome, **changes: object) -> Callable[[Bench], None]:
    def act(store: Bench) -> None:
        enqueue(store, **changes)
        store.run(unblock())
        finish(store, outcome)

    return act


def settle_twice(store: Bench) -> None:
    job = running(store)
    settle(store, job, Completed())
    settle(store, job, FAILED)


def settle_after_the_lease(store: Bench) -> None:
    job = running(store)
    lose_lease(store)
    assert not settle(store, job, Completed())


def rescue_limited(store: Bench) -> None:
    enqueue(store, **LIMITED)
    store.run(unblock())
    claim(store)
    lose_lease(store)


def rescue_too_often(store: Bench) -> None:
    enqueue(store)
    for _ in range(3):
        claim(store)
        lose_lease(store)


def release_unknown_leases(store: Bench) -> None:
    running(store, owner="worker-a")
    store.run(leases.release_unknown_leases(owner="worker-a", held=[]))


def promote(store: Bench) -> None:
    enqueue(store, delay_us=5)
    enqueue(store, delay_us=5, **LIMITED)
    running(store)
    store.run(settling.settle([]))
    store.clock.advance(1)
    store.run(leases.promote_due())


def promote_a_retry(store: Bench) -> None:
    settle(store, running(store), FAILED)
    store.clock.advance(9)
    store.run(leases.promote_due())


def let_one_through(store: Bench) -> None:
    for _ in range(2):
        enqueue(store, **LIMITED)
    store.run(unblock())


def cancel_each(store: Bench) -> None:
    settle(store, running(store), FAILED)
    ids = [enqueue(store), enqueue(store, delay_us=5), enqueue(store, **LIMITED)]
    for job_id in [*ids, *(job.id for job in store.run(list_jobs(states=[JobState.RETRYING])))]:
        store.run(cancelling.cancel_job(job_id, actor="ada"))


def cancel_while_running(store: Bench) -> None:
    job = running(store)
    store.run(cancelling.cancel_job(job.id, actor="ada"))
    settle(store, job, FAILED)


def restart(store: Bench) -> None:
    enqueue(store)
    ids = [finish(store, Refused("no")).id]
    enqueue(store, **LIMITED)
    store.run(unblock())
    ids.append(finish(store, Completed()).id)
    store.run(jobs.restart(ids, actor="ada"))


def discard(store: Bench) -> None:
    for _ in range(2):
        enqueue(store)
    job_id = finish(store, Refused("no")).id
    finish(store, Refused("no"))
    store.run(history.discard([job_id, new_id()], actor="ada"))


def prune(store: Bench) -> None:
    for outcome in (Completed(), Refused("no"), Abandoned("why")):
        enqueue(store)
        finish(store, outcome)
    enqueue(store)
    store.clock.advance(9)
    store.run(history.prune(timedelta(seconds=5), most=2))


def purge(store: Bench) -> None:
    first = enqueue(store, queue_name="fax")
    enqueue(store)
    finish(store, Completed())
    enqueue(store)
    last = enqueue(store, delay_us=5)
    later = enqueue(store)
    store.run(purge_queue(QUEUE, first_id=first, last_id=last))
    assert store.run(jobs.find(later)) is not None


Numbers = dict[str, int]
ACTS: list[tuple[Callable[[Bench], object], Numbers]] = [
    (enqueue_again, {"queued": 1}),
    (enqueue_many_again, {"queued": 2, "scheduled": 1, "blocked": 1}),
    (load_again, {"queued": 151}),
    (enqueue_a_held_key, {"queued": 1}),
    (debounce, {"scheduled": 1}),
    (running, {"running": 1}),
    (settled_with(Completed()), {"completed": 1}),
    (settled_with(FAILED), {"retrying": 1}),
    (settled_with(FAILED, max_attempts=1), {"dead_letter": 1}),
    (settled_with(Refused("no")), {"failed": 1}),
    (settled_with(Snoozed(timedelta(seconds=5))), {"scheduled": 1}),
    (settled_with(Released()), {"queued": 1}),
    (settled_with(Released(), **LIMITED), {"blocked": 1}),
    (settled_with(Abandoned("why")), {"cancelled": 1}),
    (settle_twice, {"completed": 1}),
    (settle_after_the_lease, {"queued": 1}),
    (rescue_limited, {"blocked": 1}),
    (rescue_too_often, {"dead_letter": 1}),
    (release_unknown_leases, {"queued": 1}),
    (promote, {"queued": 1, "blocked": 1, "running": 1}),
    (promote_a_retry, {"queued": 1}),
    (let_one_through, {"queued": 1, "blocked": 1}),
    (cancel_each, {"cancelled": 4}),
    (cancel_while_running, {"cancelled": 1}),
    (restart, {"queued": 1, "blocked": 1}),
    (discard, {"failed": 1}),
    (prune, {"queued": 1, "failed": 1}),
    (purge, {"queued": 1}),
]
NAMES = [f"{act.__qualname__.partition('.')[0]}-{'-'.join(numbers)}" for act, numbers in ACTS]


@pytest.mark.parametrize(("act", "expected"), ACTS, ids=NAMES)
def test_every_operation_is_counted(store: Bench, act: Callable[[Bench], object], expected: Numbers) -> None:
    act(store)

    assert kept(store)[QUEUE] == expected
    assert kept(store) == counted(store)
    store.run(fold())
    assert kept(store) == counted(store)


def test_a_claim_records_nothing(store: Bench) -> None:
    for _ in range(3):
        enqueue(store)
    store.run(fold())

    claim(store, slots=2)
    lose_lease(store)

    assert store.rows("select count(*) from stagepost_move") == [(0,)]


def test_jobs_that_go_the_same_way_are_one_move(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(5)]))
    leased = claim(store, slots=5)
    settlements = [Settlement.of(job, Completed()) for job in leased]
    store.run(fold())

    store.run(settling.settle(settlements))

    assert store.rows("select scope, was, became, jobs from stagepost_move") == [(SCOPE, "active", "completed", 5)]


def test_moves_are_folded_oldest_first_and_once(store: Bench) -> None:
    for number in range(5):
        enqueue(store, queue_name=f"queue-{number}")

    assert store.run(fold(most=2)) == 2
    assert store.rows("select scope, class, jobs from stagepost_count order by scope") == [
        ("queue:queue-0", "active", 1),
        ("queue:queue-1", "active", 1),
    ]
    assert [store.run(fold(most=2)) for _ in range(3)] == [2, 1, 0]
    assert kept(store) == counted(store)


def test_a_queue_with_the_longest_name_is_counted(store: Bench) -> None:
    name = "é" * 191
    enqueue(store, queue_name=name)
    store.run(fold())

    assert kept(store) == {name: {JobState.QUEUED: 1}}


def test_queues_without_jobs_are_left_out_and_their_counts_deleted(store: Bench) -> None:
    enqueue(store)
    job = enqueue(store, queue_name="fax")
    store.run(cancelling.cancel_job(job, actor="ada"))
    store.run(history.discard([job], actor="ada"))
    store.run(fold())

    assert list(store.run(count_by_queue())) == [QUEUE]
    store.run(drop_empty())
    assert store.rows("select scope, jobs from stagepost_count") == [(SCOPE, 1)]


def test_uncommitted_folding_changes_no_count_and_blocks_nobody(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(3):
        enqueue(store)
    store.run(fold(most=1))
    own, [other] = store.database.store, store.database.racers(1)

    with own.transaction() as connection:
        assert own.drive(fold(), connection) == 2
        before = other.run(count_by_queue())
        if store.dialect.has_row_locks:
            assert other.run(fold(), patience_seconds=0) == 0
            other.run(jobs.enqueue(new_job()), patience_seconds=0)

    assert before[QUEUE][JobState.QUEUED] == 3
    assert kept(store) == counted(store)


def test_folding_at_once_loses_and_duplicates_nothing(blocking_store: Bench) -> None:
    store = blocking_store
    for round_ in range(8):
        ids = [enqueue(store, queue_name=f"queue-{(number * 7 + round_) % 5}") for number in range(40)]
        store.run(cancelling.cancel_job(ids[0], actor="ada"))

        folding: list[Operation[Any]] = [fold(most=15) for _ in range(4)]
        store.race(*folding, jobs.enqueue(new_job(queue_name="queue-1")), history.prune(timedelta(0)))

        assert kept(store) == counted(store)
    while store.run(fold()):
        pass
    assert store.rows("select count(*) from stagepost_move") == [(0,)]


def test_counts_are_of_one_moment_while_jobs_move(blocking_store: Bench) -> None:
    """Jobs go to another class and back; whenever they are counted, none is missing and none is there twice."""
    store = blocking_store
    ids = [enqueue(store) for _ in range(6)]

    for _ in range(12):
        leased = claim(store, slots=6)
        settlements = [Settlement.of(job, Refused("no")) for job in leased]
        ending: list[Operation[Any]] = [count_by_queue(), settling.settle(settlements), fold()]
        starting: list[Operation[Any]] = [count_by_queue(), jobs.restart(ids, actor="ada"), fold()]

        for numbers, *_ in (store.race(*ending), store.race(*starting)):
            assert sum(numbers[QUEUE].values()) == 6
            assert min(numbers[QUEUE].values()) >= 0


@pytest.mark.parametrize("act", ["settle", "restart"])
def test_a_job_that_was_made_once_more_while_it_ended_is_counted(blocking_store: Bench, act: str) -> None:
    """A caller's transaction that sees the database as it was can do that: `docs/guarantees.md`, G1."""
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("with one writer at a time there is no such moment")
    job = running(store)
    settle(store, job, Completed())
    columns = "id, queue_name, task_name, priority, available_at, failures, crashes, max_attempts, payload, created_at"
    store.edit(
        f"insert into stagepost_job ({columns}, state, attempts, updated_at) "
        f"select {columns}, 'queued', 0, 0 from stagepost_job_history"
    )

    if act == "settle":
        finish_once_more(store)
    else:
        store.run(jobs.restart([job.id], actor="ada"))

    assert kept(store) == counted(store)


def finish_once_more(store: Bench) -> None:
    [again] = claim(store)
    settle(store, again, Completed())
    assert store.rows("select count(*) from stagepost_job") == [(0,)]
