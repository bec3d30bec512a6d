"""The counts that the store keeps, and the rows that they should equal."""

from __future__ import annotations

from stagepost.model.lifecycle import JobState
from stagepost.store.counting import count_by_queue
from tests.conformance.bench import Bench

Counts = dict[str, dict[JobState, int]]


def kept(store: Bench) -> Counts:
    """The counts that the store keeps, without zeros."""
    return _without_zeros(store.run(count_by_queue()))


def counted(store: Bench) -> Counts:
    """The numbers of rows."""
    rows = store.rows(
        "select queue_name, state, count(*) from stagepost_job group by queue_name, state union all "
        "select queue_name, state, count(*) from stagepost_job_history group by queue_name, state"
    )
    counts: Counts = {}
    for queue_name, state, jobs in rows:
        counts.setdefault(queue_name, {})[JobState(state)] = jobs
    return counts


def _without_zeros(counts: Counts) -> Counts:
    return {
        queue_name: {state: jobs for state, jobs in states.items() if jobs} for queue_name, states in counts.items()
    }
