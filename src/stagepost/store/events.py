"""Operations on events: record them with the change they report, number them after the commit, read and delete them.

A row is written in the transaction of the change, without a position. Whoever reads next gives every committed row the
next position, while it holds a lock on the stream. So positions become visible in order, and a transaction that commits
late gets a later position: a cursor cannot skip it. Row ids keep the order of each job, because a transaction that
changes a job again starts to write after the earlier one has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.errors import EventsPruned, NoSuchEvent
from stagepost.events import EVENT_TYPES, Event, EventLevel
from stagepost.model.context import NOTHING, TraceContext
from stagepost.model.job import microseconds, to_datetime
from stagepost.model.lifecycle import JobState

__all__ = [
    "JobFacts",
    "Stream",
    "declare_levels",
    "levels",
    "number_events",
    "prune_events",
    "read_events",
    "record_events",
    "stream",
    "undeclared_levels",
]

LONGEST_CONTEXT = 2000
DEFAULT = ""
"""The task name under which the default level is stored."""


class JobFacts(msgspec.Struct, frozen=True, array_like=True):
    """One element of `facts`; the dialects' `end_jobs.sql` write the same array."""

    job_id: str
    state: JobState
    task: str
    queue: str
    attempt: int
    batch_id: str | None = None
    reason: str | None = None
    context: str | None = None
    """The job's stored context, for its ids. One longer than `LONGEST_CONTEXT` holds more than ids, and is left out."""

    def bounded(self) -> JobFacts:
        """Leave a long context out, as the dialects' statements do."""
        is_long = self.context is not None and len(self.context) > LONGEST_CONTEXT
        return msgspec.structs.replace(self, context=None) if is_long else self


def record_events(facts: Iterable[tuple[JobFacts, str]]) -> Statements[None]:
    """Record changes of jobs, each with the level of its task, in the transaction that makes them."""
    wanted = [one.bounded() for one, level in facts if level != EventLevel.OFF]
    if wanted:
        yield Statement("record_events", {"events": wanted}, split="events")


class Stream(NamedTuple):
    """How far the stream of events goes."""

    last: int
    """Number of the newest event."""
    pruned: int
    """Number of the newest event that was deleted; the oldest event that can be read has the next number."""
    is_behind: bool
    """Whether committed events have no number yet."""


@query
def stream() -> Statements[Stream]:
    """Read how far the stream goes, and whether there is something to number."""
    unnumbered = yield Statement("unnumbered_events", {"most": 1})
    last, pruned = yield from _look()
    return Stream(last, pruned, bool(unnumbered))


def _look() -> Statements[tuple[int, int]]:
    rows = yield Statement("look_at_stream")
    return rows[0] if rows else (0, 0)


@operation
def number_events(*, most: int = 1000) -> Statements[int]:
    """Give committed rows of events the next positions, and return how many; fewer than `most` means none are left."""
    last, _ = yield from _lock()
    # A separate statement, whose snapshot is newer than the lock: it sees what the previous holder has numbered.
    rows = yield Statement("unnumbered_events", {"most": most})
    numbered: list[tuple[int, int]] = []
    for row_id, number in rows:
        numbered.append((row_id, last + 1))
        last += number
    if numbered:
        yield Statement("number_events", {"rows": as_json([{"id": id_, "position": at} for id_, at in numbered])})
        yield Statement("move_stream", {"last_position": last})
    return len(numbered)


def _lock() -> Statements[tuple[int, int]]:
    """Lock the stream's row until the end of the transaction, and create it first if necessary."""
    while not (rows := (yield Statement("lock_stream"))):
        yield Statement("add_stream")
    return rows[0]


@query
def read_events(*, after: int | None = None, most: int = 1000) -> Statements[list[Event]]:
    """Read numbered events in order, up to `most`. None starts with the oldest that is stored."""
    first = 1 if after is None else after + 1
    rows = yield Statement("read_events", {"first": first, "most": most})
    events = [event for row in rows for event in _events_of(row) if event.number >= first][:most]
    # Looked at last: if the events after the cursor are not deleted by now, none of them was missing above.
    last, pruned = yield from _look()
    if after is not None:
        if after < pruned and not (events and events[0].number == first):
            raise EventsPruned(after, oldest=pruned + 1)
        if after > last:
            raise NoSuchEvent(after, last=last)
    return events


def _events_of(row: tuple[int, int, str]) -> list[Event]:
    position, happened_at, facts = row
    time = to_datetime(happened_at)
    return [
        EVENT_TYPES[one.state](
            number=position + index,
            time=time,
            job_id=one.job_id,
            task=one.task,
            queue=one.queue,
            attempt=one.attempt,
            batch_id=one.batch_id,
            reason=one.reason,
            trace=_trace(one.context),
        )
        for index, one in enumerate(FACTS.decode(facts))
    ]


FACTS = msgspec.json.Decoder(list[JobFacts])


def _trace(context: str | None) -> TraceContext:
    """Decode the ids. Another program may have stored something else, which must not stop all readers."""
    try:
        return TraceContext.decode(context)
    except msgspec.MsgspecError:
        return NOTHING


@operation
def prune_events(older_than: timedelta, *, keep: int = 0, most: int = 1000) -> Statements[int]:
    """Delete the oldest numbered rows, up to `most`, and return how many; 0 means that none are left to delete.

    Deletes rows older than `older_than`, and rows beyond the newest `keep` events. 0 stands for no limit in both. Rows
    are deleted only in the order of their numbers, so that one number says which events are gone.
    """
    last, _ = yield from _lock()
    older_us = microseconds(older_than) or NEVER_US
    rows = yield Statement("oldest_events", {"older_us": older_us, "most": most})
    gone = list(takewhile(lambda row: row[2] or (keep and last - (row[0] + row[1] - 1) >= keep), rows))
    if gone:
        position, number, _ = gone[-1]
        yield Statement("delete_events", {"until": position})
        yield Statement("prune_stream", {"pruned_position": position + number - 1})
    return len(gone)


NEVER_US = microseconds(timedelta(days=365_000))


@query
def levels() -> Statements[dict[str, EventLevel]]:
    """Read the declared levels by task name; the empty name is the default."""
    rows = yield Statement("event_levels")
    return {str(name): EventLevel(level) for name, level in rows}


@operation
def declare_levels(default: EventLevel, tasks: Mapping[str, EventLevel | None]) -> Statements[None]:
    """Store the default level and the levels of tasks; None makes a task follow the default."""
    known = yield from levels()
    for name, level in undeclared_levels(known, default, tasks).items():
        if level is None:
            yield Statement("drop_event_level", {"task_name": name})
        else:
            yield Statement("put_event_level", {"task_name": name, "level": str(level)})


def undeclared_levels(
    known: Mapping[str, EventLevel], default: EventLevel, tasks: Mapping[str, EventLevel | None]
) -> dict[str, EventLevel | None]:
    """Return the levels that `declare_levels` has to store, None for those to delete, in the order of their names.

    Workers that start together would deadlock if they stored them in another order.
    """
    stored: dict[str, EventLevel | None] = {DEFAULT: EventLevel.FINAL, **known}  # what the statements take as default
    wanted = {DEFAULT: default, **tasks}
    return {name: level for name, level in sorted(wanted.items()) if stored.get(name) != level}
