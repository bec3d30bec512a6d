"""Metrics of the whole installation, read from the database: every process would report the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stagepost.client.app import App
from stagepost.client.broker_view import BrokerView, query_broker
from stagepost.client.operator_records import Queue, RegisteredWorker, queue_of, worker_of
from stagepost.database.store import Store
from stagepost.model.batch import BatchKind
from stagepost.model.lifecycle import LIVE
from stagepost.store.batches import MOST_COUNTED, count_unfinished_batches
from stagepost.store.queues import ALL_QUEUES, QueueLimits, list_queues
from stagepost.store.queues import Queue as StoredQueue
from stagepost.store.workers import list_workers
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.transport.rabbitmq.topology import QueuePlan

__all__ = ["FleetCollector"]


class FleetCollector(Collector):
    """Reads counters and the first rows of indexes, so that a scrape costs the same at any number of jobs."""

    def __init__(self, app: App, store: Store | None = None) -> None:
        """Use the connections of `store`, or else those of the app."""
        self._app = app
        self._store = store

    def describe(self) -> list[Metric]:
        """Describe nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read everything first, so that a failure yields no half of the metrics."""
        store, app = self._store or self._app.store, self._app
        found = {queue.name: queue for queue in store.run(list_queues()) if queue.name != ALL_QUEUES}
        queues = [queue_of(queue) for queue in ({name: _empty(name) for name in app.registry.queues} | found).values()]
        workers = [worker_of(worker, ()) for worker in store.run(list_workers())]
        batches = store.run(count_unfinished_batches())
        view = query_broker(store, app.settings, known=app.registry.queues, ask=_ask_nothing)
        yield from _of_queues(queues)
        yield from _of_workers([worker for worker in workers if worker.is_alive])
        family = GaugeMetricFamily(
            "tasks_batches_unfinished", f"Batches that are not done, up to {MOST_COUNTED:,}.", labels=["kind"]
        )
        for kind in BatchKind:
            family.add_metric([kind], batches.get(kind, 0))
        yield family
        if view is not None:
            yield from _of_broker(view)


def _empty(name: str) -> StoredQueue:
    """A queue that only the app's tasks name: its numbers are 0, so that a graph does not end when it is empty."""
    return StoredQueue(name, dict.fromkeys(sorted(LIVE), 0), None, QueueLimits(name))


def _of_queues(queues: Sequence[Queue]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("tasks_queue_jobs", "Live jobs by state.", labels=["queue", "state"])
    lag = GaugeMetricFamily(
        "tasks_queue_lag_seconds", "How long the oldest queued job has been ready to run.", labels=["queue"]
    )
    paused = GaugeMetricFamily("tasks_queue_paused", "Whether the queue is paused.", labels=["queue"])
    for queue in queues:
        for state, number in queue.jobs.items():
            depth.add_metric([queue.name, state], number)
        lag.add_metric([queue.name], queue.lag.total_seconds() if queue.lag is not None else 0)
        paused.add_metric([queue.name], int(queue.paused_at is not None))
    yield from (depth, lag, paused)


def _of_workers(alive: Sequence[RegisteredWorker]) -> Iterator[Metric]:
    yield GaugeMetricFamily("tasks_workers_alive", "Workers that reported within the last minute.", len(alive))
    yield GaugeMetricFamily("tasks_workers_slots", "Slots of these workers.", sum(worker.slots for worker in alive))
    yield GaugeMetricFamily(
        "tasks_workers_busy_slots", "Jobs that these workers run.", sum(worker.running for worker in alive)
    )


def _of_broker(view: BrokerView) -> Iterator[Metric]:
    unsent = GaugeMetricFamily(
        "tasks_outbox_unsent", "Jobs whose message the broker has not taken yet, up to 10,000.", labels=["queue"]
    )
    age = GaugeMetricFamily(
        "tasks_outbox_oldest_seconds", "How long the oldest unsent job has waited.", labels=["queue"]
    )
    for queue in view.queues:
        unsent.add_metric([queue.name], queue.unsent)
        age.add_metric([queue.name], (queue.waits_us or 0) / 1_000_000)
    yield from (unsent, age)
    yield GaugeMetricFamily(
        "tasks_dead_messages", "Stored messages of the broker that belong to no job.", view.dead_messages
    )


def _ask_nothing(_url: str, _plans: list[QueuePlan]) -> dict[str, Depth | None]:
    """Leave the broker alone: a scrape must not wait for it, and it has metrics of its own."""
    return {}
