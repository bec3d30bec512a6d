"""Transactions that were lent to callers, and what makes it wrong to commit one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from stagepost.errors import StoreError

__all__ = [
    "IN_TRANSACTION",
    "LentTransaction",
    "ask_watched",
    "ask_watched_async",
    "lending",
    "lent_transaction",
    "refuse_to_wait_for_itself",
]

T = TypeVar("T")

IN_TRANSACTION = 1
"""The bit of MySQL's server status that is set inside a transaction."""


class LentTransaction:
    """A transaction on one of our connections, while a caller has it."""

    def __init__(self, database: Any, *, read_only: bool) -> None:
        self.database = database
        """The Database to which its connection leads."""
        self.read_only = read_only
        self.owner = _current()
        """The asyncio task that has it, or the thread."""
        self.failure: str | None = None
        """Why it can only be rolled back."""

    def require_whole(self) -> None:
        """Raise an error if a commit, or another statement, would have effects without those before it."""
        if self.failure is not None:
            raise StoreError(self.failure)

    def has_failed_in(self, operation: str, error: BaseException) -> None:
        """Note that an operation of ours failed; the statements before the failed one have had their effects."""
        self.failure = self.failure or (
            f"the transaction was rolled back, not committed: `{operation}` failed in it, and its error was caught: "
            f"{error}. Let the error leave the block."
        )

    def has_failed_with(self, error: BaseException, *, is_open: bool) -> None:
        """Note how a statement failed. If the server ended the transaction, others would commit by themselves."""
        if not is_open:
            self.failure = self.failure or (
                f"the database ended this transaction when a statement in it failed, so it cannot be committed: "
                f"{error}. Let the error leave the block, then run the block again."
            )


_lent: dict[int, LentTransaction] = {}
"""By the id of the driver's connection, because sqlite3's connections cannot be keys of a weak dictionary."""


@contextlib.contextmanager
def lending(raw: Any, database: Any, *, read_only: bool) -> Iterator[LentTransaction]:
    """Watch the transaction on a driver's connection during the body."""
    lent = _lent[id(raw)] = LentTransaction(database, read_only=read_only)
    try:
        yield lent
    finally:
        del _lent[id(raw)]


def lent_transaction(raw: Any) -> LentTransaction | None:
    """Return the transaction that was lent with this connection, if one was."""
    return _lent.get(id(raw))


def refuse_to_wait_for_itself(operation: str, database: Any, *, reads: bool) -> None:
    """Raise an error if an operation on SQLite would wait for a transaction of its own caller, and so forever."""
    if not _lent or database.dialect.has_row_locks:
        return
    owner = _current()
    for lent in list(_lent.values()):
        if lent.owner == owner and _excludes(lent, database, reads=reads):
            raise StoreError(
                f"{operation}: {database.address} is locked by a transaction of the same caller, `app.transaction()`, "
                f"and the call would wait for itself. Pass the connection: `task.using(tx).enqueue(…)`, or `tx=tx` to "
                f"other calls."
            )


def _excludes(lent: LentTransaction, database: Any, *, reads: bool) -> bool:
    """Whether nothing else can be done beside a lent transaction: a database in memory has one connection for all."""
    if database.is_memory:
        return lent.database is database
    return not reads and not lent.read_only and bool(lent.database.address == database.address)


def _current() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return task or threading.get_ident()


def ask_watched(raw: Any, ask: Callable[[], T]) -> T:
    """Run a statement on a connection to MySQL, and notice if the server ends a lent transaction because of it."""
    lent = _lent.get(id(raw))
    if lent is None:
        return ask()
    lent.require_whole()
    was_open = raw.server_status & IN_TRANSACTION
    try:
        return ask()
    except Exception as error:
        if was_open:
            with contextlib.suppress(Exception):
                raw.ping(reconnect=False)  # an error carries no status
            lent.has_failed_with(error, is_open=bool(raw.server_status & IN_TRANSACTION))
        raise


async def ask_watched_async(raw: Any, ask: Callable[[], Awaitable[T]]) -> T:
    """Do the same on an asynchronous connection."""
    lent = _lent.get(id(raw))
    if lent is None:
        return await ask()
    lent.require_whole()
    was_open = raw.server_status & IN_TRANSACTION
    try:
        return await ask()
    except Exception as error:
        if was_open:
            with contextlib.suppress(Exception):
                await raw.ping(reconnect=False)
            lent.has_failed_with(error, is_open=bool(raw.server_status & IN_TRANSACTION))
        raise
