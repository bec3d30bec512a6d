"""What happened lately, what operators did, and removing what a benchmark left behind."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.outcome import Completed, Failed, Refused
from stagepost.store import cancelling, jobs
from stagepost.store.activity import actions_on, ended_within, purge_queue
from stagepost.store.leases import claim
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from tests.conformance.bench import Bench
from tests.conformance.samples import new_job

MINUTE = timedelta(minutes=1)


def end_one(store: Bench, outcome: Completed | Failed | Refused, *, queue_name: str = "mail") -> str:
    """Let a job of `queue_name` end with this outcome; returns its id."""
    store.run(jobs.enqueue(new_job(queue_name=queue_name, task_name="send", max_attempts=1)))
    [leased] = store.run(claim(queue_name, owner="w", task_names=["send"], slots=1, lease=MINUTE))
    store.run(settle([Settlement.of(leased, outcome)]))
    return leased.id


def test_only_what_ended_in_the_window_is_counted_by_state(store: Bench) -> None:
    end_one(store, Completed())
    store.clock.advance(MINUTE)
    end_one(store, Completed())
    end_one(store, Refused("no"))

    counts = store.run(ended_within(MINUTE))

    assert counts == dict.fromkeys(FINAL, 0) | {JobState.COMPLETED: 1, JobState.FAILED: 1}


def test_operators_actions_on_a_job_are_listed_oldest_first(store: Bench) -> None:
    job_id = end_one(store, Completed())
    end_one(store, Completed())
    store.run(jobs.restart([job_id], actor="ada"))
    store.clock.advance(1)
    store.run(cancelling.cancel_job(job_id, actor="bob"))

    actions = store.run(actions_on(job_id))

    assert [(action.actor, action.action, action.detail) for action in actions] == [
        ("ada", "restart", "completed"),
        ("bob", "cancel", "queued"),
    ]
    assert actions[0].acted_at < actions[1].acted_at


def test_purging_a_queue_removes_its_jobs_in_the_range_and_no_others(store: Bench) -> None:
    other = end_one(store, Refused("no"), queue_name="other")
    ended = end_one(store, Refused("no"), queue_name="bench")
    live = new_job(queue_name="bench")
    later = new_job(queue_name="bench")
    store.run(jobs.enqueue_many([live, later]))

    store.run(purge_queue("bench", first_id=min(other, ended, live.id), last_id=live.id))

    assert [store.run(jobs.find(job_id)) is None for job_id in (other, ended, live.id, later.id)] == [
        False,
        True,
        True,
        False,
    ]
    assert store.rows("select count(*) from stagepost_failure") == [(1,)]
