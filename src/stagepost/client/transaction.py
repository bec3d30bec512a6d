"""A transaction on the app's database, for `with` and for `async with`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stagepost.database.async_transactions import AsyncLoan
from stagepost.database.local_notifier import PendingNotices

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Transaction"]


class Transaction:
    """Lends a connection of the app's driver in a transaction, which commits if the block ends without an error.

    `with` lends a blocking connection, `async with` one of the asynchronous driver. Workers of this process are woken
    after the commit.
    """

    def __init__(self, app: App, *, read_only: bool) -> None:
        self._app = app
        self._read_only = read_only
        self._blocking: AbstractContextManager[Any]
        self._async: AbstractAsyncContextManager[Any]

    def __enter__(self) -> Any:
        self._blocking = self._lent()
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._blocking.__exit__(kind, error, traceback)

    async def __aenter__(self) -> Any:
        self._async = self._lent_async()
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async.__aexit__(kind, error, traceback)

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        notifier = self._app.store.notifier
        with (
            self._app.users_store.transaction(read_only=self._read_only) as connection,
            notifier.collecting(connection.raw) as pending,
        ):
            yield connection.raw
        notifier.notify_committed(pending)

    @asynccontextmanager
    async def _lent_async(self) -> AsyncIterator[Any]:
        notifier = self._app.store.notifier
        loan: AsyncLoan | None = None
        pending = PendingNotices()
        try:
            async with self._app.async_transactions.transaction(read_only=self._read_only) as loan:
                with notifier.collecting(loan.raw) as pending:
                    yield loan.raw
        finally:
            # Not only if nothing was raised: a caller that is cancelled during the commit may have committed.
            if loan is not None and loan.is_committed:
                await notifier.notify_committed_async(pending)
