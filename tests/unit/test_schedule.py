"""Rules are read, due times found, and pauses caught up with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from stagepost.errors import ConfigurationError
from stagepost.model.schedule import CatchUp, DueTimes, IntervalRule, Rule, due_times, parse_rule

MINUTE = 60_000_000


def instant(text: str, zone: str = "UTC", *, fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(moment.timestamp()) * 1_000_000


def fires(rule: Rule, since: str, count: int, zone: str = "UTC") -> list[str]:
    """The next due times, written with their offset from UTC."""
    found, at = [], instant(since, zone) - 1
    for _ in range(count):
        due = rule.next_after(at)
        assert due is not None
        at = due
        found.append(datetime.fromtimestamp(at / 1_000_000, UTC).astimezone(ZoneInfo(zone)).isoformat())
    return found


# Reading rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/5 * * * *", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:05:00+00:00"]),
        ("30 2 * * *", ["2026-01-01T02:30:00+00:00", "2026-01-02T02:30:00+00:00"]),
        (" 0   9  *  *  mon-fri ", ["2026-01-01T09:00:00+00:00", "2026-01-02T09:00:00+00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
        ("0 0 L * *", ["2026-01-31T00:00:00+00:00", "2026-02-28T00:00:00+00:00"]),
        ("0 0 * * MON#1", ["2026-01-05T00:00:00+00:00", "2026-02-02T00:00:00+00:00"]),
        ("0 0 13 * FRI", ["2026-01-02T00:00:00+00:00", "2026-01-09T00:00:00+00:00"]),
        ("@hourly", ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"]),
        ("@daily", ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]),
        ("@midnight", ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]),
        ("@weekly", ["2026-01-04T00:00:00+00:00", "2026-01-11T00:00:00+00:00"]),
        ("@Monthly", ["2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"]),
        ("@yearly", ["2026-01-01T00:00:00+00:00", "2027-01-01T00:00:00+00:00"]),
        ("@annually", ["2026-01-01T00:00:00+00:00", "2027-01-01T00:00:00+00:00"]),
        ("every 30s", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:30+00:00"]),
        ("every 15m", ["2026-01-01T00:00:00+00:00", "2026-01-01T00:15:00+00:00"]),
        ("Every 2 H", ["2026-01-01T00:00:00+00:00", "2026-01-01T02:00:00+00:00"]),
        ("every 1h 30m", ["2026-01-01T00:00:00+00:00", "2026-01-01T01:30:00+00:00"]),
        ("every 1d", ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]),
    ],
)
def test_a_rule_is_read(text: str, expected: list[str]) -> None:
    assert fires(parse_rule(text, "UTC"), "2026-01-01", 2) == expected


def test_a_timedelta_is_an_interval_whose_text_can_be_read_again() -> None:
    rule = parse_rule(timedelta(days=12, seconds=1), "UTC")

    assert rule.text == "every 1036801s"
    assert parse_rule(rule.text, "UTC") == rule == IntervalRule("every 1036801s", 1_036_801_000_000)


def test_an_interval_counts_from_its_anchor() -> None:
    created = instant("2026-01-01T00:07:00")
    rule = parse_rule("every 15m", "UTC", anchor_us=created)

    assert rule.next_after(created) == created + 15 * MINUTE
    assert rule.next_after(created - 1) == created
    assert rule.next_after(created + 15 * MINUTE - 1) == created + 15 * MINUTE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 fields; cron has 5"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("@reboot", "has 1 fields"),
        ("60 * * * *", "is invalid: Bad minute"),
        ("* 24 * * *", "is invalid: Bad hour"),
        ("* * 0 * *", "is invalid: Bad day-of-month"),
        ("* * * 13 *", "is invalid: Bad month"),
        ("* * * * 8", "is invalid: Bad day-of-week"),
        ("*/0 * * * *", "is invalid: Bad minute"),
        ("0 0 30 2 *", "is invalid: Bad day-of-month"),
        ("9" * 5_000 + " * * * *", "is invalid"),
        ("every", "has 1 fields"),
        ("every 0s", "from 1 second"),
        ("every 99999w", "from 1 second to 3,660 days"),
        ("every -5m", "has 2 fields"),
        ("every 5 minutes", "has 3 fields"),
    ],
)
def test_a_bad_rule_is_refused_with_the_reason_and_an_example(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_rule(text, "UTC")

    assert reason in str(refusal.value)
    assert "Examples: '*/5 * * * *'" in str(refusal.value)


def test_an_interval_of_half_a_second_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="whole number of seconds"):
        parse_rule(timedelta(seconds=1.5), "UTC")


@pytest.mark.parametrize("zone", ["", "Berlin", "Europe", "../etc/passwd", "/etc/passwd", "Europe/Berlin\0", "a" * 300])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not known here\. Use an IANA name such as 'Europe/Berlin'"):
        parse_rule("@daily", zone)


def test_a_rule_has_no_due_time_at_the_end_of_time() -> None:
    assert parse_rule("@daily", "Asia/Kolkata").next_after(instant("9999-12-31T20:00:00")) is None


# When clocks change


def test_a_time_that_occurs_twice_fires_the_first_time_only() -> None:
    rule = parse_rule("30 2 * * *", "Europe/Berlin")

    assert fires(rule, "2026-10-24", 3, "Europe/Berlin") == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_between_its_two_occurrences_the_next_due_time_is_tomorrow() -> None:
    rule = parse_rule("30 2 * * *", "Europe/Berlin")
    second_pass = instant("2026-10-25T02:10:00", "Europe/Berlin", fold=1)

    assert rule.next_after(second_pass) == instant("2026-10-26T02:30:00", "Europe/Berlin")


def test_a_time_that_does_not_occur_fires_at_the_first_instant_after_the_gap() -> None:
    rule = parse_rule("30 2 * * *", "Europe/Berlin")

    assert fires(rule, "2026-03-28", 3, "Europe/Berlin") == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_several_times_in_one_gap_fire_once() -> None:
    rule = parse_rule("*/20 2,3 * * *", "Europe/Berlin")

    assert fires(rule, "2026-03-29", 3, "Europe/Berlin") == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:20:00+02:00",
        "2026-03-29T03:40:00+02:00",
    ]


def test_a_rule_for_all_hours_goes_on_through_the_repeated_hour() -> None:
    rule = parse_rule("*/30 * * * *", "Europe/Berlin")

    assert fires(rule, "2026-10-25T01:30:00", 6, "Europe/Berlin") == [
        "2026-10-25T01:30:00+02:00",
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


def test_a_rule_for_all_hours_does_not_make_up_for_a_gap() -> None:
    rule = parse_rule("15,45 0-23 * * *", "Europe/Berlin")

    assert fires(rule, "2026-03-29T01:30:00", 2, "Europe/Berlin") == [
        "2026-03-29T01:45:00+01:00",
        "2026-03-29T03:15:00+02:00",
    ]


def test_a_rule_for_all_hours_but_one_is_not_for_all() -> None:
    rule = parse_rule("30 0-22 * * *", "Europe/Berlin")

    assert fires(rule, "2026-03-29T01:30:00", 3, "Europe/Berlin") == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:30:00+02:00",
    ]


def test_a_gap_at_midnight_moves_the_daily_run_to_one_o_clock() -> None:
    assert fires(parse_rule("@daily", "America/Sao_Paulo"), "2018-11-03", 3, "America/Sao_Paulo") == [
        "2018-11-03T00:00:00-03:00",
        "2018-11-04T01:00:00-02:00",
        "2018-11-05T00:00:00-02:00",
    ]


def test_a_fold_at_midnight_belongs_to_one_day_only() -> None:
    assert fires(parse_rule("30 23 * * *", "America/Sao_Paulo"), "2018-02-17", 2, "America/Sao_Paulo") == [
        "2018-02-17T23:30:00-02:00",
        "2018-02-18T23:30:00-03:00",
    ]


def test_clocks_may_change_by_half_an_hour() -> None:
    assert fires(parse_rule("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03", 3, "Australia/Lord_Howe") == [
        "2026-10-03T02:15:00+10:30",
        "2026-10-04T02:30:00+11:00",
        "2026-10-05T02:15:00+11:00",
    ]
    assert fires(parse_rule("45 * * * *", "Australia/Lord_Howe"), "2026-04-05T01:00", 3, "Australia/Lord_Howe") == [
        "2026-04-05T01:45:00+11:00",
        "2026-04-05T01:45:00+10:30",
        "2026-04-05T02:45:00+10:30",
    ]


def test_a_whole_day_may_be_left_out() -> None:
    assert fires(parse_rule("0 12 * * *", "Pacific/Apia"), "2011-12-29", 3, "Pacific/Apia") == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T12:00:00+14:00",
    ]


# Catching up


EVERY_MINUTE = parse_rule("* * * * *", "UTC")
NOON = instant("2026-06-01T12:00:00")


def test_a_punctual_scheduler_fires_what_is_due_whatever_the_policy() -> None:
    for catch_up in CatchUp:
        due = due_times(EVERY_MINUTE, NOON, NOON + MINUTE, catch_up=catch_up)

        assert due == DueTimes((NOON + MINUTE,), NOON + 2 * MINUTE)


def test_nothing_fires_if_nothing_is_due() -> None:
    for catch_up in CatchUp:
        due = due_times(EVERY_MINUTE, NOON, NOON + MINUTE - 1, catch_up=catch_up)

        assert due == DueTimes((), NOON + MINUTE)


def test_skip_ignores_missed_due_times() -> None:
    a_day_later = NOON + 1_440 * MINUTE + MINUTE // 2

    due = due_times(EVERY_MINUTE, NOON, a_day_later, catch_up="skip")

    assert due == DueTimes((NOON + 1_440 * MINUTE,), NOON + 1_441 * MINUTE)


def test_skip_fires_up_to_the_tolerance_late() -> None:
    hourly = parse_rule("@hourly", "UTC")
    due_at = NOON + 60 * MINUTE

    on_time = due_times(hourly, NOON, due_at + MINUTE, catch_up="skip", tolerance=timedelta(minutes=1))
    late = due_times(hourly, NOON, due_at + MINUTE + 1, catch_up="skip", tolerance=timedelta(minutes=1))

    assert on_time == DueTimes((due_at,), NOON + 120 * MINUTE)
    assert late == DueTimes((), NOON + 120 * MINUTE)


def test_latest_fires_the_newest_missed_only() -> None:
    a_year_later = NOON + 365 * 1_440 * MINUTE + 5

    due = due_times(EVERY_MINUTE, NOON, a_year_later, catch_up="latest")

    assert due == DueTimes((a_year_later - 5,), a_year_later - 5 + MINUTE)


def test_all_fires_each_missed_one_and_leaves_the_rest_for_the_next_call() -> None:
    five_later = NOON + 5 * MINUTE

    first = due_times(EVERY_MINUTE, NOON, five_later, catch_up="all", most=3)
    second = due_times(EVERY_MINUTE, first.fire[-1], five_later, catch_up="all", most=3)

    assert first == DueTimes((NOON + MINUTE, NOON + 2 * MINUTE, NOON + 3 * MINUTE), NOON + 4 * MINUTE)
    assert second == DueTimes((NOON + 4 * MINUTE, five_later), NOON + 6 * MINUTE)


def test_a_clock_behind_the_last_due_time_fires_nothing_again() -> None:
    for catch_up in CatchUp:
        due = due_times(EVERY_MINUTE, NOON, NOON - 90 * MINUTE, catch_up=catch_up)

        assert due == DueTimes((), NOON + MINUTE)
