"""The driver's connection, sped up through a few private names, which must exist and change no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pika
import pytest
from pika import frame
from pika.adapters.utils import io_services_utils

from stagepost.transport.rabbitmq.deliveries import Properties
from stagepost.transport.rabbitmq.wire import READ_BYTES, connection_type, pieces, read_large_pieces

PROPERTIES = pika.BasicProperties(
    content_type="application/json", message_id="7.1", correlation_id="c", delivery_mode=2, headers={"attempt": 1}
)
HEADER: bytes = frame.Header(3, 400, PROPERTIES).marshal()


def reading(data: bytes) -> Any:
    """A connection that has received this and is connected to nothing."""
    kind = connection_type()
    connection = kind.__new__(kind)
    connection._frame_buffer = data
    return connection


def test_the_driver_still_has_the_internals_that_the_speedup_replaces() -> None:
    base = pika.SelectConnection
    assert callable(base._output_marshaled_frames)
    assert callable(base._read_frame)
    for name in ("_on_data_available", "_process_frame", "_trim_frame_buffer"):
        assert callable(getattr(base, name))
    names = pika.channel.Channel.__init__.__code__.co_names
    assert {"_consumers", "_cancelled"} <= set(names)
    assert io_services_utils._AsyncTransportBase._MAX_RECV_BYTES < READ_BYTES


def test_properties_are_the_same_when_they_are_read_late() -> None:
    length, found = reading(HEADER + b"next")._read_frame()

    known_length, known = frame.decode_frame(HEADER + b"next")
    assert (length, found.channel_number, found.body_size) == (known_length, 3, 400)
    assert isinstance(found.properties, Properties)
    for name in ("content_type", "message_id", "correlation_id", "delivery_mode", "headers", "priority", "reply_to"):
        assert getattr(found.properties, name) == getattr(known.properties, name)


@pytest.mark.parametrize("length", [0, 1, 7, 18, 19, len(HEADER) - 1])
def test_a_part_of_a_frame_waits_for_the_rest(length: int) -> None:
    assert reading(HEADER[:length])._read_frame() == (0, None)


def test_a_frame_that_does_not_end_is_refused_as_before() -> None:
    with pytest.raises(pika.exceptions.InvalidFrameError):
        reading(HEADER[:-1] + b"x")._read_frame()


def test_other_frames_are_read_by_the_driver() -> None:
    body = frame.Body(3, b"hello").marshal()

    length, found = reading(body)._read_frame()

    assert (length, found.fragment) == (len(body), b"hello")


def test_properties_that_cannot_be_read_are_none() -> None:
    broken = Properties(b"\xff\xff\x00")

    assert (broken.headers, broken.message_id) == (None, None)


def test_messages_written_together_are_sent_in_one_piece_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(_connection: Any, frames: Sequence[bytes]) -> None:
        written.extend(frames)

    monkeypatch.setattr(pika.SelectConnection, "_output_marshaled_frames", write)
    connection = reading(b"")
    connection._output_marshaled_frames([b"1", b"2"])
    with connection.joined():
        connection._output_marshaled_frames([b"3", b"4"])
        connection._output_marshaled_frames([b"5"])
        assert written == [b"1", b"2"]
    connection._output_marshaled_frames([b"6"])

    assert written == [b"1", b"2", b"345", b"6"]


def test_large_batches_leave_in_pieces() -> None:
    frames = [bytes([number]) * 10 for number in range(25)]

    found = list(pieces(frames, size=100))

    assert [len(piece) for piece in found] == [100, 100, 50]
    assert b"".join(found) == b"".join(frames)
    assert list(pieces([])) == []


def test_an_open_connection_reads_larger_pieces() -> None:
    transport = type("Transport", (), {"_MAX_RECV_BYTES": 4096})()

    read_large_pieces(type("Connection", (), {"_transport": transport})())

    assert transport._MAX_RECV_BYTES == READ_BYTES


def test_a_driver_without_that_name_is_left_as_it_is() -> None:
    connection = type("Other", (), {"_transport": object()})()

    read_large_pieces(connection)

    assert not hasattr(connection._transport, "_MAX_RECV_BYTES")


def delivery(number: int, *, channel: int = 3, body: bytes = b'{"a": 1}', consumer: str = "ctag1") -> bytes:
    """A message as a broker sends it."""
    method = pika.spec.Basic.Deliver(consumer, number, number % 2 == 0, "exchange", f"task.{number}")
    head = frame.Header(channel, len(body), PROPERTIES).marshal()
    return bytes(frame.Method(channel, method).marshal() + head + frame.Body(channel, body).marshal())


class Listener:
    """A channel with one consumer, which notes what it is given, and what the driver is left with."""

    def __init__(self) -> None:
        self._consumers = {"ctag1": self.receive}
        self._cancelled: set[str] = set()
        self.heard: list[tuple[int, bool, str, str, bytes]] = []
        self.left: list[str] = []

    def receive(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        facts = (method.delivery_tag, method.redelivered, method.routing_key, properties.message_id, body)
        self.heard.append(facts)


def listening(channel: Listener) -> Any:
    connection = reading(b"")
    connection._channels = {3: channel}
    connection.bytes_received = 0
    connection._process_frame = lambda value: channel.left.append(type(value).__name__)
    return connection


@pytest.mark.parametrize("piece", [1, 7, 50, 200, 10_000])
def test_messages_are_the_same_however_they_are_cut(piece: int) -> None:
    heartbeat = frame.Heartbeat().marshal()
    stream = heartbeat + delivery(1) + delivery(2) + heartbeat + delivery(3, body=b"x" * 300)
    whole, cut = Listener(), Listener()
    listening(whole)._on_data_available(stream)
    connection = listening(cut)
    for first in range(0, len(stream), piece):
        connection._on_data_available(stream[first : first + piece])

    assert [(tag, again, key) for tag, again, key, _, _ in whole.heard] == [
        (1, False, "task.1"),
        (2, True, "task.2"),
        (3, False, "task.3"),
    ]
    assert {(name, len(body)) for _, _, _, name, body in whole.heard} == {("7.1", 8), ("7.1", 300)}
    assert whole.left == ["Heartbeat", "Heartbeat"]
    assert connection.bytes_received == len(stream)
    # A message that is cut is the driver's: what it is given frame by frame is left to it.
    assert len(cut.heard) + cut.left.count("Method") == 3
    assert cut.left.count("Heartbeat") == 2


@pytest.mark.parametrize(
    "data",
    [
        delivery(1, body=b"")[:-8],
        delivery(1, consumer="another"),
        delivery(1, channel=4),
        frame.Method(3, pika.spec.Basic.Cancel("ctag1")).marshal(),
        delivery(1)[: len(frame.Method(3, pika.spec.Basic.Deliver("ctag1", 1, False, "exchange", "task.1")).marshal())]
        + delivery(2, channel=4),
    ],
    ids=["without a body", "for a stranger", "of another channel", "no message", "another channel in between"],
)
def test_frames_that_are_not_a_whole_delivery_are_left_to_the_driver(data: bytes) -> None:
    channel = Listener()
    connection = listening(channel)

    connection._on_data_available(data)

    assert channel.heard == []
    assert connection.bytes_received == len(data)
    assert channel.left[0] == "Method"


def test_messages_for_a_consumer_that_was_cancelled_are_left_to_the_driver() -> None:
    channel = Listener()
    channel._cancelled.add("ctag1")
    listening(channel)._on_data_available(delivery(1))

    assert (channel.heard, channel.left) == ([], ["Method", "Header", "Body"])
