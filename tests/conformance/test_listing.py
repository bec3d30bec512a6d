"""Looking jobs up: one, many in pages, and their failures."""

from __future__ import annotations

import pytest

from stagepost.errors import JobNotFound
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import FINAL, LIVE, JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.store import jobs
from tests.conformance.bench import Bench
from tests.conformance.samples import TASK, enqueue, finish, running


def ended(store: Bench) -> str:
    enqueue(store, priority=99)
    return finish(store, Completed()).id


def listed(store: Bench, **options: object) -> list[str]:
    return [job.id for job in store.run(jobs.list_jobs(**options))]  # type: ignore[arg-type]


def test_a_job_that_does_not_exist_is_not_found(store: Bench) -> None:
    unknown = new_id()

    assert store.run(jobs.find(unknown)) is None
    assert store.run(jobs.failures_of(unknown)) == []
    with pytest.raises(JobNotFound, match=unknown):
        store.run(jobs.get(unknown))


def test_live_and_ended_jobs_are_listed_newest_first(store: Bench) -> None:
    ids = [enqueue(store), ended(store), enqueue(store, delay_us=5), ended(store)]

    assert listed(store) == ids[::-1]


def test_a_listed_job_is_the_job_itself(store: Bench) -> None:
    live = running(store, unique_key="letter:1", limit_key=None)
    over = ended(store)

    rows = store.run(jobs.list_jobs())

    assert rows == [store.run(jobs.get(over)), store.run(jobs.get(live.id))]


def test_pages_follow_each_other_without_gap_or_overlap(store: Bench) -> None:
    ids = [ended(store) if number % 3 else enqueue(store, priority=0) for number in range(8)]
    pages, before = [], None

    while page := listed(store, before=before, most=3):
        pages.append(page)
        before = page[-1]

    assert [len(page) for page in pages] == [3, 3, 2]
    assert [job_id for page in pages for job_id in page] == ids[::-1]


def test_a_page_begins_where_the_last_one_ended_though_jobs_came_meanwhile(store: Bench) -> None:
    ids = [enqueue(store) for _ in range(4)]
    first = listed(store, most=2)
    enqueue(store)

    assert listed(store, before=first[-1], most=2) == ids[1::-1]


def test_jobs_are_chosen_by_state(store: Bench) -> None:
    scheduled, over = enqueue(store, delay_us=5), ended(store)
    queued = enqueue(store)

    assert listed(store, states=[JobState.QUEUED]) == [queued]
    assert listed(store, states=[JobState.COMPLETED, JobState.SCHEDULED]) == [over, scheduled]
    assert listed(store, states=LIVE) == [queued, scheduled]
    assert listed(store, states=FINAL) == [over]
    assert listed(store, states=[JobState.FAILED]) == []


def test_jobs_are_chosen_by_queue_and_task(store: Bench) -> None:
    over = ended(store)
    other_queue = enqueue(store, queue_name="print")
    other_task = enqueue(store, task_name="print_letter")

    assert listed(store, queue_name="print") == [other_queue]
    assert listed(store, task_name="print_letter") == [other_task]
    assert listed(store, queue_name="mail", task_name=TASK) == [over]
    assert listed(store, queue_name="print", task_name="print_letter") == []


def test_failures_are_listed_oldest_first(store: Bench) -> None:
    job_id = enqueue(store)
    for error in ("first", "second", "third"):
        finish(store, Refused(error))
        store.run(jobs.restart([job_id], actor="ada"))
        store.clock.advance(1)

    failures = store.run(jobs.failures_of(job_id))

    assert [(failure.attempt, failure.error) for failure in failures] == [(1, "first"), (2, "second"), (3, "third")]
    assert failures == sorted(failures, key=lambda failure: failure.failed_at)
