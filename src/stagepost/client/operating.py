"""What operators ask of an app, in Python as on the command line."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from stagepost.client.broker import Broker
from stagepost.client.core import AppCore
from stagepost.client.dead_letters import DeadLetters
from stagepost.client.events import Events
from stagepost.client.health import Check, check_health
from stagepost.client.jobs import Jobs
from stagepost.client.listings import Batches, Gates, Runs
from stagepost.client.queues import Queues
from stagepost.client.schedules import Schedules
from stagepost.client.workers import Workers
from stagepost.errors import StoreUnavailable

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["OperatedApp"]


class OperatedApp(AppCore):
    """The part of an app that operators use; each plural is a collection with methods of its own."""

    @cached_property
    def jobs(self) -> Jobs:
        """All jobs: pages, counts, timelines, and actions on many at once."""
        return Jobs(self._app)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Jobs that failed permanently and messages that belong to no job: group, list, retry, discard."""
        return DeadLetters(self._app)

    @cached_property
    def queues(self) -> Queues:
        """All queues: list, pause, resume, limit, recount."""
        return Queues(self._app)

    @cached_property
    def schedules(self) -> Schedules:
        """All schedules: list, run, pause, resume, remove; `app.schedule` declares one."""
        return Schedules(self._app)

    @cached_property
    def workers(self) -> Workers:
        """All registered workers."""
        return Workers(self._app)

    @cached_property
    def batches(self) -> Batches:
        """All batches as a list; `app.batch` gives a handle to one."""
        return Batches(self._app)

    @cached_property
    def gates(self) -> Gates:
        """All gates as a list; `app.gate` gives a handle to one."""
        return Gates(self._app)

    @cached_property
    def runs(self) -> Runs:
        """All runs of pipelines."""
        return Runs(self._app)

    @cached_property
    def events(self) -> Events:
        """What happened to jobs: page, follow."""
        return Events(self._app)

    @cached_property
    def broker(self) -> Broker:
        """RabbitMQ: look, plan, apply, check. Needs the extra `rabbitmq`."""
        return Broker(self._app)

    def health(self, *, database_only: bool = False) -> list[Check]:
        """Check the database, its tables and durability, the workers and the broker; never raises for what it finds."""
        try:
            store = self.store
        except StoreUnavailable as error:
            return [Check("database", "failed", str(error))]
        settings, queues = (None, ()) if database_only else (self.settings, self.registry.queues)
        return list(check_health(store, with_workers=not database_only, settings=settings, queues=queues))

    async def health_async(self, *, database_only: bool = False) -> list[Check]:
        """Check everything like `health`, without blocking the event loop."""
        return await asyncio.to_thread(self.health, database_only=database_only)

    def asyncapi(self, *, title: str = "Stagepost", version: str = "1") -> dict[str, Any]:
        """Build an AsyncAPI 3.0 document of every message that is sent through RabbitMQ."""
        from stagepost.client.asyncapi import asyncapi_of  # noqa: PLC0415 - it imports the app

        return asyncapi_of(self._app, title=title, version=version)

    @property
    def _app(self) -> App:
        return cast("App", self)
