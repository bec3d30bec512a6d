"""Operators' actions on runs of pipelines: inspect, retry, cancel, prune."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stagepost.errors import RunError, RunNotFound
from stagepost.model.identity import new_id
from stagepost.model.job import to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Refused
from stagepost.model.pipeline import Output, RunState
from stagepost.store import batch_items, cancelling, concluding, counting, history, jobs, leases, runs
from stagepost.store.listing import list_jobs
from stagepost.store.run_views import results_of, run_view
from tests.conformance.bench import Bench
from tests.conformance.pipelines import (
    arguments,
    begin,
    claim_all,
    end,
    look,
    settle,
    states,
    step,
    work,
)
from tests.conformance.samples import LEASE, new_job


def test_retry_runs_only_jobs_that_did_not_complete(store: Bench) -> None:
    run_id = begin(
        store,
        step("asr"),
        step("tts", {"segment": Output("asr")}, each="segment"),
        step("mux", {"parts": Output("tts")}),
    )
    ran: list[Any] = []

    def tts(*, is_well: bool) -> Any:
        def speak(segment: int) -> Any:
            ran.append(segment)
            return segment * 10 if segment != 2 or is_well else OSError("no")

        return speak

    assert work(store, run_id, {"asr": [1, 2, 3], "tts": tts(is_well=False)}) is RunState.FAILED
    assert sorted(ran) == [1, 2, 3]
    ran.clear()

    assert store.run(runs.retry(run_id, actor="ada")).state is RunState.RUNNING
    seen: list[Any] = []
    state = work(store, run_id, {"asr": OSError(), "tts": tts(is_well=True), "mux": lambda **x: seen.append(x)})

    assert state is RunState.COMPLETED
    assert ran == [2], "what had completed must not run again"
    assert seen == [{"parts": [10, 20, 30]}]
    view = store.run(run_view(run_id))
    assert (view.starts, view.error) == (2, None)
    [_, tts_view, _] = view.steps
    assert (tts_view.starts, tts_view.counts.completed, tts_view.counts.total, tts_view.items) == (2, 3, 3, 3)


def test_retry_of_a_step_whose_arguments_could_not_be_built_builds_them_again(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b", {"x": Output("a", ("key",))}))
    assert work(store, run_id, {"a": {}}) is RunState.FAILED

    run = store.run(runs.retry(run_id, actor="ada"))

    assert run.state is RunState.FAILED, "the same result still has no such field"
    assert run.starts == 2


def test_retry_does_not_run_waived_jobs(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2]}, each="x"), step("b", {"xs": Output("a")}))
    assert work(store, run_id, {"a": lambda x: x if x == 1 else OSError("no")}) is RunState.FAILED
    [batch_id] = look(store, run_id).steps["a"].batches
    store.run(batch_items.waive(batch_id, actor="ada", why="silence"))

    store.run(runs.retry(run_id, actor="ada"))

    assert [(job.task_name, arguments(job)) for job in claim_all(store)] == [("task.b", {"xs": [1]})]


def test_elements_that_changed_after_a_retry_are_run(store: Bench) -> None:
    """A retried step gives more elements than before: what completed at a position was for another element."""
    run_id = begin(
        store,
        step("some", {"x": [1, 2, 3]}, each="x", on_failed="continue"),
        step("each", {"y": Output("some")}, each="y"),
        step("last", {"ys": Output("each")}),
    )
    first = {"some": lambda x: x if x != 1 else OSError("no"), "each": lambda y: y * 10 if y != 3 else OSError("no")}
    assert work(store, run_id, first) is RunState.FAILED
    assert look(store, run_id).steps["each"].items == 2

    store.run(runs.retry(run_id, actor="ada"))
    seen: list[Any] = []
    mended = {"some": lambda x: x, "each": lambda y: y * 10, "last": lambda **given: seen.append(given)}

    assert work(store, run_id, mended) is RunState.COMPLETED
    assert seen == [{"ys": [10, 20, 30]}]


def test_a_run_that_has_not_ended_cannot_be_retried(store: Bench) -> None:
    run_id = begin(store, step("a"))

    with pytest.raises(RunError, match="it has not ended"):
        store.run(runs.retry(run_id, actor="ada"))
    assert store.run(runs.retry(run_id, actor="ada").repeated()).state is RunState.RUNNING


def test_a_completed_run_has_nothing_to_retry(store: Bench) -> None:
    run_id = begin(store, step("a"))
    work(store, run_id)

    assert store.run(runs.retry(run_id, actor="ada")).state is RunState.COMPLETED
    assert claim_all(store) == []


def test_a_run_cannot_be_retried_while_a_job_restarted_by_hand_is_live(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b", {"x": Output("a")}))
    [job] = claim_all(store)
    end(store, job, Refused("no"))
    store.run(jobs.restart([job.id], actor="ada"))

    with pytest.raises(RunError, match=f"job {job.id} of step 'a' is queued"):
        store.run(runs.retry(run_id, actor="ada"))
    [again] = claim_all(store)
    end(store, again, Completed("5"))
    store.run(runs.retry(run_id, actor="ada"))

    assert [(job.task_name, arguments(job)) for job in claim_all(store)] == [("task.b", {"x": 5})]


def test_cancel_ends_waiting_jobs_and_starts_no_more_steps(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2, 3]}, each="x"), step("b", after=("a",)))
    [job] = store.run(leases.claim("steps", owner="worker-a", task_names=["task.a"], slots=1, lease=LEASE))

    [batch_id] = store.run(runs.cancel(run_id, actor="ada"))
    store.run(cancelling.cancel_items(batch_id))
    assert look(store, run_id).state is RunState.RUNNING, "one of its jobs runs"
    end(store, job, Completed(None))

    assert look(store, run_id).state is RunState.CANCELLED
    assert states(store, run_id) == {"a": "cancelled", "b": "cancelled"}
    assert store.run(runs.cancel(run_id, actor="ada")) == []


def test_a_cancelled_run_can_be_retried(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2]}, each="x"), step("b", {"xs": Output("a")}))
    [batch_id] = store.run(runs.cancel(run_id, actor="ada"))
    store.run(cancelling.cancel_items(batch_id))
    assert look(store, run_id).state is RunState.CANCELLED

    store.run(runs.retry(run_id, actor="ada"))

    assert work(store, run_id, {"a": lambda x: x}) is RunState.COMPLETED


def test_the_completion_task_runs_once_for_each_start(store: Bench) -> None:
    told = new_job(id="", task_name="told", queue_name="told", payload="{}")
    run_id = begin(store, step("a"), on_complete=told, on_complete_takes=("run_id", "state"))
    work(store, run_id, {"a": OSError("no")})
    store.run(runs.retry(run_id, actor="ada"))
    work(store, run_id, {"a": 1})

    claimed = store.run(leases.claim("told", owner="worker-a", task_names=["told"], slots=9, lease=LEASE))

    assert sorted(arguments(job)["state"] for job in claimed) == ["completed", "failed"]
    assert {arguments(job)["run_id"] for job in claimed} == {run_id}


def test_runs_are_listed_newest_first(store: Bench) -> None:
    ids = [begin(store, step("a")) for _ in range(3)]
    work(store, ids[0])
    other = begin(store, step("a"))

    def listed(**filters: Any) -> list[str]:
        return [run.id for run in store.run(runs.list_runs(**filters))]

    assert listed() == [other, *reversed(ids)]
    assert listed(before=ids[2], most=1) == [ids[1]]
    assert listed(pipeline="dub", state=RunState.RUNNING) == [other]
    assert listed(pipeline="another") == []


def test_a_run_that_does_not_exist_is_an_error(store: Bench) -> None:
    missing = new_id()

    for operation in (runs.get(missing), runs.retry(missing, actor="ada"), runs.cancel(missing, actor="ada")):
        with pytest.raises(RunNotFound, match=missing):
            store.run(operation)


def test_a_step_that_does_not_exist_is_an_error(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b"))

    with pytest.raises(RunError, match=r"has no step 'c'\. Its steps are 'a', 'b'"):
        store.run(results_of(run_id, "c"))


def test_a_view_shows_each_step_with_its_counts(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2, 3]}, each="x"), step("b", {"xs": Output("a")}))
    [job] = store.run(leases.claim("steps", owner="worker-a", task_names=["task.a"], slots=1, lease=LEASE))
    settle(store, job, Completed("1"))

    view = store.run(run_view(run_id))

    a, b = view.steps
    assert (a.name, a.parents, a.state, a.items, a.is_list) == ("a", (), "running", 3, True)
    assert (a.counts.completed, a.counts.queued, a.counts.total) == (1, 2, 3)
    assert (b.name, b.parents, b.state, b.items, b.counts.total) == ("b", ("a",), "pending", None, 0)
    assert (a.started_at, a.ended_at, b.started_at) == (to_datetime(store.now), None, None)


def test_a_job_of_a_step_that_is_cancelled_by_hand_fails_its_step(store: Bench) -> None:
    run_id = begin(store, step("a"))
    [job] = store.run(list_jobs())
    assert store.run(cancelling.cancel_job(job.id, actor="ada")) is JobState.CANCELLED
    assert job.batch_id is not None
    store.run(concluding.conclude(job.batch_id))

    assert look(store, run_id).error == "step 'a': cancelled by ada"
    assert look(store, run_id).state is RunState.FAILED


def test_runs_are_pruned_with_their_batches_once_their_jobs_are_gone(store: Bench) -> None:
    old, other = begin(store, step("a", {"x": [1, 2]}, each="x"), step("b", after=("a",))), begin(store, step("a"))
    work(store, old)
    store.clock.advance(timedelta(days=8))
    recent = begin(store, step("a"))
    work(store, recent)
    assert look(store, other).state is RunState.COMPLETED

    assert store.run(runs.prune_runs(timedelta(days=7))) == 0, "their jobs are still to be looked at"
    store.run(history.prune(timedelta(days=7)))
    assert store.run(runs.prune_runs(timedelta(days=7))) == 2

    assert [run.id for run in store.run(runs.list_runs())] == [recent]
    assert store.rows("select count(*) from stagepost_batch") == [(1,)]
    assert store.run(runs.prune_runs(timedelta(days=7))) == 0


def test_a_step_whose_batch_is_cancelled_by_hand_has_failed(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2]}, each="x", on_failed="skip"), step("b", {"xs": Output("a")}))
    [batch_id] = look(store, run_id).steps["a"].batches

    store.run(cancelling.cancel_batch(batch_id, actor="ada"))
    store.run(cancelling.cancel_items(batch_id))

    assert look(store, run_id).state is RunState.COMPLETED_WITH_ERRORS
    assert states(store, run_id) == {"a": "failed", "b": "skipped"}
    assert look(store, run_id).steps["a"].error == "2 of 2 jobs failed, most of them with: cancelled"


def test_a_step_whose_jobs_were_deleted_by_hand_has_failed(store: Bench) -> None:
    run_id = begin(store, step("a", {"x": [1, 2, 3]}, each="x"))
    first, second, third = claim_all(store)
    end(store, first, Completed("1"))
    end(store, second, Completed("2"))
    assert third.batch_id is not None
    store.rows("delete from stagepost_job_history")
    store.run(counting.repair_batch(third.batch_id))
    store.run(counting.repair(JobState.COMPLETED))

    end(store, third, Completed("3"))

    assert look(store, run_id).error == "step 'a': 2 of 3 jobs were deleted"
    assert look(store, run_id).state is RunState.FAILED
