"""Keeps worker processes running: replaces those that die, and stops all of them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagepost.clock import Clock, SystemClock
from stagepost.model.backoff import backoff_seconds
from stagepost.worker.supervisor_connection import HURRY, READY, ChildConnection

__all__ = ["Backoff", "Supervisor"]

log = logging.getLogger(__name__)

HOPELESS_CODES = frozenset({2, 4})
"""Exit codes for invalid usage and outdated tables: starting the worker again would not help."""
MOST_DEATHS_AT_START = 5
READY_POLL_SECONDS = 0.05
KILL_SECONDS = 15.0
"""How much longer than its shutdown timeout a worker may take before it is killed."""
HURRIED_KILL_SECONDS = 10.0
"""How long a worker that was asked to hurry may take before it is killed."""


@dataclass(frozen=True)
class Backoff:
    """Delays before a dead process is replaced, in seconds."""

    first: float = 0.2
    longest: float = 10.0
    forgiven_after: float = 30.0
    """The death of a process that ran this long counts as the first in a row."""

    def delay(self, deaths: int) -> float:
        """Double the delay after every death in a row, up to `longest`."""
        return backoff_seconds(deaths, first=self.first, longest=self.longest)


@dataclass
class Member:
    """One of the worker processes."""

    process: asyncio.subprocess.Process
    connection: ChildConnection
    started_at: float
    shutdown_timeout: float | None = None
    """The shutdown timeout that it reported; None before it is ready."""

    def is_ready(self) -> bool:
        """Whether it has reported that it looks for jobs."""
        for message in self.connection.messages():
            word, _, seconds = message.partition(" ")
            if word == READY:
                self.shutdown_timeout = float(seconds)
        return self.shutdown_timeout is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless the process is known to have ended.

        `Process.send_signal` would first reap a process that has just ended, and asyncio would never learn its exit
        code. Until asyncio has reaped it, its pid belongs to nobody else.
        """
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # reaped, and asyncio is about to note it
                os.kill(self.process.pid, number)


class Supervisor:
    """Runs a worker's command line in several processes.

    A process that dies is replaced, after longer and longer delays if it keeps dying. If the first one keeps dying
    before it was ever ready, the command, its settings or the database must be at fault, and the supervisor ends. The
    others wait until the first is ready, so that such an error is logged once.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        replaces_finished: bool = True,
        own_options: Mapping[int, Sequence[str]] | None = None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`own_options` are added to the command line of single processes, by their number from 1 on."""
        self._command = list(command)
        self._own_options = own_options or {}
        self._processes = processes
        self._replaces_finished = replaces_finished
        self._backoff = backoff or Backoff()
        self._clock = clock or SystemClock()
        self._members: dict[int, Member] = {}
        self._stop_event = asyncio.Event()
        self._hurry_event = asyncio.Event()
        self._others_may_start = asyncio.Event()
        self._was_ever_ready = False
        self._requests = 0
        self._exit_code = 0

    @property
    def process_ids(self) -> list[int]:
        """The ids of the running processes."""
        return [member.process.pid for member in self._members.values()]

    def stop(self) -> None:
        """Ask all processes to finish their jobs and end; the second call makes them hurry, the third kills them."""
        self._requests += 1
        self._stop_event.set()
        self._others_may_start.set()
        if self._requests == 2:
            self._hurry_event.set()
            for member in self._members.values():
                member.connection.say(HURRY)
        self._signal(signal.SIGTERM if self._requests < 3 else signal.SIGKILL)

    async def run(self, *, install_signals: bool = False) -> int:
        """Keep the processes running until asked to stop; returns the exit code for this process."""
        if install_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
        places = [asyncio.create_task(self._keep(number)) for number in range(1, self._processes + 1)]
        stopping = asyncio.create_task(self._kill_late())
        try:
            await asyncio.gather(*places)
        finally:
            for task in (*places, stopping):
                task.cancel()
            self._signal(signal.SIGKILL)
        return self._exit_code

    async def _keep(self, number: int) -> None:
        """Start a process, and another one whenever it ends."""
        deaths = 0
        if number > 1:
            await self._others_may_start.wait()
        while not self._stop_event.is_set():
            member = await self._start(number)
            code = await self._wait_for_end(member)
            deaths = 1 if self._lived(member) >= self._backoff.forgiven_after else deaths + 1
            self._members.pop(number).connection.close()
            if self._stop_event.is_set():
                self._note_end(number, code)
            elif code == 0 and not self._replaces_finished:
                self._others_may_start.set()
                return
            elif not self._was_ever_ready and (code in HOPELESS_CODES or deaths >= MOST_DEATHS_AT_START):
                self._give_up(number, code, deaths)
            else:
                await self._pause(number, code, deaths)

    async def _wait_for_end(self, member: Member) -> int:
        while member.process.returncode is None and not member.is_ready():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(READY_POLL_SECONDS)
        if member.is_ready():
            self._was_ever_ready = True
            self._others_may_start.set()
        return await member.process.wait()

    async def _start(self, number: int) -> Member:
        connection = ChildConnection()
        command = connection.command([*self._command, *self._own_options.get(number, ())])
        process = await asyncio.create_subprocess_exec(*command, **connection.process_options)
        connection.started()
        member = self._members[number] = Member(process, connection, self._clock.monotonic())
        log.info("worker process %d of %d started (pid %d)", number, self._processes, process.pid)
        if self._stop_event.is_set():  # the request came while the process was being started
            member.signal(signal.SIGTERM)
        return member

    async def _pause(self, number: int, code: int, deaths: int) -> None:
        delay = self._backoff.delay(deaths)
        log.warning("worker process %d ended: %s. Starting another in %.1f s", number, _exit_text(code), delay)
        try:
            await asyncio.wait_for(self._stop_event.wait(), delay)
        except TimeoutError:
            return

    def _give_up(self, number: int, code: int, deaths: int) -> None:
        log.error(
            "worker process %d cannot start: %s, %d in a row. Its own message is above; stopping",
            number, _exit_text(code), deaths,
        )  # fmt: skip
        self._exit_code = code if code > 0 else 1
        self.stop()

    def _note_end(self, number: int, code: int) -> None:
        if code in {0, -signal.SIGTERM}:  # SIGTERM ends a process that has not installed its handler yet
            return
        log.warning("worker process %d did not stop cleanly: %s", number, _exit_text(code))
        self._exit_code = self._exit_code or 1

    async def _kill_late(self) -> None:
        """Kill processes that do not end in time; their jobs are rescued when their leases end."""
        await self._stop_event.wait()
        timeouts = [member.shutdown_timeout or 0.0 for member in self._members.values()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry_event.wait(), max(timeouts, default=0.0) + KILL_SECONDS)
            await asyncio.sleep(HURRIED_KILL_SECONDS)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for member in self._members.values():
            member.signal(number)

    def _lived(self, member: Member) -> float:
        return self._clock.monotonic() - member.started_at


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
