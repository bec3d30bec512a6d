"""The HTTP endpoint of a worker: addresses, methods, limits, and a port that is in use."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from stagepost.errors import ConfigurationError
from stagepost.worker import http_endpoint
from stagepost.worker.http_endpoint import Answer, HttpAddress, HttpEndpoint
from tests.services.processes import wait_until

LIMIT = 30.0


def fail(_accept: str) -> Answer:
    raise ZeroDivisionError


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    routes = {"/hello": lambda accept: Answer.of_text(f"hello {accept}"), "/fail": fail}
    endpoint = HttpEndpoint(HttpAddress("127.0.0.1", 0), routes)
    endpoint.start()
    yield endpoint
    endpoint.close()


def ask(endpoint: HttpEndpoint, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*endpoint.address, timeout=LIMIT)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def status_of(endpoint: HttpEndpoint, method: str, path: str) -> int:
    with ask(endpoint, method, path) as response:
        response.read()
        return response.status


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9100", ("127.0.0.1", 9100)),
        (":9100", ("127.0.0.1", 9100)),
        ("0.0.0.0:9100", ("0.0.0.0", 9100)),  # noqa: S104 - the user asked for it
        ("[::1]:9100", ("::1", 9100)),
        ("worker.example.org:0", ("worker.example.org", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert HttpAddress.parse(text) == address
    assert HttpAddress.parse(str(HttpAddress.parse(text))) == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:http", "localhost:65536", "::1:9100", "-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--http"):
        HttpAddress.parse(text)


def test_each_process_has_the_next_port() -> None:
    address = HttpAddress.parse("65534")

    assert [address.of_process(number).port for number in (1, 2)] == [65534, 65535]
    assert HttpAddress.parse("0").of_process(3).port == 0
    with pytest.raises(ConfigurationError, match="lower port"):
        address.of_process(3)


def test_a_path_answers_get_and_head(endpoint: HttpEndpoint) -> None:
    with ask(endpoint, "GET", "/hello?query=1", accept="text/plain") as response:
        assert (response.status, response.read()) == (200, b"hello text/plain\n")
    with ask(endpoint, "HEAD", "/hello") as response:
        assert (response.status, response.headers["Content-Length"], response.read()) == (200, "7", b"")


def test_everything_else_is_refused(endpoint: HttpEndpoint) -> None:
    assert status_of(endpoint, "GET", "/") == 404
    assert status_of(endpoint, "POST", "/hello") == 405


@pytest.mark.parametrize("header", [b"Content-Length: 1", b"Transfer-Encoding: chunked"])
def test_a_request_with_a_body_is_refused_before_the_body_is_read(endpoint: HttpEndpoint, header: bytes) -> None:
    with socket.create_connection(endpoint.address, timeout=LIMIT) as connection, connection.makefile("rb") as replies:
        connection.sendall(b"GET /hello HTTP/1.1\r\n" + header + b"\r\n\r\n")

        assert replies.readline() == b"HTTP/1.0 400 Bad Request\r\n"
        replies.read()


def test_a_failure_is_logged_and_not_shown(endpoint: HttpEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    with ask(endpoint, "GET", "/fail") as response:
        assert (response.status, b"ZeroDivision" in response.read()) == (500, False)
    assert "a request for metrics or a probe failed" in caplog.text


def test_a_port_in_use_is_an_error_that_names_it(endpoint: HttpEndpoint) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{endpoint.address.port}: cannot listen there: Address already in use"
    ):
        HttpEndpoint(endpoint.address, {})


def test_a_client_that_sends_byte_by_byte_is_cut_off(endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "REQUEST_SECONDS", 0.1)

    with socket.create_connection(endpoint.address, timeout=0.05) as slow:
        wait_until(lambda: is_cut_off_after_a_byte(slow), "the endpoint hangs up", seconds=LIMIT)


def is_cut_off_after_a_byte(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_silent_clients_beyond_the_limit_are_closed_at_once(endpoint: HttpEndpoint) -> None:
    silent = [socket.create_connection(endpoint.address, timeout=LIMIT) for _ in range(http_endpoint.MOST_AT_ONCE)]
    try:
        with socket.create_connection(endpoint.address, timeout=LIMIT) as another:
            assert another.recv(1000) == b""
    finally:
        for connection in silent:
            connection.close()


def test_a_closed_endpoint_frees_its_port_and_thread(endpoint: HttpEndpoint) -> None:
    endpoint.close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(endpoint.address, timeout=LIMIT)
    assert "stagepost-http" not in {thread.name for thread in threading.enumerate()}
    HttpEndpoint(endpoint.address, {}).close()
