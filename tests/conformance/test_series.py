"""Many jobs of one task, built while they are sent to the database, equal jobs built beforehand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stagepost.errors import ConfigurationError, PayloadError, PayloadTooLarge
from stagepost.model.context import traced
from stagepost.model.job import Enqueued, JobRow
from stagepost.model.options import NO_OPTIONS, JobOptions, TaskOptions
from stagepost.model.payload import PayloadLimits
from stagepost.model.series import Arguments
from stagepost.store import inserting, jobs
from stagepost.task import Task
from tests.conformance.bench import Bench
from tests.conformance.test_bulk import ODD_TEXTS

FEW, MANY = 3, inserting.LOAD_FROM + 3
TOO_LONG = "x" * 2_000


def print_letter(text: str, copies: int = 1, *, tray: list[int] | None = None) -> None: ...


def a_task(**options: Any) -> Task[..., Any]:
    options = {"queue": "mail", "priority": 7, "limits": PayloadLimits(max_bytes=1_000), **options}
    return Task(print_letter, name="print_letter", options=TaskOptions(**options), wants_context=False)


def calls(number: int) -> list[Arguments]:
    """Arguments by position and by name, plain and not."""
    found: list[Arguments] = []
    for position in range(number):
        text = ODD_TEXTS[position % len(ODD_TEXTS)]
        by_name = {"tray": [position], "text": text}
        found.append((text, position) if position % 3 else by_name if position % 2 else (text,))
    return found


def stored(store: Bench, enqueued: list[Enqueued]) -> list[JobRow]:
    """What is kept of jobs, but for their ids."""
    return [msgspec.structs.replace(store.run(jobs.get(one.id)), id="") for one in enqueued]


@pytest.mark.parametrize("number", [FEW, MANY])
@pytest.mark.parametrize(
    ("task", "options"),
    [
        (a_task(), {}),
        (a_task(), {"priority": -3, "queue": "other", "max_attempts": 9}),
        (a_task(), {"delay": 60}),
        (a_task(), {"at": datetime(2096, 1, 1, tzinfo=UTC)}),
        (a_task(max_running=2), {}),
        (a_task(max_running=2, limit_by=lambda text, *_, **__: f"key-{len(text)}"), {"priority": 1}),
    ],
    ids=["as usual", "elsewhere", "delayed", "at an instant", "limited", "limited by arguments"],
)
def test_a_series_stores_the_same_jobs_as_single_requests(
    store: Bench, task: Task[..., Any], options: dict[str, Any], number: int
) -> None:
    wanted = JobOptions(**options) if options else NO_OPTIONS
    with traced(trace_id="4bf9", user_id="ada"):
        series = task.build_many(wanted, calls(number))
        before = [
            task.build(wanted, *((given, {}) if isinstance(given, tuple) else ((), given))) for given in calls(number)
        ]

    enqueued = store.run(jobs.enqueue_many(series))

    assert enqueued == [Enqueued(job.id, is_new=True) for job in series]
    assert stored(store, enqueued) == stored(store, store.run(jobs.enqueue_many(before)))


@pytest.mark.parametrize("number", [0, 1, FEW, MANY])
def test_a_series_may_be_repeated(store: Bench, number: int) -> None:
    asked = jobs.enqueue_many(a_task().build_many(NO_OPTIONS, calls(number)))

    assert store.run(asked) == store.run(asked)

    assert store.rows("select count(*) from stagepost_job") == [(number,)]


def test_jobs_of_a_series_with_one_unique_key_are_one(store: Bench) -> None:
    series = a_task().build_many(JobOptions(unique_key="letters"), calls(MANY))

    [holder] = {one.id for one in store.run(jobs.enqueue_many(series))}

    assert store.rows("select count(*) from stagepost_job") == [(1,)]
    assert store.run(jobs.get(holder)).payload == '{"text":"plain"}'


@pytest.mark.parametrize("number", [FEW, MANY])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (("Ada", "two"), PayloadError, r"arguments\[{}\]: .*argument `copies` must be int, not str"),
        ({"text": "Ada", "colour": 1}, PayloadError, r"arguments\[{}\]: .*`colour` is not one of its parameters"),
        ({}, PayloadError, r"arguments\[{}\]: .*argument `text` is missing"),
        ((TOO_LONG,), PayloadTooLarge, r"arguments\[{}\]: .* the limit is 1,000"),
        ("Ada", PayloadError, r"arguments\[{}\]: these are of type str\. Pass a tuple .* or a dict"),
        (["Ada", 1], PayloadError, r"arguments\[{}\]: these are of type list"),
    ],
    ids=["type", "name", "missing", "size", "text", "list"],
)
def test_wrong_arguments_in_the_middle_leave_nothing(
    store: Bench, wrong: Any, error: type[PayloadError], message: str, number: int
) -> None:
    for position in {0, number // 2, number - 1}:
        asked = calls(number)
        asked[position] = wrong

        with pytest.raises(error, match=message.format(position)):
            store.run(jobs.enqueue_many(a_task().build_many(NO_OPTIONS, asked)))

    assert store.rows("select count(*) from stagepost_job") == [(0,)]
    store.run(jobs.enqueue_many(a_task().build_many(NO_OPTIONS, calls(number))))


def test_too_many_are_refused_before_anything_is_stored(store: Bench) -> None:
    with pytest.raises(ConfigurationError, match=r"100,001 jobs in one transaction: at most 100,000 are allowed"):
        store.run(jobs.enqueue_many(a_task().build_many(NO_OPTIONS, [("Ada",)] * 100_001)))

    assert store.rows("select count(*) from stagepost_job") == [(0,)]
