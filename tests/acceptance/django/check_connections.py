"""Handlers' Django connections are kept as long as the settings allow, and closed in the end."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.db import connections
from django.test import TransactionTestCase, tag

from stagepost.contrib.django import app
from tests.acceptance.django.helpers import work
from tests.acceptance.django.shop.tasks import use_connection, use_connection_async, used


@tag("worker")
class ConnectionChecks(TransactionTestCase):
    """In the threads of a worker."""

    def setUp(self) -> None:
        used.clear()

    def run_jobs(self, max_age: int | None) -> list[bool]:
        """Run four jobs one after another; returns which ones found an open connection in their thread."""
        found: list[bool] = []

        def look(job: Any) -> Any:
            found.append(any(known.connection is not None for known in connections.all(initialized_only=True)))
            yield

        with mock.patch.dict(connections.settings["default"], CONN_MAX_AGE=max_age):
            for task in (use_connection, use_connection, use_connection_async, use_connection_async):
                task.enqueue()
            app.around_attempt(look)
            try:
                work(concurrency=1)
            finally:
                app.hooks.around.remove(look)
        return found

    def test_connections_are_closed_after_each_attempt_by_default(self) -> None:
        assert self.run_jobs(max_age=0) == [False, False, False, False]

        assert [connection.connection for connection in used] == [None] * 4

    def test_connections_are_kept_for_the_next_attempt_if_the_settings_say_so(self) -> None:
        assert self.run_jobs(max_age=None)[:2] == [False, True]

        assert used[0] is used[1]
        assert used[2] is not used[3]
        assert [connection.connection for connection in used] == [None] * 4
