"""Keeps worker processes running: replaces those that die, and ends all of them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from stagepost.clock import Clock, SystemClock
from stagepost.model.backoff import backoff_seconds
from stagepost.worker.supervisor_connection import HURRY, READY, ChildConnection

__all__ = ["Backoff", "Supervisor"]

log = logging.getLogger(__name__)

HOPELESS_CODES = frozenset({2, 4})
"""Exit codes of a worker that was started wrongly, or finds old tables: starting it again changes nothing."""
MOST_DEATHS_AT_START = 5
READY_POLL_SECONDS = 0.05
KILL_SECONDS = 15.0
"""How much longer than its shutdown timeout a worker may take to end before it is killed."""
HURRIED_KILL_SECONDS = 10.0
"""How long a worker may take to end that was told to hurry before it is killed."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait before a dead process is replaced. Durations are seconds."""

    first: float = 0.2
    longest: float = 10.0
    forgiven_after: float = 30.0
    """A process that lived this long died for a new reason."""

    def delay(self, deaths: int) -> float:
        """Double the delay after every death in a row, up to `longest`."""
        return backoff_seconds(deaths, first=self.first, longest=self.longest)


@dataclass
class Member:
    """One process of the team."""

    process: asyncio.subprocess.Process
    connection: ChildConnection
    started_at: float
    shutdown_timeout: float | None = None
    """What it says it may take to stop; None before it is ready."""

    def is_ready(self) -> bool:
        """Whether it got as far as to look for work."""
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

    A process that dies is replaced, later and later if it keeps dying. If the first one keeps dying before it was
    ever ready, something is wrong with the command, its settings or the database, and the supervisor ends. The
    others wait for the first to be ready, so that what is wrong is said once.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        replaces_finished: bool = True,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._command = list(command)
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
        """The processes that run at the moment."""
        return [member.process.pid for member in self._members.values()]

    def stop(self) -> None:
        """Let all processes finish what they run; the second time they hurry, the third time they are killed."""
        self._requests += 1
        self._stop_event.set()
        self._others_may_start.set()
        if self._requests == 2:
            self._hurry_event.set()
            for member in self._members.values():
                member.connection.say(HURRY)
        self._signal(signal.SIGTERM if self._requests < 3 else signal.SIGKILL)

    async def run(self, *, install_signals: bool = False) -> int:
        """Keep the processes running until told to stop; returns the exit code for this process."""
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
        """Keep one place filled."""
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
        while member.process.returncode is None and not member.is_ready():  # noqa: ASYNC110 - told by another process
            await asyncio.sleep(READY_POLL_SECONDS)
        if member.is_ready():
            self._was_ever_ready = True
            self._others_may_start.set()
        return await member.process.wait()

    async def _start(self, number: int) -> Member:
        connection = ChildConnection()
        process = await asyncio.create_subprocess_exec(*connection.command(self._command), **connection.process_options)
        connection.started()
        member = self._members[number] = Member(process, connection, self._clock.monotonic())
        log.info("worker process %d of %d started (pid %d)", number, self._processes, process.pid)
        if self._stop_event.is_set():  # asked to stop while it was being started
            member.signal(signal.SIGTERM)
        return member

    async def _pause(self, number: int, code: int, deaths: int) -> None:
        delay = self._backoff.delay(deaths)
        log.warning("worker process %d ended: %s. It is replaced in %.1f s", number, _fate(code), delay)
        try:
            await asyncio.wait_for(self._stop_event.wait(), delay)
        except TimeoutError:
            return

    def _give_up(self, number: int, code: int, deaths: int) -> None:
        log.error(
            "worker process %d cannot start: %s, %d in a row. Its own message is above; stopping",
            number, _fate(code), deaths,
        )  # fmt: skip
        self._exit_code = code if code > 0 else 1
        self.stop()

    def _note_end(self, number: int, code: int) -> None:
        if code in {0, -signal.SIGTERM}:  # the latter: it was told to stop before it had begun to listen
            return
        log.warning("worker process %d did not end in order: %s", number, _fate(code))
        self._exit_code = self._exit_code or 1

    async def _kill_late(self) -> None:
        """Kill what has not ended long after it was told to; its jobs are taken back when their leases end."""
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


def _fate(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
