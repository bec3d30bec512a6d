"""Ids made by the client, so that an enqueue whose reply was lost can be repeated."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["new_id"]

_lock = threading.Lock()
_last_millisecond = 0
_counter = 0


def new_id() -> str:
    """Make a UUIDv7 (RFC 9562): ordered by time, and strictly growing within this process."""
    global _last_millisecond, _counter  # noqa: PLW0603 - the counter is what makes ids of one process grow
    tail = int.from_bytes(os.urandom(8), "big")
    with _lock:
        millisecond = time.time_ns() // 1_000_000
        if millisecond > _last_millisecond:
            _last_millisecond, _counter = millisecond, tail >> 54  # 10 random bits: room for 3,072 more
        else:
            _counter += 1
            if _counter > 0xFFF:  # the millisecond is full: borrow the next one
                _last_millisecond, _counter = _last_millisecond + 1, 0
        millisecond, counter = _last_millisecond, _counter
    number = (
        (millisecond & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | tail & 0x3FFF_FFFF_FFFF_FFFF
    )
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _renew_lock() -> None:
    """In a forked child, nobody would ever release a lock that another thread held."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
