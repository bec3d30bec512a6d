"""Token buckets in the store: nobody gets more than the rate allows, whoever asks and from wherever."""

from __future__ import annotations

from stagepost.model.rate import RateLimit
from stagepost.store.rates import take_tokens
from tests.conformance.bench import Bench

PROVIDER = RateLimit("speech", rate=10, burst=5)


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

    assert store.run(take_tokens(RateLimit("mail", rate=1, burst=2), 9)).granted == 2


def test_those_who_ask_at_once_share_what_there_is(blocking_store: Bench) -> None:
    granted = 0
    for _ in range(10):
        taken = blocking_store.race(*(take_tokens(PROVIDER, 2) for _ in range(8)))
        granted += sum(one.granted for one in taken)
        blocking_store.clock.advance(0.2)

    # Its burst, then two for each of the nine times that 0.2 s passed.
    assert granted == 5 + 9 * 2
