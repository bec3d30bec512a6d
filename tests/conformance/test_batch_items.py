"""Items of batches: counted, listed, retried, waived and cancelled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.model.batch import BatchState, Counts, OnFailed
from stagepost.model.job import to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Failed, Refused
from stagepost.store import batch_items, batches, cancelling, concluding, counting, jobs, listing
from tests.conformance.batches import REFUSED, TOLD, end, filled, item_ids, told
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, claim, enqueue, settle


def test_failed_items_hold_a_batch_until_they_are_retried_or_waived(store: Bench) -> None:
    batch = filled(store, 2, on_failed=OnFailed.HOLD, on_complete=TOLD)
    store.run(concluding.seal(batch.id))
    end(store, 2, Refused(REFUSED))
    assert store.run(concluding.conclude(batch.id)).state is BatchState.SEALED

    assert store.run(batch_items.retry_failed(batch.id, actor="ada", keys=["f0"])) == item_ids(batch, "f0")
    end(store, 1)
    assert store.run(concluding.conclude(batch.id)).state is BatchState.SEALED
    assert store.run(batch_items.waive(batch.id, actor="ada", why="a test tone")) == item_ids(batch, "f1")

    done = store.run(batches.get(batch.id))
    assert (done.state, done.outcome) == (BatchState.DONE, JobState.COMPLETED)
    assert store.run(counting.count_items(batch.id)) == Counts(completed=1, waived=1)
    assert told(store) == 1
    waived = store.rows("select actor, action, detail from stagepost_audit where action = 'waive'")
    assert waived == [("ada", "waive", "a test tone")]


def test_failed_items_are_chosen_page_by_page(store: Bench) -> None:
    batch = filled(store, 5)
    end(store, 3, Refused(REFUSED))
    failed = sorted(job.id for job in store.run(listing.list_items(batch.id, states=[JobState.FAILED])))

    first = store.run(batch_items.retry_failed(batch.id, actor="ada", most=2))
    rest = store.run(batch_items.waive(batch.id, actor="ada", why="x", after=first[-1], most=2))

    assert first + rest == failed
    assert store.run(counting.count_items(batch.id)) == Counts(queued=4, waived=1)


def test_items_that_did_not_fail_are_neither_retried_nor_waived(store: Bench) -> None:
    batch = filled(store, 2)
    end(store, 1)

    assert store.run(batch_items.retry_failed(batch.id, actor="ada", keys=["f0", "f1", "f9"])) == []
    assert store.run(batch_items.waive(batch.id, actor="ada", why="x", keys=["f0", "f1", "f9"])) == []
    assert store.run(counting.count_items(batch.id)) == Counts(queued=1, completed=1)


@pytest.mark.parametrize("retry", ["of the batch", "of the job"])
def test_done_is_final_whatever_happens_to_items_later(store: Bench, retry: str) -> None:
    batch = filled(store, 1, on_complete=TOLD)
    store.run(concluding.seal(batch.id))
    end(store, 1, Refused(REFUSED))
    done = store.run(concluding.conclude(batch.id))

    if retry == "of the batch":
        store.run(batch_items.retry_failed(batch.id, actor="ada"))
    else:
        store.run(jobs.restart(item_ids(batch, "f0"), actor="ada"))
    assert store.run(counting.count_items(batch.id)) == Counts(queued=1)
    end(store, 1)
    store.run(concluding.conclude(batch.id))

    assert store.run(batches.get(batch.id)) == done
    assert store.run(counting.count_items(batch.id)) == Counts(completed=1)
    assert told(store) == 1


def test_cancelling_ends_waiting_items_and_asks_running_ones_to_stop(store: Bench) -> None:
    batch = filled(store, 4, on_complete=TOLD)
    [running] = claim(store)

    cancelled = store.run(cancelling.cancel_batch(batch.id, actor="ada"))
    assert (cancelled.state, cancelled.cancelled_at) == (BatchState.SEALED, store.now)
    assert store.run(batches.cancelled_batches()) == [batch.id]
    after = store.run(cancelling.cancel_items(batch.id, most=2))
    assert after is not None
    assert store.run(cancelling.cancel_items(batch.id, after=after, most=2)) is None
    assert store.run(jobs.get(running.id)).cancel_requested_at == store.now
    assert store.run(batches.get(batch.id)).state is BatchState.SEALED
    settle(store, running, Failed("stopped", timedelta(0)))

    done = store.run(concluding.conclude(batch.id))
    assert (done.state, done.outcome) == (BatchState.DONE, JobState.CANCELLED)
    assert store.run(counting.count_items(batch.id)) == Counts(cancelled=4)
    assert store.run(batches.cancelled_batches()) == []
    assert told(store) == 1
    assert store.run(cancelling.cancel_batch(batch.id, actor="ada")) == done


def test_all_states_of_items_are_counted(store: Bench) -> None:
    batch = filled(store, 6)
    end(store, 1)
    end(store, 1, Refused(REFUSED))
    end(store, 1, Failed("busy", timedelta(seconds=9)))
    claim(store)
    store.run(
        cancelling.cancel_job(store.run(listing.list_items(batch.id, states=[JobState.QUEUED]))[0].id, actor="ada")
    )
    enqueue(store)

    counts = store.run(counting.count_items(batch.id))

    assert counts == Counts(queued=1, running=1, retrying=1, completed=1, failed=1, cancelled=1)
    assert (counts.total, counts.ended, counts.live, counts.failures) == (6, 3, 3, 1)


def test_items_are_listed_by_pages_and_states(store: Bench) -> None:
    batch, other = filled(store, 5), filled(store, 5, "other")
    end(store, 4)

    seen: list[str] = []
    while page := store.run(listing.list_items(batch.id, before=seen[-1] if seen else None, most=2)):
        seen += [job.id for job in page]

    assert sorted(seen) == item_ids(batch, "f0", "f1", "f2", "f3", "f4")
    ended = [store.run(listing.list_items(one.id, states=[JobState.COMPLETED])) for one in (batch, other)]
    assert sum(map(len, ended)) == 4


def test_failed_items_are_grouped_by_reason(store: Bench) -> None:
    batch = filled(store, 4)
    end(store, 2, Refused("no sound in file 7"))
    end(store, 1, Refused("file 3 is too long"))

    groups = store.run(listing.failed_groups(batch.id))

    assert [(group.reason, group.items, group.state) for group in groups] == [
        ("no sound in file #", 2, JobState.FAILED),
        ("file # is too long", 1, JobState.FAILED),
    ]
    assert groups[0].example_key.startswith("f")
    assert groups[0].last_at == to_datetime(store.now)


def test_items_of_a_batch_are_jobs_of_their_queue_like_any_other(store: Bench) -> None:
    filled(store, 2)

    [(queue, counts)] = store.run(counting.count_by_queue()).items()

    assert (queue, counts[JobState.QUEUED]) == (QUEUE, 2)
