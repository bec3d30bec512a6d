"""Signals."""

from __future__ import annotations

from stagepost.loops.signals import Signal


def test_a_signal_without_receivers_is_not_an_error() -> None:
    signal: Signal[[int]] = Signal()

    signal.send(1)


def test_receivers_are_called_in_the_order_of_their_connection() -> None:
    calls: list[tuple[str, int]] = []
    signal: Signal[[int]] = Signal()

    signal.connect(lambda number: calls.append(("first", number)))
    signal.send(1)
    signal.connect(lambda number: calls.append(("second", number)), lambda number: calls.append(("third", number)))
    signal.send(2)

    assert calls == [("first", 1), ("first", 2), ("second", 2), ("third", 2)]


def test_sending_to_one_receiver_is_a_call_of_that_receiver() -> None:
    calls: list[int] = []
    receiver = calls.append
    signal: Signal[[int]] = Signal()

    signal.connect(receiver)

    assert signal.send is receiver
