"""The collectors in an application's own registry, on each database."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from stagepost import App, Settings
from stagepost.metrics import FleetCollector, ProcessCollector
from tests.acceptance.helpers import work


def test_an_application_counts_what_it_enqueues(app: App) -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(ProcessCollector(app))

    @app.task(name="mail")
    def mail(to: str) -> None:
        return None

    mail.enqueue("a")
    mail.enqueue("b")

    assert registry.get_sample_value("tasks_submitted_total", {"taskType": "mail"}) == 2
    assert registry.get_sample_value("tasks_worker_slots") is None


def test_buckets_add_up(app: App) -> None:
    registry = CollectorRegistry()
    registry.register(ProcessCollector(app))
    app.counts.note_attempts([("mail", "completed", seconds) for seconds in (0.001, 0.2, 4000.0)])

    def bucket(bound: str) -> float | None:
        labels = {"taskType": "mail", "status": "completed", "le": bound}
        return registry.get_sample_value("tasks_execution_seconds_bucket", labels)

    assert [bucket(bound) for bound in ("0.005", "0.1", "0.25", "3600.0", "+Inf")] == [1, 1, 2, 2, 3]
    labels = {"taskType": "mail", "status": "completed"}
    assert registry.get_sample_value("tasks_execution_seconds_sum", labels) == pytest.approx(4000.201)


def test_fleet_metrics_show_unfinished_batches_and_waiting_jobs(app: App) -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(FleetCollector(app))

    @app.task(name="mail", queue="letters")
    def mail(to: str) -> None:
        return None

    app.batch("newsletter").add([mail.item("a", "a"), mail.item("b", "b")])
    queued = {"queue": "letters", "state": "queued"}
    assert registry.get_sample_value("tasks_queue_jobs", queued) == 2
    assert registry.get_sample_value("tasks_batches_unfinished", {"kind": "batch"}) == 1
    assert (registry.get_sample_value("tasks_queue_lag_seconds", {"queue": "letters"}) or 0) > 0

    app.batch("newsletter").seal()
    work(app)

    assert registry.get_sample_value("tasks_queue_jobs", queued) == 0
    assert registry.get_sample_value("tasks_batches_unfinished", {"kind": "batch"}) == 0


def test_fleet_metrics_show_unsent_jobs_without_asking_the_broker(app: App) -> None:
    carried = App(settings=Settings(database_url=app.settings.database_url, transport="amqp://nobody@127.0.0.1:1"))
    registry = CollectorRegistry()
    registry.register(FleetCollector(carried))

    @carried.task(name="mail", queue="letters")
    def mail(to: str) -> None:
        return None

    mail.enqueue("a")

    assert registry.get_sample_value("tasks_outbox_unsent", {"queue": "letters"}) == 1
    assert (registry.get_sample_value("tasks_outbox_oldest_seconds", {"queue": "letters"}) or 0) > 0
    assert registry.get_sample_value("tasks_dead_messages") == 0
    carried.close()
