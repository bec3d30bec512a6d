"""Claims within limits: a job with a free slot starts at once, and jobs over a limit wait outside the queue."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from stagepost.database.statement import Operation
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import LimitRules, TaskRule, limit_name
from stagepost.model.outcome import Completed, Released
from stagepost.store import jobs, leases
from stagepost.store.limits import Claimed, Front, block_front
from stagepost.store.listing import list_jobs
from stagepost.store.queues import set_limits
from stagepost.store.sending import take_delivered
from stagepost.store.settlement import Settlement
from stagepost.store.unblocking import unblock_next
from stagepost.store.workers import register_worker, unknown_tasks
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, enqueue, new_job, settle
from tests.conformance.sending import send
from tests.depth import sized
from tests.limits import claiming, rules_of

TWO = rules_of(max_running=2)
KEYS = sized(test=300, proof=10_000)


def states(store: Bench, *ids: str) -> list[JobState]:
    return [store.run(jobs.get(job_id)).state for job_id in ids]


def claim(store: Bench, rules: LimitRules = TWO, *, slots: int = 10) -> list[LeasedJob]:
    return store.run(claiming(rules, slots=slots)).jobs


def test_a_limited_job_with_room_is_queued_and_started_by_the_first_claim(store: Bench) -> None:
    job_id = enqueue(store, limit_key="printer")

    assert states(store, job_id) == [JobState.QUEUED]
    assert [job.id for job in claim(store)] == [job_id]


def test_a_claim_holds_what_is_over_the_limit_as_if_it_had_never_been_claimed(store: Bench) -> None:
    ids = [enqueue(store, limit_key="printer", priority=priority) for priority in (1, 9, 5)]
    plain = enqueue(store, priority=3, task_name="plain")
    store.clock.advance(1)
    rules = rules_of(max_running=2, plain=TaskRule())

    claimed = store.run(claiming(rules))

    assert [job.id for job in claimed.jobs] == [ids[1], ids[2], plain]
    assert claimed.blocked_on == {"limit:printer"}
    held = store.run(jobs.get(ids[0]))
    assert (held.state, held.blocked_on, held.attempt) == (JobState.BLOCKED, "limit:printer", 0)
    assert (held.locked_by, held.lease_until, held.started_at) == (None, None, None)
    assert held.updated_at == store.now


def test_running_jobs_of_others_take_room(store: Bench) -> None:
    for _ in range(3):
        enqueue(store, limit_key="printer")

    first = store.run(claiming(TWO, slots=1, owner="worker-a"))
    second = store.run(claiming(TWO, slots=2, owner="worker-b"))

    assert (len(first.jobs), len(second.jobs)) == (1, 1)
    assert store.rows("select attempts, state from stagepost_job order by state") == [
        (0, "blocked"),
        (1, "running"),
        (1, "running"),
    ]


def test_limits_are_counted_for_each_key_apart(store: Bench) -> None:
    for key in ("a", "b", "a", "b", "a"):
        enqueue(store, limit_key=key)

    assert Counter(job.limit_key for job in claim(store, rules_of(max_running=1))) == {"a": 1, "b": 1}


def test_a_newcomer_does_not_overtake_those_in_line(store: Bench) -> None:
    [running_id, waiting] = [enqueue(store, limit_key="printer") for _ in range(2)]
    one = rules_of(max_running=1)
    [job] = claim(store, one)
    settle(store, job, Completed())
    newcomer = enqueue(store, limit_key="printer", priority=9)

    assert claim(store, one) == []  # nobody has let the first in line through yet
    store.run(unblock_next(["limit:printer"], one))
    assert [job.id for job in claim(store, one)] == [newcomer]  # in line, too, and its priority is larger
    assert states(store, waiting) == [JobState.BLOCKED]
    assert job.id == running_id


def test_a_place_that_is_promised_is_not_given_to_a_newcomer(store: Bench) -> None:
    one = rules_of(max_running=1)
    for _ in range(2):
        enqueue(store, limit_key="printer", priority=1)
    [job] = claim(store, one)
    settle(store, job, Completed())
    assert store.run(unblock_next(["limit:printer"], one)) == 1

    newcomer = enqueue(store, limit_key="printer", priority=9)

    assert claim(store, one, slots=1) == []
    assert store.run(jobs.get(newcomer)).state is JobState.BLOCKED
    [through] = claim(store, one, slots=1)
    assert through.blocked_on == "limit:printer"


def test_a_job_that_was_released_waits_behind_nobody_it_preceded(store: Bench) -> None:
    one = rules_of(max_running=1)
    first = enqueue(store, limit_key="printer", available_at=store.now - 9)
    enqueue(store, limit_key="printer", available_at=store.now - 5)
    [job] = claim(store, one)
    settle(store, job, Released())

    assert claim(store, one) == []  # it is the first in line now
    store.run(unblock_next(["limit:printer"], one))
    assert [job.id for job in claim(store, one)] == [first]


def test_a_limit_that_was_lowered_holds_for_jobs_that_wait(store: Bench) -> None:
    for _ in range(5):
        enqueue(store, limit_key="printer")
    assert len(claim(store, rules_of(max_running=3), slots=2)) == 2

    assert claim(store, rules_of(max_running=2)) == []
    assert store.run(unblock_next(["limit:printer"], rules_of(max_running=2))) == 0


def test_a_limit_that_was_raised_holds_for_jobs_that_wait(store: Bench) -> None:
    for _ in range(9):
        enqueue(store, limit_key="printer")
    claim(store)

    assert store.run(unblock_next(["limit:printer"], rules_of(max_running=5))) == 3
    assert len(claim(store, rules_of(max_running=5))) == 3


def test_a_limit_that_was_lifted_holds_nobody(store: Bench) -> None:
    for _ in range(9):
        enqueue(store, limit_key="printer")
    claim(store)

    assert store.run(unblock_next(["limit:printer"], rules_of())) == 7
    assert store.rows("select count(*) from stagepost_job where blocked_on is not null") == [(0,)]
    assert len(claim(store, rules_of())) == 7


def test_a_limit_that_is_new_counts_jobs_that_were_enqueued_without_one(store: Bench) -> None:
    for _ in range(4):
        enqueue(store)

    claimed = store.run(claiming(TWO))

    assert [job.limit_key for job in claimed.jobs] == ["send_letter", "send_letter"]
    assert claimed.blocked_on == {"limit:send_letter"}
    assert store.rows("select limit_key, count(*) from stagepost_job group by limit_key") == [("send_letter", 4)]
    assert store.run(claiming(TWO)).jobs == []


def test_a_limit_without_keys_replaces_those_of_one_with_keys(store: Bench) -> None:
    rule = TaskRule(max_running=1, key_of=lambda *_: "send_letter")
    rules = LimitRules({"send_letter": rule})
    for user in ("ada", "bob"):
        enqueue(store, limit_key=f"send_letter:{user}")

    claimed = store.run(claiming(rules))

    assert [job.limit_key for job in claimed.jobs] == ["send_letter"]
    assert claimed.blocked_on == {"limit:send_letter"}


def test_a_queue_with_a_limit_of_its_own_keeps_both(store: Bench) -> None:
    store.run(set_limits(QUEUE, max_running=3, rate=None, actor="ada"))
    for number in range(9):
        enqueue(store, limit_key="printer", priority=9 - number)

    first = store.run(claiming(TWO, is_limited=True))
    second = store.run(claiming(rules_of(max_running=9), is_limited=True))

    assert (len(first.jobs), len(second.jobs)) == (2, 0)
    store.run(unblock_next(["limit:printer"], rules_of(max_running=9)))
    assert len(store.run(claiming(rules_of(max_running=9), is_limited=True)).jobs) == 1


def test_a_claim_that_starts_at_marks_is_checked_as_well(store: Bench) -> None:
    for _ in range(3):
        enqueue(store, limit_key="printer")

    claimed = store.run(claiming(TWO, marks={7: 0}))

    assert len(claimed.jobs) == 2
    assert claimed.blocked_on == {"limit:printer"}


def test_full_keys_do_not_starve_one_with_room(store: Bench) -> None:
    one = rules_of(max_running=1)
    store.run(jobs.enqueue_many([new_job(limit_key=f"full-{number}") for number in range(KEYS)]))
    while claim(store, one, slots=1000):
        pass
    store.run(jobs.enqueue_many([new_job(limit_key=f"full-{number}") for number in range(KEYS)]))
    while store.run(claiming(one, slots=1000)).blocked_on:
        pass
    assert len(store.run(list_jobs(states=[JobState.BLOCKED], most=KEYS + 1))) == KEYS

    free = enqueue(store, limit_key="zzz")

    assert [job.id for job in claim(store, one, slots=1)] == [free]


def start_full(store: Bench, rules: LimitRules, waiting: int) -> None:
    """A key that is full, with so many jobs of it in front."""
    enqueue(store, limit_key="printer", priority=9)
    [_] = claim(store, rules, slots=1)
    store.run(jobs.enqueue_many([new_job(limit_key="printer", priority=8) for _ in range(waiting)]))


def test_a_plain_job_behind_many_of_a_full_key_is_reached_in_a_few_steps(store: Bench) -> None:
    rules = rules_of(max_running=1, plain=TaskRule())
    start_full(store, rules, 2000)
    plain = enqueue(store, task_name="plain", priority=1)

    started: list[LeasedJob] = []
    for _ in range(4):
        started = claim(store, rules, slots=5)
        if started:
            break
        store.run(block_front(QUEUE, rules))

    assert [job.id for job in started] == [plain]
    assert store.rows("select max(attempts) from stagepost_job where state = 'blocked'") == [(0,)]


def test_the_front_is_cleared_of_keys_that_are_full_and_keeps_those_with_room(store: Bench) -> None:
    ids = [enqueue(store, limit_key="printer", priority=9 - number) for number in range(5)]
    other = enqueue(store, limit_key="plotter")
    assert store.run(block_front(QUEUE, TWO)) == Front(6, 0)
    assert [job.id for job in claim(store, slots=2)] == ids[:2]

    front = store.run(block_front(QUEUE, TWO))

    assert front == Front(4, 3, frozenset({"limit:printer"}))
    assert states(store, *ids[2:]) == [JobState.BLOCKED] * 3
    assert [job.id for job in claim(store)] == [other]


def test_the_front_is_looked_at_no_further_than_asked(store: Bench) -> None:
    for _ in range(5):
        enqueue(store, task_name="unknown")

    assert store.run(block_front(QUEUE, TWO, most=3)) == Front(3, 3, frozenset({"task:unknown"}))
    assert store.run(block_front(QUEUE, TWO, most=3)) == Front(2, 2, frozenset({"task:unknown"}))
    assert store.run(block_front(QUEUE, TWO, most=3)) == Front(0, 0)


def test_keys_of_jobs_in_front_are_made_from_their_arguments(store: Bench) -> None:
    seen: list[str | None] = []

    def key_of(_: str | None, payload: str | None) -> str:
        seen.append(payload)
        return "send_letter:ada"

    rules = LimitRules({"send_letter": TaskRule(max_running=1, needs_payload=True, key_of=key_of)})
    for _ in range(3):
        enqueue(store)
    claim(store, rules, slots=1)
    seen.clear()

    assert store.run(block_front(QUEUE, rules)).blocked == 2
    assert seen == ['{"to":"Ada","copies":2}'] * 2
    assert store.rows("select limit_key from stagepost_job where state = 'blocked'") == [("send_letter:ada",)] * 2


def test_jobs_of_a_task_that_nobody_knows_are_held_until_a_worker_knows_it(store: Bench) -> None:
    unknown = enqueue(store, task_name="unknown")

    store.run(block_front(QUEUE, TWO))

    assert store.run(jobs.get(unknown)).blocked_on == "task:unknown"
    knows = LimitRules({"unknown": TaskRule()})
    assert store.run(unblock_next(["task:unknown"], TWO)) == 0
    assert store.run(unblock_next(["task:unknown"], knows)) == 1
    stored = store.run(jobs.get(unknown))
    assert (stored.state, stored.blocked_on, stored.attempt) == (JobState.QUEUED, None, 0)


@pytest.mark.parametrize(("silent", "held"), [(timedelta(seconds=59), 0), (timedelta(seconds=61), 1)])
def test_a_task_that_a_live_worker_knows_is_not_held(store: Bench, silent: timedelta, held: int) -> None:
    store.run(register_worker("w", host="h", pid=1, queues=["other"], tasks=["known"], slots=1))
    enqueue(store, task_name="known")
    store.clock.advance(silent)

    assert store.run(block_front(QUEUE, TWO)).blocked == held


def test_jobs_held_for_their_task_are_reported_as_waiting_for_a_worker(store: Bench) -> None:
    for _ in range(2):
        enqueue(store, task_name="unknown")
    store.run(block_front(QUEUE, TWO))
    store.clock.advance(400)

    [task] = store.run(unknown_tasks(timedelta(seconds=300)))

    assert (task.task_name, task.queue_name, task.jobs) == ("unknown", QUEUE, 2)
    assert task.oldest_us == 400_000_000


def test_the_limit_of_a_settled_job_follows_from_what_was_claimed(store: Bench) -> None:
    enqueue(store)

    [job] = claim(store)

    assert Settlement.of(job, Completed()).limit_key == "send_letter"


def test_a_rescued_job_names_the_limit_that_has_room_again(store: Bench) -> None:
    enqueue(store, limit_key="printer")
    claim(store)
    store.clock.advance(31)

    rescued = store.run(leases.rescue_expired(grace=timedelta(0)))

    assert rescued.limit_keys == {"printer"}


def test_a_delivered_job_over_its_limit_is_held_and_sent_again_when_there_is_room(store: Bench) -> None:
    one = rules_of(max_running=1)
    for _ in range(2):
        enqueue(store, limit_key="printer")
    messages = send(store)

    taken = store.run(take_delivered(QUEUE, messages, owner="worker-a", task_names=[TASK], lease=LEASE, rules=one))

    [job] = taken.jobs
    [held] = taken.put_back
    assert taken.blocked_on == {"limit:printer"}
    stored = store.run(jobs.get(held))
    assert (stored.state, stored.attempt, stored.blocked_on) == (JobState.BLOCKED, 0, "limit:printer")
    assert send(store) == []
    settle(store, job, Completed())
    store.run(unblock_next(["limit:printer"], one))
    assert send(store) == [(held, 1)]


RACERS, ROUNDS = 4, sized(test=4, proof=30)


def test_racing_claims_never_exceed_a_limit(blocking_store: Bench) -> None:
    store, rules = blocking_store, rules_of(max_running=3)
    for round_ in range(ROUNDS):
        key = f"printer-{round_}"
        store.run(jobs.enqueue_many([new_job(limit_key=key) for _ in range(12)]))

        parts = store.race(*(claiming(rules, slots=4, owner=f"worker-{number}") for number in range(RACERS)))

        claimed = [job for part in parts for job in part.jobs]
        running = store.rows("select count(*) from stagepost_job where state = 'running' and limit_key = :key", key=key)
        assert running == [(len(claimed),)]
        assert 1 <= len(claimed) <= 3
        store.edit("delete from stagepost_job")


def test_racing_claims_and_lets_through_never_exceed_a_limit(blocking_store: Bench) -> None:
    store, rules = blocking_store, rules_of(max_running=2)
    name = limit_name("printer")
    store.run(jobs.enqueue_many([new_job(limit_key="printer") for _ in range(2 * ROUNDS + 8)]))
    done = 0
    for _ in range(ROUNDS):
        racers: list[Operation[object]] = [
            *(claiming(rules, slots=3, owner=f"worker-{number}") for number in range(RACERS)),
            unblock_next([name], rules),
        ]
        parts = store.race(*racers)
        claimed = [job for part in parts if isinstance(part, Claimed) for job in part.jobs]
        [(running,)] = store.rows("select count(*) from stagepost_job where state = 'running'")
        assert running == len(claimed) <= 2
        for job in claimed:
            assert settle(store, job, Completed())
        done += len(claimed)
        store.run(unblock_next([name], rules))

    assert done >= ROUNDS
