"""Runs a worker in a thread with an event loop of its own, for `with Worker(app):`."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from stagepost.errors import ConfigurationError, StagepostError

__all__ = ["WorkerThread"]

log = logging.getLogger(__name__)

SPARE_SECONDS = 15.0
"""How much longer the thread may take to end than its jobs, and the writing of their outcomes, may take."""


class Stoppable(AbstractAsyncContextManager[Any, None], Protocol):
    """What the thread needs of a worker."""

    owner: str
    longest_stop_seconds: float
    """How long its jobs, and the writing of their outcomes, may take after a request to stop."""

    def stop(self) -> None:
        """Finish the running jobs, then end."""

    def hurry(self) -> None:
        """Return the running jobs to their queues and end at once."""


class WorkerThread(threading.Thread):
    """Enters and leaves a worker in another thread.

    It is a daemon thread, so that `atexit` functions can stop the worker: the interpreter calls them only after all
    other threads have ended.
    """

    def __init__(self, worker: Stoppable) -> None:
        super().__init__(name=f"stagepost-worker-{worker.owner[:8]}", daemon=True)
        self._worker = worker
        self._process = os.getpid()
        self._has_started = threading.Event()
        self._may_leave = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None

    def enter(self) -> None:
        """Start the worker; returns when it is ready, or raises why it cannot start."""
        _refuse_running_loop()
        self.start()
        try:
            self._has_started.wait()
        except BaseException:  # Ctrl-C
            self.leave(raises=False)
            raise
        if self._error is not None:
            self.join()
            raise self._error
        atexit.register(self._leave_at_exit)

    def leave(self, *, raises: bool) -> None:
        """Let jobs finish, stop the worker and wait for the thread; `raises` what made the worker fail."""
        if self._process != os.getpid():
            return  # this process was forked from the worker's, and has no such thread
        atexit.unregister(self._leave_at_exit)
        self._ask_to_leave()
        limit = self._worker.longest_stop_seconds + SPARE_SECONDS
        try:
            self.join(limit)
        except KeyboardInterrupt:
            self._worker.hurry()
            self.join(SPARE_SECONDS)
            raise
        if self.is_alive():
            log.error("thread %s did not end within %g s; its jobs run again when their leases end", self.name, limit)
            self._error = StagepostError(
                f"the worker's thread did not end within {limit:g} s; it ends with the process."
            )
        if raises and self._error is not None:
            raise self._error

    def run(self) -> None:
        """Run the worker until it is asked to leave."""
        try:
            with asyncio.Runner() as runner:
                runner.run(self._work())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that entered it
            self._error = error
        finally:
            self._has_started.set()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._worker:
            self._has_started.set()
            await self._may_leave.wait()

    def _ask_to_leave(self) -> None:
        if not self._has_started.is_set():
            self._worker.stop()
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._may_leave.set)
        except RuntimeError:
            return  # the loop is closed: the worker has failed

    def _leave_at_exit(self) -> None:
        if self._process == os.getpid():
            log.warning("the program ends while %s runs jobs; stopping it", self.name)
            self.leave(raises=False)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "`with Worker(…)` would block the event loop that runs in this thread. Write `async with Worker(…)`."
    )
