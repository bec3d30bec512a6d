"""The driver's connection with fewer, larger reads and writes, and without decoding unused data.

The driver spends most of its time on a system call per frame, on decoding properties, and on the three frames of each
message. Avoiding that needs some of its private names; `tests/unit/test_wire.py` checks that they exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from stagepost.transport.rabbitmq.address import driver
from stagepost.transport.rabbitmq.deliveries import first_header, take_deliveries

__all__ = ["connection_type", "read_large_pieces"]

READ_BYTES = 64 * 1024
"""Size of one read."""
WRITE_BYTES = 64 * 1024


@cache
def connection_type() -> Any:
    """Create the connection class that links use."""

    class Wire(driver().SelectConnection):  # type: ignore[misc]
        """A connection that writes many messages at once, and parses complete messages quickly."""

        _joined: list[bytes] | None = None

        @contextmanager
        def joined(self) -> Iterator[None]:
            """Buffer what the body writes, and write it in large pieces at the end."""
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

        def _on_data_available(self, data: bytes) -> None:
            self._frame_buffer += data
            while self._frame_buffer:
                take_deliveries(self)
                length, frame = self._read_frame()
                if not frame:
                    return
                self._trim_frame_buffer(length)
                self._process_frame(frame)

        def _read_frame(self) -> tuple[int, Any]:
            return first_header(self._frame_buffer) or super()._read_frame()

    return Wire


def read_large_pieces(connection: Any) -> None:
    """Make an open connection read larger pieces."""
    transport: Any = getattr(connection, "_transport", None)
    if hasattr(transport, "_MAX_RECV_BYTES"):
        transport._MAX_RECV_BYTES = READ_BYTES  # noqa: SLF001


def pieces(frames: Sequence[bytes], *, size: int = WRITE_BYTES) -> Iterator[bytes]:
    """Join frames, in order, to pieces of about this size."""
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
