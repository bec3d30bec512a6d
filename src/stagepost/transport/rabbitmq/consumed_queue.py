"""Messages that a broker delivered, and the channel through which they came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["ConsumedQueue", "Delivery"]


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message that this process holds until it is acknowledged or the connection ends."""

    queue: str
    """The queue's name at the broker."""
    line: int
    """The channel through which it came; tags of earlier channels are invalid."""
    tag: int
    body: bytes
    redelivered: bool
    routing_key: str
    properties: Any
    """The driver's undecoded properties; decoding is slow, so read them only if needed."""
    size: int = 0
    """Bytes of its body, which may have been released."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that its sender set."""
        return self.properties.headers or {}

    @property
    def message_id(self) -> str | None:
        """The message id that its sender set."""
        found: str | None = self.properties.message_id
        return found

    @property
    def correlation_id(self) -> str | None:
        """The correlation id that its sender set."""
        found: str | None = self.properties.correlation_id
        return found


@dataclass
class ConsumedQueue:
    """A queue's channel, and the messages acknowledged on it so far."""

    number: int
    queue: str
    prefetch: int
    """Maximum number of unacknowledged messages; 0 means no limit."""
    channel: Any = None
    is_ahead: bool = False
    """Whether it only reads ahead, beside the line that the queue always has."""
    last_tag: int = 0
    """Tag of the last message received."""
    next_tag: int = 1
    """The smallest tag that is not acknowledged."""
    ahead: set[int] = field(default_factory=set)
    """Larger tags that are already acknowledged."""
    checked_tag: int = 0
    """The last tag received before the latest check at the broker."""
    is_passed_over: bool = False
    """Whether, at the latest check, messages were waiting that this consumer had room for."""
    is_asked: bool = False
    """Whether a check is still unanswered."""
    idle_checks: int = 0
    """Number of checks in a row that found nothing wrong."""
    is_ending: bool = False
    """Whether it takes no more messages, except those that were already on their way."""
    is_cancelled: bool = False
    """Whether the broker has confirmed that it sends no more messages."""
    is_closed: bool = False
    """Whether this process has closed it."""

    def acknowledge(self, tags: set[int]) -> tuple[int | None, list[int]]:
        """Record new tags; returns the tag up to which all can be acknowledged at once, and those after a gap.

        The tag for a multiple acknowledgement must itself be new, because the broker has forgotten old ones.
        """
        tags = {tag for tag in tags if tag >= self.next_tag} - self.ahead
        self.ahead |= tags
        while self.next_tag in self.ahead:
            self.ahead.remove(self.next_tag)
            self.next_tag += 1
        together = [tag for tag in tags if tag < self.next_tag]
        return max(together, default=None), sorted(tag for tag in tags if tag >= self.next_tag)

    @property
    def held(self) -> int:
        """Number of unacknowledged messages in this process."""
        return self.last_tag - (self.next_tag - 1) - len(self.ahead)

    @property
    def has_room(self) -> bool:
        """Whether the prefetch limit allows another message."""
        return self.prefetch == 0 or self.held < self.prefetch

    @property
    def is_over(self) -> bool:
        """Whether nothing remains to be received or acknowledged."""
        return self.is_cancelled and not self.held

    @property
    def is_quiet(self) -> bool:
        """Whether no message came since the last check, although there was room."""
        return self.last_tag == self.checked_tag and self.has_room

    def is_dropped(self, *, ready: int, consumers: int) -> bool:
        """Decide whether the broker has forgotten this consumer; needs the same evidence in two checks in a row.

        The broker does not always notify consumers when a queue is deleted and immediately recreated. The new queue
        has no consumers, or messages wait there although this consumer has room. If the broker assigns messages to
        this consumer and does not deliver them, it reports neither. `StalledConsumerCheck` detects that from the
        database. Dead letters are not in the database, so only the fresh channel after `IDLE_CHECKS` helps them.
        """
        was_passed_over, self.is_passed_over = self.is_passed_over, self.is_quiet and (ready > 0 or consumers == 0)
        return was_passed_over and self.is_passed_over
