"""The app of a Django project, configured by Django's settings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stagepost.client.app import App
from stagepost.config import Settings
from stagepost.database.async_store import AsyncStore
from stagepost.database.connection import database_at
from stagepost.database.store import Store
from stagepost.errors import ConfigurationError
from stagepost.task import Registry

if TYPE_CHECKING:
    from stagepost.contrib.django.configuration import Configuration

__all__ = ["DjangoApp", "DjangoRegistry"]

PACKAGE = "stagepost.contrib.django"

# Django's settings and database layer are imported when the app is used: projects import it while they are set up.
# ruff: noqa: PLC0415


class DjangoApp(App):
    """An app whose database is one of `DATABASES`, and whose other settings are in `STAGEPOST`.

    Inside `transaction.atomic` on that database, everything that is enqueued or changed is part of the transaction.
    """

    def __init__(self) -> None:
        self._given_settings: Settings | None = None
        # `manage.py migrate` creates the tables, on SQLite too.
        super().__init__(settings=Settings(), auto_migrate=False)
        self._given_settings = None
        self.registry: DjangoRegistry = DjangoRegistry()

    @cached_property
    def configuration(self) -> Configuration:
        """The dictionary `STAGEPOST` of Django's settings."""
        from stagepost.contrib.django.configuration import Configuration

        return Configuration.read()

    @property
    def settings(self) -> Settings:
        """The settings as they are now: a test run changes the database."""
        return self._given_settings or self.configuration.settings()

    @settings.setter
    def settings(self, settings: Settings) -> None:
        """Use these settings instead of Django's, as test helpers and `--database` do."""
        self._given_settings = settings

    @property
    def process_setup(self) -> str:
        """The function that sets Django up in a process for `pool="process"`."""
        from stagepost.contrib.django.store import is_test_run

        if is_test_run():
            raise ConfigurationError(
                "a task with pool='process' runs in another process, which would use the real database and not the "
                "test database. In tests, use `inline` or `manual` from stagepost.testing."
            )
        return "stagepost.contrib.django.process_setup:set_up"

    def open_shared_store(self) -> Store:
        """Open a store that joins Django's transactions; with other settings than Django's, a plain one."""
        if self._given_settings is not None:
            return self.open_store()
        from django.apps import apps

        from stagepost.contrib.django.store import DjangoStore

        if apps.ready and not apps.is_installed(PACKAGE):
            raise ConfigurationError(
                f"{PACKAGE!r} is not in INSTALLED_APPS. Add it, then run `python manage.py migrate`."
            )
        settings = self.settings
        database = database_at(settings.database_url, folder=self.folder)
        return DjangoStore(database, alias=self.configuration.alias, clock=self.clock, pool_size=settings.pool_size)

    @cached_property
    def async_store(self) -> AsyncStore:
        """The same store, for async code."""
        from stagepost.contrib.django.store import DjangoAsyncStore, DjangoStore

        return DjangoAsyncStore(self.store) if isinstance(self.store, DjangoStore) else AsyncStore(self.store)


class DjangoRegistry(Registry):
    """The tasks of a project, Stagepost's own and Django's."""

    def __init__(self) -> None:
        super().__init__()
        self.more_queues: set[str] = set()
        """The queues of `TASKS`, in which a Django task can be enqueued even if none is declared there."""

    @property
    def queues(self) -> list[str]:
        """The queues that its tasks use or may use."""
        return sorted({*super().queues, *self.more_queues})
