"""An app's alert task gets a report of every job or message that ended outside a handler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stagepost import Alert, AlertKind, App, JobContext, JobState, PayloadLimits, Permanent
from stagepost.config.rabbitmq import BrokerQueueSettings
from stagepost.errors import ConfigurationError, TaskError
from stagepost.model.alert import ALERT_QUEUE
from stagepost.store.dead_messages import dead_messages
from tests.acceptance.broker import carried, listening, until, working
from tests.conformance.bench import DatabaseOnBench


def told_by(app: App) -> list[Alert]:
    """Let the app tell of alerts; returns where they come."""
    alerts: list[Alert] = []

    @app.on_alert
    def page(alert: Alert) -> None:
        alerts.append(alert)

    return alerts


async def test_a_message_that_can_never_be_routed_raises_an_alert(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = carried(on_postgres.url, broker_url, declare=False, unroutable_timeout_seconds=0.1)
    alerts = told_by(app)

    @app.task(queue="gone")
    def lost() -> None: ...

    with listening(app) as broker:
        broker.channel.queue_delete(f"{app.settings.rabbitmq.prefix}.gone")
    jobs = [lost.enqueue() for _ in range(3)]
    async with working(app, queues=[ALERT_QUEUE]):
        await until(lambda: sum(alert.number for alert in alerts if alert.kind is AlertKind.UNROUTABLE) == 3)
    assert {app.client.job(job.id).state for job in jobs} == {JobState.FAILED}
    found = [alert for alert in alerts if alert.kind is AlertKind.UNROUTABLE]
    assert sorted(job_id for alert in found for job_id in alert.job_ids) == sorted(job.id for job in jobs)
    assert {alert.queue for alert in found} == {"gone"}
    assert all("no queue is bound to exchange" in alert.reason for alert in found)
    assert [app.client.job(alert.id).state for alert in found] == [JobState.COMPLETED] * len(found)
    app.close()


async def test_dead_letters_raise_alerts_of_their_kinds(on_postgres: DatabaseOnBench, broker_url: str) -> None:
    app = carried(on_postgres.url, broker_url, queue={"slow": BrokerQueueSettings(message_ttl_seconds=0.1)})
    alerts = told_by(app)

    @app.task(queue="bad")
    def bad() -> None:
        raise Permanent("no such file")

    @app.task(queue="slow")
    def slow() -> None: ...

    def of(kind: AlertKind) -> list[Alert]:
        return [alert for alert in alerts if alert.kind is kind]

    failing, expiring = bad.enqueue(), slow.enqueue()
    both = {failing.id, expiring.id}
    with listening(app) as broker:
        async with working(app, queues=[ALERT_QUEUE, "bad"]):
            broker.publish(app.settings.rabbitmq.dead_letters, b"what is this?")
            wanted = {AlertKind.FAILED, AlertKind.UNDELIVERED, AlertKind.STRAY}
            await until(lambda: {alert.kind for alert in alerts} == wanted)
            await until(lambda: {job_id for alert in of(AlertKind.FAILED) for job_id in alert.job_ids} == both)
    [undelivered], [stray] = of(AlertKind.UNDELIVERED), of(AlertKind.STRAY)
    assert undelivered.job_ids == [expiring.id]
    assert "before a consumer took it" in undelivered.reason
    [message] = app.store.run(dead_messages())
    assert (stray.number, stray.job_ids, stray.reason) == (1, [], message.reason)
    assert {alert.queue for alert in alerts} == {app.settings.rabbitmq.dead_letters}
    app.close()


async def test_a_program_that_never_answers_raises_an_alert(on_postgres: DatabaseOnBench, broker_url: str) -> None:
    app = carried(on_postgres.url, broker_url, lost_after_seconds=0.1, max_sends=1)
    alerts = told_by(app)

    @app.task(queue="recogniser", remote=True, timeout=timedelta(seconds=0.1))
    def recognise() -> None: ...

    with listening(app) as broker:
        job = recognise.enqueue()
        async with working(app):
            await until(lambda: take(broker, f"{app.settings.rabbitmq.prefix}.recogniser"))
            await until(lambda: any(alert.kind is AlertKind.UNANSWERED for alert in alerts))
    [alert] = [alert for alert in alerts if alert.kind is AlertKind.UNANSWERED]
    assert (alert.queue, alert.job_ids) == ("recogniser", [job.id])
    assert alert.reason == "sent and never answered; max_sends is 1"
    app.close()


def take(broker: Any, queue: str) -> bool:
    """Take a request and be silent."""
    return broker.channel.basic_get(queue, auto_ack=True)[0] is not None


async def test_alerts_need_no_broker(app: App) -> None:
    seen: list[tuple[str, Alert]] = []

    @app.task
    def killer() -> None: ...

    @app.on_alert(max_running=1)
    async def page(ctx: JobContext, alert: Alert) -> None:
        seen.append((ctx.queue, alert))

    job = killer.enqueue()
    with app.transaction() as tx:
        cursor = tx.cursor()
        cursor.execute(
            "update stagepost_job set state = 'running', attempts = 3, crashes = 2, locked_by = 'gone', "
            "lease_until = 1, started_at = 1"
        )
        cursor.close()

    async with working(app):
        await until(lambda: seen)

    [(queue, alert)] = seen
    assert (queue, alert.kind, alert.job_ids, alert.queue) == (ALERT_QUEUE, AlertKind.CRASHED, [job.id], None)
    assert app.client.job(job.id).state is JobState.DEAD_LETTER


def test_an_alert_handler_must_be_able_to_take_an_alert(app: App) -> None:
    with pytest.raises(TaskError, match=r"must take one argument, a stagepost\.Alert\..*missing"):

        @app.on_alert
        def two(alert: Alert, other: int) -> None: ...

    with pytest.raises(TaskError, match=r"must take one argument, a stagepost\.Alert"):

        @app.on_alert
        def wrong(alert: int) -> None: ...

    with pytest.raises(TaskError, match="bytes"):

        @app.on_alert(limits=PayloadLimits(max_bytes=1000))
        def small(alert: Alert) -> None: ...

    assert app.alert_job is None
    assert len(app.registry) == 0


def test_only_one_task_handles_alerts(app: App) -> None:
    @app.on_alert
    def page(alert: Alert) -> None: ...

    with pytest.raises(ConfigurationError, match="both registered with `on_alert`"):

        @app.on_alert
        def mail(alert: Alert) -> None: ...

    assert app.alert_job is not None
    assert app.alert_job(Alert.of_messages(AlertKind.STRAY, 1, "why")).task_name == page.name


@pytest.mark.parametrize("text", ["\1", "\0", "\ud800", "𝄞", "x"])
def test_an_alert_can_be_delivered_whatever_it_quotes(app: App, text: str) -> None:
    @app.on_alert(limits=PayloadLimits(max_bytes=20_000))
    def page(alert: Alert) -> None: ...

    assert app.alert_job is not None
    job = app.alert_job(Alert.of_messages(AlertKind.STRAY, 1, text * 9000))
    assert len(job.payload) < 20_000


def test_alerts_have_a_queue_that_no_broker_carries(app: App) -> None:
    with pytest.raises(ConfigurationError, match="Leave `queue` out"):
        app.on_alert(queue="mail")
    with pytest.raises(ConfigurationError, match="cannot go through it"):
        carried("sqlite://", "amqp://localhost", queues=["mail", ALERT_QUEUE])
    assert carried("sqlite://", "amqp://localhost").settings.rabbitmq.carried(["mail", ALERT_QUEUE]) == ["mail"]
