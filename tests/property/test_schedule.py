"""Due times agree with a minute-by-minute reading of the clocks, over two years in eight zones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost.errors import ConfigurationError
from stagepost.model.schedule import CatchUp, CronRule, IntervalRule, due_times, parse_rule

MINUTE = timedelta(minutes=1)
SECOND = 1_000_000
YEARS = {
    "Europe/Berlin": 2026,
    "America/New_York": 2026,
    "Australia/Lord_Howe": 2026,  # by half an hour
    "America/Sao_Paulo": 2017,  # at midnight, until 2019
    "Asia/Kolkata": 2026,  # never
    "Africa/Casablanca": 2026,  # back for Ramadan
    "UTC": 2027,  # has a leap day
    "Pacific/Apia": 2011,  # left out 30 December
    "Antarctica/Troll": 2026,  # by two hours
}


def changes(zone: str) -> Iterator[datetime]:
    """Give the hours after which the zone's clocks read differently."""
    at = datetime(YEARS[zone], 1, 1, tzinfo=UTC)
    while at.year < YEARS[zone] + 2:
        later = at + timedelta(hours=1)
        if at.astimezone(ZoneInfo(zone)).utcoffset() != later.astimezone(ZoneInfo(zone)).utcoffset():
            yield at
        at = later


CHANGES = [(zone, at) for zone in YEARS for at in changes(zone)]


def read_clock(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def expected(zone: str, since: datetime, until: datetime, minutes: set[int], hours: set[int]) -> list[datetime]:
    """Apply the policy of `CronRule` literally, to every minute."""

    def is_match(local: datetime) -> bool:
        return local.minute in minutes and local.hour in hours

    found, previous = [], read_clock(since - MINUTE, zone)
    latest = previous
    at = since
    while at < until:
        local = read_clock(at, zone)
        if len(hours) == 24:
            is_due = is_match(local)
        else:
            skipped = [previous + n * MINUTE for n in range(1, (local - previous) // MINUTE)]
            is_due = local > latest and any(map(is_match, [*skipped, local]))
        if is_due:
            found.append(at)
        previous, latest, at = local, max(latest, local), at + MINUTE
    return found


def walk(rule: CronRule | IntervalRule, since: datetime, until: datetime) -> list[datetime]:
    found, at = [], int(since.timestamp()) * SECOND - 1
    while (due := rule.next_after(at)) is not None and due < until.timestamp() * SECOND:
        assert due > at
        at = due
        found.append(datetime.fromtimestamp(at // SECOND, UTC))
    return found


MINUTES = st.sets(st.integers(0, 59), min_size=1, max_size=4)
HOURS = st.sets(st.integers(0, 4) | st.integers(0, 23), min_size=1, max_size=5) | st.just(set(range(24)))


def listed(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


@settings(max_examples=400, deadline=None)
@given(change=st.sampled_from(CHANGES), minutes=MINUTES, hours=HOURS)
def test_around_every_change_of_clocks_a_rule_fires_as_the_policy_says(
    change: tuple[str, datetime], minutes: set[int], hours: set[int]
) -> None:
    zone, at = change
    since, until = at - timedelta(hours=7), at + timedelta(hours=9)
    rule = parse_rule(f"{listed(minutes)} {listed(hours)} * * *", zone)

    assert walk(rule, since, until) == expected(zone, since, until, minutes, hours)


@pytest.mark.parametrize("zone", YEARS)
@pytest.mark.parametrize("text", ["30 2 * * *", "0 0 * * *", "15 1 * * *"])
def test_a_daily_rule_fires_once_for_every_day_of_two_years(zone: str, text: str) -> None:
    first, last = date(YEARS[zone], 1, 1), date(YEARS[zone] + 2, 1, 1)
    since, until = (datetime(day.year, 1, 1, tzinfo=ZoneInfo(zone)) for day in (first, last))

    found = walk(parse_rule(text, zone), since, until)

    # The midnight of the day that Apia left out and that of the day after are the same instant.
    merged = 1 if (zone, text) == ("Pacific/Apia", "0 0 * * *") else 0
    assert len(found) == (last - first).days - merged


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll"])
def test_a_rule_for_all_hours_does_not_pause_when_clocks_change(zone: str) -> None:
    since, until = (datetime(YEARS[zone] + years, 1, 1, tzinfo=UTC) for years in (0, 2))

    found = walk(parse_rule("0 * * * *", zone), since, until)

    longest = max(later - earlier for earlier, later in pairwise(found))
    assert longest == timedelta(minutes=90 if zone == "Australia/Lord_Howe" else 60)


@settings(max_examples=300, deadline=None)
@given(
    zone=st.sampled_from(list(YEARS)),
    at=st.integers(0, 2**52),
    rule=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "*/20 1-3 * * SUN", "0 0 L * *", "5 4 * * FRI#2"]),
)
def test_a_due_time_is_the_next_one_from_any_instant_before_it(zone: str, at: int, rule: str) -> None:
    parsed = parse_rule(rule, zone)
    due = parsed.next_after(at)

    assert due is not None
    assert due > at
    assert due % (60 * SECOND) == 0
    assert parsed.next_after((at + due) // 2) == due
    assert parsed.next_after(due - 1) == due


@settings(max_examples=300, deadline=None)
@given(every=st.integers(1, 10**6), anchor=st.integers(-(2**52), 2**52), at=st.integers(-(2**52), 2**52))
def test_an_interval_is_due_at_whole_multiples_from_its_anchor(every: int, anchor: int, at: int) -> None:
    due = parse_rule(f"every {every}s", "UTC", anchor_us=anchor).next_after(at)

    assert due is not None
    assert (due - anchor) % (every * SECOND) == 0
    assert 0 < due - at <= every * SECOND


@settings(max_examples=300, deadline=None)
@given(
    text=st.sampled_from(["*/5 * * * *", "30 2 * * *", "every 7m", "0 9 * * MON"]),
    zone=st.sampled_from(list(YEARS)),
    after=st.integers(1_700_000_000 * SECOND, 1_900_000_000 * SECOND),
    down=st.integers(0, 10**11) | st.integers(0, 10**13),
    most=st.integers(1, 30),
)
def test_catching_up_fires_a_part_of_what_was_missed_in_order(
    text: str, zone: str, after: int, down: int, most: int
) -> None:
    rule, now = parse_rule(text, zone), after + down
    each = due_times(rule, after, now, catch_up=CatchUp.ALL, most=most)
    latest = due_times(rule, after, now, catch_up=CatchUp.LATEST, most=most)
    skip = due_times(rule, after, now, catch_up=CatchUp.SKIP, most=most)

    for due in (each, latest, skip):
        assert all(after < instant <= now for instant in due.fire)
        assert list(due.fire) == sorted(set(due.fire))
        assert due.next is not None
        assert due.next == rule.next_after(due.fire[-1] if due.fire else now)
    assert len(latest.fire) == bool(each.fire)
    assert latest.next is not None
    assert latest.next > now
    assert all(now - instant <= 60 * SECOND for instant in skip.fire)
    if len(each.fire) < most:
        assert each.fire[-1:] == latest.fire


@settings(max_examples=1_000, deadline=10_000)
@given(text=st.text(alphabet="0123456789*/,-L#W@ MONFRIevery smhdw", max_size=30) | st.text(max_size=30))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        rule = parse_rule(text, "Europe/Berlin")
    except ConfigurationError:
        return

    due = rule.next_after(0)

    assert due is None or due > 0


@settings(max_examples=500, deadline=10_000)
@given(
    fields=st.tuples(*[st.text(alphabet="0123456789*/,-L#W", min_size=1, max_size=6) for _ in range(5)]),
)
def test_any_five_fields_are_a_rule_or_refused(fields: tuple[str, ...]) -> None:
    try:
        rule = parse_rule(" ".join(fields), "Europe/Berlin")
    except ConfigurationError:
        return

    due = rule.next_after(0)

    assert due is None or due > 0
