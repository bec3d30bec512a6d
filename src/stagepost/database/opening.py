"""Closes what was opened and could not be set up; shuts sockets down."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Protocol

__all__ = ["closed_on_failure", "shut_down"]


class Closeable(Protocol):
    """A driver's connection, or a store."""

    def close(self) -> None: ...


@contextlib.contextmanager
def closed_on_failure(opened: Closeable) -> Iterator[None]:
    """Close what was opened if the body fails: nobody else has it yet, and the next try opens another one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            opened.close()
        raise


def shut_down(descriptor: int) -> None:
    """Wake the thread that waits for this socket; both ends see the connection end."""
    with socket.socket(fileno=socket.dup(descriptor)) as ours:
        ours.shutdown(socket.SHUT_RDWR)
