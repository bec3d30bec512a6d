"""Batches and gates with many connections at once: one completion, never early, never stuck, no duplicates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from stagepost.database import Store
from stagepost.database.statement import Operation, Statements, operation
from stagepost.errors import StagepostError
from stagepost.model.batch import BatchRow, BatchState, Counts, Cursor, OnFailed
from stagepost.model.job import JobRow, LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.store import batch_items, batches, cancelling, concluding, counting, gates, jobs, listing, settling
from stagepost.store.settlement import Settlement
from tests.conformance.batches import REFUSED, TOLD, end, filled, item_ids, items, new_batch, opened, told
from tests.conformance.bench import Bench, at_once
from tests.conformance.samples import claim, new_job

ROUNDS = 8
RACERS = 4


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


def rows_of(store: Bench, batch: BatchRow) -> int:
    """How many rows a batch's items have, live and ended."""
    counts = [
        store.rows(f"select count(*) from {table} where batch_id = :id", id=batch.id)[0][0]
        for table in ("stagepost_job", "stagepost_job_history")
    ]
    return sum(counts)


def test_the_last_thousand_items_end_at_once_on_sixteen_connections(store: Bench) -> None:
    """F63."""
    batch = opened(store, on_complete=TOLD, gate="dataset:7")
    store.run(gates.declare("dataset:7", on_open=TOLD))
    store.run(batches.add_items(batch.id, items(1000)))
    store.run(concluding.seal(batch.id))
    leased = claim(store, slots=1000)

    def worker(number: int) -> Any:
        racer = racers[number]

        def run() -> list[BatchState | None]:
            seen = []
            for start in range(number, 1000, 16 * 16):
                share = leased[start : start + 16 * 16 : 16]
                racer.run(settling.settle([Settlement.of(job, Completed()) for job in share]))
                concluded = racer.run(concluding.try_conclude(batch.id))
                seen.append(None if concluded is None else concluded.state)
            return seen

        return run

    racers = store.database.racers(16)
    at_once([worker(number) for number in range(16)])

    done = store.run(concluding.conclude(batch.id))
    assert (done.state, done.outcome) == (BatchState.DONE, JobState.COMPLETED)
    assert store.run(counting.count_items(batch.id)) == Counts(completed=1000)
    assert told(store) == 2  # the completion, and the opening
    [gate] = store.run(gates.list_gates())
    assert (gate.unfinished, gate.openings) == (0, 1)


def test_a_seal_and_the_last_end_never_miss_each_other(store: Bench) -> None:
    """F64."""
    worker, producer = store.database.racers(2)

    def finish(batch: BatchRow, job: LeasedJob) -> Callable[[], BatchRow]:
        def run() -> BatchRow:
            worker.run(settling.settle([Settlement.of(job, Completed())]))
            return worker.run(concluding.conclude(batch.id))

        return run

    for number in range(ROUNDS):
        batch = filled(store, 1, f"upload:{number}", on_complete=TOLD)
        [job] = claim(store)

        calls: list[Callable[[], BatchRow]] = [finish(batch, job), partial(producer.run, concluding.seal(batch.id))]
        at_once(calls)

        assert store.run(batches.get(batch.id)).state is BatchState.DONE
        assert told(store) == number + 1


def test_try_conclude_does_not_wait_for_a_locked_batch(store: Bench) -> None:
    if not store.dialect.has_row_locks:
        pytest.skip("with one writer at a time everybody waits for the file")
    batch = filled(store, 1)
    producer, worker = store.database.racers(2)
    with producer.transaction() as connection:
        producer.drive(batches.add_items(batch.id, items(2)), connection)

        assert worker.run(concluding.try_conclude(batch.id), patience_seconds=0) is None

    concluded = worker.run(concluding.try_conclude(batch.id))
    assert concluded is not None
    assert concluded.state is BatchState.OPEN


def ready_to_conclude(store: Bench) -> tuple[BatchRow, str]:
    """A sealed batch whose items have ended, the first of them badly; nobody has concluded it."""
    batch = filled(store, 2, on_complete=TOLD)
    store.run(concluding.seal(batch.id))
    end(store, 1, Refused(REFUSED))
    end(store, 1)
    [failed] = store.run(failed_items(batch))
    return batch, failed.id


def finish_again(store: Bench, batch: BatchRow) -> None:
    """The restarted item ends, and only now the batch is done."""
    assert store.run(concluding.conclude(batch.id)).state is BatchState.SEALED
    assert told(store) == 0
    end(store, 1)
    assert store.run(concluding.conclude(batch.id)).state is BatchState.DONE
    assert store.run(counting.count_items(batch.id)) == Counts(completed=2)
    assert told(store) == 1


def test_a_batch_cannot_become_done_while_an_item_of_it_is_being_restarted(store: Bench) -> None:
    """F65."""
    if not store.dialect.has_row_locks:
        pytest.skip("with one writer at a time one of the two comes first")
    batch, failed = ready_to_conclude(store)
    operator, worker = store.database.racers(2)
    with operator.transaction() as connection:
        assert operator.drive(jobs.restart([failed], actor="ada"), connection) == [failed]

        assert worker.run(concluding.try_conclude(batch.id), patience_seconds=0) is None

    finish_again(store, batch)


def test_an_item_that_ended_after_the_operators_snapshot_is_restarted_under_its_batchs_lock(store: Bench) -> None:
    if store.dialect.name != "mysql":
        pytest.skip("elsewhere a transaction with an old snapshot does not find the item, or is refused")
    with closing(Store.at(store.url, pool_size=1)) as operator, operator.pool.connection() as loan:
        for sql in OLD_SNAPSHOT[store.dialect.name]:
            loan.connection.execute(sql, {})
        batch, failed = ready_to_conclude(store)

        assert operator.drive(jobs.restart([failed], actor="ada"), loan.connection) == [failed]
        assert store.run(concluding.try_conclude(batch.id)) is None
        loan.connection.commit()

    finish_again(store, batch)


def test_restarts_retries_and_completion_at_the_same_instant(store: Bench) -> None:
    """F65: whichever comes first, the item runs once more and the batch is done once."""
    for number in range(ROUNDS):
        batch = filled(store, 3, f"upload:{number}", on_complete=TOLD)
        store.run(concluding.seal(batch.id))
        end(store, 2, Refused(REFUSED))
        end(store, 1)
        failed = item_ids(batch, *(job.item_key or "" for job in store.run(failed_items(batch))))

        race: list[Operation[Any]] = [
            jobs.restart(failed, actor="ada"),
            batch_items.retry_failed(batch.id, actor="bob"),
            concluding.conclude(batch.id),
        ]
        restarted, retried, _ = store.race(*race)

        assert sorted([restarted, retried], key=len) == [[], failed]
        end(store, 2)
        assert store.run(concluding.conclude(batch.id)).state is BatchState.DONE
        assert store.run(counting.count_items(batch.id)) == Counts(completed=3)
        assert told(store) == number + 1


def failed_items(batch: BatchRow) -> Operation[list[JobRow]]:
    return listing.list_items(batch.id, states=[JobState.FAILED])


def test_two_resumers_add_every_item_once(store: Bench) -> None:
    """F62: both go on from the same cursor, and each hands over what the other may have added."""
    batch = opened(store)
    source = items(600)

    def producer(racer: Any) -> Any:
        def run() -> int:
            new = 0
            position = 0
            while position < 600:
                chunk = source[position : position + 50]
                position += len(chunk)
                added = racer.run(batches.add_items(batch.id, chunk, cursor=Cursor(position, chunk[-1].key)))
                new += added.new
                position = max(position, added.cursor.position)
            return new

        return run

    new = at_once([producer(racer) for racer in store.database.racers(2)])

    assert sum(new) == rows_of(store, batch) == 600
    assert store.run(batches.get(batch.id)).cursor == Cursor(600, "f599")
    assert store.run(counting.count_items(batch.id)) == Counts(queued=600)


def test_a_batch_opened_concurrently_is_created_once_and_closes_its_gate_once(store: Bench) -> None:
    for number in range(ROUNDS):
        new = [new_batch(f"upload:{number}", gate="dataset:7") for _ in range(RACERS)]

        found = store.race(*(batches.open_batch(one) for one in new))

        assert len({batch.id for batch in found}) == 1
        assert store.run(gates.status("dataset:7")).unfinished == number + 1


@pytest.mark.parametrize("on_failed", list(OnFailed))
def test_retry_waive_cancel_and_completion_at_the_same_instant(store: Bench, on_failed: OnFailed) -> None:
    """F65."""
    for number in range(ROUNDS):
        batch = filled(store, 4, f"upload:{number}", on_failed=on_failed, on_complete=TOLD)
        store.run(concluding.seal(batch.id))
        end(store, 2, Refused(REFUSED))
        last = claim(store, slots=2)

        race: list[Operation[Any]] = [
            settling.settle([Settlement.of(job, Completed()) for job in last]),
            batch_items.retry_failed(batch.id, actor="ada"),
            batch_items.waive(batch.id, actor="bob", why="a test tone"),
            cancelling.cancel_batch(batch.id, actor="eve"),
        ]
        outcomes = store.race_to_end(*race[number % 4 :], *race[: number % 4])
        assert not [outcome for outcome in outcomes if isinstance(outcome, StagepostError)]
        while store.run(cancelling.cancel_items(batch.id)) is not None:
            pass

        done = store.run(concluding.conclude(batch.id))
        assert done.state is BatchState.DONE
        counts = store.run(counting.count_items(batch.id))
        assert (counts.total, counts.live) == (4, 0)
        assert rows_of(store, batch) == 4
        assert told(store) == number + 1


def test_two_uploads_under_one_gate_open_it_once(store: Bench) -> None:
    store.run(gates.declare("dataset:7", on_open=TOLD))
    for number in range(ROUNDS):
        pair = [filled(store, 1, f"{name}:{number}", gate="dataset:7") for name in ("a", "b")]
        for batch in pair:
            store.run(concluding.seal(batch.id))
        end(store, 2)

        store.race(*(concluding.conclude(batch.id) for batch in pair))

        assert store.run(gates.status("dataset:7")).unfinished == 0
        assert told(store) == number + 1


def test_a_batch_that_begins_while_another_ends_keeps_the_gate_closed(store: Bench) -> None:
    for number in range(ROUNDS):
        ending = filled(store, 1, f"a:{number}", gate="dataset:7")
        store.run(concluding.seal(ending.id))
        end(store, 1)

        race: list[Operation[Any]] = [
            concluding.conclude(ending.id),
            batches.open_batch(new_batch(f"b:{number}", gate="dataset:7")),
        ]
        store.race(*race[:: 1 - 2 * (number % 2)])

        assert store.run(gates.status("dataset:7")).unfinished == 1
        assert store.run(concluding.seal_key(new_batch(f"b:{number}"))).state is BatchState.DONE
        assert store.run(gates.status("dataset:7")).unfinished == 0


@operation
def pass_and_enqueue(number: int) -> Statements[int]:
    """Open work from a dataset, as an application would after its check."""
    status = yield from gates.locked_status("dataset:7")
    if not status.unfinished:
        yield from jobs.enqueue_many([new_job(queue_name="labels", unique_key=f"label:{number}")])
    return status.unfinished


@operation
def begin_upload(number: int) -> Statements[bool]:
    """Begin an upload, and say whether work had been opened from the dataset before."""
    yield from batches.open_batch(new_batch(f"upload:{number}", gate="dataset:7"))
    found = yield from listing.list_jobs(queue_name="labels", most=1000)
    return any(job.unique_key == f"label:{number}" for job in found)


def test_work_is_opened_before_an_upload_begins_or_not_at_all(store: Bench) -> None:
    """With the check in the caller's transaction the two are in one order, whichever it is."""
    for number in range(ROUNDS):
        race: list[Operation[Any]] = [pass_and_enqueue(number), begin_upload(number)]
        turn = 1 - 2 * (number % 2)
        unfinished, came_after = store.race(*race[::turn])[::turn]

        assert (unfinished == 0) is came_after, "either the check saw the upload, or the upload came after the work"
        store.run(concluding.seal_key(new_batch(f"upload:{number}")))
        assert store.run(gates.status("dataset:7")).unfinished == 0


def test_a_check_holds_the_gate_until_its_transaction_ends(store: Bench) -> None:
    if not store.dialect.has_row_locks:
        pytest.skip("with one writer at a time nobody can begin a batch meanwhile")
    store.run(gates.declare("dataset:7", on_open=None))
    first, second = store.database.racers(2)
    with closing(Store.at(store.url, pool_size=1)) as rival:
        with rival.pool.connection() as loan:
            loan.connection.execute(IMPATIENT[store.dialect.name], {})
            loan.is_sound = True
        with first.transaction() as mine, second.transaction() as another:
            assert first.drive(gates.locked_status("dataset:7"), mine).unfinished == 0
            assert (
                second.drive(gates.locked_status("dataset:7"), another).unfinished == 0
            )  # several may hold it at once
            with pytest.raises(StagepostError):
                rival.run(batches.open_batch(new_batch(gate="dataset:7")), patience_seconds=0)
        assert rival.run(batches.open_batch(new_batch(gate="dataset:7"))).key == "upload:42"


IMPATIENT = {
    "postgres": "set session lock_timeout = '200ms'",
    "mysql": "set session innodb_lock_wait_timeout = 1",
}


def test_a_check_in_a_transaction_with_an_old_snapshot_is_of_this_moment(store: Bench) -> None:
    """The application read something, then an upload began: its check must not go by what was there before."""
    if not store.dialect.has_row_locks:
        pytest.skip("SQLite refuses to write in a transaction that others have overtaken")
    store.run(gates.declare("dataset:7", on_open=None))
    with closing(Store.at(store.url, pool_size=1)) as application, application.pool.connection() as loan:
        connection = loan.connection
        for sql in OLD_SNAPSHOT[store.dialect.name]:
            connection.execute(sql, {})
        opened(store, gate="dataset:7")

        check = partial(application.drive, gates.locked_status("dataset:7"), connection)
        if store.dialect.name == "postgres":  # it says that the transaction comes too late
            with pytest.raises(psycopg.errors.SerializationFailure):
                check()
        else:
            assert check().unfinished == 1
        connection.rollback()


OLD_SNAPSHOT = {
    "postgres": ["begin isolation level repeatable read", "select count(*) from stagepost_gate"],
    "mysql": [
        "set session transaction isolation level repeatable read",
        "begin",
        "select count(*) from stagepost_gate",
    ],
}
