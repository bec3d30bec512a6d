"""Token buckets in the store: requests from many connections never get more than the rate allows."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.rate import RateLimit
from stagepost.store.rates import prune_rates, take_tokens
from tests.conformance.bench import Bench

PROVIDER = RateLimit("speech", per_second=10, burst=5)


def test_a_bucket_is_full_at_first_and_empty_after_its_burst(store: Bench) -> None:
    first = store.run(take_tokens(PROVIDER, 3))
    second = store.run(take_tokens(PROVIDER, 3))

    assert (first.granted, first.wait_us) == (3, 0)
    assert (second.granted, second.wait_us) == (2, 100_000)


def test_tokens_grow_back_with_time_and_never_above_the_burst(store: Bench) -> None:
    store.run(take_tokens(PROVIDER, 5))

    store.clock.advance(0.25)
    assert store.run(take_tokens(PROVIDER, 5)).granted == 2
    store.clock.advance(3600)
    assert store.run(take_tokens(PROVIDER, 100)).granted == 5


def test_buckets_of_other_names_are_apart(store: Bench) -> None:
    store.run(take_tokens(PROVIDER, 5))

    assert store.run(take_tokens(RateLimit("mail", per_second=1, burst=2), 9)).granted == 2


def test_concurrent_requests_share_the_tokens(blocking_store: Bench) -> None:
    granted = 0
    for _ in range(10):
        taken = blocking_store.race(*(take_tokens(PROVIDER, 2) for _ in range(8)))
        granted += sum(one.granted for one in taken)
        blocking_store.clock.advance(0.2)

    # Its burst, then two for each of the nine times that 0.2 s passed.
    assert granted == 5 + 9 * 2


def test_buckets_that_have_long_been_full_are_pruned_in_parts(store: Bench) -> None:
    slow = RateLimit("b", per_second=1 / 86_400)
    for limit in (RateLimit("a", per_second=1), slow, RateLimit("c", per_second=1)):
        store.run(take_tokens(limit, 1))
    store.clock.advance(timedelta(hours=2))

    cursor = store.run(prune_rates(most=2))
    assert cursor == "b"
    assert store.run(prune_rates(after=cursor, most=2)) == "c"
    assert store.run(prune_rates(after="c", most=2)) is None
    assert store.rows("select name from stagepost_rate") == [("b",)]
    assert store.run(take_tokens(slow, 1)).granted == 0


def test_a_bucket_that_is_pruned_during_a_request_is_recreated(blocking_store: Bench) -> None:
    for _ in range(10):
        blocking_store.run(take_tokens(PROVIDER, 5))
        blocking_store.clock.advance(timedelta(hours=2))
        *_, granted = blocking_store.race(prune_rates(), prune_rates(), take_tokens(PROVIDER, 5))
        assert granted.granted == 5  # type: ignore[union-attr]
