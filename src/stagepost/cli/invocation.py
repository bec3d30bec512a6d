"""One run of the command: its options, and the app, store and output built from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import msgspec

from stagepost.cli.loading import load_app
from stagepost.cli.render import Output
from stagepost.client.app import App
from stagepost.config import Settings
from stagepost.config.settings import APP_VARIABLE, CONFIG_VARIABLE
from stagepost.database.migrate import check_schema
from stagepost.database.opening import closed_on_failure
from stagepost.database.store import Store
from stagepost.errors import ConfigurationError, StoreUnavailable
from stagepost.model.job import to_datetime
from stagepost.store.health import ping

__all__ = ["APP_VARIABLE", "Invocation"]


@dataclass
class Invocation:
    """The common options, and the objects that are built from them on first use."""

    app_path: str | None = None
    database: str | None = None
    config: Path | None = None
    as_json: bool = False
    is_quiet: bool = False
    debug: bool = False
    command: Sequence[str] = (sys.executable, "-m", "stagepost")
    """How to run this command again, in a child process."""
    given_app: App | None = None
    """The app, if the program that runs the command has one and so needs no `--app`."""

    @cached_property
    def output(self) -> Output:
        """Prints results and progress."""
        return Output(as_json=self.as_json, is_quiet=self.is_quiet)

    @property
    def has_app(self) -> bool:
        """Whether there is an app: given, or named by an option or the environment."""
        return self.given_app is not None or bool(self.app_path or os.environ.get(APP_VARIABLE))

    @cached_property
    def app(self) -> App:
        """The user's app; `--database` overrides its database."""
        if self.config is not None:
            os.environ[CONFIG_VARIABLE] = str(self.config)  # `App()` reads it from there
        app = self.given_app if self.given_app is not None and self.app_path is None else self._named_app()
        if self.database is not None:
            app.settings = msgspec.structs.replace(app.settings, database_url=self.database)
        return app

    def _named_app(self) -> App:
        path = self.app_path or os.environ.get(APP_VARIABLE)
        if not path:
            raise ConfigurationError(
                f"this command needs your app. Name it with --app module:attribute or in {APP_VARIABLE}, "
                f"such as `--app myproject.tasks:app`."
            )
        return load_app(path)

    @cached_property
    def settings(self) -> Settings:
        """The app's settings; without an app, the settings from the environment and the settings file."""
        if self.has_app and self.database is None:
            return self.app.settings
        return Settings.load(self.config, database_url=self.database)

    def open_store(self) -> Store:
        """Open the database without checking its tables; a missing SQLite file is an error and is not created."""
        store = Store.at(self.settings.database_url, pool_size=self.settings.pool_size)
        path = getattr(store.database, "path", ":memory:")
        if path != ":memory:" and not Path(path).exists():
            raise StoreUnavailable(
                f"there is no SQLite file {path}. Name the database to use with STAGEPOST_DATABASE_URL, "
                f"--config or --app, or create this one with `stagepost migrate`."
            )
        return store

    @cached_property
    def store(self) -> Store:
        """The database, whose tables match this release; an app creates them in its SQLite file automatically."""
        if self.has_app and self.database is None:
            check_schema(self.app.store)
            return self.app.store
        store = self.open_store()
        with closed_on_failure(store):
            check_schema(store)
        return store

    @cached_property
    def operator(self) -> App:
        """The user's app on the checked store; without one, an app that knows no tasks."""
        if self.has_app and self.database is None:
            check_schema(self.app.store)
            return self.app
        return self.app_on(self.store)

    def now(self) -> datetime:
        """The database's current time."""
        return to_datetime(self.store.run(ping()))

    def app_on(self, store: Store) -> App:
        """Make an app for an open store, which uses the settings of this run and the queues of the user's app."""
        app = App(settings=self.settings, auto_migrate=False)
        app.given_store = store
        app.registry = self.offline.registry
        return app

    @cached_property
    def offline(self) -> App:
        """The user's app, or one that knows no tasks, for commands that need no database."""
        return self.app if self.has_app else App(settings=self.settings, auto_migrate=False)

    def arguments(self) -> Sequence[str]:
        """The same common options as arguments, for a child process."""
        given = {"--app": self.app_path, "--database": self.database, "--config": self.config}
        flags = ["--debug"] if self.debug else []
        return [text for name, value in given.items() if value is not None for text in (name, str(value))] + flags

    def close(self) -> None:
        """Close the app and the store if they were opened."""
        for name in ("app", "store"):
            opened = self.__dict__.pop(name, None)
            if opened is not None:
                opened.close()
