"""Ids made by the client, so that an enqueue whose reply was lost can be repeated."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["NO_ID", "VARIANT", "new_id", "new_ids"]

NO_ID = "00000000-0000-0000-0000-000000000000"
"""Of a job that is not asked for yet."""
TAILS_AT_ONCE = 512
VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""What a random digit becomes where an id says that it is one of RFC 9562."""

_lock = threading.Lock()
_last_millisecond = 0
_counter = 0
_head = ""
"""How ids of that millisecond begin."""
_tails: list[str] = []


def new_id() -> str:
    """Make a UUIDv7 (RFC 9562): ordered by time, and strictly growing within this process."""
    with _lock:
        if not _tails:
            _tails.extend(_random_tails(TAILS_AT_ONCE))
        return _next(_tails.pop())


def new_ids(number: int) -> list[str]:
    """Make many ids at once, in order, quicker than one by one."""
    global _counter  # noqa: PLW0603
    ids: list[str] = []
    with _lock:
        tails = iter(_random_tails(number))
        while len(ids) < number:
            ids.append(_next(next(tails)))
            rest = zip(range(_counter + 1, 0x1000), tails, strict=False)  # of this millisecond
            more = [f"{_head}{count:03x}-{tail}" for count, tail in rest]
            ids += more
            _counter += len(more)
    return ids


def _next(tail: str) -> str:
    global _last_millisecond, _counter, _head  # noqa: PLW0603 - the counter is what makes ids of one process grow
    millisecond = time.time_ns() // 1_000_000
    if millisecond > _last_millisecond:
        # 10 random bits: room for 3,072 more.
        _last_millisecond, _counter, _head = millisecond, int(tail[-3:], 16) >> 2, _head_of(millisecond)
    else:
        _counter += 1
        if _counter > 0xFFF:  # the millisecond is full: borrow the next one
            _last_millisecond, _counter, _head = _last_millisecond + 1, 0, _head_of(_last_millisecond + 1)
    return f"{_head}{_counter:03x}-{tail}"


def _head_of(millisecond: int) -> str:
    return f"{millisecond >> 16 & 0xFFFF_FFFF:08x}-{millisecond & 0xFFFF:04x}-7"


def _random_tails(number: int) -> list[str]:
    """Draw the ends of many ids at once."""
    digits = os.urandom(8 * number).hex()
    return [f"{VARIANT[digits[n]]}{digits[n + 1 : n + 4]}-{digits[n + 4 : n + 16]}" for n in range(0, len(digits), 16)]


def _renew() -> None:
    """In a forked child nobody would ever release a lock that another thread held, and tails would come twice."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _tails.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
