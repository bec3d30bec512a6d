"""A worker dies immediately before or after its exchange with the broker takes effect."""

from __future__ import annotations

import signal

import pytest

from stagepost.model.envelope import Message
from stagepost.model.outcome import CRASHES_ALLOWED
from stagepost.store.jobs import restart
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.rabbit import Names
from tests.fault.trapped import HANDLER, KillPoint, Moment, Step

POINTS = [
    KillPoint(statement, Step.COMMIT, moment)
    for statement in ("mark_sent", "claim_delivered", HANDLER, "end_jobs")
    for moment in Moment
]
STORED = "belong to no job"


@quickly_on("postgres")
def test_a_worker_that_dies_around_a_commit_loses_and_duplicates_no_job(carried: Arena) -> None:
    ids = []
    for point in POINTS:
        doomed = carried.start_worker(kill_point=point)
        ids += carried.enqueue("transfer", 5) + carried.enqueue("note", 5)  # the one ends itself, the worker the other
        assert doomed.wait() == -signal.SIGKILL, point
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.wait_for_end(ids)

    found = carried.verify().jobs.values()
    if parked := [job.id for job in found if job.crashes == CRASHES_ALLOWED]:  # three kills hit them, as may be
        carried.operate(restart(parked, actor="the test"))
        carried.wait_for_end(parked)
    assert {job.state for job in carried.verify().jobs.values()} == {"completed"}


@pytest.mark.parametrize("moment", Moment)
@quickly_on("postgres")
def test_a_collector_that_dies_around_its_commit_keeps_a_dead_message_once(
    carried: Arena, names: Names, moment: Moment
) -> None:
    """After the commit the message is stored and not acknowledged: the broker brings it again."""
    doomed = carried.start_worker(kill_point=KillPoint("add_dead_message", Step.COMMIT, moment))
    carried.wait_for_end(carried.enqueue("transfer"))
    names.publish(Message("", b"who am I", "m1"), queue="dlq")
    assert doomed.wait() == -signal.SIGKILL
    assert kept(carried) == (1 if moment is Moment.AFTER else 0)

    worker = carried.start_worker()
    carried.wait(lambda: STORED in worker.logged(), "the message to come again")
    assert kept(carried) == 1
    worker.terminate()
    assert worker.wait() == 0
    assert names.depth("dlq") == 0, "it was acknowledged"
    carried.verify(grace_us=4_000_000)


def kept(arena: Arena) -> int:
    [(number,)] = arena.backend.rows("select count(*) from stagepost_dead_message")
    return int(number)
