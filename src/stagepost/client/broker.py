"""The broker of an app: its queues and messages, and the exchange and queues that it needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stagepost.client.broker_view import BrokerView, carried_queues, query_broker
from stagepost.errors import ConfigurationError
from stagepost.transport.rabbitmq.admin import Comparison, apply, compare
from stagepost.transport.rabbitmq.topology import Topology, topology_of

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Broker", "broker_url"]


class Broker:
    """RabbitMQ, for operators."""

    def __init__(self, app: App) -> None:
        self._app = app

    def look(self) -> BrokerView | None:
        """Read what waits in the database and at the broker; None if no broker is configured."""
        return query_broker(self._app.store, self._app.settings, known=self._app.registry.queues)

    async def look_async(self) -> BrokerView | None:
        """Read what waits in the database and at the broker without blocking the event loop."""
        return await asyncio.to_thread(self.look)

    def plan(self) -> Topology:
        """Name the exchange and queues that the broker needs, without connecting to it."""
        settings, known = self._app.settings, self._app.registry.queues
        if settings.rabbitmq.queues is None and not known:
            raise ConfigurationError(
                "no queues are known. Name your app with --app module:attribute to use the queues of its tasks, or "
                "list them in `queues` under [rabbitmq]."
            )
        return topology_of(settings.rabbitmq, carried_queues(settings, known=known))

    def apply(self) -> Topology:
        """Create missing queues and the exchange; raises TopologyConflict if one exists with other settings."""
        topology = self.plan()
        apply(broker_url(self._app), topology)
        return topology

    async def apply_async(self) -> Topology:
        """Create missing queues and the exchange without blocking the event loop."""
        return await asyncio.to_thread(self.apply)

    def check(self) -> list[Comparison]:
        """Compare the broker with the plan without changing anything."""
        may_declare = self._app.settings.rabbitmq.declare
        return compare(broker_url(self._app), self.plan(), may_declare=may_declare)

    async def check_async(self) -> list[Comparison]:
        """Compare the broker with the plan without blocking the event loop."""
        return await asyncio.to_thread(self.check)


def broker_url(app: App) -> str:
    """Return the broker's address from the settings; the error for a missing one says how to set it."""
    if app.settings.transport is None:
        raise ConfigurationError(
            "no broker is configured. Set `transport` in the settings, STAGEPOST_TRANSPORT, or the file that "
            "STAGEPOST_TRANSPORT_FILE names."
        )
    return app.settings.transport
