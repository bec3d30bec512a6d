"""A socket between a supervisor and a worker that it started: each end notices when the other is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stagepost.clock import sleep

__all__ = ["HURRY", "OPTION", "READY", "ChildConnection", "ParentConnection"]

OPTION = "--lifeline"
"""The worker's option that takes the number of its end of the socket."""
READY = "ready"
"""What a worker says, with its shutdown timeout in seconds, once its app is loaded and its database is there."""
HURRY = "hurry"
"""What its parent says to a worker that is to give its jobs back and end at once. Signals cannot say that: one that is
sent to every process reaches the worker directly and through its parent."""

ORPHAN_SECONDS = 15.0
"""How much longer than its shutdown timeout a worker without a parent may take to end."""


class ChildConnection:
    """The parent's end. It closes when the parent dies, however it dies, and the worker then stops by itself."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._rest = b""

    def command(self, command: Sequence[str]) -> list[str]:
        """Add to a worker's command line where it finds its end."""
        return [*command, OPTION, str(self._theirs.fileno())]

    @property
    def process_options(self) -> dict[str, Any]:
        """What to start the process with: its end of the socket, and a session of its own.

        Without the latter a Ctrl-C in the terminal would reach the worker twice: directly, and through its parent.
        """
        return {"pass_fds": (self._theirs.fileno(),), "start_new_session": True, "stdin": subprocess.DEVNULL}

    def started(self) -> None:
        """Let go of the worker's end, once the process has it."""
        self._theirs.close()

    def say(self, line: str) -> None:
        """Tell the worker something; one that is gone does not hear it."""
        with contextlib.suppress(OSError):
            self._ours.sendall(line.encode() + b"\n")

    def messages(self) -> list[str]:
        """Take the lines the worker said since the last call, without waiting."""
        while True:
            try:
                received = self._ours.recv(65536)
            except (BlockingIOError, OSError):
                break
            if not received:
                break
            self._rest += received
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]

    def close(self) -> None:
        """Let go of the worker; one that still runs stops."""
        self._ours.close()
        self._theirs.close()


class ParentConnection:
    """The worker's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def say(self, line: str) -> None:
        """Tell the parent something; a parent that is gone does not hear it."""
        with contextlib.suppress(OSError):
            self._socket.sendall(line.encode() + b"\n")

    def obey(self, *, on_hurry: Callable[[], None], shutdown_timeout: float) -> None:
        """Listen to the parent, in a thread. When it is gone, stop as SIGTERM does, and end if that takes too long."""

        def listen() -> None:
            self._listen(on_hurry)
            os.kill(os.getpid(), signal.SIGTERM)
            sleep(shutdown_timeout + ORPHAN_SECONDS)
            os._exit(1)

        threading.Thread(target=listen, name="stagepost-lifeline", daemon=True).start()

    def _listen(self, on_hurry: Callable[[], None]) -> None:
        """Return when the parent is gone."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                if line.strip() == HURRY.encode():
                    on_hurry()
