"""Runs of pipelines on several connections at once: joins, ends, starts and cancels happen once."""

from __future__ import annotations

from typing import Any

import msgspec

from stagepost.model.outcome import Completed
from stagepost.model.pipeline import Output, RunState
from stagepost.store import cancelling, runs
from tests.conformance.bench import Bench
from tests.conformance.pipelines import (
    arguments,
    begin,
    claim_all,
    conclude,
    end,
    look,
    new_run,
    settle,
    states,
    step,
)
from tests.conformance.samples import new_job

ROUNDS = 8


def test_two_parents_that_end_at_the_same_instant_start_their_join_once(blocking_store: Bench) -> None:
    for _ in range(ROUNDS):
        run_id = begin(
            blocking_store,
            *(step(f"p{n}") for n in range(4)),
            step("join", {f"x{n}": Output(f"p{n}") for n in range(4)}),
        )
        claimed = claim_all(blocking_store)
        for job in claimed:
            settle(blocking_store, job, Completed(msgspec.json.encode(job.task_name).decode()))

        blocking_store.race(*(conclude(job) for job in claimed))

        [join] = claim_all(blocking_store)
        assert arguments(join) == {f"x{n}": f"task.p{n}" for n in range(4)}
        end(blocking_store, join, Completed(None))
        assert look(blocking_store, run_id).state is RunState.COMPLETED


def test_jobs_that_end_at_the_same_instant_end_their_run_once(blocking_store: Bench) -> None:
    told = new_job(id="", task_name="told", queue_name="told", payload="{}")
    for _ in range(ROUNDS):
        run_id = begin(
            blocking_store, *(step(f"p{n}", {"x": [1, 2]}, each="x") for n in range(2)),
            on_complete=told, on_complete_takes=("run_id",),
        )  # fmt: skip
        claimed = claim_all(blocking_store)
        for job in claimed:
            settle(blocking_store, job, Completed("1"))

        blocking_store.race(*(conclude(job) for job in claimed))

        assert look(blocking_store, run_id).state is RunState.COMPLETED
    ended = blocking_store.rows("select count(*) from stagepost_job where task_name = 'told'")
    assert ended == [(ROUNDS,)]


def test_a_cancel_and_the_end_of_a_step_at_the_same_instant(blocking_store: Bench) -> None:
    """Either the step ended first, and nothing more of the run is started but what is cancelled, or it did not."""
    for _ in range(ROUNDS):
        run_id = begin(blocking_store, step("a"), step("b", after=("a",)), step("c", after=("b",)))
        [job] = claim_all(blocking_store)
        settle(blocking_store, job, Completed("1"))

        cancelled: Any
        _, cancelled = blocking_store.race(conclude(job), runs.cancel(run_id, actor="ada"))
        for batch_id in cancelled:
            blocking_store.run(cancelling.cancel_items(batch_id))

        assert claim_all(blocking_store) == []
        assert look(blocking_store, run_id).state is RunState.CANCELLED
        assert states(blocking_store, run_id)["c"] == "cancelled"


def test_starts_with_one_key_at_the_same_instant_make_one_run(blocking_store: Bench) -> None:
    for number in range(ROUNDS):
        started = blocking_store.race(
            *(runs.start(new_run(step("a", {"who": n}), key=f"video:{number}")) for n in range(4))
        )

        assert len({one.run.id for one in started}) == 1
        assert sum(one.is_new for one in started) == 1
        [job] = claim_all(blocking_store)
        end(blocking_store, job, Completed(None))
