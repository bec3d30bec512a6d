"""A socket between a supervisor and a worker that it started. Each notices when the other process ends."""

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
"""The worker's option for the file descriptor of its end of the socket."""
READY = "ready"
"""Sent by a worker with its shutdown timeout in seconds, once it has loaded its app and reached its database."""
HURRY = "hurry"
"""Sent to a worker that is to return its jobs to their queues and end at once. A signal cannot say that: one that is
sent to every process reaches the worker twice, directly and through its parent."""

ORPHAN_SECONDS = 15.0
"""How much longer than its shutdown timeout a worker may take to end after its parent has died."""


class ChildConnection:
    """The parent's end. It closes when the parent dies for any reason; the worker then stops by itself."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._rest = b""

    def command(self, command: Sequence[str]) -> list[str]:
        """Add the option for the worker's end to its command line."""
        return [*command, OPTION, str(self._theirs.fileno())]

    @property
    def process_options(self) -> dict[str, Any]:
        """Options for starting the process with its end of the socket and in a session of its own.

        Without its own session, a Ctrl-C in the terminal would reach the worker twice: directly and through its parent.
        """
        return {"pass_fds": (self._theirs.fileno(),), "start_new_session": True, "stdin": subprocess.DEVNULL}

    def started(self) -> None:
        """Close this process's copy of the worker's end, once the worker has it."""
        self._theirs.close()

    def say(self, line: str) -> None:
        """Send the worker a line; nothing happens if it has ended."""
        with contextlib.suppress(OSError):
            self._ours.sendall(line.encode() + b"\n")

    def messages(self) -> list[str]:
        """Return the lines that the worker sent since the last call, without waiting."""
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
        """Close the connection; a worker that is still running then stops."""
        self._ours.close()
        self._theirs.close()


class ParentConnection:
    """The worker's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def say(self, line: str) -> None:
        """Send the parent a line; nothing happens if it has ended."""
        with contextlib.suppress(OSError):
            self._socket.sendall(line.encode() + b"\n")

    def obey(self, *, on_hurry: Callable[[], None], shutdown_timeout: float) -> None:
        """Listen to the parent in a thread. When it ends, stop as on SIGTERM, and exit if that takes too long."""

        def listen() -> None:
            self._listen(on_hurry)
            os.kill(os.getpid(), signal.SIGTERM)
            sleep(shutdown_timeout + ORPHAN_SECONDS)
            os._exit(1)

        threading.Thread(target=listen, name="stagepost-lifeline", daemon=True).start()

    def _listen(self, on_hurry: Callable[[], None]) -> None:
        """Handle messages until the parent ends."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                if line.strip() == HURRY.encode():
                    on_hurry()
