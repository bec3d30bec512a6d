"""Records that applications read: times are datetimes, JSON is objects, and names and units are uniform."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import stagepost
from stagepost import App, JobState, TraceContext
from stagepost.client.records import Job
from stagepost.errors import PayloadError
from stagepost.model.job import JobRow, to_datetime, to_instant
from tests.unit.test_public_api import function_of, public_members

OTHER_NAMES = {"most", "task_name", "queue_name", "owner", "locked_by", "payload"}
"""Names of the store for what applications know as limit, task, queue, worker and arguments."""


def row(**facts: object) -> JobRow:
    given: dict[str, object] = {
        "id": "j", "task_name": "greet", "queue_name": "mail", "state": JobState.COMPLETED, "priority": 0, "attempt": 2,
        "failures": 1, "crashes": 0, "max_attempts": 5, "unique_key": None, "limit_key": None, "batch_id": None,
        "item_key": None, "payload": '{"name":"Ada"}', "context": None,
        "available_at": 900, "lease_until": None, "locked_by": "w2", "cancel_requested_at": None, "created_at": 100,
        "updated_at": 700, "started_at": 600, "finished_at": 800, "result": '["hello"]', "error": None,
        "progress": '{"done":1}',
    }  # fmt: skip
    return JobRow(**(given | facts))  # type: ignore[arg-type]


def fields_and_parameters() -> Iterator[tuple[str, str, Any]]:
    """Every field of a public record and every parameter of a public method, with its annotation."""
    for name in stagepost.__all__:
        kind = getattr(stagepost, name)
        if not inspect.isclass(kind) or name == "NewJob":
            continue
        if issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                yield name, field.name, field.type
        for member_name, member in public_members(kind).items():
            if (function := function_of(member)) is not None and member_name != "__init__":
                hints = typing.get_type_hints(function)
                yield name, member_name, hints.get("return")
                for parameter in inspect.signature(function).parameters:
                    yield f"{name}.{member_name}", parameter, hints.get(parameter)


def test_times_are_aware_datetimes_in_utc() -> None:
    job = Job(row(finished_at=1_700_000_000_000_001))

    assert job.finished_at == datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)
    assert job.lease_until is None


@pytest.mark.parametrize("instant", [0, 1, 1_700_000_000_000_001, 253_402_300_799_999_999])
def test_times_are_exact_to_the_microsecond(instant: int) -> None:
    assert to_instant(to_datetime(instant)) == instant


def test_arguments_result_and_progress_are_objects() -> None:
    job = Job(row())

    assert (job.arguments, job.result, job.progress) == ({"name": "Ada"}, ["hello"], {"done": 1})


def test_json_is_decoded_only_when_it_is_read() -> None:
    job = Job(row(payload="{", result="{"))

    assert job.task == "greet"
    with pytest.raises(PayloadError, match="not a JSON object"):
        assert job.arguments


def test_a_jobs_trace_and_the_schedule_that_enqueued_it_can_be_read() -> None:
    job = Job(row(context='{"trace_id":"t-1","schedule":"nightly","due_at":1000000}'))

    assert job.trace == TraceContext(trace_id="t-1")
    assert (job.schedule, job.due_at) == ("nightly", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert (Job(row()).trace, Job(row()).schedule, Job(row()).due_at) == (TraceContext(), None, None)


def test_what_a_job_was_blocked_on_is_shown_only_while_it_is_blocked() -> None:
    assert Job(row(blocked_on="limit:greet")).blocked_on is None
    assert Job(row(blocked_on="limit:greet", state=JobState.BLOCKED)).blocked_on == "limit:greet"


def test_a_copied_job_is_stored_once_in_another_database() -> None:
    old, new = App("sqlite://"), App("sqlite://")
    for app in (old, new):
        app.task(name="greet")(lambda name: name)
    made = old.client.enqueue(old.registry.get("greet").job("Ada"))

    copies = [new.client.enqueue(old.client.job(made.id).copy()) for _ in range(2)]

    assert [(copy.id, copy.is_new) for copy in copies] == [(made.id, True), (made.id, False)]
    assert new.client.job(made.id).arguments == {"name": "Ada"}
    old.close()
    new.close()


def test_public_names_are_uniform() -> None:
    assert [(where, name) for where, name, _ in fields_and_parameters() if name in OTHER_NAMES] == []


def test_no_public_time_or_duration_is_a_bare_number() -> None:
    def is_time(name: str) -> bool:
        return name.endswith(("_at", "_until", "_for", "_after")) or name in {"at", "eta", "timeout", "delay"}

    timely = [(where, name, hint) for where, name, hint in fields_and_parameters() if is_time(name)]

    assert len(timely) > 20
    for where, name, hint in timely:
        allowed = {datetime, timedelta, type(None)} | ({float} if timedelta in typing.get_args(hint) else set())
        assert set(typing.get_args(hint) or [hint]) <= allowed, (where, name, hint)
