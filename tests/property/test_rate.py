"""However tokens are requested, no window of time grants more of them than the limit allows."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost.model.rate import MOST_EARLY_US, RateLimit, take, token_times

LIMITS = st.builds(
    RateLimit, st.just("any"), per_second=st.floats(1e-4, 100_000), burst=st.integers(1, 50) | st.integers(1, 100_000)
)
PAUSES = st.integers(0, 10) | st.integers(0, 2_000_000) | st.integers(0, 10**11)
ASKS = st.lists(st.tuples(PAUSES, st.integers(0, 100) | st.just(10**6)), min_size=1, max_size=40)
START = 1_800_000_000_000_000


@settings(max_examples=500, deadline=None)
@given(limit=LIMITS, asks=ASKS)
def test_no_window_sees_more_than_the_rate_and_the_burst(limit: RateLimit, asks: list[tuple[int, int]]) -> None:
    full_at, grants = 0, []
    for now, (_, wanted) in zip(accumulate((pause for pause, _ in asks), initial=START), asks, strict=False):
        taken = take(full_at, now, wanted, limit)
        full_at = taken.full_at
        grants.append((now, taken.granted))
        assert 0 <= taken.granted <= min(wanted, limit.burst)

    rate = Fraction(limit.per_second) / 1_000_000
    for first, (since, _) in enumerate(grants):
        total = 0
        for until, granted in grants[first:]:
            total += granted
            assert total <= rate * (until - since) + limit.burst


@settings(max_examples=500, deadline=None)
@given(limit=LIMITS, asks=st.lists(st.tuples(PAUSES, st.integers(0, 5), st.sampled_from([0, 7, MOST_EARLY_US]))))
def test_tokens_that_are_taken_early_are_valid_no_closer_than_others(
    limit: RateLimit, asks: list[tuple[int, int, int]]
) -> None:
    full_at, now, valid = 0, START, []
    for pause, wanted, early_us in asks:
        now += pause
        taken = take(full_at, now, wanted, limit, early_us=early_us)
        times = token_times(full_at, now, limit, tokens=taken.granted)
        assert all(now <= time <= now + early_us for time in times)
        if taken.granted < wanted:
            [following] = token_times(taken.full_at, now, limit, tokens=1)
            assert following == now + taken.wait_us > now + early_us
        full_at = taken.full_at
        valid += times

    assert valid == sorted(valid)
    rate = Fraction(limit.per_second) / 1_000_000
    for first, since in enumerate(valid):
        for number, until in enumerate(valid[first:], start=1):
            assert number <= rate * (until - since) + limit.burst


@settings(max_examples=500, deadline=None)
@given(limit=LIMITS, asks=ASKS)
def test_the_wait_is_exact_to_the_microsecond(limit: RateLimit, asks: list[tuple[int, int]]) -> None:
    full_at, now = 0, START
    for pause, wanted in asks:
        now += pause
        taken = take(full_at, now, wanted, limit)
        full_at = taken.full_at

        assert (taken.granted < wanted) <= (taken.wait_us > 0)
        assert take(full_at, now + taken.wait_us, 1, limit).granted == 1
        if taken.wait_us:
            assert take(full_at, now + taken.wait_us - 1, 1, limit).granted == 0


@settings(max_examples=300, deadline=None)
@given(limit=LIMITS, tokens=st.integers(1, 60))
def test_a_client_that_waits_as_told_gets_the_burst_at_once_and_then_the_full_rate(
    limit: RateLimit, tokens: int
) -> None:
    full_at, now, wait = 0, START, 0
    for _ in range(tokens):
        now += wait
        taken = take(full_at, now, 1, limit)
        full_at, wait = taken.full_at, taken.wait_us
        assert taken.granted == 1

    assert now == START + max(0, tokens - limit.burst) * limit.interval_us
