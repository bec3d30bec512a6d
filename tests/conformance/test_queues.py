"""Queues are paused, limited and looked at; limits hold whoever claims."""

from __future__ import annotations

from typing import Any

import pytest

from stagepost.database.statement import Operation, Statement
from stagepost.errors import ConfigurationError
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.model.rate import RateLimit
from stagepost.store import jobs, settling
from stagepost.store.queues import (
    ALL_QUEUES,
    QueueLimits,
    claim_limited,
    list_queues,
    pause,
    queue_settings,
    resume,
    set_limits,
)
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.plans import analyze, plan_of
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, new_job


def claiming(owner: str = "worker-a", *, queue: str = QUEUE, slots: int = 10) -> Operation[list[LeasedJob]]:
    return claim_limited(queue, owner=owner, task_names=[TASK], slots=slots, lease=LEASE)


def enqueue(store: Bench, number: int, **changes: Any) -> None:
    store.run(jobs.enqueue_many([new_job(**changes) for _ in range(number)]))


def complete(store: Bench, done: list[LeasedJob]) -> None:
    store.run(settling.settle([Settlement.of(job, Completed("7")) for job in done]))


def limit(store: Bench, name: str = QUEUE, **limits: Any) -> None:
    store.run(set_limits(name, **({"max_running": None, "rate": None} | limits), actor="olga"))


def test_a_paused_queue_starts_nothing_until_it_is_resumed(store: Bench) -> None:
    enqueue(store, 1)

    store.run(pause(QUEUE, actor="olga"))

    assert claim(store) == []
    assert store.run(claiming()) == []
    store.run(resume(QUEUE, actor="piet"))
    assert len(store.run(claiming())) == 1


def test_pausing_all_queues_stops_claims_under_limits_everywhere(store: Bench) -> None:
    enqueue(store, 1)

    store.run(pause(ALL_QUEUES, actor="olga"))

    assert store.run(claiming()) == []


def test_pausing_again_keeps_the_time_of_the_first(store: Bench) -> None:
    paused_at = store.now
    store.run(pause(QUEUE, actor="olga"))
    store.clock.advance(60)

    store.run(pause(QUEUE, actor="olga"))

    assert store.run(queue_settings([QUEUE]))[QUEUE].paused_at == paused_at


def test_what_operators_do_to_queues_is_recorded(store: Bench) -> None:
    store.run(pause(QUEUE, actor="olga"))
    store.run(resume(QUEUE, actor="piet"))
    store.run(set_limits(QUEUE, max_running=3, rate=2.5, burst=4, actor="rosa"))

    rows = store.rows("select actor, action, subject, detail from stagepost_audit order by id")

    assert rows == [
        ("olga", "pause_queue", QUEUE, None),
        ("piet", "resume_queue", QUEUE, None),
        ("rosa", "limit_queue", QUEUE, '{"max_running":3,"rate":2.5,"burst":4}'),
    ]


def test_settings_are_read_for_every_queue_asked_for_and_for_all_together(store: Bench) -> None:
    limit(store, max_running=3, rate=2.5)
    limit(store, ALL_QUEUES, max_running=9)
    limit(store, "not asked for", max_running=1)

    settings = store.run(queue_settings([QUEUE, "images"]))

    assert settings == {
        QUEUE: QueueLimits(QUEUE, max_running=3, rate=RateLimit(QUEUE, 2.5, burst=2)),
        "images": QueueLimits("images"),
        ALL_QUEUES: QueueLimits(ALL_QUEUES, max_running=9),
    }
    assert settings[QUEUE].is_limited
    assert not settings["images"].is_limited


def test_limits_can_be_lifted(store: Bench) -> None:
    limit(store, max_running=3, rate=2.5)

    limit(store)

    assert store.run(queue_settings([QUEUE]))[QUEUE] == QueueLimits(QUEUE)


@pytest.mark.parametrize("limits", [{"max_running": 0}, {"rate": 0.0}, {"rate": 1.0, "burst": 0}])
def test_limits_that_would_stop_a_queue_are_refused(store: Bench, limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=QUEUE):
        limit(store, **limits)

    assert store.rows("select name from stagepost_queue") == []


def test_queues_are_listed_with_counts_lag_and_settings(store: Bench) -> None:
    enqueue(store, 2, queue_name="images")
    store.clock.advance(5)
    enqueue(store, 3)
    claim(store)
    enqueue(store, 1, delay_us=9_000_000)
    limit(store, "letters", max_running=4)
    store.clock.advance(2)

    images, letters, mail = store.run(list_queues())

    assert (images.name, letters.name, mail.name) == ("images", "letters", QUEUE)
    assert {state: number for state, number in mail.counts.items() if number} == {
        JobState.QUEUED: 2,
        JobState.RUNNING: 1,
        JobState.SCHEDULED: 1,
    }
    assert (images.lag_us, letters.lag_us, mail.lag_us) == (7_000_000, None, 2_000_000)
    assert letters.settings.max_running == 4


def test_the_oldest_job_is_found_whatever_its_priority(store: Bench) -> None:
    for priority in (0, 5, -3, 9, 4):
        enqueue(store, 1, priority=priority)
        store.clock.advance(1)
    enqueue(store, 1, priority=-7)

    [queue] = store.run(list_queues())

    assert queue.lag_us == 5_000_000


def test_a_queue_without_settings_is_claimed_from_as_usual(store: Bench) -> None:
    enqueue(store, 3)

    assert len(store.run(claiming(slots=2))) == 2


def test_no_more_jobs_run_than_the_queue_allows(store: Bench) -> None:
    enqueue(store, 5)
    limit(store, max_running=3)

    first = store.run(claiming("worker-a", slots=2))
    second = store.run(claiming("worker-b"))
    third = store.run(claiming("worker-c"))
    complete(store, first)

    assert (len(first), len(second), len(third)) == (2, 1, 0)
    assert len(store.run(claiming("worker-c"))) == 2


def test_a_limit_set_below_what_runs_stops_new_starts_only(store: Bench) -> None:
    enqueue(store, 5)
    running = claim(store, slots=3)
    limit(store, max_running=1)

    assert store.run(claiming()) == []
    complete(store, running)
    assert len(store.run(claiming())) == 1


def test_all_queues_together_share_the_global_limit(store: Bench) -> None:
    enqueue(store, 5)
    enqueue(store, 5, queue_name="images")
    limit(store, ALL_QUEUES, max_running=4)
    limit(store, max_running=3)

    mail = store.run(claiming())
    images = store.run(claiming(queue="images"))

    assert (len(mail), len(images)) == (3, 1)


def test_jobs_start_within_the_rate_over_time(store: Bench) -> None:
    enqueue(store, 30)
    limit(store, rate=2, burst=3)
    started = []

    for _ in range(8):
        started.append(len(store.run(claiming())))
        store.clock.advance(0.5)

    assert started == [3, 1, 1, 1, 1, 1, 1, 1]


def test_tokens_are_taken_only_for_jobs_that_were_claimed(store: Bench) -> None:
    limit(store, rate=2, burst=3)
    enqueue(store, 1)
    assert len(store.run(claiming())) == 1
    assert store.run(claiming()) == []

    enqueue(store, 5)

    assert len(store.run(claiming())) == 2


def test_the_tighter_of_the_queues_and_the_global_rate_holds(store: Bench) -> None:
    enqueue(store, 9)
    enqueue(store, 9, queue_name="images")
    limit(store, ALL_QUEUES, rate=1, burst=5)
    limit(store, rate=1, burst=2)

    assert len(store.run(claiming())) == 2
    assert len(store.run(claiming(queue="images"))) == 3


def test_racing_workers_never_run_more_than_the_limit(blocking_store: Bench) -> None:
    enqueue(blocking_store, 30)
    limit(blocking_store, max_running=3)
    ended = 0

    while ended < 30:
        claims = blocking_store.race(*(claiming(f"worker-{n}", slots=2) for n in range(8)))
        [(running,)] = blocking_store.rows("select count(*) from stagepost_job where state = 'running'")
        assert running == sum(len(claimed) for claimed in claims) == 3
        for claimed in claims:
            complete(blocking_store, claimed)
            ended += len(claimed)


def test_racing_workers_never_start_faster_than_the_rate(blocking_store: Bench) -> None:
    enqueue(blocking_store, 40)
    limit(blocking_store, rate=10, burst=4)
    limit(blocking_store, ALL_QUEUES, rate=100, burst=50)

    started = []
    for _ in range(8):
        claims = blocking_store.race(*(claiming(f"worker-{n}", slots=3) for n in range(8)))
        started.append(sum(len(claimed) for claimed in claims))
        blocking_store.clock.advance(0.2)

    assert started == [4, 2, 2, 2, 2, 2, 2, 2]


def test_counting_what_runs_does_not_read_what_waits(blocking_store: Bench) -> None:
    enqueue(blocking_store, 500)
    claim(blocking_store, slots=3)
    analyze(blocking_store, "stagepost_job")

    plan = plan_of(blocking_store, Statement("count_running"))

    assert "stagepost_job" not in plan.read_whole, plan.text


LIMITED_LOCK = Statement("lock_queues", {"name": QUEUE, "global_name": ALL_QUEUES})


def test_limits_are_found_by_name(blocking_store: Bench) -> None:
    for number in range(50):
        limit(blocking_store, f"queue-{number}", max_running=3)
    analyze(blocking_store, "stagepost_queue")

    plan = plan_of(blocking_store, LIMITED_LOCK)

    assert plan.read_whole == frozenset(), plan.text
