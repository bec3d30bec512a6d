"""Values that are too large together are written by several statements of one transaction."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost.database import capacity, runner
from stagepost.database.dialect import SqlCall
from stagepost.database.statement import Operation, Rows, Statement
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Outcome, Refused
from stagepost.store import jobs, leases, settling
from stagepost.store.answers import accept_answers
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench, Colour
from tests.conformance.samples import LEASE, TASK, claim, enqueue, fence, new_job

FEW_BYTES = 2_000
AWKWARD = "\"'\\ \u2028é🚚"
LARGE = msgspec.json.encode(AWKWARD * 20).decode()
NUMBER = 12


@pytest.fixture
def short_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a statement take a few rows."""
    monkeypatch.setattr(capacity, "GROUP_BYTES", FEW_BYTES)
    monkeypatch.setattr(capacity, "SAFE_BYTES", 0)


def names_of(store: Bench, operation: Operation[object]) -> list[str]:
    """Run an operation and return the names of the statements that were sent."""
    names: list[str] = []
    send = runner.calls_of  # type: ignore[attr-defined]

    def record(statement: Statement, **options: Any) -> Generator[SqlCall, Rows, Rows]:
        names.append(statement.name)
        return send(statement, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "calls_of", record)
        store.run(operation)
    return names


def started(store: Bench, number: int = NUMBER) -> list[LeasedJob]:
    for _ in range(number):
        enqueue(store)
    return claim(store, slots=number)


@pytest.mark.usefixtures("short_statements")
def test_jobs_are_stored_by_several_statements_as_by_one(store: Bench) -> None:
    asked = [new_job(payload=LARGE, unique_key=None if number % 3 else f"key-{number}") for number in range(NUMBER)]

    names = names_of(store, jobs.enqueue_many(asked))

    assert names.count("insert_jobs") > 2
    assert [store.run(jobs.get(job.id)).payload for job in asked] == [LARGE] * NUMBER
    again = store.run(jobs.enqueue_many([new_job(payload=LARGE, unique_key="key-3"), new_job(payload=LARGE)]))
    assert (again[0].id, again[0].is_new, again[1].is_new) == (asked[3].id, False, True)


@pytest.mark.usefixtures("short_statements")
def test_attempts_are_settled_by_several_statements_as_by_one(store: Bench) -> None:
    outcomes: list[Outcome] = [
        Completed(LARGE),
        Failed(AWKWARD * 20, timedelta(seconds=8), AWKWARD * 20),
        Refused(AWKWARD * 20, AWKWARD * 20),
        Abandoned(AWKWARD * 20),
    ]
    attempts = started(store, 3 * len(outcomes))
    changes = [Settlement.of(job, outcomes[place % len(outcomes)]) for place, job in enumerate(attempts)]
    overtaken = msgspec.structs.replace(changes[0], attempt=7)

    names = names_of(store, settling.settle([overtaken, *changes[1:]]))
    held = store.run(settling.settle([overtaken, *changes[1:]]))  # as after a lost reply

    assert min(names.count(name) for name in ("end_jobs", "record_failures")) > 2
    found = [store.run(jobs.get(job.id)) for job in attempts]
    states = [JobState.COMPLETED, JobState.RETRYING, JobState.FAILED, JobState.CANCELLED] * 3
    assert [job.state for job in found] == [JobState.RUNNING, *states[1:]]
    assert [job.result for job in found[4::4]] == [LARGE] * 2
    assert [len(store.run(jobs.failures_of(job.id))) for job in attempts] == [0, 1, 1, 0] * 3
    assert [change.fence for change in [overtaken, *changes[1:]] if not held[change.fence]] == [
        overtaken.fence,
        *(change.fence for change in changes[1::4]),  # put off, which has no end to find
    ]


@pytest.mark.usefixtures("short_statements")
def test_leases_are_renewed_and_progress_written_by_several_statements(store: Bench) -> None:
    attempts = started(store)
    lost = msgspec.structs.replace(attempts[5], attempt=9)
    held = [*attempts[:5], lost, *attempts[6:]]
    store.clock.advance(20)
    renewing = leases.renew(
        [fence(job) for job in held], owner="worker-a", lease=LEASE, reports={fence(job): LARGE for job in held}
    )

    names = names_of(store, renewing)
    renewed = store.run(renewing)

    assert names.count("renew_leases") > 2
    assert renewed.held == {fence(job) for job in held} - {fence(lost)}
    assert [store.run(jobs.get(job.id)).progress for job in held] == [None if job is lost else LARGE for job in held]


@pytest.mark.usefixtures("short_statements")
def test_reports_of_external_programs_are_written_by_several_statements(store: Bench) -> None:
    waiting = [enqueue(store) for _ in range(NUMBER)]
    reports = {(job_id, 1): LARGE.encode() for job_id in waiting}

    names = names_of(
        store,
        accept_answers(
            [], task_names=[TASK], decide=lambda _: Completed(), in_progress=reports, read=lambda _, text: text.decode()
        ),
    )

    assert names.count("report_progress") > 2
    assert [store.run(jobs.get(job_id)).progress for job_id in waiting] == [LARGE] * NUMBER


def test_large_values_are_stored_through_a_connection_of_the_callers(store: Bench) -> None:
    caller = Bench(store.database, Colour.ASYNC)
    large = msgspec.json.encode(AWKWARD * 10_000).decode()
    asked = [new_job(payload=large), *(new_job(payload=large) for _ in range(NUMBER))]

    caller.run(jobs.enqueue(asked[0]))
    caller.run(jobs.enqueue_many(asked[1:]))

    assert {store.run(jobs.get(job.id)).payload for job in asked} == {large}
