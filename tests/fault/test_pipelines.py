"""F66: random pipelines continue, each step after its inputs and each join once, while their workers are killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest

from stagepost.model.pipeline import OnStepFailed, Run, RunState
from stagepost.store import runs
from stagepost.store.run_views import results_of
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.nursery import WorkerProcess
from tests.property.dags import Course, Node, random_nodes, run_of

WORKERS = 3
AT_ONCE = 12
LIFE_SECONDS = (0.1, 0.6)
KILLS = sized(4, 25, 1000)


@pytest.mark.timeout(1800)
def test_pipelines_continue_while_workers_are_killed(arena: Arena) -> None:
    nodes: dict[str, list[Node]] = {}

    def keep_busy() -> None:
        while arena.backend.rows("select count(*) from stagepost_run where state = 'running'")[0][0] < AT_ONCE:
            run, made = start(arena)
            nodes[run.id] = made

    kill_workers(arena, KILLS, keep_busy)
    arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.start_worker(lease_seconds=LASTING_LEASE)
    complete(arena, list(nodes))

    for run_id, made in nodes.items():
        expect(arena, run_id, made)
    assert arena.crashes() > KILLS / 5


def start(arena: Arena) -> tuple[Run, list[Node]]:
    """Start a random run; a job that was killed with three workers fails it, until it is retried."""
    chance = Random(arena.random.random())  # noqa: S311 - repeatable, not secret
    made = [replace(node, on_failed=OnStepFailed.STOP) for node in random_nodes(chance, are_bad=False)]
    return arena.operate(runs.start(run_of(made, tries=5))).run, made


def kill_workers(arena: Arena, number: int, produce: Callable[[], None]) -> None:
    """Keep some workers alive, kill each after a random time; on until the kills have cost enough attempts.

    They live longer while the kills hit too little.
    """
    workers: dict[WorkerProcess, float] = {}
    kills = 0
    while kills < number or arena.crashes() <= number / 5:
        produce()
        while len(workers) < WORKERS:
            longer = max(1.0, kills / 5 - arena.crashes())
            workers[arena.start_worker()] = time.monotonic() + arena.random.uniform(*LIFE_SECONDS) * longer
        victim = min(workers, key=lambda worker: workers[worker])
        time.sleep(max(0.0, workers.pop(victim) - time.monotonic()))  # the moment is what is tried here
        victim.kill()
        assert victim.wait() == -signal.SIGKILL, victim.logged()
        kills += 1
    for worker in workers:
        worker.kill()


def complete(arena: Arena, ids: list[str]) -> None:
    """Wait until runs end; an operator retries a run if one of its jobs was killed too often."""
    left = set(ids)

    def all_have_completed() -> bool:
        for run_id in list(left):
            state = arena.operate(runs.get(run_id)).state
            if state is RunState.COMPLETED:
                left.remove(run_id)
            elif state is not RunState.RUNNING:
                arena.operate(runs.retry(run_id, actor="the test"))
        return not left

    arena.wait(all_have_completed, "runs to complete", seconds=120 + len(ids))


def expect(arena: Arena, run_id: str, nodes: list[Node]) -> None:
    """Each step has the jobs that its inputs ask for, and gave what follows from all that came before it."""
    course = Course(nodes)
    while course.running:
        course.end(min(course.running))
        course.go_on()
    run = arena.operate(runs.get(run_id))
    jobs = {
        (str(batch_id), state): number
        for batch_id, state, number in arena.backend.rows(
            "select batch_id, state, count(*) from stagepost_job_history group by batch_id, state"
        )
    }
    for name, record in run.steps.items():
        found = [msgspec.json.decode(job.result or "") for job in arena.operate(results_of(run_id, name)).jobs]
        assert found == [course.ended[name][position].value for position in range(len(course.jobs[name]))], name
        made = sum(jobs.get((batch_id, "completed"), 0) for batch_id in record.batches)
        assert made == len(found), f"{name}: {made} jobs did the work of {len(found)}"
        assert len(record.batches) <= run.starts
