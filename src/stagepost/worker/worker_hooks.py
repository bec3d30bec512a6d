"""Calls an app's hooks when a worker starts and stops."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from stagepost.client.hooks import Hooks, hook_name
from stagepost.upkeep.threads import in_thread

__all__ = ["WorkerHooks"]

log = logging.getLogger(__name__)


class WorkerHooks:
    """Calls each hook once: plain functions in a thread, so that they may block, and coroutines on the loop."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._to_stop: list[Callable[..., Any]] = []

    async def start(self) -> None:
        """Call the `on_worker_start` hooks; the first error ends this, and the worker does not start."""
        for hook in self._hooks.worker_start:
            try:
                await _call(hook)
            except Exception as error:
                error.add_note(f"The worker did not start, because its on_worker_start hook {hook_name(hook)} failed.")
                raise
        self._to_stop = [*self._hooks.worker_stop]

    async def stop(self, seconds: Callable[[], float]) -> None:
        """Call the `on_worker_stop` hooks, the last one first, within `seconds`; an error is only logged."""
        while self._to_stop:
            hook = self._to_stop.pop()
            limit = asyncio.timeout(seconds())
            try:
                async with limit:
                    await _call(hook)
            except asyncio.CancelledError:
                raise
            except BaseException:
                if limit.expired():
                    log.warning("on_worker_stop hook %s did not end in time and was abandoned", hook_name(hook))
                else:
                    log.exception("on_worker_stop hook %s failed", hook_name(hook))


async def _call(hook: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook()
    else:
        await in_thread(hook)
