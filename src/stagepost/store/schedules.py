"""Operations on schedules: declare, list, pause, and fire each due time exactly once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.errors import ConfigurationError, ScheduleNotFound
from stagepost.model.identity import new_id
from stagepost.model.job import Enqueued, NewJob, microseconds
from stagepost.model.schedule import CatchUp, DueTimes, Rule, due_times, parse_rule
from stagepost.store.jobs import audit, enqueue_many

__all__ = [
    "Fired",
    "Firing",
    "Schedule",
    "fire_due",
    "list_runs",
    "list_schedules",
    "next_schedule_due",
    "orphan_schedules",
    "pause_schedule",
    "put_schedule",
    "remove_schedule",
    "remove_schedules_not_in",
    "renew_declarations",
    "resume_schedule",
    "run_now",
    "undeclared_schedules",
]

NEVER = 2**62
"""The next due time of a rule that has none left."""
BROKEN_FOR = timedelta(minutes=5)
"""How long a schedule that failed to fire is skipped, so that it takes no place in a round."""
UNDECLARED = timedelta(minutes=5)
"""How long a schedule fires without a worker that declares it. Longer than a deploy or a restart takes."""
FRESH = {"fresh_us": microseconds(timedelta(seconds=30))}
"""A declaration younger than this is not renewed."""
TEXT_CHARACTERS = 191


class Schedule(msgspec.Struct, frozen=True):
    """A schedule's current state. Times are microseconds since 1970, UTC."""

    name: str
    task_name: str
    rule: str
    time_zone: str
    catch_up: str
    template: str
    """JSON of the job it enqueues."""
    next_due_at: int
    last_due_at: int | None
    orphaned_at: int | None
    """When it stopped firing because no running worker declares it."""
    paused_at: int | None
    held_until: int | None
    """When a schedule that failed to fire is tried again."""
    error: str | None
    """Why it failed to fire."""


class Firing(msgspec.Struct, frozen=True):
    """One due time of a schedule, and its job."""

    schedule_name: str
    due_at: int
    job_id: str
    fired_at: int


@operation
def put_schedule(
    name: str, *, rule: str, template: NewJob, time_zone: str = "UTC", catch_up: CatchUp = CatchUp.LATEST
) -> Statements[None]:
    """Create or update a schedule. The next due time changes only if the rule or time zone does."""
    parsed = _checked(name, rule, time_zone, template)
    # Without the id, which would make every declaration look like a change. Each due time gets a new id.
    text = msgspec.json.encode(msgspec.structs.replace(template, id="")).decode()
    [(now,)] = yield Statement("read_clock")
    facts = {
        "name": name,
        "task_name": template.task_name,
        "rule": rule,
        "time_zone": time_zone,
        "catch_up": CatchUp(catch_up),
        "template": text,
    }
    next_due_at = _next_after(parsed, int(now))
    yield Statement("add_schedule", {**facts, "next_due_at": next_due_at})
    known = yield from _locked(name)
    if (known.rule, known.time_zone) == (rule, time_zone):
        next_due_at = known.next_due_at
    wanted = msgspec.structs.replace(known, **facts, next_due_at=next_due_at)
    if wanted != known:
        yield Statement("change_schedule", {**facts, "next_due_at": next_due_at})
    yield from _renew(name)


@operation
def renew_declarations(names: Iterable[str]) -> Statements[list[str]]:
    """Record that a running worker declares these schedules, and return those written. Orphaned ones fire again.

    Ignores schedules that an operator removed: only a worker that starts brings them back.
    """
    stale = {str(name) for (name,) in (yield Statement("stale_declarations", FRESH))}
    renewed = sorted(stale.intersection(names))
    for name in renewed:
        yield from _renew(name)
    return renewed


def _renew(name: str) -> Statements[None]:
    yield Statement("renew_declaration", {"name": name, **FRESH})


@query
def undeclared_schedules() -> Statements[list[str]]:
    """List active schedules that no worker has declared for a while."""
    rows = yield Statement("undeclared_schedules", {"older_us": microseconds(UNDECLARED)})
    return [str(name) for (name,) in rows]


@operation
def orphan_schedules(names: Iterable[str]) -> Statements[list[str]]:
    """Stop undeclared schedules from firing until code declares them again or an operator resumes them.

    Returns the names of those stopped, without any that were declared meanwhile. When one fires again, `catch_up`
    decides about the due times in between.
    """
    older = {"older_us": microseconds(UNDECLARED)}
    undeclared = {str(name) for (name,) in (yield Statement("undeclared_schedules", older))}
    orphaned = sorted(undeclared.intersection(names))
    for name in orphaned:
        yield Statement("orphan_schedule", {"name": name, **older})
    return orphaned


@query
def list_schedules() -> Statements[list[Schedule]]:
    """List all schedules by name."""
    rows = yield Statement("list_schedules")
    return [Schedule(*row) for row in rows]


@query
def list_runs(schedule_name: str, *, before: int = NEVER, most: int = 50) -> Statements[list[Firing]]:
    """List a schedule's runs, newest first; `before` is the last due time of the previous page."""
    rows = yield Statement("list_runs", {"name": schedule_name, "before": before, "most": most})
    return [Firing(name, due_at, str(job_id), fired_at) for name, due_at, job_id, fired_at in rows]


@operation
def remove_schedules_not_in(names: Collection[str], *, actor: str) -> Statements[list[str]]:
    """Remove schedules that code no longer declares. Only safe if one application owns the database."""
    schedules = yield from list_schedules().start()
    gone = [schedule.name for schedule in schedules if schedule.name not in names]
    for name in gone:
        yield Statement("delete_schedule", {"name": name})
        yield from audit(actor, "remove_schedule", name).start()
    return gone


@operation
def remove_schedule(name: str, *, actor: str) -> Statements[None]:
    """Remove a schedule. A worker that starts and still declares it brings it back."""
    yield from _locked(name)
    yield Statement("delete_schedule", {"name": name})
    yield from audit(actor, "remove_schedule", name).start()


@operation
def pause_schedule(name: str, *, actor: str) -> Statements[None]:
    """Stop a schedule from firing until an operator resumes it."""
    yield from _locked(name)
    yield Statement("pause_schedule", {"name": name})
    yield from audit(actor, "pause_schedule", name).start()


@operation
def resume_schedule(name: str, *, actor: str) -> Statements[None]:
    """Let a schedule fire again from its next due time. Due times during the pause are skipped.

    Works for a schedule that no code declares, too.
    """
    schedule = yield from _locked(name)
    rule = parse_rule(schedule.rule, schedule.time_zone)
    [(now,)] = yield Statement("read_clock")
    if schedule.paused_at is not None or schedule.orphaned_at is not None:
        yield Statement("resume_schedule", {"name": name, "next_due_at": _next_after(rule, int(now))})
    yield from audit(actor, "resume_schedule", name).start()


@operation
def run_now(name: str, *, actor: str) -> Statements[Enqueued]:
    """Enqueue a schedule's job now, in addition to its due times. Works while the schedule is paused."""
    schedule = yield from _locked(name)
    [(now,)] = yield Statement("read_clock")
    [enqueued] = yield from enqueue_many([_job(schedule, int(now))]).start()
    yield from audit(actor, "run_schedule", name, detail=enqueued.id).start()
    return enqueued


@query
def next_schedule_due() -> Statements[timedelta | None]:
    """The time until the next schedule is due: zero or less if one is due now, None if there is no schedule."""
    rows = yield Statement("next_schedule_due")
    return None if rows[0][0] is None else timedelta(microseconds=int(rows[0][0]))


class Fired(msgspec.Struct, frozen=True):
    """The result of one round of firing."""

    runs: tuple[Firing, ...]
    errors: Mapping[str, str]
    """Errors by the name of the schedule that failed to fire; it is tried again after `BROKEN_FOR`."""
    is_more: bool
    """Whether more due times may be waiting."""


@operation
def fire_due(most: int = 100) -> Statements[Fired]:
    """Enqueue the jobs of up to `most` due times, each exactly once even with several schedulers.

    Each schedule gets a share of the round, so one that must catch up on thousands of due times delays the others by a
    round at most. Only the database's clock counts. Skips locked schedules, which another scheduler is firing.
    """
    rows = yield Statement("lock_due_schedules", {"most": most})
    asked: list[tuple[str, int, NewJob]] = []
    errors: dict[str, str] = {}
    moves: list[tuple[Schedule, DueTimes]] = []
    is_more = len(rows) == most
    for turn, (*facts, until_due) in enumerate(rows):
        schedule = Schedule(*facts)
        now = schedule.next_due_at - int(until_due)
        share = (most - len(asked)) // (len(rows) - turn)  # includes what earlier ones left
        try:
            due = _due_times(schedule, now, share)
            asked += [(schedule.name, due_at, _job(schedule, due_at)) for due_at in due.fire]
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one schedule must not stop the others
            errors[schedule.name] = f"{type(error).__name__}: {error}"[:1000]
            yield from _hold(schedule, errors[schedule.name])
            continue
        moves.append((schedule, due))
        is_more = is_more or (due.next is not None and due.next <= now)
    runs = yield from _fire(asked)
    for schedule, due in moves:
        yield from _move(schedule, due)
    return Fired(tuple(runs), errors, is_more)


def _due_times(schedule: Schedule, now: int, most: int) -> DueTimes:
    rule = parse_rule(schedule.rule, schedule.time_zone)
    return due_times(rule, schedule.next_due_at - 1, now, catch_up=CatchUp(schedule.catch_up), most=most)


def _fire(asked: Sequence[tuple[str, int, NewJob]]) -> Statements[list[Firing]]:
    """Record due times, and enqueue jobs for those that were not recorded before."""
    if not asked:
        return []
    wanted = [{"schedule_name": name, "due_at": due_at, "job_id": job.id} for name, due_at, job in asked]
    rows = yield Statement("insert_schedule_runs", {"runs": as_json(wanted)})
    fired_at = {str(job_id): int(instant) for job_id, instant in rows}
    new = [(name, due_at, job) for name, due_at, job in asked if job.id in fired_at]
    enqueued = yield from enqueue_many([job for _, _, job in new]).start()
    runs = []
    for (name, due_at, job), result in zip(new, enqueued, strict=True):
        runs.append(Firing(name, due_at, result.id, fired_at[job.id]))
        if not result.is_new:  # a live job holds the unique key; credit it with the due time
            yield Statement("credit_run", {"name": name, "due_at": due_at, "job_id": result.id})
    return runs


def _move(schedule: Schedule, due: DueTimes) -> Statements[None]:
    yield Statement(
        "move_schedule",
        {
            "name": schedule.name,
            "seen": schedule.next_due_at,
            "next_due_at": NEVER if due.next is None else due.next,
            "last_due_at": due.fire[-1] if due.fire else schedule.last_due_at,
        },
    )


def _hold(schedule: Schedule, error: str) -> Statements[None]:
    yield Statement(
        "hold_schedule",
        {
            "name": schedule.name,
            "seen": schedule.next_due_at,
            "error": error,
            "hold_us": microseconds(BROKEN_FOR),
        },
    )


def _locked(name: str) -> Statements[Schedule]:
    rows = yield Statement("lock_schedule", {"name": name})
    if not rows:
        raise ScheduleNotFound(name)
    return Schedule(*rows[0])


def _next_after(rule: Rule, now: int) -> int:
    due = rule.next_after(now)
    return NEVER if due is None else due


def _job(schedule: Schedule, due_at: int) -> NewJob:
    """Create the job for one due time, which its context names."""
    template = msgspec.json.decode(schedule.template, type=NewJob)
    _check_template(template)
    context: dict[str, Any] = {} if template.context is None else msgspec.json.decode(template.context)
    context |= {"schedule": schedule.name, "due_at": due_at}
    return msgspec.structs.replace(template, id=new_id(), available_at=None, context=as_json(context))


def _checked(name: str, rule: str, time_zone: str, template: NewJob) -> Rule:
    """Parse the rule, and raise ConfigurationError for a schedule that would fail to fire later."""
    if not 1 <= len(name) <= TEXT_CHARACTERS:
        raise ConfigurationError(f"schedule {name[:50]!r}: a name has 1 to {TEXT_CHARACTERS} characters.")
    if len(rule) > TEXT_CHARACTERS:
        raise ConfigurationError(f"schedule {name!r}: its rule is longer than {TEXT_CHARACTERS} characters.")
    try:
        _check_template(template)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"schedule {name!r}: its job cannot be stored: {error}.") from error
    return parse_rule(rule, time_zone)


def _check_template(template: NewJob) -> None:
    """Raise ValueError for values that a database would refuse: its own error would fail the whole round."""
    for field in ("task_name", "queue_name", "unique_key", "limit_key"):
        text = getattr(template, field) or ""
        if len(text) > TEXT_CHARACTERS or "\0" in text:
            raise ValueError(f"{field} is longer than {TEXT_CHARACTERS} characters or has a zero byte")
    if template.priority not in range(-32768, 32768):
        raise ValueError(f"priority is {template.priority}")
    if template.max_attempts not in range(1, 2**31):
        raise ValueError(f"max_attempts is {template.max_attempts}")
    msgspec.json.decode(template.payload)
    if template.context is not None:
        msgspec.json.decode(template.context, type=dict[str, Any])
