"""The fault proxy itself: each fault happens as configured, and only then."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.fault.armed import Direction
from tests.fault.proxy import FaultProxy


class EchoServer(socketserver.ThreadingTCPServer):
    """Sends back what it gets, and remembers how its connections ended."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.received = bytearray()
        self.was_reset = threading.Event()

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port


class EchoHandler(socketserver.BaseRequestHandler):
    server: EchoServer

    def handle(self) -> None:
        try:
            while data := self.request.recv(65536):
                self.server.received += data
                self.request.sendall(data)
        except ConnectionResetError:
            self.server.was_reset.set()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@contextlib.contextmanager
def connected(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as client:
        yield client


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(65536)


def test_without_a_fault_bytes_pass_both_ways(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert ask(client, b"one") == b"one"
        assert ask(client, b"two") == b"two"


def test_an_end_of_stream_is_passed_on(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            assert stream.read() == b"last words"


def test_a_cut_resets_both_sides(proxy: FaultProxy, echo: EchoServer) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")

        proxy.cut()

        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.was_reset.wait(60)


def test_new_connections_pass_after_a_cut(proxy: FaultProxy) -> None:
    proxy.cut()

    with connected(proxy) as client:
        assert ask(client, b"hello") == b"hello"


def test_a_refusing_proxy_resets_new_connections_until_it_is_healed(proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1)

    proxy.pass_through()

    with connected(proxy) as client:
        assert ask(client, b"hello") == b"hello"


def test_a_half_open_connection_takes_everything_and_gives_nothing(proxy: FaultProxy, echo: EchoServer) -> None:
    with connected(proxy) as client:
        ask(client, b"before")

        proxy.swallow()
        client.settimeout(0.2)

        with pytest.raises(TimeoutError):
            ask(client, b"after")
        assert echo.received == b"before"
        assert not echo.was_reset.is_set()


def test_a_half_open_connection_stays_dead_when_others_are_healed(proxy: FaultProxy) -> None:
    with connected(proxy) as dead, connected(proxy) as fresh:
        ask(dead, b"before")
        ask(fresh, b"before")
        proxy.swallow()
        proxy.pass_through()
        dead.settimeout(0.2)

        with pytest.raises(TimeoutError):
            ask(dead, b"after")
    with connected(proxy) as fresh:
        assert ask(fresh, b"after") == b"after"


def test_latency_holds_back_both_directions(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"warm")
        proxy.delay(0.05, jitter=0.01)

        began = time.monotonic()
        assert ask(client, b"slow") == b"slow"

        assert time.monotonic() - began >= 0.1


def test_the_connection_is_cut_after_so_many_bytes(proxy: FaultProxy, echo: EchoServer) -> None:
    with connected(proxy) as client:
        limit = proxy.cut_after(4, direction=Direction.TO_SERVER)

        client.sendall(b"123")
        assert client.recv(10) == b"123"
        assert limit.fired == 0

        client.sendall(b"456")
        limit.wait()
        assert limit.fired == 1
        assert b"5" not in echo.received
    with connected(proxy) as client:
        assert ask(client, b"a new connection passes") == b"a new connection passes"


def test_a_dropped_reply_is_the_nth_and_only_that(proxy: FaultProxy, echo: EchoServer) -> None:
    trap = proxy.drop_reply(rb"^order$", nth=2)
    with connected(proxy) as client:
        assert ask(client, b"ORDER") == b"ORDER"
        assert ask(client, b"something else") == b"something else"
        assert trap.fired == 0

        with pytest.raises(ConnectionResetError):
            ask(client, b"Order")

    trap.wait()
    assert trap.fired == 1
    assert echo.received.endswith(b"Order")
    with connected(proxy) as client:
        assert ask(client, b"order") == b"order"
    assert (trap.matched, trap.fired) == (3, 1)


def test_a_trap_without_limit_fires_every_time(proxy: FaultProxy) -> None:
    trap = proxy.drop_reply(b"order", times=None)

    for _ in range(3):
        with connected(proxy) as client, pytest.raises(ConnectionResetError):
            ask(client, b"order")

    trap.wait(times=3)


def test_a_trap_that_never_fires_says_so(proxy: FaultProxy) -> None:
    trap = proxy.drop_reply(b"order")

    with pytest.raises(TimeoutError, match="fired 0 times"):
        trap.wait(seconds=0.01)


def test_a_dead_server_resets_the_client() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        proxy = FaultProxy("127.0.0.1", deaf.getsockname()[1])

        with proxy, pytest.raises(ConnectionResetError), connected(proxy) as client:
            client.recv(1)


def test_the_address_keeps_account_and_database(proxy: FaultProxy) -> None:
    place = f"127.0.0.1:{proxy.port}"

    assert proxy.url_for("mysql://root:p%40ss@db:3306/x") == f"mysql://root:p%40ss@{place}/x"
    assert proxy.url_for("postgresql://db/x?a=1") == f"postgresql://{place}/x?a=1&sslmode=disable"
