"""Observations of broker queues, stored where the next leader finds them."""

from __future__ import annotations

from datetime import timedelta

from stagepost.store.queue_observations import (
    QueueObservation,
    begin_carrying,
    declare_patience,
    forget_queues,
    note_active,
    observe_queue,
)
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE


def test_a_queue_that_was_never_observed_is_unknown(store: Bench) -> None:
    assert store.run(observe_queue(QUEUE, is_empty=False)) == QueueObservation(None, None, 0)


def test_the_time_since_a_queue_is_empty_is_recorded(store: Bench) -> None:
    store.run(observe_queue(QUEUE, is_empty=True))
    store.clock.advance(4)
    store.run(observe_queue("other", is_empty=False))
    assert store.run(observe_queue(QUEUE, is_empty=True)).empty_for_us == 4_000_000
    store.clock.advance(1)

    assert store.run(observe_queue(QUEUE, is_empty=False)).empty_for_us is None
    store.clock.advance(1)
    assert store.run(observe_queue(QUEUE, is_empty=True)).empty_for_us == 0


def test_the_time_of_the_last_taken_message_is_recorded(store: Bench) -> None:
    store.run(note_active(QUEUE))
    store.clock.advance(2)
    store.run(note_active(QUEUE))
    store.run(observe_queue(QUEUE, is_empty=True))
    store.clock.advance(3)

    assert store.run(observe_queue(QUEUE, is_empty=True)) == QueueObservation(3_000_000, 3_000_000, 0)
    assert store.run(observe_queue("other", is_empty=True)) == QueueObservation(0, None, 0)


def test_a_programs_patience_is_recorded(store: Bench) -> None:
    store.run(declare_patience({QUEUE: timedelta(seconds=300), "other": None}))
    assert store.run(observe_queue(QUEUE, is_empty=True)).patience == timedelta(seconds=300)
    assert store.run(observe_queue("other", is_empty=True)).patience is None

    store.run(declare_patience({QUEUE: timedelta(seconds=2)}))
    assert store.run(observe_queue(QUEUE, is_empty=True)).patience == timedelta(seconds=2)
    store.run(declare_patience({QUEUE: None}))
    assert store.run(observe_queue(QUEUE, is_empty=True)).patience is None


def test_a_programs_queue_is_not_empty_while_answers_wait(store: Bench) -> None:
    store.run(declare_patience({QUEUE: timedelta(seconds=2)}))
    for queue_name in (QUEUE, "ours"):
        store.run(observe_queue(queue_name, is_empty=True))
    store.clock.advance(1)

    assert store.run(observe_queue(QUEUE, is_empty=True, has_answers=True)).empty_for_us is None
    assert store.run(observe_queue("ours", is_empty=True, has_answers=True)).empty_for_us == 1_000_000


def test_the_time_since_a_queue_is_carried_is_recorded(store: Bench) -> None:
    since = store.run(begin_carrying(QUEUE))
    assert since == store.now
    store.clock.advance(5)

    assert store.run(begin_carrying(QUEUE)) == since
    assert store.run(begin_carrying("other")) == since + 5_000_000


def test_queues_that_nobody_looks_at_are_forgotten(store: Bench) -> None:
    first = store.run(begin_carrying(QUEUE))
    store.run(begin_carrying("other"))
    store.clock.advance(10)
    store.run(observe_queue(QUEUE, is_empty=True))
    store.clock.advance(5)

    store.run(forget_queues(silent=timedelta(seconds=10)))

    assert store.run(begin_carrying(QUEUE)) == first
    assert store.run(begin_carrying("other")) == store.now
