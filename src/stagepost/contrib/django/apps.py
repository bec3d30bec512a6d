"""The Django app: finds the project's tasks at start."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from stagepost.contrib.django import app
from stagepost.contrib.django.connections import ConnectionCare
from stagepost.contrib.django.store import empty_tables, is_test_run

__all__ = ["StagepostConfig"]


class StagepostConfig(AppConfig):
    """Stagepost in `INSTALLED_APPS`."""

    name = "stagepost.contrib.django"
    label = "stagepost"
    verbose_name = "Stagepost"

    def ready(self) -> None:
        """Check the settings and import `tasks.py` of every installed app."""
        modules = app.configuration.task_modules
        app.settings  # noqa: B018 - raises an error that names the setting
        ConnectionCare().watch(app)
        post_migrate.connect(_follow_migration, sender=self)
        autodiscover_modules(*modules)


def _follow_migration(using: str, **_: Any) -> None:
    """Let go of connections to another database; in a test run, forget the jobs of the previous test.

    Django sends this signal when it has created a test database, and when a TransactionTestCase has emptied its tables.
    """
    if using != app.configuration.alias:
        return
    app.close()
    if is_test_run():
        empty_tables(using)
