"""The store of a Django project: it joins `transaction.atomic`, and otherwise has its own connections."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from stagepost.clock import monotonic
from stagepost.database.adapters.caller_connection import SyncCallerConnection
from stagepost.database.adapters.django import open_django
from stagepost.database.async_store import AsyncStore
from stagepost.database.connection import Connection, Database
from stagepost.database.deadline import Deadlines
from stagepost.database.local_notifier import LocalNotifier
from stagepost.database.statement import Operation, Rows
from stagepost.database.store import Store
from stagepost.database.transaction import run_in
from stagepost.errors import ConfigurationError

__all__ = ["DjangoAsyncStore", "DjangoStore", "empty_tables", "is_test_run"]

T = TypeVar("T")


class DjangoStore(Store):
    """Runs operations in the transaction that the calling thread has open on the alias.

    Without one, an operation runs on a connection of the store's own, which survives restarts of the database. In a
    test run it uses Django's connection instead: a test database may be in memory, and cannot be dropped while others
    are connected. The loops of a worker always use the store's own connections.
    """

    migrate_command = "python manage.py migrate"

    def __init__(self, database: Database, *, alias: str, **options: Any) -> None:
        super().__init__(database, **options)
        self.alias = alias
        self.notifier = DjangoNotifier(alias)

    def run(
        self, operation: Operation[T], *, patience_seconds: float | None = None, deadlines: Deadlines | None = None
    ) -> T:
        """Run an operation in Django's transaction, which the caller commits, or in its own."""
        is_of_worker = deadlines is not None  # only a worker has to be able to abort its operations
        if not is_of_worker and is_in_transaction(self.alias):
            return self._run_in_djangos(operation)
        if not is_of_worker and is_test_run():
            with _atomic(self.alias):
                return self._run_in_djangos(operation)
        if self.database.is_memory:
            raise ConfigurationError(
                f"database {self.alias!r} is in memory, where a worker cannot see it. In tests, use `inline` or "
                f'`manual` from stagepost.testing, or give the database a file: "TEST": {{"NAME": "test.sqlite3"}}.'
            )
        return super().run(operation, patience_seconds=patience_seconds, deadlines=deadlines)

    def _run_in_djangos(self, operation: Operation[T]) -> T:
        connection = connections[self.alias]
        return run_in(connection, operation, clock=self.clock, migrate_command=self.migrate_command)

    def start(self, operation: Operation[T]) -> Future[T]:
        """Run an operation here and now if it joins a transaction, which belongs to this thread."""
        if not is_in_transaction(self.alias):
            return super().start(operation)
        done: Future[T] = Future()
        done.set_result(self.run(operation))
        return done

    @contextlib.contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Connection]:
        """Lend a connection inside Django's transaction, or inside a transaction of its own."""
        if is_in_transaction(self.alias) or is_test_run():
            with _atomic(self.alias):
                yield DjangoConnection.of(connections[self.alias])
            return
        with super().transaction(read_only=read_only) as connection:
            yield connection


class DjangoAsyncStore(AsyncStore):
    """Runs operations where Django's own async methods run theirs, so that both are in the same transaction."""

    async def run(self, operation: Operation[T], *, patience_seconds: float | None = None) -> T:
        """Run an operation in the thread that holds the caller's Django connections."""
        run = partial(self.store.run, operation, patience_seconds=patience_seconds)
        result: T = await sync_to_async(run, thread_sensitive=True)()
        self.answered_at = monotonic()
        return result


class DjangoNotifier(LocalNotifier):
    """Wakes the workers of this process after the commit of the transaction in which a job was enqueued."""

    def __init__(self, alias: str) -> None:
        super().__init__()
        self._alias = alias

    def notify(self, queues: Collection[str], *, tx: Any = None) -> None:
        """Report that these queues have new jobs."""
        if tx is None and connections[self._alias].in_atomic_block:
            transaction.on_commit(partial(super().notify, queues), using=self._alias, robust=True)
        else:
            super().notify(queues, tx=tx)

    def notify_stop(self, *, tx: Any = None) -> None:
        """Report that a running job was asked to stop."""
        if tx is None and connections[self._alias].in_atomic_block:
            transaction.on_commit(super().notify_stop, using=self._alias, robust=True)
        else:
            super().notify_stop(tx=tx)


def is_in_transaction(alias: str) -> bool:
    """Whether the calling thread has a transaction open on the alias; connects to nothing."""
    connection = connections[alias]
    if connection.in_atomic_block:
        return True
    if connection.connection is None:
        return not connection.settings_dict["AUTOCOMMIT"]
    return not connection.autocommit


def is_test_run() -> bool:
    """Whether Django's test environment is set up, by `manage.py test` or by pytest-django."""
    # Not imported here: no other program should load Django's test tools. Django has no public way to ask.
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(state, "saved_data")


def empty_tables(alias: str) -> None:
    """Delete all rows of Stagepost's tables, except which migrations are applied."""
    connection = connections[alias]
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith("stagepost_") and table != "stagepost_migration":
                cursor.execute(f"delete from {connection.ops.quote_name(table)}")  # noqa: S608 - our own tables


@contextlib.contextmanager
def _atomic(alias: str) -> Iterator[None]:
    """Open a transaction. A connection that this opened is closed, unless Django's test runner will do it."""
    connection = connections[alias]
    was_open = connection.connection is not None or threading.current_thread() is threading.main_thread()
    try:
        with transaction.atomic(using=alias):
            yield
    finally:
        if not was_open:
            connection.close()


@dataclass
class DjangoConnection:
    """A Django connection in the shape of our own; Django begins and ends its transactions."""

    raw: Any
    caller: SyncCallerConnection
    is_pooled: bool = False
    most_bytes: int | None = None

    @classmethod
    def of(cls, connection: Any) -> DjangoConnection:
        return cls(connection, open_django(connection))

    def execute(self, sql: str, parameters: Any) -> Rows:
        return self.caller.execute(sql, parameters or None)

    def load(self, sql: str, rows: Any) -> int:
        raise NotImplementedError

    def begin(self, *, read_only: bool = False) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...
