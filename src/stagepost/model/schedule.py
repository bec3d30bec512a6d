"""Due times of schedules: cron rules in a time zone, plain intervals, and catching up after a pause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Literal, assert_never
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from stagepost.errors import ConfigurationError
from stagepost.model.job import microseconds

__all__ = ["CatchUp", "CronRule", "DueTimes", "IntervalRule", "Rule", "due_times", "parse_rule"]

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
SECOND = 1_000_000
SHORTEST_INTERVAL, LONGEST_INTERVAL = timedelta(seconds=1), timedelta(days=3_660)
LONGEST_FOLD = timedelta(hours=3)
"""The largest amount by which any time zone has set its clocks back in recent decades."""
LONGEST_FOLD_US = microseconds(LONGEST_FOLD)

_INTERVAL = re.compile(r"every\s+((?:\d{1,9}\s*[smhdw]\s*)+)", re.IGNORECASE)
_INTERVAL_PART = re.compile(r"(\d+)\s*([smhdw])", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLES = "Examples: '*/5 * * * *', '30 2 * * MON-FRI', '@daily', 'every 30s', 'every 1h 30m'."


@dataclass(frozen=True, slots=True)
class CronRule:
    """Minute, hour, day of month, month and day of week, in the local time of one time zone.

    When clocks change:

    | the rule's hours | time that occurs twice | time that does not occur |
    |---|---|---|
    | some (`30 2 * * *`) | fires once, the first time | fires once, at the first instant after the gap |
    | all (`*/5 * * * *`) | fires both times | does not fire |

    A rule for all hours is meant to fire regularly: skipping the repeated hour would cause a pause of an hour,
    and the time after a gap is already due on its own. If several times of a rule fall into one gap, they fire
    once together. Days restricted in both fields match either field, as in cron.
    """

    text: str
    expression: str
    zone: ZoneInfo
    is_for_all_hours: bool

    def next_after(self, instant_us: int) -> int | None:
        """Find the first due instant after `instant_us`; None if there is none within 50 years."""
        best: int | None = None
        try:
            for local in self._local_times(instant_us):
                instants = self._instants(local)
                best = min((i for i in [best, *instants] if i is not None and i > instant_us), default=None)
                # First occurrences of increasing local times increase too; second occurrences may not.
                if best is not None and (not instants or instants[0] >= best):
                    return best
        except OverflowError:
            return best  # datetime ends before the year 10,000
        return best

    def _local_times(self, instant_us: int) -> Iterator[datetime]:
        """Yield matching local times in order, starting early enough to miss none after the instant."""
        local = self._local(instant_us)
        if self.is_for_all_hours and local - self._local(instant_us + LONGEST_FOLD_US) > -LONGEST_FOLD:
            local -= LONGEST_FOLD  # clocks are about to be set back, so earlier local times will occur again
        times: Iterator[datetime] = CronSim(self.expression, local)
        return times

    def _local(self, instant_us: int) -> datetime:
        """Convert an instant to a naive local time, on which plain arithmetic works."""
        return (_EPOCH + timedelta(microseconds=instant_us)).astimezone(self.zone).replace(tzinfo=None)

    def _instants(self, local: datetime) -> list[int]:
        """Return the instants at which a local time is due."""
        before = _instant(local, self.zone, fold=0)
        after = _instant(local, self.zone, fold=1)
        if before == after:
            return [before]
        is_repeated = before < after
        if self.is_for_all_hours:
            return [before, after] if is_repeated else []
        return [before if is_repeated else self._end_of_gap(after, before)]

    def _end_of_gap(self, early: int, late: int) -> int:
        """Find the one clock change after `early` and not after `late`."""
        early, late = early // SECOND, late // SECOND
        offset_after = self._offset(late * SECOND)
        while late - early > 1:
            middle = (early + late) // 2
            if self._offset(middle * SECOND) == offset_after:
                late = middle
            else:
                early = middle
        return late * SECOND

    def _offset(self, instant_us: int) -> timedelta:
        return self._local(instant_us) - (_EPOCH + timedelta(microseconds=instant_us)).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class IntervalRule:
    """Due at a fixed interval in microseconds from an anchor, independent of time zones."""

    text: str
    every_us: int
    anchor_us: int = 0

    def next_after(self, instant_us: int) -> int | None:
        """Find the first due instant after `instant_us`."""
        passed = (instant_us - self.anchor_us) // self.every_us
        return self.anchor_us + (passed + 1) * self.every_us


Rule = CronRule | IntervalRule


def parse_rule(text: str | timedelta, time_zone: str = "UTC", *, anchor_us: int = 0) -> Rule:
    """Parse a cron expression with five fields, a nickname such as `@daily`, or "every 1h 30m".

    Intervals ignore the time zone and count from `anchor_us`. The default is 1970, so that "every 15m" is due
    on the quarter hour; pass a schedule's creation time to count from there.
    """
    zone = _zone(time_zone)
    if isinstance(text, timedelta):
        return _interval(f"every {text.total_seconds():.15g}s", text, anchor_us)
    rule = " ".join(text.split())
    if interval := _INTERVAL.fullmatch(rule):
        parts = _INTERVAL_PART.findall(interval[1])
        seconds = sum(int(count) * UNITS[unit.lower()] for count, unit in parts)
        return _interval(rule, timedelta(seconds=seconds), anchor_us)
    return _cron(rule, zone)


class CatchUp(StrEnum):
    """What to do about due times that passed while no scheduler was running."""

    SKIP = "skip"
    """They do not fire."""
    LATEST = "latest"
    """The newest one fires."""
    ALL = "all"
    """Each one fires."""


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The instants to fire now, oldest first, and the next due time."""

    fire: tuple[int, ...]
    next: int | None
    """The first due instant that is not in `fire`; it has already passed if `most` limited the list."""


def due_times(
    rule: Rule,
    after: int,
    now: int,
    *,
    catch_up: CatchUp | Literal["skip", "latest", "all"],
    most: int = 100,
    tolerance: timedelta = timedelta(minutes=1),
) -> DueTimes:
    """Decide which due times after `after` and up to `now` to fire.

    `after` is the last instant that was handled. A due time up to `tolerance` late counts as on time, which
    matters only for `skip`. At most `most` fire now; the next call starts after the last one fired.
    """
    match CatchUp(catch_up):
        case CatchUp.ALL:
            fire = tuple(islice(_between(rule, after, now), most))
        case CatchUp.SKIP:
            still_on_time = max(after, now - microseconds(tolerance) - 1)
            fire = tuple(islice(_between(rule, still_on_time, now), most))
        case CatchUp.LATEST:
            newest = _newest(rule, after, now)
            fire = () if newest is None else (newest,)
        case unknown:
            assert_never(unknown)
    return DueTimes(fire, rule.next_after(fire[-1] if fire else max(after, now)))


def _between(rule: Rule, after: int, until: int) -> Iterator[int]:
    due = rule.next_after(after)
    while due is not None and due <= until:
        yield due
        due = rule.next_after(due)


def _newest(rule: Rule, after: int, now: int) -> int | None:
    """Find the last due instant by bisection, because a rule for every minute may have been due a million times."""

    def is_due_after(instant: int) -> bool:
        due = rule.next_after(instant)
        return due is not None and due <= now

    if not is_due_after(after):
        return None
    before, at_or_after = after, now
    while at_or_after - before > 1:
        middle = (before + at_or_after) // 2
        if is_due_after(middle):
            before = middle
        else:
            at_or_after = middle
    return at_or_after


def _interval(text: str, every: timedelta, anchor_us: int) -> IntervalRule:
    if not SHORTEST_INTERVAL <= every <= LONGEST_INTERVAL or every.microseconds:
        raise ConfigurationError(
            f"schedule rule {text!r}: an interval must be a whole number of seconds, from 1 second to "
            f"{LONGEST_INTERVAL.days:,} days. {_EXAMPLES}"
        )
    return IntervalRule(text, microseconds(every), anchor_us)


def _cron(text: str, zone: ZoneInfo) -> CronRule:
    expression = NICKNAMES.get(text.lower(), text)
    fields = expression.split()
    if len(fields) != 5:
        raise ConfigurationError(
            f"schedule rule {text!r} has {len(fields)} fields; cron has 5: minute, hour, day of month, "
            f"month, day of week. {_EXAMPLES}"
        )
    try:
        parsed = CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - local time
        next(parsed)
    except StopIteration:
        raise ConfigurationError(f"schedule rule {text!r} is never due. {_EXAMPLES}") from None
    except (CronSimError, ValueError, AssertionError) as error:
        raise ConfigurationError(f"schedule rule {text!r} is invalid: {error}. {_EXAMPLES}") from error
    return CronRule(text, expression, zone, is_for_all_hours=len(parsed.hours) == 24)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"time zone {name!r} is not known here. Use an IANA name such as 'Europe/Berlin' or 'UTC'; "
            f"if those are unknown too, install the package `tzdata`."
        ) from error


def _instant(local: datetime, zone: ZoneInfo, *, fold: Literal[0, 1]) -> int:
    return microseconds(local.replace(tzinfo=zone, fold=fold) - _EPOCH)
