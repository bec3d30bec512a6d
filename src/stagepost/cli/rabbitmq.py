"""`stagepost rabbitmq`: shows, creates and checks the exchange and queues at the broker."""

from __future__ import annotations

import sys
from typing import Any

import click

from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Group
from stagepost.client.broker_view import carried_queues
from stagepost.config.urls import masked
from stagepost.errors import ConfigurationError
from stagepost.transport.rabbitmq.admin import apply, compare
from stagepost.transport.rabbitmq.topology import Topology, topology_of

__all__ = ["broker_url", "rabbitmq"]


@click.group(cls=Group)
def rabbitmq() -> None:
    """Show, create and check the exchange and queues that Stagepost uses in RabbitMQ."""


@rabbitmq.command("plan")
@click.pass_obj
def plan(invocation: Invocation) -> None:
    """Show the exchange and queues that the broker needs, without connecting to it."""
    topology = _topology(invocation)
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
    url, topology = broker_url(invocation), _topology(invocation)
    apply(url, topology)
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
    url, topology = broker_url(invocation), _topology(invocation)
    found = compare(url, topology, may_declare=invocation.settings.rabbitmq.declare)
    is_usable = all(one.is_usable for one in found)
    section = Section(
        columns=("what", "name", "status", "message"),
        rows=[(one.what, one.name, one.status, one.message) for one in found],
    )
    document = {"broker": masked(url), "ok": is_usable, "checks": found}
    invocation.output.result(document, lambda: invocation.output.table(section))
    if not is_usable:
        sys.exit(ExitCode.FAILED)


def broker_url(invocation: Invocation) -> str:
    """Return the broker's address from the settings; the error for a missing one says how to set it."""
    url = invocation.settings.transport
    if url is None:
        raise ConfigurationError(
            "no broker is configured. Set `transport` in the settings, STAGEPOST_TRANSPORT, or the file that "
            "STAGEPOST_TRANSPORT_FILE names."
        )
    return url


def _topology(invocation: Invocation) -> Topology:
    settings = invocation.settings
    if settings.rabbitmq.queues is None and not invocation.has_app:
        raise ConfigurationError(
            "no queues are known. Name your app with --app module:attribute to use the queues of its tasks, or list "
            "them in `queues` under [rabbitmq]."
        )
    known = invocation.app.registry.queues if invocation.has_app else ()
    return topology_of(settings.rabbitmq, carried_queues(settings, known=known))


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
