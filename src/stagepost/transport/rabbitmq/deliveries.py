"""Parses whole messages from a broker's data at once, instead of frame by frame."""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from stagepost.transport.rabbitmq.address import driver

__all__ = ["FoundDelivery", "Properties", "delivery_at", "first_header", "keep_receiving", "take_deliveries"]

METHOD_HEAD = Struct(">BHLHH")
"""Layout of a method frame: its type, channel and size, then class and method."""
HEAD = Struct(">BHLHHQ")
"""Layout of a header frame: its type, channel and size, then class, weight and the size of the body."""
BODY_HEAD = Struct(">BHL")
TAG_AND_FLAGS = Struct(">QB")
FRAME_HEAD_BYTES, FRAME_END = 7, 0xCE
METHOD, CONTENT_HEADER, BODY = 1, 2, 3
BASIC, DELIVER = 60, 60


def take_deliveries(connection: Any) -> None:
    """Pass completely received messages to their consumers; the driver handles whatever follows."""
    data, end = connection._frame_buffer, 0  # noqa: SLF001
    while (found := delivery_at(data, end)) is not None:
        channel = connection._channels.get(found.channel)  # noqa: SLF001
        receive = None if channel is None else consumer_of(channel, found.consumer)
        if receive is None:
            break
        method = driver().spec.Basic.Deliver(found.consumer, found.tag, found.is_redelivered, "", found.routing_key)
        receive(channel, method, found.properties, found.body)
        end = found.end
    if end:
        connection._trim_frame_buffer(end)  # noqa: SLF001


class FoundDelivery(NamedTuple):
    """A received message, and where it ends in the data."""

    end: int
    channel: int
    consumer: str
    tag: int
    is_redelivered: bool
    routing_key: str
    properties: Properties
    body: bytes


def delivery_at(data: bytes, start: int) -> FoundDelivery | None:
    """Parse the message that begins here; None if something else begins, or the message is incomplete or split."""
    try:
        kind, channel, size, group, method = METHOD_HEAD.unpack_from(data, start)
        header = start + FRAME_HEAD_BYTES + size + 1
        if (kind, group, method) != (METHOD, BASIC, DELIVER) or data[header - 1] != FRAME_END:
            return None
        header_kind, header_channel, header_size, group, _, body_size = HEAD.unpack_from(data, header)
        body = header + FRAME_HEAD_BYTES + header_size + 1
        if (header_kind, header_channel, group) != (CONTENT_HEADER, channel, BASIC) or data[body - 1] != FRAME_END:
            return None
        first = body + FRAME_HEAD_BYTES
        if BODY_HEAD.unpack_from(data, body) != (BODY, channel, body_size) or data[first + body_size] != FRAME_END:
            return None
        consumer, at = _short_text(data, start + METHOD_HEAD.size)
        tag, flags = TAG_AND_FLAGS.unpack_from(data, at)
        _, at = _short_text(data, at + TAG_AND_FLAGS.size)
        routing_key, _ = _short_text(data, at)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    properties = Properties(data[header + HEAD.size : body - 1])
    end = first + body_size + 1
    return FoundDelivery(end, channel, consumer, tag, bool(flags & 1), routing_key, properties, data[first : end - 1])


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end


def consumer_of(channel: Any, tag: str) -> Callable[..., None] | None:
    """Return the consumer of a channel's messages; None if the driver must handle them itself."""
    if tag in channel._cancelled:  # noqa: SLF001
        return None
    found: Callable[..., None] | None = channel._consumers.get(tag)  # noqa: SLF001
    return found


def keep_receiving(channel: Any, tag: str) -> None:
    """Receive the messages that arrive before the broker confirms that it cancelled a consumer.

    The driver would return them to their queue, and quorum queues limit how often that may happen to a message.
    """
    channel._cancelled.discard(tag)  # noqa: SLF001


def first_header(data: bytes) -> tuple[int, Any] | None:
    """Parse a leading header frame and its length; None if another frame comes first, or it is incomplete."""
    if len(data) < HEAD.size or data[0] != CONTENT_HEADER:
        return None
    _, channel, size, group, _, body_size = HEAD.unpack_from(data)
    end = FRAME_HEAD_BYTES + size
    if group != BASIC or len(data) <= end or data[end] != FRAME_END:
        return None
    return end + 1, driver().frame.Header(channel, body_size, Properties(data[HEAD.size : end]))


class Properties:
    """A message's properties, decoded on first access; undecodable data has none."""

    __slots__ = ("_encoded", "_read")

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._read: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._read is None:
            properties = driver().BasicProperties
            try:
                self._read = properties().decode(self._encoded)
            except Exception:  # noqa: BLE001 - whatever strangers put there must not end the connection
                self._read = properties()
        return getattr(self._read, name)
