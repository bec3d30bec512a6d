"""A socket between a process and the worker it started: each end learns when the other is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from stagepost.clock import sleep

__all__ = ["OPTION", "READY", "Lifeline", "ParentLine"]

OPTION = "--lifeline"
"""The worker's option that takes the number of its end of the socket."""
READY = "ready"
"""What a worker says, with its shutdown timeout in seconds, once its app is loaded and its database is there."""

ORPHAN_SECONDS = 15.0
"""How much longer than its shutdown timeout a worker without a parent may take to end."""


class Lifeline:
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


class ParentLine:
    """The worker's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def say(self, line: str) -> None:
        """Tell the parent something; a parent that is gone does not hear it."""
        try:
            self._socket.sendall(line.encode() + b"\n")
        except OSError:
            return

    def stop_with_parent(self, *, shutdown_timeout: float) -> None:
        """Stop this worker as SIGTERM does when the parent is gone, and end it if that takes too long."""

        def watch() -> None:
            self._wait_for_end()
            os.kill(os.getpid(), signal.SIGTERM)
            sleep(shutdown_timeout + ORPHAN_SECONDS)
            os._exit(1)

        threading.Thread(target=watch, name="stagepost-lifeline", daemon=True).start()

    def _wait_for_end(self) -> None:
        try:
            while self._socket.recv(1024):
                continue
        except OSError:
            return
