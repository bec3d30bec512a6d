"""Warns of blocking calls on an event loop, in asyncio's debug mode."""

from __future__ import annotations

import asyncio
import sys
import warnings
from types import FrameType

__all__ = ["warn_if_on_event_loop"]

OWN_PACKAGE = "stagepost."
BETWEEN = frozenset({"contextlib", "functools"})
"""Modules of the standard library through which a call may reach the store."""


def warn_if_on_event_loop(*, blocks: bool = True) -> None:
    """Name the async method if this call blocks an event loop in debug mode; Python shows it once per call site.

    A database in memory, as tests use it, does not block.
    """
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the public function raises where no loop runs, which is slow
    if loop is not None and blocks and loop.get_debug():
        _warn(sys._getframe(1))  # noqa: SLF001 - the callers are only read


def _warn(frame: FrameType | None) -> None:
    called: FrameType | None = None
    while frame is not None and ((is_own := _module(frame).startswith(OWN_PACKAGE)) or _module(frame) in BETWEEN):
        called = frame if is_own else called
        frame = frame.f_back
    if called is None or frame is None or _module(frame).startswith("asyncio."):
        return  # a loop of the worker called this, not an application
    warnings.warn_explicit(
        _message(called.f_locals.get("self"), called.f_code.co_name),
        RuntimeWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=_module(frame),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _message(owner: object, method: str) -> str:
    if method == "__enter__":
        return "`with` blocks the running event loop here; use `async with`."
    label = method if owner is None else f"{getattr(owner, '__name__', type(owner).__name__)}.{method}"
    remedy = f"`await {label}_async(…)`" if hasattr(type(owner), f"{method}_async") else "`await asyncio.to_thread(…)`"
    return f"`{label}` was called in a running event loop and blocks it; use {remedy}."


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
