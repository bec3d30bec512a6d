"""The internal parts of an app, which the worker, upkeep, commands and test helpers use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from stagepost.client.hooks import Hooks
from stagepost.client.tasks import AppTask
from stagepost.client.worker_waker import WorkerWaker
from stagepost.clock import Clock, SystemClock
from stagepost.config import Settings
from stagepost.config.settings import DEFAULT_URL
from stagepost.database.async_store import AsyncStore
from stagepost.database.async_transactions import AsyncTransactions
from stagepost.database.migrate import migrate
from stagepost.database.opening import closed_on_failure
from stagepost.database.process_counts import ProcessCounts
from stagepost.database.sqlite import sqlite_path
from stagepost.database.store import Store
from stagepost.model.alert import Alert
from stagepost.model.job import NewJob
from stagepost.model.options import NO_OPTIONS
from stagepost.task import Registry, ScheduleSpec

__all__ = ["AppCore"]

log = logging.getLogger(__name__)


class AppCore:
    """What an app consists of. Applications use only `App`: everything here may change in any release."""

    def __init__(self, settings: Settings, *, auto_migrate: bool | None) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        """Set before the store is opened to replace the database's clock."""
        self.folder = Path.cwd()
        """Where relative paths begin, and the processes of handlers start, wherever handlers go later."""
        self.registry = Registry()
        self.counts = ProcessCounts()
        """What this process did with jobs, for metrics."""
        self.hooks = Hooks()
        self.declared_schedules: dict[str, ScheduleSpec] = {}
        self.declared_pipelines: dict[str, str] = {}
        """The file and line that declare each pipeline, by name."""
        self.given_store: Store | None = None
        """Set before the first use to share a store that is already open."""
        self.auto_migrate = auto_migrate
        """Whether to create or update tables at the first use; None means only in a SQLite file."""
        self.alert_task: AppTask[..., Any] | None = None
        """The task that is called with every alert."""

    @cached_property
    def store(self) -> Store:
        """The store, opened on first use. Tables are created automatically in a SQLite file, but not on a server."""
        if self.given_store is not None:
            return self._prepared(self.given_store)
        self._name_default_database()
        store = self.open_shared_store()
        with closed_on_failure(store):
            return self._prepared(store)

    def _name_default_database(self) -> None:
        """Say where jobs go if nothing was configured: as a warning if a new file is about to appear there."""
        if self.settings.database_url != DEFAULT_URL:
            return
        path = Path(sqlite_path(DEFAULT_URL, self.folder))
        if path.exists():
            log.info("no database is set, so jobs are in %s. To use another, set STAGEPOST_DATABASE_URL", path)
        else:
            log.warning(
                "no database is set, so jobs are stored in the new file %s. To use another database, set "
                "STAGEPOST_DATABASE_URL or pass its URL to App", path,
            )  # fmt: skip

    def _prepared(self, store: Store) -> Store:
        store.counts = self.counts
        if self.auto_migrate if self.auto_migrate is not None else store.dialect.name == "sqlite":
            migrate(store)
        return store

    def open_shared_store(self) -> Store:
        """Open the store that the app's callers share."""
        return self.open_store()

    def open_store(self, *, pool_size: int | None = None, for_handlers: bool = False) -> Store:
        """Open another store on the same database, with separate connections."""
        size = self.settings.pool_size if pool_size is None else pool_size
        store = Store.at(
            self.settings.database_url,
            for_handlers=for_handlers,
            folder=self.folder,
            clock=self.clock,
            pool_size=size,
            patience_seconds=self.settings.patience_seconds,
        )
        store.counts = self.counts
        return store

    @cached_property
    def users_store(self) -> Store:
        """Connections for handlers' own transactions, separate from those that keep leases and settle jobs."""
        if self.store.database.is_memory:
            return self.store
        return self.open_store(for_handlers=True)

    @cached_property
    def async_transactions(self) -> AsyncTransactions:
        """Asynchronous connections for handlers' own transactions."""
        store = self.users_store
        return AsyncTransactions(store.database, store.pool, call_seconds=store.call_seconds)

    @property
    def process_setup(self) -> str | None:
        """A function, as `module:name`, that a process for `pool="process"` calls before it imports the task."""
        return None

    @property
    def alert_job(self) -> Callable[[Alert], NewJob] | None:
        """Builds the job that reports an alert; None if the app has no task for alerts."""
        task = self.alert_task
        return None if task is None else lambda alert: task.build(NO_OPTIONS, (alert,), {}, job_id=alert.id)

    @cached_property
    def async_store(self) -> AsyncStore:
        """The same store, for async code."""
        return AsyncStore(self.store)

    @cached_property
    def waker(self) -> WorkerWaker:
        """Wakes idle workers after an enqueue."""
        return WorkerWaker(self.store.notifier, to_others=self.settings.wakeups)
