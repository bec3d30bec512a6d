"""F48, F49, F51, F52, F53, F55: lost, repeated, unknown and unreadable messages; each job runs once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stagepost.model.batch import BatchRow, BatchState, Counts, Item, NewBatch
from stagepost.model.envelope import Message
from stagepost.model.identity import new_id
from stagepost.store import batches, concluding, counting, listing
from stagepost.store.queues import set_limits
from stagepost.upkeep.relay import AHEAD_OF_LIMIT
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, Arena, jobs_of
from tests.fault.rabbit import Names, resent
from tests.fault.trapped import KillPoint, Moment, Step

PUBLISHED = rb'"step":"transfer"'
GARBAGE = {
    "nothing": b"",
    "no JSON": b"\x00\xff\xfe garbage",
    "no envelope": b'{"task_id": 1}',
    "an unknown version": b'{"specversion": "9.0", "id": "7", "data": {"task_id": "x"}}',
    "an impossible attempt": b'{"task_id":"%s","step":"","attempt":-1,"trace_id":"","created_at":"","payload":{}}'
    % new_id().encode(),
    "deep": b'{"task_id":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "10 MB": b'{"task_id":"' + b"x" * 10_000_000 + b'"}',
}


@pytest.mark.parametrize(
    ("backend", "way"),
    [
        ("sqlite", "reset"),
        *(
            pytest.param(*case, marks=pytest.mark.prove)
            for case in (("postgres", "reset"), ("mariadb", "reset"), ("sqlite", "silence"))
        ),
    ],
    indirect=["backend"],
)
def test_lost_confirms_duplicate_nothing(carried: Arena, names: Names, way: str) -> None:
    with names.proxy() as proxy:
        names.carry(carried, url=proxy.url_for(names.url) + "?heartbeat=10", rabbitmq_confirm_timeout_seconds=0.5)
        carried.start_worker()
        carried.wait_for_end(carried.enqueue("transfer"))
        if way == "reset":
            for _ in range(3):
                trap = proxy.drop_reply(PUBLISHED)
                carried.enqueue("transfer", 20)
                trap.wait()
        else:
            proxy.swallow()
            carried.enqueue("transfer", 20)
            carried.wait(lambda: "were not confirmed" in carried.logged(), "a confirm to be missed")
            proxy.pass_through()
        carried.wait_for_end()

    evidence = carried.verify()
    assert {job.state for job in evidence.jobs.values()} == {"completed"}


@quickly_on("postgres")
def test_a_queue_that_is_deleted_or_unbound_is_recreated(carried: Arena, names: Names) -> None:
    carried.start_worker()
    carried.wait_for_end(carried.enqueue("transfer"))

    names.delete()
    carried.wait(names.is_consumed, "the worker to make it anew")  # if others do, the broker may forget its consumers
    carried.wait_for_end(carried.enqueue("transfer", 20))
    names.unbind()
    carried.wait_for_end(carried.enqueue("transfer", 20))

    assert {job.state for job in carried.verify().jobs.values()} == {"completed"}
    assert resent(carried) == 0, "what did not get through was not taken for sent"


@quickly_on("mariadb")
def test_jobs_whose_messages_are_unroutable_fail_and_say_why(carried: Arena, names: Names) -> None:
    with names.channel() as channel:
        channel.exchange_declare(names.settings.exchange_name, exchange_type="topic", durable=True)
    batch = uploaded(carried, 3)
    names.carry(carried, rabbitmq_declare=False, rabbitmq_unroutable_timeout_seconds=1)
    carried.start_worker()
    carried.wait_for_end()

    found = carried.verify().jobs.values()
    assert {job.state for job in found} == {"failed"}
    assert all("no queue is bound to exchange" in (job.error or "") for job in found)
    carried.wait(lambda: "3 jobs failed" in carried.logged(), "somebody to be told")
    carried.wait(lambda: carried.operate(batches.get(batch.id)).state is BatchState.DONE, "the batch to be done")
    assert carried.operate(counting.count_items(batch.id)).failed == 3


def uploaded(arena: Arena, number: int) -> BatchRow:
    """Store a sealed batch."""
    batch = arena.operate(batches.open_batch(NewBatch(id=new_id(), key="upload")))
    items = [Item(str(at), job).in_batch(batch.id) for at, job in enumerate(jobs_of("transfer", number))]
    arena.journal.ask([item.id for item in items])
    arena.operate(batches.add_jobs(batch.id, items))
    return arena.operate(concluding.seal(batch.id))


@quickly_on("mariadb")
def test_a_collector_that_dies_before_it_concludes_a_batch_leaves_that_to_upkeep(carried: Arena, names: Names) -> None:
    """It has ended the item whose message the broker gave up, and concluded nothing."""
    worker = carried.start_worker()
    carried.wait_for_end(carried.enqueue("transfer"))  # the broker's queues are there now
    worker.terminate()
    worker.wait()
    batch = uploaded(carried, 1)
    [item] = carried.operate(listing.list_items(batch.id))
    names.publish(names.request(item.id))
    names.reject()

    after = KillPoint("live_job", Step.COMMIT, Moment.AFTER)
    assert carried.start_worker(queues=["elsewhere"], kill_point=after).wait() == -signal.SIGKILL
    counts, state = carried.operate(counting.count_items(batch.id)), carried.operate(batches.get(batch.id)).state
    carried.start_worker(queues=["elsewhere"])
    carried.wait(lambda: carried.operate(batches.get(batch.id)).state is BatchState.DONE, "the batch to be done")

    assert (counts, state) == (Counts(dead_letter=1), BatchState.SEALED)
    assert carried.operate(counting.count_items(batch.id)) == Counts(dead_letter=1)


@quickly_on("postgres")
def test_redeliveries_and_ids_of_ended_jobs_run_nothing(carried: Arena, names: Names) -> None:
    """Those of later attempts come first: each would start a job, if only its id counted."""
    worker = carried.start_worker()
    ended = carried.enqueue("transfer", 5)
    carried.wait_for_end(ended)
    worker.terminate()
    worker.wait()
    waiting = carried.enqueue("transfer_flaky", 15) + carried.enqueue("transfer", 15)
    for attempt in (3, 2, 1):
        again = [names.request(job_id, attempt=attempt) for job_id in [*ended, *waiting, new_id()] * 5]
        carried.random.shuffle(again)
        names.publish(*again)
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.wait_for_end()
    carried.wait(lambda: names.depth() == 0, "all messages to be taken")

    assert {job.state for job in carried.verify().jobs.values()} == {"completed"}
    assert resent(carried) == 0


@quickly_on("mariadb")
def test_unreadable_messages_are_set_aside_and_stop_nothing(carried: Arena, names: Names) -> None:
    worker = carried.start_worker()
    carried.wait_for_end(carried.enqueue("transfer"))
    names.publish(*(Message("", body, name) for name, body in GARBAGE.items()))
    carried.wait_for_end(carried.enqueue("transfer", 5))
    carried.wait(lambda: put_aside(carried) == len(GARBAGE), "all garbage to be where people see it")
    worker.terminate()

    assert worker.wait() == 0
    carried.wait(lambda: names.depth() == 0, "all messages to be acknowledged")
    carried.verify()


@quickly_on("postgres")
def test_messages_that_are_purged_are_sent_again(carried: Arena, names: Names) -> None:
    """The worker's hands are full until all are purged."""
    names.carry(
        carried, rabbitmq_lost_after_seconds=12
    )  # longer than a worker on a busy machine has a message unclaimed
    gate = carried.folder / "gate"
    carried.start_worker(concurrency=4, lease_seconds=LASTING_LEASE)
    carried.wait_for_end(carried.enqueue("transfer"))
    carried.enqueue("note_at_gate", 4, gate=str(gate))
    carried.wait(lambda: len(carried.notes("start")) == 5, "all slots to be taken")
    purged = 0
    for _ in range(3):
        carried.enqueue("transfer", 60)
        carried.wait(lambda: names.depth() >= 60, "messages to wait")
        purged += names.purge()
    gate.touch()
    carried.wait_for_end()

    carried.verify()
    assert purged >= 180
    assert purged <= resent(carried) <= purged + 5, "those on their way to a worker may be taken for lost"


@pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
@pytest.mark.prove
def test_work_that_waits_for_a_slow_worker_is_not_sent_again(carried: Arena, names: Names) -> None:
    """For more than three times as long as a message may be missing, by the one who looks."""
    gate = carried.folder / "gate"
    other = carried.start_worker(queues=["other"], rabbitmq_lost_after_seconds=2.0)
    carried.wait(lambda: "leads broker" in other.logged(), "the other worker to lead")
    carried.start_worker(concurrency=1, rabbitmq_prefetch=1, lease_seconds=LASTING_LEASE)
    carried.enqueue("note_at_gate", gate=str(gate))
    carried.wait(lambda: len(carried.notes("start")) == 1, "the worker to be busy")
    carried.enqueue("transfer", 8)
    carried.wait(lambda: names.depth() == 8, "the messages to wait")
    carried.wait(lambda: bool(looks(carried)), "a first look")
    since = looks(carried)
    carried.wait(lambda: has_looked_since(carried, since, microseconds=8_000_000), "the queue to be looked at")
    assert resent(carried) == 0, "the messages wait"
    other.terminate()  # it might take the last message for lost, before the worker has claimed it
    assert other.wait() == 0
    gate.touch()
    carried.wait_for_end()

    carried.verify()
    assert resent(carried) == 0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.prove
def test_messages_held_by_a_frozen_worker_are_not_sent_again(carried: Arena, names: Names) -> None:
    names.carry(carried, rabbitmq_prefetch=20)  # more than will come, whether or not the first is acknowledged by then
    still = carried.start_worker()
    carried.wait_for_end(carried.enqueue("transfer"))
    other = carried.start_worker(queues=["other"], rabbitmq_lost_after_seconds=0.6)
    carried.pause(still)
    carried.enqueue("transfer", 10)
    carried.wait(lambda: "leads broker" in other.logged(), "the other worker to lead")
    carried.wait(lambda: is_sent(carried), "the messages to be sent")
    since = looks(carried)
    carried.wait(lambda: has_looked_since(carried, since, microseconds=4_000_000), "the queue to be looked at")
    assert resent(carried) == 0, "the messages are with a worker that will go on"
    other.terminate()  # it could look again after the one that stood still is heard from, and before that has claimed
    assert other.wait() == 0
    still.resume()
    carried.wait_for_end()

    carried.verify()
    assert resent(carried) == 0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_few_more_messages_than_may_run_are_sent_of_a_queue_with_a_limit(carried: Arena, names: Names) -> None:
    carried.operate(set_limits("default", max_running=2, rate=None, actor="the test"))
    gate = carried.folder / "gate"
    carried.enqueue("note_at_gate", 2, gate=str(gate))
    carried.enqueue("transfer", 300)
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.wait(lambda: names.depth() > 0, "messages to wait")
    most = names.depth()
    gate.touch()
    with carried.sampling(seconds=0.05):
        while carried.live():
            most = max(most, names.depth())

    assert 0 < most <= 2 + AHEAD_OF_LIMIT
    carried.verify()
    assert resent(carried) == 0


def put_aside(arena: Arena) -> int:
    [(number,)] = arena.backend.rows("select count(*) from stagepost_dead_message")
    return int(number)


def running(arena: Arena) -> int:
    [(number,)] = arena.backend.rows("select count(*) from stagepost_job where state = 'running'")
    return int(number)


def is_sent(arena: Arena) -> bool:
    [(unsent,)] = arena.backend.rows("select count(*) from stagepost_job where sent_at is null")
    return bool(unsent == 0)


def looks(arena: Arena) -> list[tuple[int, ...]]:
    return arena.backend.rows("select looked_at from stagepost_channel where queue_name = 'default'")


def has_looked_since(arena: Arena, since: list[tuple[int, ...]], *, microseconds: int) -> bool:
    return looks(arena)[0][0] >= since[0][0] + microseconds


@quickly_on("postgres")
def test_a_worker_killed_while_it_holds_messages_loses_none(carried: Arena, names: Names, tmp_path: Path) -> None:
    carried.settings["rabbitmq_prefetch"] = 20
    victim = carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.wait_for_end(carried.enqueue("transfer"))
    ids = carried.enqueue("transfer_at_gate", 30, gate=str(tmp_path / "gate"))
    carried.wait(lambda: running(carried) == 20, "a worker to have its hands full")
    carried.wait(lambda: names.depth() == 10, "the rest to wait")
    victim.kill()
    carried.wait(lambda: names.depth() == 30, "the broker to have back what was not acknowledged")
    (tmp_path / "gate").touch()
    carried.end_leases(ids)
    carried.start_worker(lease_seconds=LASTING_LEASE)
    carried.wait_for_end(ids)

    carried.verify()
    assert resent(carried) == 0


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_full_queue_makes_the_rest_wait_in_the_database(carried: Arena, names: Names) -> None:
    """A classic queue: a quorum queue refuses only what comes after it has noticed that it is full."""
    names.carry(carried, rabbitmq_max_length=5, rabbitmq_prefetch=1, rabbitmq_queue_type="classic")
    gate = carried.folder / "gate"
    carried.start_worker(concurrency=1, lease_seconds=LASTING_LEASE)
    carried.wait_for_end(carried.enqueue("transfer"))
    carried.enqueue("note_at_gate", gate=str(gate))
    carried.enqueue("transfer", 60)
    carried.wait(lambda: names.depth() > 0, "messages to wait")
    most = names.depth()
    gate.touch()
    while carried.live():
        most = max(most, names.depth())

    assert 0 < most <= 5
    carried.verify()
    assert resent(carried) == 0
