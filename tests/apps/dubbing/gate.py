"""A gate before an S3 server: it refuses requests, or holds them up, as a test tells it to."""

from __future__ import annotations

import http.client
import math
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["READS", "WRITES", "Gate", "Hold", "Refusal"]

READS = frozenset({"GET", "HEAD"})
WRITES = frozenset({"PUT", "POST"})
CODES = {403: "AccessDenied", 503: "SlowDown"}
"""As S3 says it in the body."""


@dataclass
class Refusal:
    """Requests that are answered with an error."""

    methods: Collection[str]
    key: str
    """What is looked for in the path, as a pattern."""
    status: int
    most: float
    """How many are refused; those after them pass."""
    paths: list[str] = field(default_factory=list)
    """Of those that were refused."""


@dataclass
class Hold:
    """A write that gets no answer."""

    key: str
    is_stored: bool
    """Whether the object is there by then."""
    reached: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)


class Gate:
    """Listens on a port of its own, and passes on to the server's."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self._refusals: list[Refusal] = []
        self._holds: list[Hold] = []
        self._lock = threading.Lock()
        self._listening = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"gate": self}))
        self._listening.daemon_threads = True
        self._thread = threading.Thread(target=self._listening.serve_forever, name="s3-gate", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening.server_address[1])

    @contextmanager
    def refusing(
        self, methods: Collection[str], key: str = "", *, status: int = 503, most: float = math.inf
    ) -> Iterator[Refusal]:
        """Refuse requests whose path holds `key` until the block ends."""
        refusal = Refusal(methods, key, status, most)
        self._refusals.append(refusal)
        try:
            yield refusal
        finally:
            self._refusals.remove(refusal)

    @contextmanager
    def holding(self, key: str, *, is_stored: bool) -> Iterator[Hold]:
        """Leave writes of `key` without an answer until the block ends, after they were passed on or instead."""
        hold = Hold(key, is_stored)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            hold.let_go.set()

    def close(self) -> None:
        self._listening.shutdown()
        self._listening.server_close()
        self._thread.join()

    def refused(self, method: str, path: str) -> Refusal | None:
        """What refuses a request, which then counts."""
        with self._lock:
            for refusal in self._refusals:
                fits = method in refusal.methods and re.search(refusal.key, path)
                if fits and len(refusal.paths) < refusal.most:
                    refusal.paths.append(path)
                    return refusal
        return None

    def held(self, method: str, path: str) -> Hold | None:
        """What holds a request up."""
        return next((hold for hold in self._holds if method in WRITES and re.search(hold.key, path)), None)


class Handler(BaseHTTPRequestHandler):
    gate: Gate
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if refusal := self.gate.refused(self.command, self.path):
            error = f"<Error><Code>{CODES[refusal.status]}</Code><Message>Refused.</Message></Error>"
            self._answer(refusal.status, {"Content-Type": "application/xml"}, error.encode())
        elif hold := self.gate.held(self.command, self.path):
            if hold.is_stored:
                assert self._passed_on(body)[0] == 200
            hold.reached.set()
            hold.let_go.wait()
            self.close_connection = True
        else:
            self._answer(*self._passed_on(body))

    def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", self.gate.server_port, timeout=60)
        try:
            behind.request(self.command, self.path, body, dict(self.headers.items()))
            answer = behind.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            behind.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - as its base has them

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        pass
