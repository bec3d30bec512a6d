"""Claims take the tokens of rates, and jobs that wait for a token are let through when one is available."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.limits import LimitRules, TaskRule
from stagepost.model.outcome import Completed
from stagepost.model.rate import RateLimit
from stagepost.store import jobs, leases
from stagepost.store.limits import Claimed, block_front
from stagepost.store.rates import take_tokens
from stagepost.store.unblocking import (
    BlockedNames,
    is_any_blocked,
    names_with_blocked_jobs,
    own_blocked_names,
    sweep,
    unblock_next,
)
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, enqueue, held_by_another, new_job, settle
from tests.depth import sized
from tests.limits import claiming, rules_of, unblock

RATE = RateLimit("speech", per_second=2)
RULES = rules_of(rate=RATE)
NAME = "rate:speech"


def claim(store: Bench, rules: LimitRules = RULES, *, slots: int = 10) -> list[LeasedJob]:
    return store.run(claiming(rules, slots=slots)).jobs


def one_pass(store: Bench, rules: LimitRules = RULES) -> int:
    """What a worker does every so often; returns how many jobs started."""
    store.run(leases.promote_due())
    store.run(unblock_next([NAME], rules))
    jobs_ = claim(store, rules)
    for job in jobs_:
        settle(store, job, Completed())
    return len(jobs_)


def test_a_claim_takes_a_token_for_each_job_and_holds_the_others(store: Bench) -> None:
    first, second = (enqueue(store, priority=priority) for priority in (9, 8))

    claimed = store.run(claiming(RULES))

    assert [job.id for job in claimed.jobs] == [first]
    assert claimed.blocked_on == {NAME}
    held = store.run(jobs.get(second))
    assert (held.state, held.blocked_on, held.attempt) == (JobState.BLOCKED, NAME, 0)
    assert store.run(take_tokens(RATE, 1)).granted == 0


def test_those_in_line_are_let_through_for_when_their_tokens_grow_back(store: Bench) -> None:
    for _ in range(9):
        enqueue(store)
    claim(store)

    assert store.run(unblock_next([NAME], RULES)) == 4  # as far as two seconds ahead

    rows = store.rows("select available_at from stagepost_job where state = 'scheduled' order by available_at")
    assert [due - store.now for (due,) in rows] == [400_000, 900_000, 1_400_000, 1_900_000]  # a little early
    assert store.run(unblock_next([NAME], RULES)) == 0
    store.clock.advance(0.5)
    assert store.run(unblock_next([NAME], RULES)) == 1


def test_those_in_line_start_at_their_rate_and_are_claimed_twice_at_most(store: Bench) -> None:
    number = sized(test=30, proof=290)
    store.run(jobs.enqueue_many([new_job() for _ in range(number)]))
    claims = Counter[str]()
    starts = []
    for step in range(2 * number + 10):
        store.run(leases.promote_due())
        store.run(unblock_next([NAME], RULES))
        claimed = store.run(claiming(RULES))
        starts += [(step, job.id) for job in claimed.jobs]
        claims.update(job.id for job in claimed.jobs)
        for job in claimed.jobs:
            assert job.attempt == 1
            settle(store, job, Completed())
        if step == 0:
            store.run(block_front(QUEUE, RULES))
        elif claimed.blocked_on:
            claims["held again"] += 1
        store.clock.advance(0.25)

    assert len(starts) == number
    assert claims["held again"] == 0
    assert [step for step, _ in starts] == list(range(0, 2 * number, 2))


@pytest.mark.parametrize("rate", [RateLimit("speech", per_second=2), RateLimit("speech", per_second=50)])
def test_late_claims_neither_slow_a_rate_down_nor_exceed_it(store: Bench, rate: RateLimit) -> None:
    rules, number, lateness = rules_of(rate=rate), sized(test=60, proof=600), Random(7)  # noqa: S311
    store.run(jobs.enqueue_many([new_job() for _ in range(number)]))
    began, looked_at, promoted = store.now, 0, 0
    starts: list[int] = []
    for _ in range(10 * number):
        for job in claim(store, rules, slots=number):
            starts.append(store.now + job.starts_in_us)
            settle(store, job, Completed())
        if store.now - looked_at >= 500_000:
            store.run(unblock_next([NAME], rules))
            looked_at = store.now
        due = store.run(leases.next_due()) or timedelta(0)
        store.clock.advance(max(0.01, due.total_seconds()) + lateness.uniform(0, 0.05))
        promoted += store.run(leases.promote_due())

    assert len(starts) == number
    assert min(later - earlier for earlier, later in pairwise(starts)) >= rate.interval_us
    assert starts[-1] - began <= number / rate.per_second * 1.05 * 1_000_000
    assert promoted < number  # so a job is claimed twice at most: once when it joins the line, once when it starts


def test_one_claim_that_is_very_late_costs_the_others_at_most_one_more_claim(store: Bench) -> None:
    rules, number = rules_of(rate=RateLimit("speech", per_second=50)), 60
    store.run(jobs.enqueue_many([new_job() for _ in range(number)]))
    starts = [store.now + job.starts_in_us for job in claim(store, rules, slots=number)]
    store.run(unblock_next([NAME], rules))
    store.clock.advance(0.4)
    promoted = 0
    while len(starts) < number and promoted < 2 * number:
        promoted += store.run(leases.promote_due())
        starts += [store.now + job.starts_in_us for job in claim(store, rules, slots=number)]
        store.clock.advance(0.01)

    assert len(starts) == number
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 20_000
    assert promoted < 2 * number
    # Tokens that nobody took in time are lost: at least those of 0.4 s, less what was claimed early.
    assert starts[-1] - starts[0] <= (number / 50 + 0.5) * 1_000_000


def test_a_newcomer_does_not_take_the_token_of_one_in_line(store: Bench) -> None:
    for _ in range(2):
        enqueue(store)
    claim(store)
    store.run(unblock_next([NAME], RULES))
    store.clock.advance(10)
    newcomer = enqueue(store, priority=9)

    assert claim(store) == []
    assert store.run(jobs.get(newcomer)).blocked_on == NAME
    store.run(leases.promote_due())
    assert len(claim(store)) == 1


def test_a_job_whose_token_another_took_gets_the_next_token_that_is_not_promised(store: Bench) -> None:
    for _ in range(9):
        enqueue(store)
    claim(store)
    assert store.run(unblock_next([NAME], RULES)) == 4
    store.clock.advance(0.5)
    assert store.run(leases.promote_due()) == 1
    store.run(take_tokens(RATE, 1))  # a handler that waits for the same provider

    assert store.run(claiming(RULES)) == Claimed([], is_any_scheduled=True)

    rows = store.rows("select available_at, attempts from stagepost_job where state = 'scheduled' order by 1")
    assert [(due - store.now, attempts) for due, attempts in rows] == [
        (400_000, 0),
        (900_000, 0),
        (1_400_000, 0),
        (1_900_000, 0),  # this one
    ]


def test_a_job_that_is_claimed_a_little_early_learns_when_its_token_is_valid(store: Bench) -> None:
    for _ in range(2):
        enqueue(store)
    [first] = claim(store)
    store.run(unblock_next([NAME], RULES))
    store.clock.advance(0.42)
    store.run(leases.promote_due())

    [second] = claim(store)

    assert (first.starts_in_us, second.starts_in_us) == (0, 80_000)
    assert store.run(take_tokens(RATE, 1)).wait_us == 580_000


def test_a_rate_that_was_lifted_holds_nobody(store: Bench) -> None:
    for _ in range(5):
        enqueue(store)
    claim(store)

    assert store.run(unblock_next([NAME], rules_of())) == 4
    assert len(claim(store, rules_of())) == 4


def test_a_rate_of_tasks_that_are_unknown_here_is_left_to_others(store: Bench) -> None:
    for _ in range(2):
        enqueue(store)
    claim(store)

    assert store.run(unblock_next([NAME], LimitRules({"other": TaskRule()}))) == 0


def test_a_job_may_have_a_limit_and_a_rate(store: Bench) -> None:
    rules = rules_of(max_running=2, rate=RateLimit("speech", per_second=2, burst=3))
    for _ in range(5):
        enqueue(store, limit_key="printer")

    claimed = store.run(claiming(rules))

    assert len(claimed.jobs) == 2
    assert claimed.blocked_on == {"limit:printer"}
    assert (
        store.run(take_tokens(RateLimit("speech", per_second=2, burst=3), 9)).granted == 1
    )  # none taken for those held


def test_a_plain_job_behind_many_without_a_token_is_reached_in_a_few_steps(store: Bench) -> None:
    rules = rules_of(rate=RATE, plain=TaskRule())
    store.run(jobs.enqueue_many([new_job(priority=8) for _ in range(2000)]))
    plain = enqueue(store, task_name="plain", priority=1)
    claim(store, rules, slots=2)
    for _ in range(2):
        store.run(block_front(QUEUE, rules))

    assert [job.id for job in claim(store, rules, slots=5)] == [plain]


def test_what_is_let_through_goes_in_order(store: Bench) -> None:
    rules = rules_of(max_running=3)
    ids = [enqueue(store, limit_key="printer", priority=9 - number) for number in range(6)]
    first = claim(store, rules)
    for job in first[:2]:
        settle(store, job, Completed())

    assert store.run(unblock_next(["limit:printer"], rules)) == 2
    assert [job.id for job in claim(store, rules)] == ids[3:5]


def test_many_limits_are_looked_at_together(store: Bench) -> None:
    rules = rules_of(max_running=1)
    store.run(jobs.enqueue_many([new_job(limit_key=f"key-{number % 20}") for number in range(60)]))
    running = claim(store, rules, slots=60)
    assert len(running) == 20
    for job in running[:15]:
        settle(store, job, Completed())

    assert store.run(unblock_next([f"limit:key-{number}" for number in range(20)], rules)) == 15
    assert len({job.limit_key for job in claim(store, rules, slots=60)}) == 15


def test_a_sweep_heals_what_nobody_let_through(store: Bench) -> None:
    rules = rules_of(max_running=1)
    for _ in range(2):
        enqueue(store, limit_key="printer")
    [job] = claim(store, rules)
    settle(store, job, Completed())  # and the worker dies before it looks for the next

    assert store.run(sweep(rules)).through == 1
    assert len(claim(store, rules)) == 1


def test_a_limit_that_no_rule_knows_is_left_to_others(store: Bench) -> None:
    rules = rules_of(max_running=1)
    for _ in range(2):
        enqueue(store, limit_key="printer")
    [job] = claim(store, rules)
    settle(store, job, Completed())

    assert store.run(unblock()) == 0
    assert store.run(unblock(rules)) == 1


def test_a_row_that_another_transaction_holds_is_skipped(blocking_store: Bench) -> None:
    store, rules = blocking_store, rules_of(max_running=1)
    for _ in range(2):
        enqueue(store, limit_key="printer")
    [job] = claim(store, rules)
    settle(store, job, Completed())
    [(blocked,)] = store.rows("select id from stagepost_job where state = 'blocked'")

    with held_by_another(store, str(blocked)):
        assert store.run(unblock_next(["limit:printer"], rules)) == 0

    assert store.run(unblock_next(["limit:printer"], rules)) == 1


def test_a_worker_learns_which_of_its_rates_and_tasks_have_blocked_jobs(store: Bench) -> None:
    rules = rules_of(rate=RATE, known=TaskRule())
    assert not store.run(is_any_blocked())
    assert store.run(own_blocked_names(rules)) == BlockedNames((), awaits_tokens=False)
    enqueue(store, task_name="known")
    store.run(block_front(QUEUE, RULES))
    for _ in range(2):
        enqueue(store)
    claim(store)

    assert store.run(is_any_blocked())
    assert store.run(own_blocked_names(rules)) == BlockedNames((NAME, "task:known"), awaits_tokens=False)
    store.run(unblock_next([NAME], rules))
    assert store.run(own_blocked_names(rules)) == BlockedNames(("task:known",), awaits_tokens=True)


def test_only_limits_with_blocked_jobs_are_listed(store: Bench) -> None:
    rules = rules_of(max_running=1)
    for key in ("a", "a", "b"):
        enqueue(store, limit_key=key)
    claim(store, rules)

    assert store.run(names_with_blocked_jobs(["limit:a", "limit:b", "limit:c"])) == ["limit:a"]


def test_racing_claims_never_exceed_a_rate(blocking_store: Bench) -> None:
    store = blocking_store
    rules = rules_of(rate=RateLimit("speech", per_second=10, burst=3))
    store.run(jobs.enqueue_many([new_job() for _ in range(200)]))
    started, rounds = 0, sized(test=5, proof=40)
    for _ in range(rounds):
        parts = store.race(*(claiming(rules, slots=4, owner=f"worker-{number}") for number in range(4)))
        started += sum(len(part.jobs) for part in parts)
        store.clock.advance(0.2)
        store.run(leases.promote_due())
        store.run(unblock_next([NAME], rules))

    assert started <= 3 + 2 * (rounds - 1)
    assert started >= 3 + rounds // 2
