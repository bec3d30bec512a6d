"""F21: the COMMIT took effect but its reply was lost, for every kind of operation and for whole workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from stagepost.database import Store
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.options import NO_OPTIONS, TaskOptions
from stagepost.model.outcome import Completed, Failed, Snoozed
from stagepost.store.cancelling import cancel_job
from stagepost.store.inserting import LOAD_FROM
from stagepost.store.jobs import enqueue, enqueue_many, find, restart
from stagepost.store.leases import claim, promote_due, release_unknown_leases, renew
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from stagepost.task import Task
from tests.depth import sized
from tests.fault.arena import Arena
from tests.fault.backends import SERVERS, Backend
from tests.fault.leaks import Footprint, no_bigger_than, no_open_transaction, pools_empty
from tests.fault.proxy import FaultProxy

pytestmark = pytest.mark.parametrize("backend", SERVERS, indirect=True)

REPLIES_PER_KIND = sized(3, 50, 500)
REPLIES_IN_ALL = sized(10, 100, 1000)
LEASE = timedelta(seconds=30)


class Line:
    """A store behind a proxy that loses the next COMMIT's reply when told to, and one that is never hurt."""

    def __init__(self, backend: Backend, proxy: FaultProxy) -> None:
        self.backend = backend
        self.proxy = proxy
        self.store = Store.at(proxy.url_for(backend.url), pool_size=1)
        self.direct = Store.at(backend.url, pool_size=1)
        self.lost = 0

    @contextlib.contextmanager
    def losing_a_reply(self) -> Iterator[None]:
        trap = self.proxy.drop_reply()
        yield
        trap.wait()
        self.lost += trap.fired

    def leased(self) -> LeasedJob:
        """A job that is running."""
        self.direct.run(enqueue(NewJob(id=new_id(), task_name="t", payload="{}")))
        [job] = self.direct.run(claim("default", owner="me", task_names=["t"], slots=1, lease=LEASE))
        return job


@pytest.fixture
def line(backend: Backend) -> Iterator[Line]:
    with FaultProxy.to(backend.url) as proxy:
        line = Line(backend, proxy)
        yield line
        assert line.store.pool.in_use == 0
        line.store.close()
        line.direct.close()


def lose_enqueue(line: Line) -> None:
    job = NewJob(id=new_id(), task_name="t", payload="{}")
    with line.losing_a_reply():
        enqueued = line.store.run(enqueue(job))
    assert (enqueued.id, enqueued.is_new) == (job.id, True)
    assert line.backend.rows("select count(*) from stagepost_job where id = :id", id=job.id) == [(1,)]


def lose_enqueue_of_a_job_that_ended_meanwhile(line: Line) -> None:
    """Between the lost reply and the repetition a worker was quicker: the job must not come back."""
    job = NewJob(id=new_id(), task_name="t", payload="{}")
    quick = line.direct

    def finish_it(_seconds: float) -> None:
        for leased in quick.run(claim("default", owner="me", task_names=["t"], slots=10, lease=LEASE)):
            quick.run(settle([Settlement.of(leased, Completed())]))

    line.store._pause = finish_it
    with line.losing_a_reply():
        enqueued = line.store.run(enqueue(job))
    assert enqueued.id == job.id
    assert line.backend.rows("select count(*) from stagepost_job where id = :id", id=job.id) == [(0,)]
    assert line.backend.rows("select count(*) from stagepost_job_history where id = :id", id=job.id) == [(1,)]


def lose_enqueue_of_a_series(line: Line) -> None:
    def note(number: int) -> None: ...

    task: Task[..., Any] = Task(note, name="t", options=TaskOptions(queue="many"), wants_context=False)
    asked = task.build_many(NO_OPTIONS, [(number,) for number in range(LOAD_FROM)])
    with line.losing_a_reply():
        enqueued = line.store.run(enqueue_many(asked))
    assert [(one.id, one.is_new) for one in enqueued] == [(job.id, True) for job in asked]
    found = line.direct.run(list_jobs(queue_name="many", most=2 * LOAD_FROM))[::-1]
    assert [(job.id, job.payload) for job in found] == [(job.id, job.payload) for job in asked]
    line.backend.rows("delete from stagepost_job")


def lose_claim(line: Line) -> None:
    """What was claimed unknowingly is given back, not lost until its lease ends."""
    line.direct.run(enqueue(NewJob(id=new_id(), task_name="t", payload="{}")))
    with line.losing_a_reply():
        held = line.store.run(claim("default", owner="me", task_names=["t"], slots=1, lease=LEASE))
    strays = line.store.run(release_unknown_leases(owner="me", held=[(job.id, job.attempt) for job in held]))
    assert len(strays) == 1
    states = line.backend.rows("select state from stagepost_job")
    assert sorted(states) == sorted([("queued",)] + [("running",)] * len(held))
    line.backend.rows("delete from stagepost_job")


def lose_renewal(line: Line) -> None:
    job = line.leased()
    with line.losing_a_reply():
        renewed = line.store.run(renew([(job.id, job.attempt)], owner="me", lease=LEASE))
    assert renewed.held == {(job.id, job.attempt)}


def lose_completion(line: Line) -> None:
    job = line.leased()
    with line.losing_a_reply():
        held = line.store.run(settle([Settlement.of(job, Completed("1"))]))
    assert held == {(job.id, job.attempt): True}
    assert line.backend.rows("select state, attempts from stagepost_job_history where id = :id", id=job.id) == [
        ("completed", job.attempt)
    ]


def lose_failure(line: Line) -> None:
    job = line.leased()
    with line.losing_a_reply():
        line.store.run(settle([Settlement.of(job, Failed("no", timedelta(hours=1)))]))
    rows = line.backend.rows("select state, attempts, failures from stagepost_job where id = :id", id=job.id)
    assert rows == [("retrying", job.attempt, 1)]
    assert line.backend.rows("select count(*) from stagepost_failure where job_id = :id", id=job.id) == [(1,)]


def lose_promotion(line: Line) -> None:
    job = line.leased()
    line.direct.run(settle([Settlement.of(job, Snoozed(timedelta(0)))]))
    with line.losing_a_reply():
        line.store.run(promote_due())
    assert line.backend.rows("select state from stagepost_job where id = :id", id=job.id) == [("queued",)]
    line.backend.rows("delete from stagepost_job")


def lose_cancellation(line: Line) -> None:
    job = NewJob(id=new_id(), task_name="t", payload="{}")
    line.direct.run(enqueue(job))
    with line.losing_a_reply():
        state = line.store.run(cancel_job(job.id, actor="somebody"))
    assert state is JobState.CANCELLED


def lose_restart(line: Line) -> None:
    job = line.leased()
    line.direct.run(settle([Settlement.of(job, Completed())]))
    with line.losing_a_reply():
        line.store.run(restart([job.id], actor="somebody"))
    found = line.direct.run(find(job.id))
    assert found is not None
    assert (found.state, found.attempt) == (JobState.QUEUED, job.attempt)
    line.backend.rows("delete from stagepost_job")


@pytest.mark.parametrize(
    "lose",
    [
        lose_enqueue,
        lose_enqueue_of_a_job_that_ended_meanwhile,
        lose_enqueue_of_a_series,
        lose_claim,
        lose_renewal,
        lose_completion,
        lose_failure,
        lose_promotion,
        lose_cancellation,
        lose_restart,
    ],
)
def test_an_operation_whose_commit_reply_is_lost_happens_once(line: Line, lose: Callable[[Line], None]) -> None:
    line.store._pause = lambda _seconds: None

    for _ in range(REPLIES_PER_KIND):
        lose(line)

    assert line.lost == REPLIES_PER_KIND


def test_workers_that_lose_commit_replies_again_and_again_keep_the_ledger_exact(arena: Arena) -> None:
    with FaultProxy.to(arena.backend.url) as proxy:
        arena.url = proxy.url_for(arena.backend.url)
        worker = arena.start_worker(concurrency=4)
        warm_up = arena.enqueue("transfer", 50) + arena.enqueue("note", 50)
        arena.wait_for_end(warm_up)
        before = Footprint.of(worker.pid)

        lost = lose_replies(arena, proxy, REPLIES_IN_ALL)
        proxy.pass_through()
        arena.wait_for_end(seconds=120)

        arena.verify()
        assert lost >= REPLIES_IN_ALL
        no_open_transaction(arena.backend)
        pools_empty(worker)
        no_bigger_than(before, worker.pid)
        arena.stop_workers()


def lose_replies(arena: Arena, proxy: FaultProxy, number: int) -> int:
    """Lose a COMMIT's reply again and again, of producer and worker alike, while there is work."""
    lost = 0
    while lost < number:
        if len(arena.live()) < 20:
            arena.enqueue(arena.random.choice(["transfer", "transfer_flaky", "note", "note_flaky"]), 20)
        trap = proxy.drop_reply(nth=arena.random.randint(1, 6))
        trap.wait()
        lost += trap.fired
    return lost
