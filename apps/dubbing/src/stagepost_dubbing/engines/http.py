"""Calls a service over HTTP, with a deadline for the whole call, a size limit, and errors that say what to do."""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

import msgspec

from stagepost import Permanent, Retryable, StagepostError
from stagepost_dubbing.engines.errors import Refused, TimedOut, Unavailable

__all__ = ["Reply", "Service"]

LONGEST_WAIT = 3600.0
"""Longest time in seconds to wait for a service, even if it asks for more."""
_CONNECTING = 10.0


class Reply(NamedTuple):
    """A successful answer of a service."""

    content_type: str
    body: bytes


@dataclass(frozen=True)
class Service:
    """A service at an address."""

    name: str
    """Its name in error messages."""
    url: str
    timeout: float
    """Seconds from the first byte sent to the last received."""
    longest_reply: int
    """Bytes."""
    token: str = field(default="", repr=False)
    """Sent as a bearer token; never appears in error messages."""

    def post(
        self,
        path: str,
        body: bytes | BinaryIO,
        *,
        content_type: str,
        length: int | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> Reply:
        """Send a request and return the answer; `while_waiting` is called twice a second and may raise to stop.

        `length` is the size of a file to send.
        """
        headers = {"Content-Type": content_type, "Accept": "*/*", "User-Agent": "stagepost-dubbing"}
        if length is not None:
            headers["Content-Length"] = str(length)
        return self._ask("POST", path, body, headers, while_waiting)

    def post_json(self, path: str, question: object) -> Reply:
        """Send a request with a JSON body."""
        return self.post(path, msgspec.json.encode(question), content_type="application/json")

    def get(self, path: str) -> Reply:
        """Fetch something that the service stores."""
        return self._ask("GET", path, None, {"Accept": "*/*", "User-Agent": "stagepost-dubbing"}, None)

    def bad_reply(self, complaint: str) -> Retryable:
        """Build the error for an unusable answer, which is retryable."""
        return Retryable(f"{self.name} sent an answer that cannot be used: {self._hide(complaint)}")

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None,
        headers: dict[str, str],
        while_waiting: Callable[[], None] | None,
    ) -> Reply:
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        with self._connected() as (connection, sock), _Deadline(sock, self.timeout) as deadline:
            with self._explained(deadline):
                connection.request(method, urlsplit(self.url).path.rstrip("/") + path, body=body, headers=headers)
            _wait(sock, deadline, while_waiting)
            with self._explained(deadline), connection.getresponse() as response:
                content = self._read(response)
        if deadline.passed:
            raise self._too_slow()
        if not 200 <= response.status < 300:
            raise self._trouble(response, content)
        return Reply(response.headers.get_content_type(), content)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[http.client.HTTPConnection, socket.socket]]:
        parts = urlsplit(self.url)
        host, limit = parts.hostname or "", min(self.timeout, _CONNECTING)
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=limit, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=limit)
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise Refused(f"{self.name} at {self.url} has a certificate that is not trusted: {error}") from None
        except OSError as error:
            connection.close()
            raise Unavailable(f"{self.name} at {self.url} cannot be reached: {error}; is it running?") from None
        with contextlib.closing(connection):
            connection.sock.settimeout(
                None
            )  # From here on, one deadline applies to the whole call, not to each packet.
            yield connection, connection.sock

    @contextlib.contextmanager
    def _explained(self, deadline: _Deadline) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            if deadline.passed:
                raise self._too_slow() from None
            raise Retryable(
                f"{self.name} did not finish its reply: {type(error).__name__}: {self._hide(str(error))}"
            ) from None

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        if (response.length or 0) > self.longest_reply:
            raise self._too_long()
        content = response.read(self.longest_reply + 1)
        if len(content) > self.longest_reply:
            raise self._too_long()
        if response.length:  # `read` with a size accepts less than was announced
            raise http.client.IncompleteRead(content, response.length)
        return content

    def _too_slow(self) -> TimedOut:
        return TimedOut(f"{self.name} did not answer within {self.timeout:g} s; is it busy, or is the time too short?")

    def _too_long(self) -> StagepostError:
        return self.bad_reply(f"it is longer than {self.longest_reply} bytes")

    def _trouble(self, response: http.client.HTTPResponse, content: bytes) -> StagepostError:
        status = response.status
        said = self._hide(" ".join(content[:2000].decode(errors="replace").split())[:200])
        message = f"{self.name} answered {status} {response.reason}" + (f": {said}" if said else "")
        if status in {429, 503}:
            return Unavailable(message, after=_retry_after(response.headers))
        if status in {408, 504}:
            return TimedOut(message)
        if status >= 500:
            return Retryable(message)
        if status in {401, 403}:
            return Refused(f"{message}; check its key")
        if status in {404, 405} or status < 400:
            return Refused(f"{message}; check its address, {self.url}")
        return Permanent(message)

    def _hide(self, text: str) -> str:
        return text.replace(self.token, "•••") if self.token else text


class _Deadline:
    """Closes a connection at its deadline, whatever it is waiting for."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.passed = False
        self._sock = sock
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def _pass(self) -> None:
        self.passed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _wait(sock: socket.socket, deadline: _Deadline, while_waiting: Callable[[], None] | None) -> None:
    """Wait for the first byte of the answer."""
    if while_waiting is None:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        while not deadline.passed and not selector.select(0.5):
            while_waiting()


def _retry_after(headers: Message) -> float | None:
    """Return the seconds in `Retry-After`; a date is compared with the service's own clock."""
    written = headers.get("Retry-After", "").strip()
    if written.isascii() and written.isdigit():
        return min(float(written), LONGEST_WAIT)
    try:
        seconds = (parsedate_to_datetime(written) - parsedate_to_datetime(headers.get("Date", ""))).total_seconds()
    except (ValueError, TypeError):  # TypeError: one of them has no zone
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)
