"""Notifies the workers of this process of commits, without a round trip through the database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from stagepost.database.forks import reset_after_fork

__all__ = ["LocalNotifier", "PendingNotices"]

Subscriber = Callable[[Collection[str]], None]
"""Receives the names of queues that have new jobs, in the notifying thread."""
AwaitedSubscriber = Callable[[Collection[str]], Awaitable[None]]
"""Receives the same in the coroutine that committed."""


@dataclass
class PendingNotices:
    """Notices that are sent when the transaction of a lent connection has committed."""

    queues: set[str] = field(default_factory=set)
    """Queues that have new jobs."""
    calls: list[Callable[[], None]] = field(default_factory=list)


class LocalNotifier:
    """Calls its subscribers after a commit, at once and in the thread that committed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[Subscriber] = []
        self._awaited: dict[Subscriber, AwaitedSubscriber] = {}
        self._stop_subscribers: list[Callable[[], None]] = []
        self._pending: dict[int, PendingNotices] = {}
        reset_after_fork(self)

    def reset(self) -> None:
        """Drop all subscribers in a forked child, which has none of its parent's workers."""
        self._lock = threading.Lock()
        self._subscribers = []
        self._awaited = {}
        self._stop_subscribers = []

    @property
    def has_subscribers(self) -> bool:
        """Whether anybody in this process would be called."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Subscriber, *, awaited: AwaitedSubscriber | None = None) -> None:
        """Call `subscriber` after every commit of new jobs; after one in a coroutine, await `awaited` instead."""
        with self._lock:
            self._subscribers.append(subscriber)
            if awaited is not None:
                self._awaited[subscriber] = awaited

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop calling `subscriber`; does nothing if it was not subscribed."""
        with self._lock, contextlib.suppress(ValueError):
            self._subscribers.remove(subscriber)
            self._awaited.pop(subscriber, None)

    def subscribe_to_stops(self, subscriber: Callable[[], None]) -> None:
        """Call `subscriber` whenever a running job is asked to stop."""
        with self._lock:
            self._stop_subscribers.append(subscriber)

    def unsubscribe_from_stops(self, subscriber: Callable[[], None]) -> None:
        """Stop calling `subscriber`; does nothing if it was not subscribed."""
        with self._lock, contextlib.suppress(ValueError):
            self._stop_subscribers.remove(subscriber)

    def notify_stop(self, *, tx: Any = None) -> None:
        """Report that a running job was asked to stop; with `tx`, after its commit."""
        if tx is not None:
            self.call_after_commit(tx, self.notify_stop)
            return
        with self._lock:
            subscribers = tuple(self._stop_subscribers)
        for subscriber in subscribers:
            subscriber()

    def notify(self, queues: Collection[str], *, tx: Any = None) -> None:
        """Report that these queues have new jobs; with `tx`, after its commit if this process lent the connection."""
        if tx is not None:
            if pending := self._pending.get(id(tx)):
                pending.queues.update(queues)
        elif queues:
            with self._lock:
                subscribers = tuple(self._subscribers)
            for subscriber in subscribers:
                subscriber(queues)

    def has_lent(self, tx: Any) -> bool:
        """Whether this process lent the connection `tx`, and so learns of its commit."""
        return id(tx) in self._pending

    def call_after_commit(self, tx: Any, call: Callable[[], None]) -> None:
        """Make a call after the commit of `tx` if this process lent the connection; otherwise never."""
        if pending := self._pending.get(id(tx)):
            pending.calls.append(call)

    @contextlib.contextmanager
    def collecting(self, tx: Any) -> Iterator[PendingNotices]:
        """Collect the notices of what is written through `tx` in the body, for `notify_committed`."""
        pending = self._pending[id(tx)] = PendingNotices()
        try:
            yield pending
        finally:
            del self._pending[id(tx)]

    def notify_committed(self, pending: PendingNotices) -> None:
        """Send the notices of a transaction that has committed."""
        for call in pending.calls:
            call()
        self.notify(pending.queues)

    async def notify_committed_async(self, pending: PendingNotices) -> None:
        """Send the notices of a transaction that has committed in this coroutine."""
        for call in pending.calls:
            call()
        if pending.queues:
            with self._lock:
                subscribers = [(subscriber, self._awaited.get(subscriber)) for subscriber in self._subscribers]
            for subscriber, awaited in subscribers:
                if awaited is None:
                    subscriber(pending.queues)
                else:
                    await awaited(pending.queues)
