"""What is known of messages on their way: each gets one verdict, and whoever waits gets them all, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagepost.model.envelope import Message
from stagepost.transport.rabbitmq.publisher import PublishGroup, Verdict


def batch(number: int) -> PublishGroup:
    return PublishGroup([Message("task.asr", b"{}", f"job.{place}") for place in range(number)])


def test_the_last_verdict_ends_the_wait() -> None:
    sent = batch(2)

    sent.settle(1, Verdict.REFUSED)
    assert not sent.future.done()
    sent.settle(0, Verdict.CONFIRMED)

    assert sent.future.result(timeout=0) == [Verdict.CONFIRMED, Verdict.REFUSED]


def test_a_message_that_was_returned_stays_so_when_it_is_confirmed() -> None:
    sent = batch(1)

    sent.decide(sent.places["job.0"], Verdict.RETURNED)
    assert not sent.future.done(), "its confirm has not come"
    sent.settle(0, Verdict.CONFIRMED)

    assert sent.future.result(timeout=0) == [Verdict.RETURNED]


def test_a_message_without_a_verdict_in_time_is_unknown() -> None:
    sent = batch(3)
    sent.settle(1, Verdict.CONFIRMED)

    sent.finish()

    assert sent.future.result(timeout=0) == [Verdict.UNKNOWN, Verdict.CONFIRMED, Verdict.UNKNOWN]


def test_late_verdicts_change_nothing() -> None:
    sent = batch(2)
    sent.finish()

    sent.settle(0, Verdict.CONFIRMED)
    sent.settle(1, Verdict.REFUSED)
    sent.finish()

    assert sent.future.result(timeout=0) == [Verdict.UNKNOWN, Verdict.UNKNOWN]


def test_a_verdict_for_a_caller_that_stopped_waiting_is_ignored() -> None:
    sent = batch(1)
    assert sent.future.cancel()

    sent.settle(0, Verdict.CONFIRMED)

    assert sent.future.cancelled()


@given(data=st.data(), number=st.integers(1, 20))
def test_every_message_has_the_first_verdict_that_came_for_it(data: st.DataObject, number: int) -> None:
    sent = batch(number)
    returned = data.draw(st.sets(st.integers(0, number - 1)))
    answers = {place: data.draw(st.sampled_from([Verdict.CONFIRMED, Verdict.REFUSED])) for place in range(number)}
    for place in returned:
        sent.decide(place, Verdict.RETURNED)

    for place in data.draw(st.permutations(range(number))):
        assert not sent.future.done()
        sent.settle(place, answers[place])

    expected = [Verdict.RETURNED if place in returned else answers[place] for place in range(number)]
    assert sent.future.result(timeout=0) == expected
