"""The driver's connection, made quicker by a few of its private names: they must be there, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pika
import pytest
from pika import frame
from pika.adapters.utils import io_services_utils

from stagepost.transport.rabbitmq.wire import READ_BYTES, Properties, connection_type, pieces, read_more

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


def test_the_driver_still_has_what_makes_it_quicker() -> None:
    base = pika.SelectConnection
    assert callable(base._output_marshaled_frames)
    assert callable(base._read_frame)
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


def test_what_is_written_together_leaves_in_one_piece_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
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

    read_more(type("Connection", (), {"_transport": transport})())

    assert transport._MAX_RECV_BYTES == READ_BYTES


def test_a_driver_without_that_name_is_left_as_it_is() -> None:
    connection = type("Other", (), {"_transport": object()})()

    read_more(connection)

    assert not hasattr(connection._transport, "_MAX_RECV_BYTES")
