"""Ids made by the client, so that an enqueue whose reply was lost can be repeated."""

from __future__ import annotations

import os
import struct
import threading
import time

__all__ = ["new_id"]

TAILS_AT_ONCE = 512

_lock = threading.Lock()
_last_millisecond = 0
_counter = 0
_tails: list[int] = []


def new_id() -> str:
    """Make a UUIDv7 (RFC 9562): ordered by time, and strictly growing within this process."""
    global _last_millisecond, _counter  # noqa: PLW0603 - the counter is what makes ids of one process grow
    with _lock:
        if not _tails:
            _tails.extend(struct.unpack(f"{TAILS_AT_ONCE}Q", os.urandom(8 * TAILS_AT_ONCE)))
        tail = _tails.pop()
        millisecond = time.time_ns() // 1_000_000
        if millisecond > _last_millisecond:
            _last_millisecond, _counter = millisecond, tail >> 54  # 10 random bits: room for 3,072 more
        else:
            _counter += 1
            if _counter > 0xFFF:  # the millisecond is full: borrow the next one
                _last_millisecond, _counter = _last_millisecond + 1, 0
        millisecond, counter = _last_millisecond & 0xFFFF_FFFF_FFFF, _counter
    variant, tail = 0x8000 | tail >> 48 & 0x3FFF, tail & 0xFFFF_FFFF_FFFF
    return f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7{counter:03x}-{variant:04x}-{tail:012x}"


def _renew() -> None:
    """In a forked child nobody would ever release a lock that another thread held, and tails would come twice."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _tails.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
