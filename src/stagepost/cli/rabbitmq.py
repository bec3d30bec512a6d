"""`stagepost rabbitmq`: shows, creates and checks the exchange and queues at the broker."""

from __future__ import annotations

import sys
from typing import Any

import click

from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Group
from stagepost.client.broker import broker_url
from stagepost.config.urls import masked
from stagepost.operations import Topology

__all__ = ["rabbitmq"]


@click.group(cls=Group)
def rabbitmq() -> None:
    """Show, create and check the exchange and queues that Stagepost uses in RabbitMQ."""


@rabbitmq.command("plan")
@click.pass_obj
def plan(invocation: Invocation) -> None:
    """Show the exchange and queues that the broker needs, without connecting to it."""
    topology = invocation.offline.broker.plan()
    output = invocation.output
    section = Section(
        columns=("queue", "carries", "routing key", "priorities", "arguments"),
        rows=[
            (
                one.name,
                one.carries,
                one.name,
                ", ".join(map(str, one.priorities)) or None,
                ", ".join(f"{name}={value}" for name, value in one.arguments.items()),
            )
            for one in topology.queues
        ],
    )

    def show() -> None:
        output.facts({"broker": _address(invocation), "exchange": f"{topology.exchange} (topic, durable)"})
        output.heading("Queues, each durable and bound to the exchange by its routing key")
        output.table(section)

    output.result(_document(invocation, topology), show)


@rabbitmq.command("apply")
@click.pass_obj
def apply_plan(invocation: Invocation) -> None:
    """Create missing queues and the exchange; fail and list the differences if one exists with other settings."""
    app = invocation.offline
    url, topology = broker_url(app), app.broker.apply()
    number = len(topology.queues)
    document = _document(invocation, topology)
    invocation.output.result(
        document,
        lambda: invocation.output.say(f"{masked(url)} has exchange {topology.exchange} and {number} queues."),
    )


@rabbitmq.command("check")
@click.pass_obj
def check(invocation: Invocation) -> None:
    """Compare the broker with the plan without changing anything. Exits with 1 if something differs.

    AMQP cannot list bindings, so they are not checked; `apply` creates missing ones.
    """
    app = invocation.offline
    url, found = broker_url(app), app.broker.check()
    is_usable = all(one.is_usable for one in found)
    section = Section(
        columns=("what", "name", "status", "message"),
        rows=[(one.what, one.name, one.status, one.message) for one in found],
    )
    document = {"broker": masked(url), "ok": is_usable, "checks": found}
    invocation.output.result(document, lambda: invocation.output.table(section))
    if not is_usable:
        sys.exit(ExitCode.FAILED)


def _address(invocation: Invocation) -> str | None:
    return masked(invocation.settings.transport) if invocation.settings.transport else None


def _document(invocation: Invocation, topology: Topology) -> dict[str, Any]:
    return {
        "broker": _address(invocation),
        "exchange": {"name": topology.exchange, "type": "topic", "durable": True},
        "queues": [
            {
                "name": one.name,
                "carries": one.carries,
                "durable": True,
                "priorities": list(one.priorities),
                "arguments": dict(one.arguments),
            }
            for one in topology.queues
        ],
        "bindings": [
            {"exchange": topology.exchange, "queue": one.name, "routing_key": one.name} for one in topology.queues
        ],
    }
