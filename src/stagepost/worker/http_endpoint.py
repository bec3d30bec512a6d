"""A small HTTP server for probes and metrics, in threads of its own: a blocked event loop cannot block it."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from stagepost.database.deadline import Deadlines
from stagepost.errors import ConfigurationError

__all__ = ["Answer", "HttpAddress", "HttpEndpoint", "Route"]

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LARGEST_PORT = 65535
MOST_AT_ONCE = 16
"""Connections beyond this number are closed at once."""
REQUEST_SECONDS = 10.0
"""How long one connection may take, whatever its client does."""
POLL_SECONDS = 0.1
TEXT = "text/plain; charset=utf-8"


class HttpAddress(NamedTuple):
    """Where to listen. Port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `HOST:PORT`, `[IPV6]:PORT` or `PORT`, which means loopback."""
        host, _, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ConfigurationError(f"--http {text}: write an IPv6 address in brackets, as in [::1]:9100.")
        if not (port.isascii() and port.isdigit()) or int(port) > LARGEST_PORT:
            raise ConfigurationError(f"--http {text}: give HOST:PORT or PORT, as in 127.0.0.1:9100.")
        return cls(host or LOOPBACK, int(port))

    def of_process(self, number: int) -> Self:
        """The address of the process with this number, counted from 1: each has the port after the previous one."""
        port = self.port and self.port + number - 1
        if port > LARGEST_PORT:
            raise ConfigurationError(
                f"--http {self}: process {number} would need port {port}. Choose a lower port, or fewer processes."
            )
        return type(self)(self.host, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Answer(NamedTuple):
    """What a route answers."""

    body: bytes
    status: int = 200
    content_type: str = TEXT

    @classmethod
    def of_text(cls, text: str, *, status: int = 200) -> Self:
        """Answer with a sentence."""
        return cls(f"{text}\n".encode(), status)


Route = Callable[[str], Answer]
"""Builds the answer to a GET of one path, from the value of the header Accept; runs in a thread of its own."""


class HttpEndpoint:
    """Answers GET and HEAD for a few fixed paths until it is closed."""

    def __init__(self, address: HttpAddress, routes: Mapping[str, Route]) -> None:
        """Listen at once; raises ConfigurationError if that is impossible, for example because the port is in use."""
        try:
            [(family, _, _, _, place), *_] = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            self._server = Server(family, place, routes)
        except OSError as error:
            raise ConfigurationError(
                f"--http {address}: cannot listen there: {error.strerror or error}. Choose another address or port."
            ) from error
        self.address = HttpAddress(address.host, self._server.server_address[1])
        """Where it listens, with the port that was chosen."""
        self._thread = threading.Thread(
            target=partial(self._server.serve_forever, POLL_SECONDS), name="stagepost-http", daemon=True
        )

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()
        log.info("serving %s at http://%s", ", ".join(self._server.routes), self.address)

    def close(self) -> None:
        """Close the port. Answers that are being written may still be finished."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One thread for each connection, up to a limit."""

    # Not `http.server.HTTPServer`: it looks up the name of the host, which may take long.
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: int, place: Any, routes: Mapping[str, Route]) -> None:
        self.address_family = family
        self.routes = routes
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._deadlines = Deadlines()
        super().__init__(place, RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()  # its thread could not start
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            with self._deadlines.limit(REQUEST_SECONDS, partial(_hang_up, request)):
                super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, *_connection: Any) -> None:
        """Ignore that a client hung up or was too slow."""


class RequestHandler(BaseHTTPRequestHandler):
    """Answers one request, then closes the connection."""

    timeout = REQUEST_SECONDS
    server: Server

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer(), with_body=False)

    def do_POST(self) -> None:
        self._send(Answer.of_text("Use GET or HEAD.", status=405))

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815

    def _answer(self) -> Answer:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            return Answer.of_text("A request must not have a body.", status=400)
        route = self.server.routes.get(urlsplit(self.path).path)
        if route is None:
            return Answer.of_text(f"There is nothing here. Try {', '.join(self.server.routes)}.", status=404)
        try:
            return route(", ".join(self.headers.get_all("Accept", [])))
        except Exception:
            log.exception("a request for metrics or a probe failed")
            return Answer.of_text("This request failed. The worker's log says why.", status=500)

    def _send(self, answer: Answer, *, with_body: bool = True) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        if answer.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "stagepost"

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: probes come every few seconds."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
