"""The driver's connection with fewer and larger reads and writes: a system call per frame is what it spends most on.

Two of its private names are used for that. If they ever change, nothing breaks: it is only as slow as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from stagepost.transport.rabbitmq.address import driver

__all__ = ["connection_type", "read_more"]

READ_BYTES = 16 * 1024
"""At once; it moves what is left by each frame that it takes out, so not more."""
WRITE_BYTES = 64 * 1024


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

    return Wire


def read_more(connection: Any) -> None:
    """Let an open connection read larger pieces."""
    transport = getattr(connection, "_transport", None)
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
