"""`stagepost rabbitmq`: shows, makes and checks what the broker needs to have."""

from __future__ import annotations

import sys
from typing import Any

import click

from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Group
from stagepost.cli.render import Section
from stagepost.client.broker_view import carried_queues
from stagepost.config.urls import masked
from stagepost.errors import ConfigurationError
from stagepost.transport.rabbitmq.admin import apply, compare
from stagepost.transport.rabbitmq.topology import Topology, topology_of

__all__ = ["broker_url", "rabbitmq"]


@click.group(cls=Group)
def rabbitmq() -> None:
    """Show, make and check the exchange and queues that RabbitMQ needs to have."""


@rabbitmq.command("plan")
@click.pass_obj
def plan(invocation: Invocation) -> None:
    """Show what the broker needs to have. Nothing is asked of it."""
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
    """Make what is missing; what is there already and made otherwise is an error that says how."""
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
    """Compare what the broker has with what it needs, and change nothing. Exits with 1 if something differs.

    AMQP does not show bindings: `apply` makes those that are missing.
    """
    url, topology = broker_url(invocation), _topology(invocation)
    found = compare(url, topology, may_declare=invocation.settings.rabbitmq.declare)
    is_well = all(one.is_well for one in found)
    section = Section(
        columns=("what", "name", "status", "message"),
        rows=[(one.what, one.name, one.status, one.message) for one in found],
    )
    document = {"broker": masked(url), "ok": is_well, "checks": found}
    invocation.output.result(document, lambda: invocation.output.table(section))
    if not is_well:
        sys.exit(ExitCode.FAILED)


def broker_url(invocation: Invocation) -> str:
    """Take the broker's address from the settings, or say how to give one."""
    url = invocation.settings.transport
    if url is None:
        raise ConfigurationError(
            "no broker is used. Name one with `transport` in the settings, STAGEPOST_TRANSPORT, or in the file that "
            "STAGEPOST_TRANSPORT_FILE names."
        )
    return url


def _topology(invocation: Invocation) -> Topology:
    settings = invocation.settings
    if settings.rabbitmq.queues is None and not invocation.has_app:
        raise ConfigurationError(
            "the queues are those of your app's tasks. Name it with --app module:attribute, or name the queues with "
            "`queues` in [rabbitmq]."
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
