"""No secret of a URL appears in an error, in what caused it, in a log, in a health check or in a representation."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from urllib.parse import quote, urlsplit

import pytest

from stagepost import App, Settings
from stagepost.client.health import check_health
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.database.store import Store
from stagepost.errors import StagepostError
from stagepost.transport.rabbitmq.admin import depths
from stagepost.transport.rabbitmq.topology import topology_of
from tests.services.rabbitmq import RabbitmqServer

PLANS = list(topology_of(RabbitmqSettings(), ["mail"]).queues)
SECRETS = ["canary-1", "c@nary/2", "can%ary:3"]


def urls(scheme: str, address: str, options: str = "") -> list[str]:
    """URLs with a secret in every part that may hold one."""
    found = [f"{scheme}://shop:{quote(secret, safe='')}@{address}?{options}" for secret in SECRETS]
    if scheme == "postgresql":
        names = ("password", "sslpassword")
        found += [f"{scheme}://shop@{address}?{name}={quote(SECRETS[1], safe='')}&{options}" for name in names]
    return [url.rstrip("?&") for url in found]


def assert_hidden(text: str) -> None:
    for secret in SECRETS:
        for form in (secret, quote(secret, safe=""), quote(secret)):
            assert form not in text, text


def everything_about(error: BaseException) -> str:
    """What a log with a traceback shows, and what reporters of errors collect."""
    seen: BaseException | None = error
    texts = [*traceback.format_exception(error)]
    while seen is not None:
        texts += [str(seen), repr(seen), *map(str, seen.args)]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join(texts)


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def postgres_says(connection: socket.socket, words: str) -> None:
    while True:
        request = connection.recv(8)
        if not request:
            return
        length, code = struct.unpack("!ii", request)
        if code in {80877103, 80877104}:  # may it encrypt?
            connection.sendall(b"N")
            continue
        connection.recv(length)
        break
    fields = b"SFATAL\0C28P01\0M" + words.encode() + b"\0\0"
    connection.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)


def mysql_says(connection: socket.socket, words: str) -> None:
    packet = b"\xff" + struct.pack("<H", 1045) + words.encode()
    connection.sendall(struct.pack("<I", len(packet))[:3] + b"\0" + packet)


def silence(connection: socket.socket, _words: str) -> None:
    with suppress(OSError):
        while connection.recv(1024):
            pass


@pytest.fixture
def server() -> Iterator[Callable[[Callable[[socket.socket, str], None]], int]]:
    """Starts a server that answers every connection in the given way."""
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, answer: Callable[[socket.socket, str], None]) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with closing(connection), suppress(OSError):
                    answer(connection, "")

    def start(answer: Callable[[socket.socket, str], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def fail(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Use a database that cannot be used in every way that shows an error, and look for secrets."""
    store = Store.at(url, patience_seconds=0)
    with pytest.raises(StagepostError) as caught, store.transaction():
        pass
    logging.getLogger("test").error("failed", exc_info=caught.value)
    checks = list(check_health(store))
    store.close()
    app = App(url)
    with pytest.raises(StagepostError) as caught_async:
        asyncio.run(app.transaction().__aenter__())
    shown = [everything_about(caught.value), everything_about(caught_async.value), caplog.text, *map(str, checks)]
    app.close()
    for thing in (store, store.database, app.settings):
        shown.append(repr(thing))
    for text in shown:
        assert_hidden(text)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_away_reveals_nothing(scheme: str, deaf_port: int, caplog: pytest.LogCaptureFixture) -> None:
    for url in urls(scheme, f"127.0.0.1:{deaf_port}/app"):
        fail(url, caplog)


@pytest.mark.parametrize(("scheme", "answer"), [("postgresql", postgres_says), ("mysql", mysql_says)])
def test_a_server_that_quotes_the_password_is_not_quoted(
    scheme: str,
    answer: Callable[[socket.socket, str], None],
    server: Callable[[Callable[[socket.socket, str], None]], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    quoted = ""
    port = server(lambda connection, _words: answer(connection, f'no, your password is not "{quoted}"'))
    for url, secret in zip(urls(scheme, f"127.0.0.1:{port}/app"), SECRETS, strict=False):
        quoted = secret
        fail(url, caplog)


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        pytest.param("postgresql", "connect_timeout=2", marks=pytest.mark.prove),
        ("mysql", "connect_timeout=1&read_timeout=1"),
    ],
)
def test_a_server_that_does_not_answer_reveals_nothing(
    scheme: str,
    options: str,
    server: Callable[[Callable[[socket.socket, str], None]], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail(urls(scheme, f"127.0.0.1:{server(silence)}/app", options)[1], caplog)


def test_a_broker_that_is_away_reveals_nothing(deaf_port: int) -> None:
    for url in urls("amqp", f"127.0.0.1:{deaf_port}/"):
        with pytest.raises(StagepostError, match=r"\*\*\*") as caught:
            depths(url, PLANS)
        assert_hidden(everything_about(caught.value) + repr(Settings(transport=url)))


@pytest.mark.parametrize("url", ["amqp://shop:can%ary/canary-1@mq/", "amqp://shop:canary-1@mq:port/"])
def test_the_malformed_address_of_a_broker_reveals_nothing(url: str) -> None:
    with pytest.raises(StagepostError, match="cannot be read") as caught:
        depths(url, PLANS)
    assert_hidden(everything_about(caught.value))


def test_a_broker_that_refuses_a_password_reveals_nothing(rabbitmq_server: RabbitmqServer) -> None:
    for url in urls("amqp", f"{urlsplit(rabbitmq_server.url).netloc.rpartition('@')[2]}/"):
        with pytest.raises(StagepostError, match="cannot be used") as caught:
            depths(url, PLANS)
        assert_hidden(everything_about(caught.value))
