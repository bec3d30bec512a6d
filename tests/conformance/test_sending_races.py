"""Relays, workers and reconcilers of carried queues at once, on real connections: one attempt each, no lost mark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stagepost.database.statement import Operation
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Released
from stagepost.store import cancelling, jobs, leases, settling
from stagepost.store.queues import set_limits
from stagepost.store.sending import mark_sent, put_back
from stagepost.store.settlement import Fence, Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, enqueue, new_job
from tests.conformance.sending import send, sent, taking, unsent

ROUNDS = 12
RACERS = 6
MANY = 60
LARGE = 2000


@pytest.fixture(params=range(2), ids=["", "reversed"])
def order(request: pytest.FixtureRequest) -> int:
    """Who comes first in line; the first has a small advantage."""
    return 1 - 2 * int(request.param)


@pytest.fixture
def store(blocking_store: Bench) -> Bench:
    return blocking_store


def sent_jobs(store: Bench, number: int = MANY) -> list[Fence]:
    """Store jobs and send them, in the order of their messages."""
    store.run(jobs.enqueue_many([new_job(priority=place % 3) for place in range(number)]))
    return send(store)


def claiming(owner: str) -> Operation[list[Any]]:
    return leases.claim(QUEUE, owner=owner, task_names=[TASK], slots=MANY, lease=LEASE)


def end_all(store: Bench) -> None:
    store.edit("delete from stagepost_job")


def test_messages_delivered_to_several_workers_at_once_start_one_attempt_each(store: Bench) -> None:
    retries = store.database.retries
    for _ in range(ROUNDS // 2):
        messages = sent_jobs(store)

        shares = store.race(
            *(taking(messages[:: 1 - 2 * (racer % 2)], owner=f"worker-{racer}") for racer in range(RACERS))
        )

        assert Counter(job.id for share in shares for job in share.jobs) == Counter(job_id for job_id, _ in messages)
        assert all(len(share.jobs) + len(share.stale) == MANY for share in shares)
        assert store.rows("select count(*) from stagepost_job where attempts = 1 and state = 'running'") == [(MANY,)]
        for share in shares:
            for job in share.jobs:
                assert job.owner == store.run(jobs.get(job.id)).locked_by
        end_all(store)
    assert store.database.retries == retries, "they waited for one another in a circle"


def test_a_mark_and_a_delivery_of_the_same_messages_do_not_hinder_each_other(store: Bench, order: int) -> None:
    """The broker may bring a message before the relay has marked it."""
    retries = store.database.retries
    for _ in range(ROUNDS):
        store.run(jobs.enqueue_many([new_job(priority=place % 3) for place in range(MANY)]))
        messages = unsent(store)

        pair: list[Operation[Any]] = [mark_sent(messages), taking(messages[::-1])]
        _, taken = store.race(*pair[::order])[::order]

        assert (len(taken.jobs), taken.put_back, taken.stale, taken.unknown) == (MANY, [], [], [])
        assert sent(store) == set(), "a job that runs is marked as sent"
        end_all(store)
    assert store.database.retries == retries, "they waited for one another in a circle"


def test_a_mark_and_an_end_of_the_same_job_leave_no_mark_on_its_next_attempt(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        job_id = enqueue(store)
        messages = unsent(store)
        [job] = store.run(taking(messages)).jobs

        pair: list[Operation[Any]] = [mark_sent(messages), settling.settle([Settlement.of(job, Released())])]
        marked, held = store.race(*pair[::order])[::order]

        assert (marked, held) == (0, {(job_id, 1): True})
        assert unsent(store) == [(job_id, 2)]
        end_all(store)


def test_two_relays_send_the_same_jobs_and_lose_none(store: Bench) -> None:
    for _ in range(ROUNDS // 2):
        store.run(jobs.enqueue_many([new_job() for _ in range(MANY)]))
        messages = unsent(store)

        marked = store.race(*(mark_sent(messages[::direction]) for direction in (1, -1, 1)))

        assert marked == [MANY] * 3
        assert sent(store) == {job_id for job_id, _ in messages}
        assert len(store.run(taking([*messages, *messages])).jobs) == MANY
        end_all(store)


def test_a_job_that_is_put_back_is_claimed_once(store: Bench, order: int) -> None:
    """Its queue is carried no more: some workers take from the database, a last message is still on its way."""
    retries = store.database.retries
    for _ in range(ROUNDS):
        messages = sent_jobs(store)
        ids = [job_id for job_id, _ in messages]

        racing: list[Operation[Any]] = [put_back(ids[::-1]), claiming("worker-b"), taking(messages)]
        again, claimed, taken = store.race(*racing[::order])[::order]

        started = Counter(job.id for job in [*claimed, *taken.jobs])
        assert set(started.values()) <= {1}
        assert set(again) | started.keys() == set(ids)
        left = store.run(claiming("worker-c"))
        assert started + Counter(job.id for job in left) == Counter(ids)
        end_all(store)
    assert store.database.retries == retries, "they waited for one another in a circle"


def test_large_groups_of_the_same_jobs_do_not_deadlock(store: Bench) -> None:
    retries = store.database.retries
    for _ in range(3):
        store.run(jobs.enqueue_many([new_job(priority=place % 3) for place in range(LARGE)]))
        messages = [(str(job_id), 1) for (job_id,) in store.rows("select id from stagepost_job")]
        ids = [job_id for job_id, _ in messages]
        assert store.run(mark_sent(messages)) == LARGE

        racing: list[Operation[Any]] = [put_back(ids[::-1]), taking(messages), mark_sent(messages)]
        _, taken, _ = store.race(*racing)

        assert len(taken.jobs) == LARGE
        end_all(store)
    assert store.database.retries == retries, "they waited for one another in a circle"


def test_a_job_is_either_put_back_or_started_by_its_message_first(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        [message] = sent_jobs(store, 1)

        pair: list[Operation[Any]] = [put_back([message[0]]), taking([message])]
        again, taken = store.race(*pair[::order])[::order]

        assert [job.attempt for job in taken.jobs] == [1]
        assert again in ([], [message[0]])
        assert sent(store) == set()
        assert store.run(jobs.get(message[0])).state is JobState.RUNNING
        end_all(store)


def test_a_sent_job_is_either_cancelled_or_started(store: Bench, order: int) -> None:
    for _ in range(ROUNDS):
        [message] = sent_jobs(store, 1)

        pair: list[Operation[Any]] = [cancelling.cancel_job(message[0], actor="ada"), taking([message])]
        state, taken = store.race_to_end(*pair[::order])[::order]

        assert store.run(jobs.get(message[0])).state is state
        assert len(taken.jobs) == (state is JobState.RUNNING)
        assert taken.unknown == ([] if taken.jobs else [message[0]])
        end_all(store)


def test_workers_that_claim_concurrently_respect_the_limit_of_the_queue(store: Bench) -> None:
    store.run(set_limits(QUEUE, max_running=7, rate=None, actor="olga"))
    for _ in range(ROUNDS // 2):
        messages = sent_jobs(store, 24)

        shares = store.race(
            *(taking(messages[racer::4], owner=f"worker-{racer}", is_limited=True) for racer in range(4))
        )

        started = [job.id for share in shares for job in share.jobs]
        assert len(started) == 7
        back = {job_id for share in shares for job_id in share.put_back}
        assert {job_id for job_id, _ in unsent(store)} == back == {job_id for job_id, _ in messages} - set(started)
        end_all(store)


def test_all_operations_at_once_lose_and_duplicate_nothing(store: Bench) -> None:
    """Two relays, two workers and a reconciler that thinks everything is lost, until all jobs have ended."""
    store.run(jobs.enqueue_many([new_job() for _ in range(MANY)]))
    ids = {str(job_id) for (job_id,) in store.rows("select id from stagepost_job")}
    ended: list[str] = []
    seen: list[Fence] = []

    for _ in range(20 * MANY):
        messages = unsent(store)
        seen += messages
        racing: list[Operation[Any]] = [
            taking(seen[-10:], owner="worker-a"),
            taking(seen[-15:-5], owner="worker-b"),
            mark_sent(messages),
            mark_sent(messages[::-1]),
            put_back(sorted(sent(store))[:5]),
        ]
        first, second, *_ = store.race(*racing)
        leased = [*first.jobs, *second.jobs]
        held = store.run(settling.settle([Settlement.of(job, Completed()) for job in leased]))
        assert all(held.values())
        ended += [job.id for job in leased]
        if len(ended) >= MANY:
            break

    assert Counter(ended) == Counter(ids)
