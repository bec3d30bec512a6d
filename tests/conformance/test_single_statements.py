"""Operations of a single statement: one call to the driver, and no transaction around it where none is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stagepost.database import Store
from stagepost.database.statement import (
    Operation,
    Rows,
    SingleStatement,
    Statement,
    Statements,
    operation,
    single_statement,
)
from stagepost.errors import ConfigurationError
from stagepost.model.alert import Alert
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import counting, jobs, leases, settling
from stagepost.store import sending as sending_operations
from stagepost.store.alerts import alerting
from stagepost.store.sending import mark_sent, take_delivered
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.counted import Counted
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, enqueue, new_job


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


def calls_of(store: Bench, work: Operation[object]) -> list[str]:
    """Run an operation and return the first word of every call to the driver."""
    counted = Counted(store.database.store.database)
    counting_store = Store(counted, clock=store.clock, pool_size=1)
    counting_store.run(work)
    counting_store.close()
    return counted.calls


TAKE = partial(take_delivered, owner="w", task_names=[TASK], lease=LEASE)
CLAIM = partial(leases.claim, QUEUE, owner="w", task_names=[TASK], slots=1, lease=LEASE)


def completion(store: Bench) -> Operation[object]:
    enqueue(store)
    [job] = claim(store)
    return settling.settle([Settlement.of(job, Completed("1"))])


def partial_completion(store: Bench) -> Operation[object]:
    """Of three attempts one has ended already."""
    for _ in range(3):
        enqueue(store)
    changes = [Settlement.of(job, Completed("1")) for job in claim(store, slots=3)]
    store.run(settling.settle(changes[:1]))
    return settling.settle(changes)


def sending(store: Bench) -> Operation[object]:
    return mark_sent([(enqueue(store), 1)])


def taking(store: Bench) -> Operation[object]:
    return TAKE(QUEUE, [(enqueue(store), 1)])


def taking_some(store: Bench) -> Operation[object]:
    """Of two deliveries one is stale."""
    stale = (enqueue(store), 1)
    store.run(TAKE(QUEUE, [stale]))
    return TAKE(QUEUE, [stale, (enqueue(store), 1)])


def folding(store: Bench) -> Operation[object]:
    enqueue(store)
    return counting.fold()


CASES: dict[str, tuple[Callable[[Bench], Operation[object]], dict[str, list[str]]]] = {
    "insert_job": (
        lambda _: jobs.enqueue(new_job()),
        {"sqlite": ["begin", "insert", "insert", "commit"], "postgres": ["with"]},
    ),
    "insert_job, as one of many": (
        lambda _: jobs.enqueue_many([new_job()]),
        {"sqlite": ["begin", "insert", "insert", "commit"], "postgres": ["with"]},
    ),
    "claim_jobs": (lambda _: CLAIM(), {"sqlite": ["update"], "postgres": ["with"]}),
    "claim_jobs, of one priority": (lambda _: CLAIM(marks={5: 0}), {"sqlite": ["update"], "postgres": ["with"]}),
    "claim_jobs, of two priorities": (
        lambda _: CLAIM(marks={5: 0, 6: 0}),
        {"sqlite": ["begin", "update", "update", "commit"], "postgres": ["begin", "with", "with", "commit"]},
    ),
    "end_jobs": (
        completion,
        {"sqlite": ["begin", "insert", "insert", "insert", "delete", "commit"], "postgres": ["with"]},
    ),
    "end_jobs, of which some have ended": (
        partial_completion,
        {
            "sqlite": ["begin", "select", "insert", "insert", "insert", "delete", "select", "select", "commit"],
            "postgres": ["with", "begin", "select", "select", "commit"],
        },
    ),
    "mark_sent": (sending, {"sqlite": ["update"], "postgres": ["with"]}),
    "claim_delivered": (taking, {"sqlite": ["update"], "postgres": ["with"]}),
    "claim_delivered, of which some are stale": (
        taking_some,
        {"sqlite": ["update", "begin", "select", "commit"], "postgres": ["with", "begin", "select", "commit"]},
    ),
    "fold_moves": (
        folding,
        {"sqlite": ["begin", "select", "insert", "delete", "commit"], "postgres": ["with"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_hot_operations_take_one_round_trip_where_one_statement_does_all(store: Bench, case: str) -> None:
    prepare, expected = CASES[case]
    if store.dialect.name not in expected:
        pytest.skip("no statement of this dialect both changes rows and returns them")

    assert calls_of(store, prepare(store)) == expected[store.dialect.name]


NOTHING = Statement("mark_announced", {"told": "[]"})
"""One statement in every dialect."""


@single_statement
def two_statements() -> Statements[None]:
    yield NOTHING
    yield NOTHING


def test_a_second_statement_after_one_that_commits_by_itself_is_refused(store: Bench) -> None:
    with pytest.raises(RuntimeError, match="two_statements: `mark_announced` follows a statement that commits"):
        store.run(two_statements())


def test_a_second_statement_is_refused_in_a_callers_transaction_as_well(store: Bench) -> None:
    with pytest.raises(RuntimeError, match="two_statements"), store.transaction() as connection:
        store.database.store.drive(two_statements(), connection)


@operation
def claim_and_fail() -> Statements[None]:
    yield from CLAIM()
    yield from two_statements()  # inside another operation there is a transaction, so they are two of many
    raise ConfigurationError("after the claim")


def test_an_operation_of_one_statement_shares_the_transaction_of_the_operation_that_runs_it(store: Bench) -> None:
    job_id = enqueue(store)

    with pytest.raises(ConfigurationError):
        store.run(claim_and_fail())

    assert store.run(jobs.get(job_id)).state is JobState.QUEUED


def test_an_alert_that_cannot_be_enqueued_undoes_the_statement_it_is_about(store: Bench) -> None:
    job_id = enqueue(store)

    def about(_: object) -> Alert:
        raise ConfigurationError("no alert")

    with pytest.raises(ConfigurationError):
        store.run(alerting(CLAIM(), about, lambda _: new_job()))

    assert store.run(jobs.get(job_id)).state is JobState.QUEUED


@single_statement
def clock_then(work: Operation[object]) -> SingleStatement[object]:
    yield Statement("read_clock")
    return work


@pytest.mark.parametrize("is_composed", [False, True])
def test_the_operation_that_is_to_follow_gives_the_result(store: Bench, *, is_composed: bool) -> None:
    job_id = enqueue(store)
    chained = clock_then(jobs.get(job_id))

    found = store.run(composed(chained) if is_composed else chained)

    assert found == store.run(jobs.get(job_id))


@operation
def composed(work: Operation[object]) -> Statements[object]:
    return (yield from work)


def test_only_operations_that_say_so_do_something_else_after_a_lost_reply() -> None:
    enqueueing, claiming = jobs.enqueue(new_job()), CLAIM()

    assert claiming.repeated() is claiming
    assert enqueueing.repeated().definition is jobs.enqueue.again
    assert enqueueing.repeated().name == enqueueing.name


class Deadlock(Exception):
    """Looks like a deadlock to every dialect."""

    sqlstate = "40P01"
    sqlite_errorname = "SQLITE_BUSY"


class Disconnect(Exception):
    """Looks like a lost connection to every dialect."""

    sqlstate = "08006"
    sqlite_errorname = "SQLITE_IOERR"


@pytest.mark.parametrize("error", [Deadlock(1213), Disconnect(2013)], ids=["deadlock", "lost connection"])
def test_only_what_follows_is_run_again_when_it_fails(store: Bench, error: Exception) -> None:
    ran: list[str] = []

    @operation
    def follow() -> Statements[str]:
        ran.append("follow")
        yield Statement("read_clock")
        if ran.count("follow") == 1:
            raise error
        return "done"

    @single_statement
    def start() -> SingleStatement[str]:
        ran.append("start")
        yield NOTHING
        return follow()

    assert store.run(start()) == "done"
    assert ran == ["start", "follow", "follow"]


def test_after_a_lost_connection_the_operation_declared_for_that_runs_even_if_the_first_had_committed(
    store: Bench,
) -> None:
    @operation
    def follow() -> Statements[str]:
        yield Statement("read_clock")
        raise Disconnect(2013)

    @single_statement
    def start() -> SingleStatement[str]:
        yield NOTHING
        return follow()

    @start.after_lost_reply
    def _start_again() -> Statements[str]:
        yield Statement("read_clock")
        return "again"

    assert store.run(start()) == "again"


def test_deliveries_that_were_leased_are_returned_although_the_others_are_looked_up_twice(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased, unknown = enqueue(store), new_id()
    put_back = sending_operations._put_back
    failures = iter([Deadlock(1213)])

    def fail_once(*arguments: Any, **options: Any) -> Statements[Rows]:
        for failure in failures:
            raise failure
        return (yield from put_back(*arguments, **options))

    monkeypatch.setattr(sending_operations, "_put_back", fail_once)
    taken = store.run(TAKE(QUEUE, [(leased, 1), (unknown, 1)]))

    assert ([job.id for job in taken.jobs], taken.unknown) == ([leased], [unknown])
