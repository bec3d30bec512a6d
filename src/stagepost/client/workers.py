"""The workers that have registered with an app's database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stagepost.client.operator_records import RegisteredWorker, worker_of
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.store.leaders import Leadership, list_leaders
from stagepost.store.workers import WorkerRecord, list_workers

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Workers"]


class Workers:
    """All registered workers, for operators. A worker that was killed is listed until the others forget it."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[RegisteredWorker]:
        """List workers and their last reports, last started first."""
        return run_procedure(_listing(), self._app)

    async def list_async(self) -> Sequence[RegisteredWorker]:
        """List workers without blocking the event loop."""
        return await run_procedure_async(_listing(), self._app)


def _listing() -> Procedure[list[RegisteredWorker]]:
    found: list[WorkerRecord] = yield list_workers()
    leaders: list[Leadership] = yield list_leaders()
    return [worker_of(one, tuple(held.name for held in leaders if held.owner == one.id)) for one in found]
