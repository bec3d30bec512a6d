"""The sampler sees on every database what happens to jobs, whether its samples show all jobs or only live ones."""

from __future__ import annotations

import pytest

from stagepost.store.cancelling import cancel_job
from stagepost.store.jobs import restart
from tests.fault import observations
from tests.fault.arena import Arena
from tests.fault.observations import Sampler
from tests.fault.samples import counted_sample_of, live_sample_of, sample_of

LONG = 1e9


def test_a_sample_of_live_jobs_lacks_those_that_have_ended(arena: Arena) -> None:
    ended, [live] = enqueue_ended(arena), arena.enqueue("transfer")

    assert sample_of(arena.backend).jobs.keys() == {ended, live}
    assert live_sample_of(arena.backend).jobs.keys() == {live}
    assert sample_of(arena.backend).has_ended_jobs
    assert not live_sample_of(arena.backend).has_ended_jobs


def test_ended_jobs_are_distinguished_from_live_ones(arena: Arena) -> None:
    ended, [live] = enqueue_ended(arena), arena.enqueue("transfer")

    assert arena.live() == {live}
    assert arena.have_ended([ended])
    assert not arena.have_ended([ended, live])
    assert [arena.job(job_id).state for job_id in (ended, live)] == ["cancelled", "queued"]


def test_samples_faster_than_their_interval_show_all_jobs(arena: Arena) -> None:
    enqueue_ended(arena)
    sampler = Sampler(arena.backend, arena.observed, seconds=LONG)
    sampler.take()
    ended = enqueue_ended(arena)
    sampler.take()
    arena.backend.rows("delete from stagepost_job_history where id = :id", id=ended)
    sampler.take()

    assert arena.observed.altered == {ended: "was cancelled and is gone (sample 2)"}


def test_after_a_slow_sample_of_all_jobs_the_next_show_only_live_ones_but_the_last(
    resting: Sampler, arena: Arena
) -> None:
    ended = enqueue_ended(arena)
    resting.take()
    arena.backend.rows("update stagepost_job_history set reason = 'another' where id = :id", id=ended)
    resting.take()

    assert arena.observed.altered == {}

    arena.verify()  # excuses the change, because an operator cancelled the job

    assert arena.observed.altered == {ended: "was cancelled and is cancelled (sample 2)"}


def test_an_ended_job_that_lives_again_is_seen_while_samples_show_only_live_jobs(
    resting: Sampler, arena: Arena
) -> None:
    ended = enqueue_ended(arena)
    resting.take()
    arena.operate(restart([ended], actor="the test"))
    resting.take()

    assert arena.observed.altered == {ended: "was cancelled and is queued (sample 1)"}


def test_a_wrong_count_of_live_jobs_is_seen_while_samples_show_only_live_jobs(resting: Sampler, arena: Arena) -> None:
    arena.enqueue("transfer", 3)
    resting.take()

    assert arena.observed.drifted == {}

    arena.backend.rows("update stagepost_move set jobs = jobs + 1")
    resting.take()

    assert [counter[1:] for counter in arena.observed.drifted.values()] == [(4, 3)]


def test_a_wrong_count_of_ended_jobs_is_seen_in_a_sample_of_all_jobs(arena: Arena) -> None:
    ended = enqueue_ended(arena)
    arena.backend.rows("delete from stagepost_job_history where id = :id", id=ended)

    arena.observed.add(counted_sample_of(arena.backend))

    assert [counter[1:] for counter in arena.observed.drifted.values()] == [(1, 0)]


@pytest.fixture
def resting(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """A sampler whose first sample shows all jobs, and no other."""
    monkeypatch.setattr(observations, "REST", LONG)
    return Sampler(arena.backend, arena.observed, seconds=0)


def enqueue_ended(arena: Arena) -> str:
    [job_id] = arena.enqueue("transfer")
    arena.operate(cancel_job(job_id, actor="the test"))
    return job_id
