"""Events: each end is recorded once, in its own transaction, and no reader can miss one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from stagepost.database.statement import Operation, Statement, Statements, query
from stagepost.errors import EventsPruned, NoSuchEvent
from stagepost.events import (
    EVENT_TYPES,
    Event,
    EventLevel,
    JobCancelled,
    JobCompleted,
    JobDeadLettered,
    JobFailed,
    JobWaived,
)
from stagepost.model.context import TraceContext
from stagepost.model.job import LeasedJob, to_datetime
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.outcome import Abandoned, Completed, Crashed, Failed, Outcome, Refused, Released, Snoozed
from stagepost.store import batch_items, cancelling, jobs, leases, settling
from stagepost.store.events import declare_levels, levels, number_events, prune_events, read_events, stream
from stagepost.store.settlement import Settlement
from tests.conformance.batches import end, filled
from tests.conformance.bench import Bench
from tests.conformance.events import number, read
from tests.conformance.plans import analyze, goes_through, plan_of
from tests.conformance.samples import QUEUE, TASK, claim, enqueue, finish, lose_lease, new_job, running, settle

T = TypeVar("T")

DAY = timedelta(days=1)
TRACE = TraceContext(trace_id="4bf9", correlation_id="order:7", user_id="ada")


def ended(store: Bench, number: int, **changes: Any) -> list[str]:
    """Store jobs and end them in one group; returns their ids."""
    store.run(jobs.enqueue_many([new_job(**changes) for _ in range(number)]))
    leased = claim(store, slots=number)
    assert all(store.run(settling.settle([Settlement.of(job, Completed("1")) for job in leased])).values())
    return [job.id for job in leased]


def numbers(events: list[Event]) -> list[int]:
    return [event.number for event in events]


def test_an_event_says_everything_about_the_end_of_a_job(store: Bench) -> None:
    batch = filled(store, 1)
    store.rows("update stagepost_job set max_attempts = 2, context = :context", context=TRACE.encode())
    [job] = claim(store)
    settle(store, job, Failed("no paper in tray 7", timedelta(seconds=5)))
    store.clock.advance(5)
    store.run(leases.promote_due())
    [job] = claim(store)
    store.clock.advance(2)
    settle(store, job, Failed("no paper in tray 8", timedelta(seconds=5)))

    [event] = read(store)

    assert event == JobDeadLettered(
        number=1,
        time=to_datetime(store.now),
        job_id=job.id,
        task=TASK,
        queue=QUEUE,
        attempt=2,
        batch_id=batch.id,
        reason="no paper in tray #",
        trace=TRACE,
    )
    assert event.state is JobState.DEAD_LETTER


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Completed("1"), JobCompleted),
        (Refused("no such letter"), JobFailed),
        (Abandoned("not wanted"), JobCancelled),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_final_state_has_a_type_of_event(store: Bench, outcome: Outcome, kind: type[Event]) -> None:
    job = running(store)
    settle(store, job, outcome)

    assert [(type(event), event.job_id) for event in read(store)] == [(kind, job.id)]
    assert EVENT_TYPES.keys() == FINAL


@pytest.mark.parametrize(
    "outcome",
    [Failed("no paper", timedelta(seconds=5)), Snoozed(timedelta(minutes=2)), Released(), Crashed("worker died")],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_job_that_will_run_again_has_no_event(store: Bench, outcome: Outcome) -> None:
    settle(store, running(store), outcome)

    assert read(store) == []


def test_a_job_cancelled_before_it_ran_has_an_event(store: Bench) -> None:
    job_id = enqueue(store, context=None)
    store.run(cancelling.cancel_job(job_id, actor="ada"))

    [event] = read(store)

    assert (type(event), event.job_id, event.attempt) == (JobCancelled, job_id, 0)
    assert event.trace == TraceContext()


def test_a_waived_item_has_an_event_of_its_own(store: Bench) -> None:
    batch = filled(store, 2)
    end(store, 2, Refused("no sound in file 7"))
    store.run(batch_items.waive(batch.id, actor="ada", why="lost", keys=["f1"]))

    events = read(store)

    assert [type(event) for event in events] == [JobFailed, JobFailed, JobWaived]
    assert events[2].job_id in {event.job_id for event in events[:2]}
    assert (events[2].batch_id, events[2].reason, events[2].attempt) == (batch.id, "no sound in file #", 1)


def test_a_repeated_settlement_adds_no_event(store: Bench) -> None:
    job = running(store)
    assert settle(store, job, Completed("1"))
    assert settle(store, job, Completed("1"))

    assert len(read(store)) == 1


def test_a_job_that_was_created_again_while_it_ended_has_one_event(blocking_store: Bench) -> None:
    store = blocking_store
    if store.dialect.name == "sqlite":
        pytest.skip("one writer at a time: a job cannot be created while it ends")
    first = running(store)
    settle(store, first, Completed("1"))
    again = running(store)
    store.rows("update stagepost_job set id = :first where id = :again", first=first.id, again=again.id)

    settle(store, first, Refused("no such letter"))

    assert [type(event) for event in read(store)] == [JobCompleted]


def test_a_lost_lease_adds_no_event(store: Bench) -> None:
    job = running(store)
    lose_lease(store)

    assert settle(store, job, Completed("1")) is False
    assert read(store) == []


def test_a_rolled_back_end_has_no_event(blocking_store: Bench) -> None:
    store = blocking_store
    job = running(store)

    def end_and_stumble() -> None:
        with store.transaction() as connection:
            store.database.store.drive(settling.settle([Settlement.of(job, Completed("1"))]), connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        end_and_stumble()

    assert read(store) == []


def test_the_ends_of_a_job_that_is_retried_are_in_order(store: Bench) -> None:
    job_id = enqueue(store)
    for outcome in (Refused("no such letter"), Refused("no such street"), Completed("1")):
        finish(store, outcome)
        store.run(jobs.restart([job_id], actor="ada"))
    store.run(cancelling.cancel_job(job_id, actor="ada"))

    events = read(store)

    assert [type(event) for event in events] == [JobFailed, JobFailed, JobCompleted, JobCancelled]
    assert numbers(events) == [1, 2, 3, 4]
    assert len({event.id for event in events}) == 4


def test_a_group_of_jobs_is_one_row_and_each_event_has_a_number(store: Bench) -> None:
    first, second = ended(store, 5), ended(store, 3)

    events = read(store)

    assert numbers(events) == list(range(1, 9))
    assert {event.job_id for event in events[:5]} == set(first)
    assert {event.job_id for event in events[5:]} == set(second)
    assert store.rows("select number from stagepost_event order by id") == [(5,), (3,)]


@pytest.mark.parametrize("after", range(9))
def test_a_cursor_may_stop_inside_a_group(store: Bench, after: int) -> None:
    ended(store, 5)
    ended(store, 3)

    assert numbers(read(store, after=after)) == list(range(after + 1, 9))
    assert numbers(read(store, after=after, most=2)) == list(range(after + 1, 9))[:2]


def test_events_deleted_by_hand_do_not_stop_readers(store: Bench) -> None:
    for _ in range(4):
        ended(store, 3)
    number(store)
    store.rows("delete from stagepost_event where position in (4, 7)")

    assert numbers(read(store, after=2, most=1)) == [3]
    assert numbers(read(store, after=3, most=1)) == [10]
    assert numbers(read(store, after=3, most=2)) == [10, 11]


def test_reading_in_pages_gives_every_event_once(store: Bench) -> None:
    for size in (1, 4, 2, 7, 1):
        ended(store, size)
    number(store, most=2)
    found: list[int] = []
    while page := store.run(read_events(after=found[-1] if found else 0, most=3)):
        found += numbers(page)

    assert found == list(range(1, 16))


def test_no_reader_skips_an_event_that_is_committed_late(blocking_store: Bench) -> None:
    store = blocking_store
    [late, other] = _two_running(store)
    [slow] = store.database.racers(1)
    seen: list[Event] = []
    with slow.transaction() as connection:
        slow.drive(settling.settle([Settlement.of(late, Completed("1"))]), connection)
        if store.dialect.has_row_locks:  # otherwise no other transaction can end a job meanwhile
            settle(store, other, Completed("2"))
            seen = read(store)
            assert [event.job_id for event in seen] == [other.id]
    cursor = seen[-1].number if seen else 0

    assert [event.job_id for event in read(store, after=cursor)] == [late.id]
    if seen:  # the case is the dangerous one: a cursor over the order of writing would have skipped it
        [(first,), (second,)] = store.rows("select position from stagepost_event order by id")
        assert first > second


def _two_running(store: Bench) -> list[LeasedJob]:
    store.run(jobs.enqueue_many([new_job(), new_job()]))
    return claim(store, slots=2)


def test_readers_that_number_at_once_agree(blocking_store: Bench) -> None:
    store = blocking_store
    for size in (3, 1, 4, 1, 5):
        ended(store, size)

    counts = store.race(*(number_events(most=2) for _ in range(4)))

    assert sum(counts) == 5
    assert numbers(read(store)) == list(range(1, 15))
    assert store.run(stream())[:2] == (14, 0)


def test_old_events_are_deleted_in_order_and_readers_are_told(store: Bench) -> None:
    ended(store, 3)
    store.clock.advance(2 * DAY)
    kept = ended(store, 2)
    number(store)

    assert store.run(prune_events(DAY)) == 1
    assert store.run(prune_events(DAY)) == 0

    assert store.run(stream()) == (5, 3, False)
    assert [event.job_id for event in read(store, after=3)] == kept
    assert [event.job_id for event in read(store)] == kept
    with pytest.raises(EventsPruned, match="continue with after=3") as caught:
        read(store, after=2)
    assert (caught.value.after, caught.value.oldest) == (2, 4)


@query
def interrupted(work: Operation[T], meanwhile: Callable[[], object]) -> Statements[T]:
    """Run an operation, and do something else after its first statement."""
    steps = iter(work)
    rows = yield next(steps)
    meanwhile()
    try:
        step = steps.send(rows)
        while True:
            step = steps.send((yield step))
    except StopIteration as end:
        result: T = end.value
        return result


def test_a_deletion_while_a_page_is_read_leaves_no_gap(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(3):
        ended(store, 2)
    number(store)
    [other] = store.database.racers(1)

    page = store.run(interrupted(read_events(after=0), lambda: other.run(prune_events(timedelta(0), keep=2))))

    assert numbers(page) == [1, 2, 3, 4, 5, 6]
    assert store.run(stream()).pruned == 4


def test_events_are_deleted_only_after_they_have_a_number(store: Bench) -> None:
    ended(store, 3)
    store.clock.advance(2 * DAY)

    assert store.run(prune_events(DAY)) == 0
    assert numbers(read(store)) == [1, 2, 3]


def test_a_young_event_keeps_the_older_ones_after_it(store: Bench) -> None:
    ended(store, 1)
    ended(store, 1)
    number(store)
    store.rows("update stagepost_event set happened_at = happened_at - 200000000000 where position = 2")

    assert store.run(prune_events(DAY)) == 0


@pytest.mark.parametrize(("keep", "left"), [(7, 7), (6, 7), (5, 5), (4, 5), (1, 3), (0, 8)])
def test_the_oldest_events_beyond_a_number_are_deleted(store: Bench, keep: int, left: int) -> None:
    for size in (1, 2, 2, 3):
        ended(store, size)
    number(store)

    while store.run(prune_events(timedelta(0), keep=keep, most=1)):
        pass

    assert numbers(read(store)) == list(range(9 - left, 9))


def test_a_cursor_of_another_database_is_refused(store: Bench) -> None:
    ended(store, 2)
    number(store)

    assert read(store, after=2) == []
    with pytest.raises(NoSuchEvent, match="the last one is number 2"):
        read(store, after=3)


def test_a_level_decides_which_tasks_have_events(store: Bench) -> None:
    store.run(declare_levels(EventLevel.FINAL, {TASK: EventLevel.OFF}))
    ended(store, 2)
    settle(store, running(store), Refused("no such letter"))
    batch = filled(store, 1)
    end(store, 1, Refused("no sound"))
    store.run(batch_items.waive(batch.id, actor="ada", why="lost"))
    assert read(store) == []

    store.run(declare_levels(EventLevel.OFF, {TASK: EventLevel.FINAL}))
    ended(store, 2)
    assert len(read(store)) == 2

    store.run(declare_levels(EventLevel.OFF, {TASK: None}))
    ended(store, 2)
    assert len(read(store)) == 2
    assert store.run(levels()) == {"": EventLevel.OFF}

    store.run(declare_levels(EventLevel.FINAL, {TASK: None}))
    ended(store, 2)
    assert len(read(store)) == 4


def test_a_group_records_only_the_jobs_whose_task_has_events(store: Bench) -> None:
    store.run(declare_levels(EventLevel.FINAL, {"quiet": EventLevel.OFF}))
    ids = [enqueue(store), enqueue(store), enqueue(store)]
    leased = claim(store, slots=3)
    store.rows("update stagepost_job set task_name = 'quiet' where id = :id", id=ids[1])
    store.run(settling.settle([Settlement.of(job, Completed("1")) for job in leased]))

    assert {event.job_id for event in read(store)} == {ids[0], ids[2]}
    assert store.rows("select number from stagepost_event") == [(2,)]


def test_workers_that_declare_levels_at_once_agree(blocking_store: Bench) -> None:
    wanted: dict[str, EventLevel | None] = {f"task_{at}": EventLevel.OFF for at in range(8)}

    blocking_store.race(*(declare_levels(EventLevel.FINAL, wanted) for _ in range(4)))

    assert blocking_store.run(levels()) == wanted


@pytest.mark.parametrize("length", [100, 20_000])
def test_ids_are_part_of_an_event_unless_they_are_long(store: Bench, length: int) -> None:
    """A group of ends must not store again everything that its jobs carry."""
    trace = TraceContext(trace_id="x" * length)
    enqueue(store, context=trace.encode())
    finish(store, Completed("1"))

    [event] = read(store)

    assert event.trace == (trace if length == 100 else TraceContext())


def test_a_context_that_is_no_trace_does_not_stop_readers(store: Bench) -> None:
    enqueue(store, context='{"trace_id":7}')
    finish(store, Completed("1"))

    [event] = read(store)

    assert event.trace == TraceContext()


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (Statement("unnumbered_events", {"most": 1000}), "stagepost_event_(new|position)"),
        (Statement("read_events", {"first": 5000, "most": 100}), "stagepost_event_position"),
        (Statement("oldest_events", {"older_us": 1, "most": 100}), "stagepost_event_position"),
        (Statement("delete_events", {"until": 10}), "stagepost_event_position"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_long_stream_is_read_through_its_indexes(blocking_store: Bench, statement: Statement, index: str) -> None:
    store = blocking_store
    ended(store, 1)
    number(store)
    columns = "happened_at, subject, number, facts"
    copied = f"select position + :more, {columns} from stagepost_event"
    for doublings in range(13):
        store.rows(f"insert into stagepost_event (position, {columns}) {copied}", more=2**doublings)
    ended(store, 1)
    analyze(store, "stagepost_event")

    plan = plan_of(store, statement, small_tables=False)

    assert goes_through(index, plan, store), plan.text
    assert not plan.read_whole, plan.text
