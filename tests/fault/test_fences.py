"""Every write after a claim is fenced by attempt and owner; only the database's clock counts; claims are exclusive."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import msgspec
import pytest

from stagepost.database import Store
from stagepost.errors import StoreUnavailable
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import CRASHES_ALLOWED, Completed, Failed, Outcome, Refused, Released, Snoozed
from stagepost.store.health import ping
from stagepost.store.jobs import enqueue_many, find
from stagepost.store.leases import claim, mark_started, renew, rescue_expired
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from stagepost.testing.clock import ManualClock
from tests.depth import sized
from tests.fault.backends import SERVERS, Backend
from tests.fault.proxy import FaultProxy

LEASE, GRACE = timedelta(seconds=30), timedelta(seconds=1)
RACERS, ROUNDS = 4, sized(5, 15)
on_servers = pytest.mark.parametrize("backend", SERVERS, indirect=True)
OUTCOMES = (Completed(), Failed("no", timedelta(0)), Refused("no"), Snoozed(timedelta(0)), Released())


class Bench:
    """A store whose time stands still until a test moves it."""

    def __init__(self, backend: Backend) -> None:
        self.clock = ManualClock()
        self.store = Store.at(backend.url, clock=self.clock, pool_size=RACERS)

    def leased(self, owner: str) -> LeasedJob:
        """A new job's first attempt."""
        self.store.run(enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}")]))
        return self.claimed(owner)

    def claimed(self, owner: str) -> LeasedJob:
        [job] = self.store.run(claim("default", owner=owner, task_names=["t"], slots=1, lease=LEASE))
        self.store.run(mark_started(job))
        return job

    def rescue(self) -> None:
        self.clock.advance(LEASE + GRACE + timedelta(seconds=1))
        self.store.run(rescue_expired(grace=GRACE))

    def facts(self, job: LeasedJob) -> tuple[str, int, str | None]:
        found = self.store.run(find(job.id))
        assert found is not None
        return found.state, found.attempt, found.locked_by


@pytest.fixture
def bench(backend: Backend) -> Iterator[Bench]:
    bench = Bench(backend)
    yield bench
    bench.store.close()


def test_a_superseded_attempt_can_write_nothing(bench: Bench) -> None:
    """The second attempt is of the same owner: only its number tells them apart."""
    for outcome in OUTCOMES:
        old = bench.leased("me")
        bench.rescue()
        new = bench.claimed("me")
        assert (new.id, new.attempt) == (old.id, old.attempt + 1)

        assert bench.store.run(settle([Settlement.of(old, outcome)])) == {(old.id, old.attempt): False}
        renewed = bench.store.run(renew([(old.id, old.attempt)], owner="me", lease=LEASE * 10))

        assert renewed.held == frozenset()
        assert bench.facts(new) == ("running", new.attempt, "me")
        assert bench.store.run(settle([Settlement.of(new, Completed())])) == {(new.id, new.attempt): True}


def test_another_owner_can_write_nothing_of_an_attempt(bench: Bench) -> None:
    for outcome in OUTCOMES:
        job = bench.leased("me")
        stranger = msgspec.structs.replace(job, owner="somebody else")

        assert bench.store.run(settle([Settlement.of(stranger, outcome)])) == {(job.id, job.attempt): False}
        renewed = bench.store.run(renew([(job.id, job.attempt)], owner="somebody else", lease=LEASE * 10))

        assert renewed.held == frozenset()
        assert bench.facts(job) == ("running", job.attempt, "me")
        bench.store.run(settle([Settlement.of(job, Completed())]))


def test_a_released_attempt_can_write_nothing_more(bench: Bench) -> None:
    job = bench.leased("me")
    given_back: Outcome = Released()
    bench.store.run(settle([Settlement.of(job, given_back)]))

    assert bench.store.run(settle([Settlement.of(job, Completed())])) == {(job.id, job.attempt): False}
    assert bench.facts(job) == ("queued", job.attempt, None)


def test_a_lease_is_left_alone_until_its_end_and_its_grace_are_over(bench: Bench) -> None:
    job = bench.leased("me")
    bench.clock.advance(LEASE - timedelta(seconds=1))
    bench.store.run(renew([(job.id, job.attempt)], owner="me", lease=LEASE))
    bench.clock.advance(LEASE + GRACE)

    rescued = bench.store.run(rescue_expired(grace=GRACE))

    assert rescued.queued == ()
    assert bench.facts(job) == ("running", job.attempt, "me")


def test_a_job_becomes_a_dead_letter_at_its_last_allowed_crash_and_not_before(bench: Bench) -> None:
    job = bench.leased("me")
    for _ in range(CRASHES_ALLOWED - 1):
        bench.rescue()
        assert bench.facts(job)[0] == JobState.QUEUED
        bench.claimed("me")

    bench.rescue()

    assert bench.facts(job)[0] == JobState.DEAD_LETTER


def test_claims_that_race_never_share_a_job(bench: Bench) -> None:
    for _ in range(ROUNDS):
        bench.store.run(enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}") for _ in range(40)]))
        barrier = threading.Barrier(RACERS)

        def take(number: int, barrier: threading.Barrier = barrier) -> list[str]:
            barrier.wait(60)
            taking = claim("default", owner=f"racer-{number}", task_names=["t"], slots=20, lease=LEASE)
            return [job.id for job in bench.store.run(taking)]

        with ThreadPoolExecutor(RACERS) as pool:
            taken = [job_id for part in pool.map(take, range(RACERS)) for job_id in part]

        assert len(taken) == len(set(taken))


@on_servers
def test_a_claim_skips_jobs_that_another_has_claimed_but_not_committed(bench: Bench) -> None:
    """With SQLite it waits: there is one writer at a time."""
    bench.store.run(enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}") for _ in range(4)]))
    first, second = (
        claim("default", owner=owner, task_names=["t"], slots=2, lease=LEASE) for owner in ("one", "another")
    )

    with bench.store.transaction() as connection:
        taken = bench.store.drive(first, connection)
        others = bench.store.run(second, patience_seconds=0)

    assert len({job.id for job in [*taken, *others]}) == 4


@on_servers
def test_no_call_outlives_its_deadline(backend: Backend) -> None:
    with FaultProxy.to(backend.url) as proxy:
        url = proxy.url_for(backend.url)
        with contextlib.closing(Store.at(url, pool_size=1)) as store:
            store.run(ping())
            store.call_seconds = 0.3
            proxy.swallow()

            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(store.run, ping(), patience_seconds=0)
                try:
                    _, hanging = wait([call], timeout=60)
                finally:
                    proxy.cut()  # so that nothing hangs longer than this test

            assert not hanging
            with pytest.raises(StoreUnavailable):
                call.result()
            assert store.pool.in_use == 0
