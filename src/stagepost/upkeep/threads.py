"""Awaits blocking calls that may hang, in threads that the end of a process does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from stagepost.database.threads import call_in_thread

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a daemon thread of its own; the call continues if the caller is cancelled."""
    return await asyncio.wrap_future(call_in_thread(partial(function, *args, **kwargs), name="stagepost-call"))
