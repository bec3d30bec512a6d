"""`stagepost rabbitmq`, `reconcile` and `asyncapi`, and how `health`, `top` and `dead` show a broker."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import pika
import pytest

from stagepost.client.broker_view import AskInBackground
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.errors import BrokerUnavailable
from stagepost.model.identity import new_id
from stagepost.store.queue_observations import declare_patience
from stagepost.store.sending import mark_sent, sent_jobs
from stagepost.transport.rabbitmq.address import parameters_of
from stagepost.transport.rabbitmq.topology import topology_of
from tests.acceptance.cli.command_line import CommandLine
from tests.services.rabbitmq import RabbitmqServer

NOBODY_LISTENS = "amqp://guest:secret-of-a-test@127.0.0.1:{}/x"


@pytest.fixture(scope="module")
def vhost(rabbitmq_server: RabbitmqServer) -> Iterator[str]:
    with rabbitmq_server.database() as url:
        yield url


@pytest.fixture
def _patient_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver wait for a silent broker far longer than anybody who asks."""
    monkeypatch.setattr("stagepost.transport.rabbitmq.address.CONNECT_SECONDS", 120.0)


@pytest.fixture
def prefix() -> str:
    return f"t{new_id()[-12:]}"


@pytest.fixture
def carried(shop: CommandLine, vhost: str, prefix: str) -> CommandLine:
    """A project whose queues RabbitMQ carries, with its own names."""
    shop.environment |= {"STAGEPOST_TRANSPORT": vhost, "STAGEPOST_RABBITMQ_PREFIX": prefix}
    return shop


def test_a_plan_is_shown_without_asking_the_broker(shop: CommandLine, deaf_port: int) -> None:
    shop.environment |= {"STAGEPOST_TRANSPORT": NOBODY_LISTENS.format(deaf_port)}

    plan = shop.json("rabbitmq", "plan")

    assert plan["exchange"] == {"name": "task_exchange", "type": "topic", "durable": True}
    assert [queue["name"] for queue in plan["queues"]] == ["task.default", "task.slow", "task.results", "task.dlq"]
    assert plan["queues"][0]["carries"] == "default"
    assert plan["queues"][0]["arguments"]["x-queue-type"] == "quorum"
    assert plan["queues"][0]["arguments"]["x-dead-letter-routing-key"] == "task.dlq"
    assert plan["bindings"][0] == {"exchange": "task_exchange", "queue": "task.default", "routing_key": "task.default"}
    text = shop.says("rabbitmq", "plan")
    assert "x-overflow=reject-publish" in text
    assert "guest:***@" in text
    assert "secret-of-a-test" not in text + json.dumps(plan)


def test_the_plan_and_the_asyncapi_document_show_priorities(shop: CommandLine) -> None:
    shop.environment |= {"STAGEPOST_RABBITMQ_PRIORITIES": "0, 10", "STAGEPOST_RABBITMQ_QUEUE_TYPE": "classic"}

    [default, *_, dead] = shop.json("rabbitmq", "plan")["queues"]
    text = shop.says("rabbitmq", "plan")
    channels = json.loads(shop.says("asyncapi"))["channels"]

    assert (default["priorities"], default["arguments"]["x-max-priority"]) == ([0, 10], 2)
    assert (dead["priorities"], "x-max-priority" in dead["arguments"]) == ([], False)
    assert re.search(r"task\.default +default +task\.default +0, 10 .*x-max-priority=2", text)
    assert channels["task.default"]["x-priorities"] == [
        {"jobPriority": -32768, "messagePriority": 0},
        {"jobPriority": 0, "messagePriority": 1},
        {"jobPriority": 10, "messagePriority": 2},
    ]
    assert "x-priorities" not in channels["task.results"]


def test_missing_queues_are_created_and_then_found(carried: CommandLine, prefix: str) -> None:
    before = carried.run("rabbitmq", "check", "--json")
    carried.says("rabbitmq", "apply")
    carried.says("rabbitmq", "apply")
    after = carried.json("rabbitmq", "check")

    assert before.exit_code == 1
    assert {one["status"] for one in json.loads(before.stdout)["checks"]} == {"missing"}
    assert after["ok"] is True
    assert [(one["what"], one["name"], one["status"]) for one in after["checks"]] == [
        ("exchange", f"{prefix}_exchange", "ok"),
        ("queue", f"{prefix}.default", "ok"),
        ("queue", f"{prefix}.slow", "ok"),
        ("queue", f"{prefix}.results", "ok"),
        ("queue", f"{prefix}.dlq", "ok"),
    ]


def test_a_queue_with_other_settings_is_explained(carried: CommandLine, prefix: str) -> None:
    carried.says("rabbitmq", "apply")
    carried.environment["STAGEPOST_RABBITMQ_MAX_LENGTH"] = "5"

    refused = carried.fails(1, "rabbitmq", "apply")
    check = carried.run("rabbitmq", "check")

    assert f"inequivalent arg 'x-max-length' for queue '{prefix}.default'" in refused
    assert "received the value '5' of type 'signedint' but current is none" in refused
    assert f"queue {prefix}.default was declared with x-max-length none, and the settings ask for '5'" in refused
    assert "use another name or prefix" in refused
    assert check.exit_code == 1
    assert re.search(rf"{prefix}\.default +conflict .*current is none", check.stdout)


def test_a_user_who_may_not_declare_is_told_what_to_do(
    carried: CommandLine, rabbitmq_server: RabbitmqServer, vhost: str
) -> None:
    with rabbitmq_server.user(vhost, configure="^$", write=".*", read=".*") as url:
        refused = carried.fails(1, "rabbitmq", "apply", STAGEPOST_TRANSPORT=url)
        carried.says("rabbitmq", "apply")
        may_not = carried.run("rabbitmq", "check", STAGEPOST_TRANSPORT=url)
        need_not = carried.run("rabbitmq", "check", STAGEPOST_TRANSPORT=url, STAGEPOST_RABBITMQ_DECLARE="false")

    assert "ACCESS_REFUSED" in refused
    assert "set `declare = false` in [rabbitmq]" in refused
    assert may_not.exit_code == 1
    assert "refused" in may_not.stdout
    assert need_not.exit_code == 0, need_not.output
    assert "cannot be compared" in need_not.stdout
    assert "secret-of-a-test" not in refused + may_not.output + need_not.output


def test_a_wrong_password_is_reported_but_never_shown(carried: CommandLine, vhost: str) -> None:
    parts = urlsplit(vhost)
    url = urlunsplit(parts._replace(netloc=f"guest:secret-of-a-test@{parts.hostname}:{parts.port or 5672}"))

    for command in (("rabbitmq", "apply"), ("rabbitmq", "check"), ("reconcile",)):
        message = carried.fails(3, *command, STAGEPOST_TRANSPORT=url)
        assert "ACCESS_REFUSED" in message
        assert "guest:***@" in message
        assert "secret-of-a-test" not in message


def test_without_a_broker_the_error_says_how_to_configure_one(shop: CommandLine) -> None:
    assert "STAGEPOST_TRANSPORT" in shop.fails(2, "rabbitmq", "apply")
    assert "STAGEPOST_TRANSPORT" in shop.fails(2, "reconcile")
    assert "Name your app with --app" in shop.fails(2, "rabbitmq", "plan", STAGEPOST_APP=None)


def test_jobs_go_through_the_broker_from_the_command_line(carried: CommandLine) -> None:
    job_id = carried.enqueue("mail", '"ada"')

    carried.work()

    assert carried.json("jobs", "show", job_id)["result"] == "1 to ada"


def test_reconciling_explains_itself_and_resends_only_lost_messages(carried: CommandLine) -> None:
    carried.environment["STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS"] = "60"
    carried.says("rabbitmq", "apply")
    job_id = carried.enqueue("mail", '"ada"')
    carried.store.run(mark_sent([(job_id, 1)]))  # and the message got lost

    first = carried.json("reconcile", "--dry-run")["queues"]
    carried.environment["STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS"] = "0.001"
    dry = carried.json("reconcile", "--dry-run")["queues"]
    still_sent = sent(carried)
    done = carried.json("reconcile")["queues"]
    text = carried.says("reconcile")

    assert [(row["queue"], row["lost"]) for row in first] == [("default", 0), ("slow", 0)]
    assert "the queue has been empty for only" in first[0]["why"]
    assert [(row["queue"], row["lost"]) for row in dry] == [("default", 1), ("slow", 0)]
    assert still_sent == [job_id]
    assert done[0]["lost"] == 1
    assert sent(carried) == []
    assert "no job has waited that long for its message" in text


def test_reconciling_reports_requests_that_are_never_answered(carried: CommandLine) -> None:
    """The queue has a program that is silent, as others have written down."""
    carried.environment |= {"STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS": "60", "STAGEPOST_RABBITMQ_MAX_SENDS": "1"}
    carried.says("rabbitmq", "apply")
    job_id = carried.enqueue("mail", '"ada"')
    carried.store.run(mark_sent([(job_id, 1)]))
    carried.store.run(declare_patience({"default": timedelta(milliseconds=1)}))

    carried.json("reconcile")
    carried.environment["STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS"] = "0.001"
    [default, _] = carried.json("reconcile")["queues"]

    assert default["lost"] == 0
    assert "its queue is empty; never answered and now dead letters: 1 (max_sends is 1)" in default["why"]
    assert "sent once and never answered" in carried.json("jobs", "show", job_id)["error"]


def sent(shop: CommandLine) -> list[str]:
    return [job.id for job in shop.store.run(sent_jobs("default", older=timedelta(0), most=9))]


def test_a_queue_with_messages_has_lost_none(carried: CommandLine, vhost: str, prefix: str) -> None:
    carried.environment["STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS"] = "0.001"
    carried.says("rabbitmq", "apply")
    job_id = carried.enqueue("mail", '"ada"')
    carried.store.run(mark_sent([(job_id, 1)]))
    connection = pika.BlockingConnection(parameters_of(vhost))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish(f"{prefix}_exchange", f"{prefix}.default", b"{}", mandatory=True)
    connection.close()

    carried.json("reconcile")
    [default, _] = carried.json("reconcile")["queues"]

    assert (default["ready"], default["lost"]) == (1, 0)
    assert "messages are waiting in the queue" in default["why"]
    assert sent(carried) == [job_id]


def test_health_and_top_show_that_the_broker_is_down_and_how_many_jobs_wait(shop: CommandLine, deaf_port: int) -> None:
    shop.environment |= {"STAGEPOST_TRANSPORT": NOBODY_LISTENS.format(deaf_port)}
    shop.enqueue("mail", '"ada"')

    health = shop.run("health", "--json")
    top = shop.json("top", "--once")
    text = shop.says("top", "--once")

    checks = {check["name"]: check for check in json.loads(health.stdout)["checks"]}
    assert health.exit_code == 1
    assert checks["broker"]["status"] == "failed"
    assert "Connection refused" in checks["broker"]["message"]
    assert "1 jobs are waiting for the broker, the oldest for" in checks["sending"]["message"]
    assert (top["broker"]["unsent"], top["broker"]["dead_letters"]) == (1, None)
    assert "cannot be used" in top["broker"]["trouble"]
    assert "CANNOT BE USED" in text
    assert "secret-of-a-test" not in health.output + text + json.dumps(top)


@pytest.mark.usefixtures("_patient_driver")
def test_top_does_not_wait_for_a_broker_that_does_not_answer(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagepost.cli.top.PATIENCE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        shop.environment |= {"STAGEPOST_TRANSPORT": NOBODY_LISTENS.format(black_hole.getsockname()[1])}
        top = shop.json("top", "--once")

    assert "cannot be used: it has not answered for 1 s" in top["broker"]["trouble"]


@pytest.mark.usefixtures("_patient_driver")
def test_a_late_answer_is_used_at_the_next_refresh() -> None:
    plans = list(topology_of(RabbitmqSettings(), ["mail"]).queues)
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        url = NOBODY_LISTENS.format(black_hole.getsockname()[1])
        ask = AskInBackground(seconds=0.01)
        for _ in range(2):
            with pytest.raises(BrokerUnavailable, match="has not answered for 0 s"):
                ask(url, plans)
        asked = ask._answer
        assert asked is not None, "nobody asks twice at once"
    late = asked.exception(60)
    with pytest.raises(BrokerUnavailable) as raised:
        ask(url, plans)
    assert raised.value is late


def test_health_and_top_show_what_the_broker_holds(carried: CommandLine, vhost: str, prefix: str) -> None:
    carried.says("rabbitmq", "apply")
    connection = pika.BlockingConnection(parameters_of(vhost))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", f"{prefix}.dlq", b"{}", mandatory=True)
    connection.close()

    checks = {check["name"]: check for check in json.loads(carried.run("health", "--json").stdout)["checks"]}
    broker = carried.json("top", "--once")["broker"]

    assert checks["broker"]["status"] == "ok"
    assert checks["sending"]["message"] == "No job is waiting for the broker."
    assert checks["dead letters"]["status"] == "warning"
    assert f"{prefix}.dlq holds 1 messages; 0 are stored in the database." in checks["dead letters"]["message"]
    assert (broker["dead_letters"], broker["trouble"]) == (1, None)
    assert [queue["ready"] for queue in broker["queues"]] == [0, 0]


def test_without_a_broker_health_and_top_do_not_mention_one(shop: CommandLine) -> None:
    checks = json.loads(shop.run("health", "--json").stdout)["checks"]

    assert "broker" not in {check["name"] for check in checks}
    assert shop.json("top", "--once")["broker"] is None
