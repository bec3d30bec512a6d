"""Handles to gates, which are open while all their batches are done."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.client.waiting import late, pauses
from stagepost.database.statement import Operation
from stagepost.errors import GateClosed
from stagepost.model.batch import check_key, summary_of
from stagepost.model.job import NewJob
from stagepost.store import gates

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Gate"]


class Gate:
    """A gate, identified by its name; `on_open` is enqueued each time it opens."""

    def __init__(self, app: App, name: str, *, on_open: NewJob | None = None) -> None:
        check_key("gate name", name)
        self.name = name
        self.on_open = on_open
        """The job to enqueue; stored when the gate or one of its batches is first used."""
        self._app = app
        self._is_declared = on_open is None

    def __repr__(self) -> str:
        return f"Gate({self.name!r})"

    def is_open(self) -> bool:
        """Return whether the gate is open at this moment."""
        return run_procedure(self._looking(), self._app)

    async def is_open_async(self) -> bool:
        """Return whether the gate is open at this moment."""
        return await run_procedure_async(self._looking(), self._app)

    def check(self, *, tx: Any = None) -> None:
        """Raise GateClosed, which names the unfinished batches, unless the gate is open.

        With `tx`, the gate stays open until the caller's transaction ends: a new batch has to wait until then.
        """
        run_procedure(self._checking(holds=tx is not None), self._app, tx)

    async def check_async(self, *, tx: Any = None) -> None:
        """Raise GateClosed, which names the unfinished batches, unless the gate is open.

        With `tx`, the gate stays open until the caller's transaction ends: a new batch has to wait until then.
        """
        await run_procedure_async(self._checking(holds=tx is not None), self._app, tx)

    def wait(self, *, timeout: timedelta | float | None = None) -> None:
        """Wait until the gate is open; raises WaitTimeout after `timeout`."""
        run_procedure(self._waiting(timeout), self._app)

    async def wait_async(self, *, timeout: timedelta | float | None = None) -> None:
        """Wait until the gate is open; raises WaitTimeout after `timeout`."""
        await run_procedure_async(self._waiting(timeout), self._app)

    def _looking(self) -> Procedure[bool]:
        yield from self._declaring()
        gate = yield gates.find_gate(self.name)
        return gate is None or gate.unfinished == 0

    def _checking(self, *, holds: bool) -> Procedure[None]:
        yield from self._declaring()
        closed = yield from self._closed((gates.locked_status if holds else gates.status)(self.name))
        if closed is not None:
            raise closed

    def _closed(self, look: Operation[gates.GateStatus]) -> Procedure[GateClosed | None]:
        status: gates.GateStatus = yield look
        if not status.unfinished:
            return None
        named = {one.batch.key: summary_of(one.batch.state, one.counts) for one in status.batches}
        return GateClosed(self.name, named, more=max(0, status.unfinished - len(named)))

    def _waiting(self, timeout: timedelta | float | None) -> Procedure[None]:
        subject = f"gate {self.name!r}"
        for pause in pauses(timeout, subject):
            if (yield from self._looking()):
                return
            yield pause
        closed = yield from self._closed(gates.status(self.name))
        raise late(timeout, subject, missing="did not open", why=str(closed or "It has opened in the meantime."))

    def _declaring(self) -> Procedure[None]:
        if not self._is_declared:
            yield gates.declare(
                self.name, on_open=None if self.on_open is None else msgspec.json.encode(self.on_open).decode()
            )
            self._is_declared = True
