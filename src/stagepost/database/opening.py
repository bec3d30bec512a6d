"""Guards a connection or a store between the moment it is opened and the moment it is ready for use."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Protocol

__all__ = ["closed_on_failure", "limited", "shut_down"]


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


@contextlib.contextmanager
def limited(descriptor: int, *, seconds: float) -> Iterator[None]:
    """Break the body off if it takes too long: while a session is being set up, nothing else limits its calls."""
    timer = threading.Timer(seconds, shut_down, [descriptor])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def shut_down(descriptor: int) -> None:
    """Wake the thread that waits for this socket; both ends see the connection end."""
    with socket.socket(fileno=socket.dup(descriptor)) as ours:
        ours.shutdown(socket.SHUT_RDWR)
