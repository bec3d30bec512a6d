"""The driver's connection with fewer and larger reads and writes, and without reading what nobody asks for.

A system call per frame and the properties of messages are what it spends most on. A few of its private names are
used against that. If they ever change, nothing breaks: it is only as slow as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any

from stagepost.transport.rabbitmq.address import driver

__all__ = ["connection_type", "read_more"]

READ_BYTES = 16 * 1024
"""At once; it moves what is left by each frame that it takes out, so not more."""
WRITE_BYTES = 64 * 1024
HEAD = Struct(">BHLHHQ")
"""Of a frame with a message's properties: its type, channel and size, then class, weight and the size of the body."""
FRAME_HEAD_BYTES, FRAME_END = 7, 0xCE
CONTENT_HEADER, BASIC = 2, 60


@cache
def connection_type() -> Any:
    """The type of all connections that a link keeps open."""

    class Wire(driver().SelectConnection):  # type: ignore[misc]
        """A connection that can write many messages at once."""

        _joined: list[bytes] | None = None

        @contextmanager
        def joined(self) -> Iterator[None]:
            """Keep back what the body writes, and write it in large pieces at its end."""
            self._joined = []
            try:
                yield
            finally:
                frames, self._joined = self._joined, None
                for piece in pieces(frames):
                    super()._output_marshaled_frames([piece])

        def _output_marshaled_frames(self, frames: Sequence[bytes]) -> None:
            if self._joined is None:
                super()._output_marshaled_frames(frames)
            else:
                self._joined.extend(frames)

        def _read_frame(self) -> tuple[int, Any]:
            data = self._frame_buffer
            if len(data) < HEAD.size or data[0] != CONTENT_HEADER:
                return super()._read_frame()  # type: ignore[no-any-return]
            _, channel, size, kind, _, body_size = HEAD.unpack_from(data)
            end = FRAME_HEAD_BYTES + size
            if kind != BASIC or len(data) <= end or data[end] != FRAME_END:
                return super()._read_frame()  # type: ignore[no-any-return]
            properties = Properties(data[HEAD.size : end])
            return end + 1, driver().frame.Header(channel, body_size, properties)

    return Wire


class Properties:
    """A message's properties, read when somebody asks for one; what cannot be read has none."""

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


def read_more(connection: Any) -> None:
    """Let an open connection read larger pieces."""
    transport: Any = getattr(connection, "_transport", None)
    if hasattr(transport, "_MAX_RECV_BYTES"):
        transport._MAX_RECV_BYTES = READ_BYTES  # noqa: SLF001


def pieces(frames: Sequence[bytes], *, size: int = WRITE_BYTES) -> Iterator[bytes]:
    """Join frames to pieces of about this size, in their order."""
    held: list[bytes] = []
    length = 0
    for frame in frames:
        held.append(frame)
        length += len(frame)
        if length >= size:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)
