"""Metrics of this process: what it enqueued and ran, and the state of its worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from stagepost.client.app import App
from stagepost.database.process_counts import BUCKETS, Durations
from stagepost.worker.worker import Worker

__all__ = ["ProcessCollector"]

BOUNDS = (*map(floatToGoString, BUCKETS), "+Inf")


class ProcessCollector(Collector):
    """Reads the counts of an app in this process and, if given, of its worker."""

    def __init__(self, app: App, worker: Worker | None = None) -> None:
        self._app = app
        self._worker = worker

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering collects nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Build the metrics from the counts as they are now."""
        counts = self._app.counts
        yield self._by_task("tasks_submitted", "Jobs that this process enqueued.", counts.submitted)
        yield _execution_seconds(counts.attempts)
        yield self._by_task("tasks_retries", "Failed attempts that are followed by another.", counts.retries)
        yield self._by_task("tasks_dlq_entered", "Jobs that failed permanently.", counts.dead_letters)
        yield _counter(
            "tasks_state_db_updates", "Committed operations that write to the database.", "operation", counts.writes
        )
        if self._worker is not None:
            yield from _of_worker(self._worker)

    def _by_task(self, name: str, text: str, numbers: Mapping[str, int]) -> Metric:
        """Count by task; one that has no number yet has 0, because an increase from nothing would not be seen."""
        return _counter(name, text, "taskType", {**{task.name: 0 for task in self._app.registry}, **numbers})


def _counter(name: str, text: str, label: str, numbers: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, number in sorted(numbers.items()):
        family.add_metric([value], number)
    return family


def _execution_seconds(attempts: Mapping[tuple[str, str], Durations]) -> Metric:
    family = HistogramMetricFamily(
        "tasks_execution_seconds", "How long attempts took, by how they ended.", labels=["taskType", "status"]
    )
    for key, durations in sorted(attempts.items()):
        buckets = list(zip(BOUNDS, accumulate(durations.numbers), strict=True))
        family.add_metric(key, buckets, durations.seconds)
    return family


def _of_worker(worker: Worker) -> Iterator[Metric]:
    parts = worker.parts
    yield GaugeMetricFamily("tasks_worker_slots", "Jobs that this worker can run at once.", worker.concurrency)
    yield GaugeMetricFamily("tasks_worker_busy_slots", "Slots in which a handler runs.", worker.busy)
    yield GaugeMetricFamily(
        "tasks_worker_last_look_seconds", "Time since this worker last looked for jobs.", worker.seconds_since_look
    )
    yield CounterMetricFamily(
        "tasks_leases_lost", "Attempts whose outcome was not accepted, because they lost their lease.",
        parts.finisher.lost,
    )  # fmt: skip
    yield CounterMetricFamily(
        "tasks_rescues", "Jobs of dead workers that this worker took back.", parts.rescuer.rescued
    )
    failures = {**dict.fromkeys(parts.loop_names(), 0), **parts.failure_log.failures}
    yield _counter("tasks_loop_failures", "Failed passes of the worker's background loops.", "loop", failures)
