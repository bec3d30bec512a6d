"""Web servers that a test starts, calls and stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.processes import LOOPBACK, START_SECONDS, STOP_SECONDS, wait_until

ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Site:
    """A server that answers with JSON."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET; returns the status and the answer."""
        return self._answer("GET", path)

    def post(self, path: str) -> tuple[int, Any]:
        """Send a POST without a body; returns the status and the answer."""
        return self._answer("POST", path)

    def is_up(self) -> bool:
        """Whether it accepts connections; fails if its process has ended."""
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        with contextlib.suppress(OSError):
            self.get("/")
            return True
        return False

    def stop(self, number: signal.Signals) -> str:
        """Send a signal, and wait for the end; returns what the server has logged."""
        self.process.send_signal(number)
        self.process.wait(STOP_SECONDS)
        return self.log.read_text(encoding="utf-8")

    def _answer(self, method: str, path: str) -> tuple[int, Any]:
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=ANSWER_SECONDS)) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text


@contextlib.contextmanager
def served(
    command: Sequence[str], *, port: int, folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[Site]:
    """Run a web server, which must listen on the port, and end it with the block."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(variables or {})}, stdout=output, stderr=output
        )
    site = Site(port, process, log)
    try:
        wait_until(site.is_up, f"{command} to listen", seconds=START_SECONDS)
        yield site
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
