"""The base of all loops that take messages from a broker: take, store in groups, and only then acknowledge."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stagepost.loops.failure_log import FailureLog
from stagepost.loops.service import Service
from stagepost.model.groups import groups_of
from stagepost.transport.rabbitmq.consumed_queue import Delivery
from stagepost.transport.rabbitmq.consumer import Consumer
from stagepost.upkeep.threads import in_thread

__all__ = ["MessageIngester"]


class MessageIngester(Service):
    """Takes messages in groups and retries what could not be stored. After a crash, messages are delivered again."""

    def __init__(
        self,
        url: str,
        queues: Mapping[str, int],
        *,
        name: str,
        prepare: Callable[[], None],
        most_at_once: int,
        interval: float,
    ) -> None:
        """`queues` maps names at the broker to their prefetch; `prepare` creates what is missing there."""
        super().__init__(interval=interval)
        self._new_consumer = partial(Consumer, url, queues, name=name, on_deliveries=self._arrived, prepare=prepare)
        self.consumer = self._new_consumer()
        self._is_connected = False
        self._most_at_once = most_at_once
        self._undone: list[Delivery] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False

    @property
    def _may_take(self) -> bool:
        """Whether this worker should take messages now."""
        return True

    async def _prepare_pass(self) -> None:
        """Do what must happen before messages are taken."""

    @abstractmethod
    async def _take_in(self, deliveries: list[Delivery]) -> int:
        """Store the content of messages, and call `_done` or `_forget` for each; returns how many were stored."""

    def report_to(self, failure_log: FailureLog, *, name: str) -> None:
        """Let the connection to the broker report to the same log."""
        super().report_to(failure_log, name=name)
        self.consumer.failure_log = failure_log

    async def run(self) -> None:
        """Take messages until asked to stop; then return those that are not stored to the broker."""
        self._loop = asyncio.get_running_loop()
        await super().run()
        self.consumer.pause()
        self.consumer.give_back(self._undone)
        self._undone = []

    async def close(self) -> None:
        """Close the connection; the broker delivers unacknowledged messages again."""
        if self._is_connected:
            consumer, self.consumer, self._is_connected = self.consumer, self._new_consumer(), False
            self.consumer.failure_log = self.failure_log
            self._undone = []
            await in_thread(consumer.stop)

    async def run_once(self) -> int:
        """Store the messages that arrived since the last pass; returns how many."""
        self._is_woken = False
        if not self._may_take:
            await self.close()
            return 0
        if not self._is_connected:
            self._is_connected = True
            self.consumer.start()
        await self._prepare_pass()
        self._undone += self.consumer.take(self._most_at_once - len(self._undone))
        done = 0
        for group in groups_of(list(self._undone), size=_size, most=self._most_at_once):
            done += await self._take_in(group)
        if self.consumer.has_more:
            self.wake()
        return done

    def _done(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge messages whose content is stored."""
        done = list(deliveries)
        self._forget(done)
        if done:
            self.consumer.ack(done)

    def _forget(self, deliveries: list[Delivery]) -> None:
        """Leave messages out of the next pass, without acknowledging them."""
        gone = {(delivery.line, delivery.tag) for delivery in deliveries}
        self._undone = [delivery for delivery in self._undone if (delivery.line, delivery.tag) not in gone]

    def _arrived(self) -> None:
        """Wake the loop once for all messages that arrive before its next pass."""
        if not self._is_woken and self._loop is not None:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the event loop is closed; the broker delivers the messages again
                self._loop.call_soon_threadsafe(self.wake)


def _size(delivery: Delivery) -> int:
    return len(delivery.body)
