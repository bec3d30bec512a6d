"""Delays stay within their bounds for every policy, and spread simultaneous failures."""
# ruff: noqa: S311 - seeded so that a failure repeats

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost.errors import duration_of
from stagepost.model.retry import MAX_ERROR_LENGTH, RetryPolicy, describe_error

DELAYS = st.timedeltas(timedelta(0), timedelta(days=365))


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    short, longer, longest = sorted(draw(st.tuples(DELAYS, DELAYS, DELAYS)))
    return RetryPolicy(
        first_delay=longer,
        minimum_delay=short,
        longest_delay=max(longest, timedelta(microseconds=1)),
        factor=draw(st.floats(1, 1_000)),
        jitter=draw(st.floats(0, 1)),
    )


@settings(max_examples=500, deadline=None)
@given(policy=policies(), failures=st.integers(0, 10**20), seed=st.integers())
def test_a_delay_is_never_under_the_minimum_nor_over_the_longest_and_its_jitter(
    policy: RetryPolicy, failures: int, seed: int
) -> None:
    delay = policy.delay(failures, random=Random(seed))

    rounding = timedelta(microseconds=1)
    assert delay >= duration_of(policy.minimum_delay, "minimum_delay")
    assert delay <= duration_of(policy.longest_delay, "longest_delay") * (1 + policy.jitter) + rounding


@settings(max_examples=300, deadline=None)
@given(policy=policies(), failures=st.integers(1, 2_000), seed=st.integers())
def test_delays_grow_with_the_failures(policy: RetryPolicy, failures: int, seed: int) -> None:
    earlier = policy.delay(failures, random=Random(seed))
    later = policy.delay(failures + 1, random=Random(seed))

    assert later >= earlier


@pytest.mark.parametrize("failures", [1, 2, 5, 12, 40])
@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_that_failed_together_come_back_evenly_over_a_time_as_long_as_their_delay(
    failures: int, seed: int
) -> None:
    """With the default policy, whose first retry comes after a second."""
    policy, random = RetryPolicy(), Random(seed)
    base = min(2 ** (failures - 1), 3_600)

    delays = [policy.delay(failures, random=random).total_seconds() / base for _ in range(10_000)]

    twentieths = Counter(int((delay - 1) * 20) for delay in delays)
    assert set(twentieths) == set(range(20))
    assert max(twentieths.values()) <= 2 * 10_000 / 20


@settings(max_examples=300, deadline=None)
@given(message=st.text() | st.text().map(lambda text: text * 1_000))
def test_every_description_can_be_stored(message: str) -> None:
    summary, _ = describe_error(ValueError(message))

    assert "\0" not in summary
    assert len(summary.encode()) <= MAX_ERROR_LENGTH
