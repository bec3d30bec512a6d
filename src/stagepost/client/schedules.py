"""The schedules of an app as the database has them: list, pause, resume, remove, run now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stagepost.client.arguments import actor_of, page_size
from stagepost.client.handle import JobHandle
from stagepost.client.operator_records import Schedule, ScheduleRun, schedule_of
from stagepost.client.procedures import Procedure, run_procedure, run_procedure_async
from stagepost.errors import ScheduleNotFound
from stagepost.model.checks import NAME
from stagepost.model.job import to_datetime, to_instant
from stagepost.model.option_types import check_type
from stagepost.store import schedules

if TYPE_CHECKING:
    from stagepost.client.app import App

__all__ = ["Schedules"]


class Schedules:
    """All schedules that workers have declared, for operators; `app.schedule` declares one."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[Schedule]:
        """List all schedules by name."""
        return run_procedure(_listing(), self._app)

    async def list_async(self) -> Sequence[Schedule]:
        """List all schedules without blocking the event loop."""
        return await run_procedure_async(_listing(), self._app)

    def get(self, name: str) -> Schedule:
        """Read one schedule; raises ScheduleNotFound."""
        return run_procedure(_getting(name), self._app)

    async def get_async(self, name: str) -> Schedule:
        """Read one schedule without blocking the event loop."""
        return await run_procedure_async(_getting(name), self._app)

    def runs(self, name: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[ScheduleRun]:
        """List a schedule's due times and their jobs, newest first; `before` is the previous page's last `due_at`."""
        return run_procedure(_running(name, before, limit), self._app)

    async def runs_async(self, name: str, *, before: datetime | None = None, limit: int = 50) -> Sequence[ScheduleRun]:
        """List a schedule's due times without blocking the event loop."""
        return await run_procedure_async(_running(name, before, limit), self._app)

    def run(self, name: str, *, actor: str | None = None) -> JobHandle[Any]:
        """Enqueue a schedule's job now, in addition to its due times; works while the schedule is paused."""
        return JobHandle(self._app.store.run(schedules.run_now(_known(name), actor=actor_of(actor))), self._app)

    async def run_async(self, name: str, *, actor: str | None = None) -> JobHandle[Any]:
        """Enqueue a schedule's job now without blocking the event loop."""
        running = self._app.async_store.run(schedules.run_now(_known(name), actor=actor_of(actor)))
        return JobHandle(await running, self._app)

    def pause(self, name: str, *, actor: str | None = None) -> Schedule:
        """Stop a schedule from enqueuing jobs until it is resumed."""
        return run_procedure(_pausing(name, actor), self._app)

    async def pause_async(self, name: str, *, actor: str | None = None) -> Schedule:
        """Stop a schedule without blocking the event loop."""
        return await run_procedure_async(_pausing(name, actor), self._app)

    def resume(self, name: str, *, actor: str | None = None) -> Schedule:
        """Continue a paused or orphaned schedule at its next due time."""
        return run_procedure(_resuming(name, actor), self._app)

    async def resume_async(self, name: str, *, actor: str | None = None) -> Schedule:
        """Continue a schedule without blocking the event loop."""
        return await run_procedure_async(_resuming(name, actor), self._app)

    def remove(self, name: str, *, actor: str | None = None) -> None:
        """Remove a schedule; a worker that starts and still declares it brings it back."""
        self._app.store.run(schedules.remove_schedule(_known(name), actor=actor_of(actor)))

    async def remove_async(self, name: str, *, actor: str | None = None) -> None:
        """Remove a schedule without blocking the event loop."""
        await self._app.async_store.run(schedules.remove_schedule(_known(name), actor=actor_of(actor)))


def _listing() -> Procedure[list[Schedule]]:
    found: list[schedules.Schedule] = yield schedules.list_schedules()
    return [schedule_of(schedule) for schedule in found]


def _getting(name: str) -> Procedure[Schedule]:
    wanted = _known(name)
    for schedule in (yield from _listing()):
        if schedule.name == wanted:
            return schedule
    raise ScheduleNotFound(name)


def _running(name: str, before: datetime | None, limit: int) -> Procedure[list[ScheduleRun]]:
    check_type("before", before, datetime | None)
    until = schedules.NEVER if before is None else to_instant(before)
    found: list[schedules.Firing] = yield schedules.list_runs(_known(name), before=until, most=page_size(limit))
    return [ScheduleRun(to_datetime(one.due_at), one.job_id, to_datetime(one.fired_at)) for one in found]


def _pausing(name: str, actor: str | None) -> Procedure[Schedule]:
    yield schedules.pause_schedule(_known(name), actor=actor_of(actor))
    return (yield from _getting(name))


def _resuming(name: str, actor: str | None) -> Procedure[Schedule]:
    yield schedules.resume_schedule(_known(name), actor=actor_of(actor))
    return (yield from _getting(name))


def _known(name: str) -> str:
    """Check the name of a schedule; none has a name that `app.schedule` would refuse."""
    check_type("schedule name", name, str)
    if not NAME.fullmatch(name):
        raise ScheduleNotFound(name)
    return name
