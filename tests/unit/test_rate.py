"""A token bucket in one stored instant."""

from __future__ import annotations

from typing import Any

import pytest

from stagepost.errors import ConfigurationError
from stagepost.model.rate import MOST_EARLY_US, RateLimit, TokenGrant, due_times, take, token_times

TEN_A_SECOND = RateLimit("mail", per_second=10, burst=5)
NOW = 1_800_000_000_000_000
TENTH = 100_000


def test_a_new_bucket_is_full() -> None:
    assert take(0, NOW, 3, TEN_A_SECOND) == TokenGrant(granted=3, full_at=NOW + 3 * TENTH, wait_us=0)


def test_no_more_than_the_burst_is_granted_at_once() -> None:
    taken = take(0, NOW, 100, TEN_A_SECOND)

    assert taken == TokenGrant(granted=5, full_at=NOW + 5 * TENTH, wait_us=TENTH)


def test_an_empty_bucket_says_when_the_next_token_is_available() -> None:
    empty = take(0, NOW, 5, TEN_A_SECOND).full_at

    too_early = take(empty, NOW + 30_000, 1, TEN_A_SECOND)
    in_time = take(too_early.full_at, NOW + 30_000 + too_early.wait_us, 1, TEN_A_SECOND)

    assert too_early == TokenGrant(granted=0, full_at=empty, wait_us=70_000)
    assert in_time.granted == 1


def test_part_of_what_is_wanted_may_be_granted() -> None:
    empty = take(0, NOW, 5, TEN_A_SECOND).full_at

    assert take(empty, NOW + 250_000, 5, TEN_A_SECOND) == TokenGrant(2, empty + 2 * TENTH, wait_us=50_000)


def test_a_rest_fills_the_bucket_no_further_than_the_burst() -> None:
    empty = take(0, NOW, 5, TEN_A_SECOND).full_at

    assert take(empty, NOW + 3_600_000_000, 100, TEN_A_SECOND).granted == 5


def test_wanting_nothing_takes_nothing() -> None:
    assert take(0, NOW, 0, TEN_A_SECOND) == TokenGrant(granted=0, full_at=NOW, wait_us=0)
    with pytest.raises(ValueError, match="-1 tokens cannot be taken"):
        take(0, NOW, -1, TEN_A_SECOND)


def test_a_clock_set_back_makes_the_bucket_empty_but_not_indebted() -> None:
    an_hour_ahead = NOW + 3_600_000_000

    taken = take(an_hour_ahead, NOW, 1, TEN_A_SECOND)

    assert taken == TokenGrant(granted=0, full_at=NOW + 5 * TENTH + MOST_EARLY_US, wait_us=TENTH + MOST_EARLY_US)


def test_a_token_may_be_taken_a_little_early_and_delays_the_next_no_more_than_in_time() -> None:
    two_a_second = RateLimit("mail", per_second=2)
    empty = take(0, NOW, 1, two_a_second).full_at

    assert take(empty, NOW + 399_999, 1, two_a_second, early_us=TENTH).granted == 0
    early = take(empty, NOW + 400_000, 9, two_a_second, early_us=TENTH)

    assert early == TokenGrant(granted=1, full_at=NOW + 1_000_000, wait_us=600_000)
    assert token_times(empty, NOW + 400_000, two_a_second, tokens=2) == [NOW + 500_000, NOW + 1_000_000]


def test_jobs_are_due_a_little_before_their_tokens() -> None:
    two_a_second = RateLimit("mail", per_second=2, burst=2)
    until = NOW + 1_000_000

    assert due_times(0, NOW, two_a_second, after=0, until=until, most=9) == [NOW, NOW, NOW + 500_000, until]
    assert due_times(0, NOW, two_a_second, after=3, until=until, most=9) == [until]
    assert due_times(0, NOW, two_a_second, after=9, until=until, most=9) == []
    assert due_times(0, NOW, two_a_second, after=1, until=until, most=2, early_us=TENTH) == [NOW, NOW + 400_000]


def test_a_rate_may_be_slow() -> None:
    daily = RateLimit("report", per_second=1 / 86_400)

    assert take(0, NOW, 2, daily) == TokenGrant(granted=1, full_at=NOW + 86_400_000_000, wait_us=86_400_000_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "", "per_second": 1}, "needs a name"),
        ({"name": "x", "per_second": 0}, "rate limit 'x': per_second is 0"),
        ({"name": "x", "per_second": -1}, "per_second is -1"),
        ({"name": "x", "per_second": float("nan")}, "per_second is nan"),
        ({"name": "x", "per_second": float("inf")}, "per_second is inf"),
        ({"name": "x", "per_second": 1e-9}, "from one per year"),
        ({"name": "x", "per_second": 1, "burst": 0}, "burst is 0"),
        ({"name": "x", "per_second": 1, "burst": 2.0}, "burst is 2.0"),
        ({"name": "x", "per_second": 1, "burst": 10**7}, "burst is 10000000"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        RateLimit(**options)

    assert message in str(refusal.value)
