"""Signals: the events inside a worker that wake its loops. `worker/wiring.py` says which loops."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

__all__ = ["Signal", "Signals"]

P = ParamSpec("P")


class Signal(Generic[P]):
    """Calls its receivers in the order in which they were connected, on the sender's thread."""

    __slots__ = ("_receivers", "send")

    def __init__(self) -> None:
        self._receivers: tuple[Callable[P, object], ...] = ()
        self.send: Callable[P, object] = self._send_to_all
        """Notify all receivers. With a single one this is the receiver itself, so that sending costs no extra call."""

    def connect(self, *receivers: Callable[P, object]) -> None:
        """Add receivers. They must be quick: the sender waits for them."""
        self._receivers += receivers
        self.send = self._receivers[0] if len(self._receivers) == 1 else self._send_to_all

    def _send_to_all(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for receiver in self._receivers:
            receiver(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of one worker. All of them are sent after the commit of what they report."""

    jobs_ready: Signal[[]] = field(default_factory=Signal)
    """Jobs may have become ready: promoted, rescued, enqueued by a schedule, a batch or an alert."""
    messages_ready: Signal[[]] = field(default_factory=Signal)
    """Jobs or messages may have become ready to be published to the broker."""
    attempts_waiting: Signal[[]] = field(default_factory=Signal)
    """Leased attempts wait for a slot."""
    slot_idle: Signal[[]] = field(default_factory=Signal)
    """An attempt ended, and no leased attempt waits for its slot."""
    attempts_ended: Signal[[int]] = field(default_factory=Signal)
    """This many attempts have ended, not counting those that were returned to their queue."""
    outcomes_written: Signal[[]] = field(default_factory=Signal)
    """The finisher has written a group of outcomes, so there may be room for more leases."""
    batches_touched: Signal[[Collection[str | None]]] = field(default_factory=Signal)
    """Items of these batches have ended; None stands for a job without a batch."""
    limits_freed: Signal[[Collection[str]]] = field(default_factory=Signal)
    """Jobs with these limit keys have ended, so others may start."""
    elected: Signal[[]] = field(default_factory=Signal)
    """This worker became a leader. Its loops must not wait to do what the previous leader left undone."""
