"""Many jobs in one request: bulk-loaded if possible, with the same result as one by one."""

from __future__ import annotations

import msgspec
import pytest

from stagepost.database.statement import query
from stagepost.errors import ConfigurationError
from stagepost.model.identity import new_id
from stagepost.model.job import Enqueued, JobRow, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import inserting, jobs
from tests.conformance.bench import Bench
from tests.conformance.counts import counted, kept
from tests.conformance.samples import claim, finish, new_job, settle

MANY = inserting.LOAD_FROM * 2
ODD_TEXTS = (
    "plain",
    "Grüße, 世界 🚚",
    "\" and ' and \\ and \\N and %s and :now",
    "line\nbreak\ttab\\.",
    "\u2028 \x7f",
    "",
)


def of_all_kinds() -> list[NewJob]:
    """Jobs that use every column, in every way that a request can."""
    found = []
    for number in range(MANY):
        text = ODD_TEXTS[number % len(ODD_TEXTS)]
        found.append(
            new_job(
                payload=msgspec.json.encode({"text": text, "number": number}).decode(),
                context=None if number % 3 else msgspec.json.encode({"trace_id": text}).decode(),
                queue_name=f"queue-{number % 4}",
                priority=number % 5 - 2,
                max_attempts=number + 1,
                delay_us=0 if number % 7 else 5_000_000,
                available_at=None if number % 11 else 4_000_000_000_000_000,
                limit_key=None if number % 13 else f"printer {text}",
                limit=None if number % 13 else 2,
                unique_key=None if number % 17 else f"key-{number}",
            )
        )
    return found


def stored(store: Bench, asked: list[NewJob]) -> list[JobRow]:
    return [store.run(jobs.get(job.id)) for job in asked]


def test_jobs_stored_in_bulk_equal_jobs_stored_one_by_one(store: Bench) -> None:
    together = of_all_kinds()
    alone = [
        msgspec.structs.replace(job, id=new_id(), unique_key=job.unique_key and f"{job.unique_key}!")
        for job in together
    ]

    assert store.run(jobs.enqueue_many(together)) == [Enqueued(job.id, is_new=True) for job in together]
    for job in alone:
        store.run(jobs.enqueue(job))

    for one, other in zip(stored(store, together), stored(store, alone), strict=True):
        assert one == msgspec.structs.replace(other, id=one.id, unique_key=one.unique_key)
    assert kept(store) == counted(store)


def test_a_request_for_many_may_be_repeated(store: Bench) -> None:
    asked = [new_job() for _ in range(MANY)]
    store.run(jobs.enqueue_many(asked[: MANY // 2]))
    for job in claim(store, slots=10):
        settle(store, job, Completed())

    for _ in range(2):
        again = jobs.enqueue_many(asked).repeated()
        assert store.run(again) == [Enqueued(job.id, is_new=True) for job in asked]

    assert store.rows("select count(*) from stagepost_job") == [(MANY - 10,)]
    assert store.rows("select count(*) from stagepost_job_history") == [(10,)]


def test_a_repeated_request_does_not_recreate_an_ended_job(store: Bench) -> None:
    asked = [new_job() for _ in range(MANY)]
    store.run(jobs.enqueue_many(asked))
    ended = claim(store, slots=MANY)
    for job in ended:
        settle(store, job, Completed())

    store.run(jobs.enqueue_many(asked))

    assert store.rows("select count(*) from stagepost_job") == [(0,)]


@pytest.mark.parametrize("position", [0, MANY // 2, -1])
@pytest.mark.parametrize("has_ended", [False, True])
def test_an_existing_job_is_found_wherever_it_is_in_the_request(store: Bench, position: int, has_ended: bool) -> None:
    asked = [new_job() for _ in range(MANY)]
    store.run(jobs.enqueue(asked[position]))
    if has_ended:
        [known] = claim(store, slots=1)
        settle(store, known, Completed())

    store.run(jobs.enqueue_many(asked[::-1]))

    assert store.rows("select count(*) from stagepost_job") == [(MANY - has_ended,)]
    assert store.rows("select count(*) from stagepost_job_history") == [(int(has_ended),)]
    assert kept(store) == counted(store)


def test_other_jobs_with_ids_in_between_do_not_matter(store: Bench) -> None:
    asked = [new_job() for _ in range(MANY)]
    store.run(jobs.enqueue(asked.pop(MANY // 2)))

    assert store.run(jobs.enqueue_many(asked)) == [Enqueued(job.id, is_new=True) for job in asked]

    assert store.rows("select count(*) from stagepost_job") == [(MANY,)]


def test_many_may_all_have_unique_keys(store: Bench) -> None:
    asked = [new_job(unique_key=f"key-{number}") for number in range(MANY)]

    assert store.run(jobs.enqueue_many(asked)) == [Enqueued(job.id, is_new=True) for job in asked]


def test_many_may_each_be_the_first_of_their_queue(store: Bench) -> None:
    asked = [new_job(queue_name=f"queue-{number}") for number in range(MANY)]

    assert store.run(jobs.enqueue_many(asked)) == [Enqueued(job.id, is_new=True) for job in asked]
    assert kept(store) == counted(store)


def test_the_same_job_twice_in_a_request_is_one(store: Bench) -> None:
    asked = [new_job() for _ in range(MANY)]

    enqueued = store.run(jobs.enqueue_many(asked + asked))

    assert [answer.id for answer in enqueued] == [job.id for job in asked + asked]
    assert store.rows("select count(*) from stagepost_job") == [(MANY,)]


def test_unique_keys_are_kept_among_many(store: Bench) -> None:
    holder = store.run(jobs.enqueue(new_job(unique_key="taken"))).id
    asked = [new_job(unique_key="taken"), *(new_job() for _ in range(MANY))]

    enqueued = store.run(jobs.enqueue_many(asked))

    assert enqueued == [Enqueued(holder, is_new=False), *(Enqueued(job.id, is_new=True) for job in asked[1:])]


def test_too_many_are_refused_before_anything_is_stored(store: Bench) -> None:
    with pytest.raises(ConfigurationError, match=r"100,001 jobs in one transaction: at most 100,000 are allowed"):
        store.run(jobs.enqueue_many([new_job()] * 100_001))

    assert store.rows("select count(*) from stagepost_job") == [(0,)]


def test_two_requests_for_the_same_jobs_at_once_make_each_once(blocking_store: Bench) -> None:
    for _ in range(8):
        asked = [new_job() for _ in range(MANY)]

        blocking_store.race(*(jobs.enqueue_many(asked) for _ in range(4)))

        states = {job.state for job in stored(blocking_store, asked)}
        assert states == {JobState.QUEUED}
    assert kept(blocking_store) == counted(blocking_store)


@pytest.mark.parametrize("others", [3, inserting.FEW_BETWEEN + 1], ids=["few others between", "many others between"])
def test_existing_jobs_are_found_among_others(store: Bench, others: int) -> None:
    ids = sorted(new_id() for _ in range(MANY + others))
    mine, between = ids[:1] + ids[others + 1 :], ids[1 : others + 1]
    for there in (mine[0], mine[-1]):
        store.run(jobs.enqueue(new_job(id=there)))
    finish(store, Completed())
    store.run(jobs.enqueue_many([new_job(id=job_id) for job_id in between]))

    assert store.run(query(inserting.existing_ids)(mine)) == {mine[0], mine[-1]}
