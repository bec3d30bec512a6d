"""Looking jobs up: one, many in pages, and their failures."""

from __future__ import annotations

import pytest

from stagepost.errors import JobNotFound
from stagepost.model.identity import new_id
from stagepost.model.lifecycle import FINAL, LIVE, JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.store import jobs, listing
from stagepost.store.listing import list_jobs, page_of_jobs
from tests.conformance.bench import Bench
from tests.conformance.samples import TASK, enqueue, finish, running


def ended(store: Bench) -> str:
    enqueue(store, priority=99)
    return finish(store, Completed()).id


def listed(store: Bench, **options: object) -> list[str]:
    return [job.id for job in store.run(list_jobs(**options))]  # type: ignore[arg-type]


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

    rows = store.run(list_jobs())

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


def test_an_empty_page_says_where_to_continue_the_search(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FEW", 2)
    old = [enqueue(store, queue_name="print") for _ in range(4)]
    for _ in range(6):
        enqueue(store)
    pages, before = [], None

    while True:
        page = store.run(page_of_jobs(queue_name="print", before=before, most=3, look=4))
        pages.append([job.id for job in page.jobs])
        if page.next_before is None:
            break
        before = page.next_before

    assert [job_id for page in pages for job_id in page] == old[::-1]
    assert pages[0] == []
    assert len(pages) > 2


def test_ended_jobs_are_looked_for_in_the_same_way(store: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FEW", 0)
    ids = [ended(store) for _ in range(5)]

    first = store.run(page_of_jobs(states=[JobState.COMPLETED], look=2))
    second = store.run(page_of_jobs(states=[JobState.COMPLETED], look=2, before=first.next_before))

    assert [[job.id for job in page.jobs] for page in (first, second)] == [ids[:1:-1], ids[1::-1]]
    assert second.next_before is None


def test_jobs_of_a_rare_state_are_found_wherever_they_are(store: Bench) -> None:
    rare = {
        JobState.RUNNING: running(store).id,
        JobState.SCHEDULED: enqueue(store, delay_us=5),
        JobState.BLOCKED: enqueue(store, limit_key="printer", limit=1),
        JobState.COMPLETED: ended(store),
    }
    queued = [enqueue(store) for _ in range(6)]

    for state, job_id in rare.items():
        page = store.run(page_of_jobs(states=[state], look=2))
        assert ([job.id for job in page.jobs], page.next_before) == ([job_id], None)
    assert [job.id for job in store.run(page_of_jobs(states=[JobState.QUEUED], look=2)).jobs] == queued[::-1]


def test_jobs_found_by_state_are_held_back_until_newer_ones_are_searched(
    store: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "FEW", 2)
    oldest = enqueue(store, delay_us=5)
    queued = [enqueue(store) for _ in range(5)]
    states = [JobState.QUEUED, JobState.SCHEDULED]

    first = store.run(page_of_jobs(states=states, task_name=TASK, look=3))
    second = store.run(page_of_jobs(states=states, task_name=TASK, look=3, before=first.next_before))

    assert [job.id for job in first.jobs] == queued[:0:-1]
    assert [job.id for page in (first, second) for job in page.jobs] == [*queued[::-1], oldest]
    assert second.next_before is None
