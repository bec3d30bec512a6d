"""Runs operations, each in its own transaction: retried after conflicts and lost connections, within a deadline."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stagepost.clock import Clock, SystemClock, monotonic, sleep
from stagepost.config.urls import safe_cause
from stagepost.database.blocking_calls import warn_if_on_event_loop
from stagepost.database.connection import Connection, Database, database_at
from stagepost.database.deadline import Deadlines, Limit
from stagepost.database.dialect import Dialect
from stagepost.database.failures import MIGRATE_COMMAND, Translated, commit_failure, failure_of, words_of
from stagepost.database.lent import lending, refuse_to_wait_for_itself
from stagepost.database.local_notifier import LocalNotifier
from stagepost.database.pool import Pool, PooledConnection
from stagepost.database.process_counts import ProcessCounts
from stagepost.database.runner import Calls, calls_for, drive
from stagepost.database.statement import Load, Operation, Rows
from stagepost.database.threads import call_in_thread
from stagepost.database.trouble import Trouble
from stagepost.errors import StagepostError, StoreRefused, StoreUnavailable
from stagepost.model.backoff import backoff_seconds

__all__ = ["Store"]

T = TypeVar("T")

CALL_SECONDS = 15.0
"""How long one transaction may take before its connection is aborted."""
PATIENCE_SECONDS = 30.0
"""How long a failing operation is retried before its error is raised."""


class Store:
    """The database: the only truth."""

    migrate_command = MIGRATE_COMMAND
    """What brings its tables up to date, for messages."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        pool_size: int = 8,
        call_seconds: float = CALL_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self.database = database
        self.clock = clock or SystemClock()
        self.call_seconds = call_seconds
        self.patience_seconds = patience_seconds
        self.pool = Pool(database, size=pool_size)
        self.notifier = LocalNotifier()
        self.counts = ProcessCounts()
        """Counts of this process; the stores of an app share one object."""
        self.is_stand_in = False
        """It stands in for the application's database in tests, so callers' connections may lead to another one."""
        self._deadlines = Deadlines()
        self._pause = pause

    @classmethod
    def at(cls, url: str, *, for_handlers: bool = False, folder: Path | None = None, **options: Any) -> Store:
        """Open the store at a URL. `for_handlers` and `folder` are described at `database_at`."""
        return cls(database_at(url, for_handlers=for_handlers, folder=folder), **options)

    @property
    def callers_database(self) -> Database | None:
        """The database to which callers' connections must lead; None if they may lead anywhere."""
        return None if self.is_stand_in else self.database

    @property
    def dialect(self) -> Dialect:
        """The dialect of the database."""
        return self.database.dialect

    def run(
        self, operation: Operation[T], *, patience_seconds: float | None = None, deadlines: Deadlines | None = None
    ) -> T:
        """Run an operation in a transaction of its own, again from the start if that can help.

        If its only statement has committed by itself, only the operation that follows is run again. A caller that
        passes its own `deadlines` can abort its operations without aborting those of others.
        """
        warn_if_on_event_loop(blocks=not self.database.is_memory)
        refuse_to_wait_for_itself(operation.name, self.database, reads=operation.definition.is_read_only)
        deadlines = deadlines or self._deadlines
        give_up_at = monotonic() + (self.patience_seconds if patience_seconds is None else patience_seconds)
        current, tries = operation, 0
        while True:
            tries += 1
            try:
                result = self._run_once(current, deadlines)
                if not isinstance(result, Operation):
                    return result
                current, tries = result, 0
                continue
            except StoreRefused:
                raise
            except StoreUnavailable as error:
                failure: Exception = error
            except StagepostError:
                raise
            except Exception as error:
                trouble = self.dialect.trouble(error)
                if trouble not in {Trouble.CONFLICT, Trouble.CONNECTION}:
                    with self.errors_of(operation.name):
                        raise
                if trouble is Trouble.CONNECTION:
                    current = operation.repeated() if operation.definition.again else current
                failure = error
            pause = backoff_seconds(tries, first=0.02, longest=1.0) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            if deadlines.is_aborted or monotonic() + pause > give_up_at:
                address = self.database.address
                tried = "tried once" if tries == 1 else f"tried {tries} times, last"
                raise StoreUnavailable(
                    f"{operation.name}: {tried}: {words_of(failure, address)}{self._hint(failure)}"
                ) from safe_cause(failure, address.url)
            self._pause(pause)

    def start(self, operation: Operation[T]) -> Future[T]:
        """Run an operation in another thread, while the caller goes on."""
        return call_in_thread(partial(self.run, operation), name="stagepost-batch")

    @contextlib.contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Connection]:
        """Lend a connection inside a transaction that commits if the body returns."""
        warn_if_on_event_loop(blocks=not self.database.is_memory)
        with self._begun(read_only=read_only) as loan:
            connection = loan.connection
            try:
                with lending(connection.raw, self.database, read_only=read_only) as lent:
                    yield connection
                lent.require_whole()
            except BaseException:
                with contextlib.suppress(Exception), self._in_time(connection):
                    connection.rollback()
                    loan.is_sound = True
                raise  # the error of the body, even if the rollback failed as well
            failing = partial(commit_failure, dialect=self.dialect, address=self.database.address)
            with Translated(failing), self._in_time(connection):
                connection.commit()
            loan.is_sound = True

    def close(self) -> None:
        """Close all connections, those of running operations when they end."""
        self.pool.close()

    def abort(self) -> None:
        """Abort all running operations, from any thread, and start no others. Their transactions are rolled back."""
        self._deadlines.abort_all()

    def __repr__(self) -> str:
        return f"Store({self.database.address})"

    def _hint(self, cause: Exception) -> str:
        if self.dialect.has_row_locks or self.dialect.trouble(cause) is not Trouble.CONFLICT:
            return ""
        return (
            f". Another connection holds the write lock of {self.database.address}. If it is one of your own, in an "
            f"open transaction, pass it: `task.using(connection).enqueue(…)`."
        )

    def errors_of(self, what: str) -> Translated:
        """Turn the errors of drivers that the body raises into our own."""
        translate = partial(failure_of, what, dialect=self.dialect, address=self.database.address)
        return Translated(partial(translate, migrate_command=self.migrate_command))

    @contextlib.contextmanager
    def _begun(self, *, read_only: bool) -> Iterator[PooledConnection]:
        """Lend a connection in a new transaction. If it died while idle, all idle connections are replaced."""
        for is_last_try in (False, True):
            with self.pool.connection() as loan:
                try:
                    with self._in_time(loan.connection):
                        loan.connection.begin(read_only=read_only)
                except Exception as error:
                    if is_last_try or self.dialect.trouble(error) is not Trouble.CONNECTION:
                        with self.errors_of("begin"):
                            raise
                    self.pool.close_idle()
                    continue
                yield loan
                return

    def _run_once(self, operation: Operation[T], deadlines: Deadlines) -> T | Operation[T]:
        """Run an operation; if it has committed and another is to follow, return that one."""
        with self.pool.connection() as loan:
            connection = loan.connection
            is_begun = False

            def begin() -> None:
                nonlocal is_begun
                connection.begin(read_only=operation.definition.is_read_only)
                is_begun = True

            with deadlines.limit(self.call_seconds, connection.abort):
                # Checked inside: a call that starts during an abort is either aborted with the others or sees this.
                if deadlines.is_aborted:
                    raise StoreUnavailable(f"{operation.name}: aborted, because nobody waits for its result any more")
                try:
                    if connection.is_pooled:
                        begin()
                    goes_without = is_begun or (operation.definition.is_read_only and self.dialect.reads_by_statement)
                    calls = self._calls(operation, connection)
                    result = drive(calls, connection.execute, begin=None if goes_without else begin)
                    if is_begun and isinstance(result, Operation):
                        result = self.drive(result, connection)
                except Exception as error:
                    if self.dialect.trouble(error) not in {Trouble.CONNECTION, Trouble.REFUSED}:
                        # Raise the first error, even if the server has closed the connection because of it.
                        with contextlib.suppress(Exception):
                            connection.rollback()
                            loan.is_sound = True
                    raise
                if is_begun:
                    connection.commit()
                loan.is_sound = True
            if not operation.definition.is_read_only:
                self.counts.note_write(operation.name)
            return result

    def _in_time(self, connection: Connection) -> Limit:
        return self._deadlines.limit(self.call_seconds, connection.abort)

    def drive(self, operation: Operation[T], connection: Connection) -> T:
        """Run an operation in the current transaction of `connection`."""
        result: T | Operation[T] = operation
        while isinstance(result, Operation):
            result = drive(self._calls(result, connection), connection.execute)
        return result

    def _calls(self, operation: Operation[T], connection: Connection) -> Calls[T | Operation[T]]:
        database = self.database

        def load(step: Load) -> Rows:
            sql = database.dialect.load_text(step.name)
            return [] if sql is None else [(connection.load(sql, step.rows),)]

        return calls_for(
            operation,
            dialect=database.dialect,
            style=database.style,
            clock=self.clock,
            load=load,
            most_bytes=connection.most_bytes,
        )
