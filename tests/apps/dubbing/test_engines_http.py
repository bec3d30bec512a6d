"""Every way in which a service can fail, and what the caller is told."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from stagepost import Permanent, Retryable, StagepostError
from stagepost_dubbing.engines.errors import Refused, TimedOut, Unavailable
from stagepost_dubbing.engines.http import Service
from tests.apps.dubbing import servers
from tests.apps.dubbing.servers import Answer, Fault, Server, status

KEY = "sk-very-secret-key"
CONTENT = b"0123456789" * 40


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.running(lambda _: Answer(200, "text/plain; charset=utf-8", CONTENT)) as server:
        yield server


def service(server: Server, *, timeout: float = 60.0, longest_reply: int = 1000) -> Service:
    return Service("the test service", f"{server.url}/base", timeout, longest_reply=longest_reply, token=KEY)


def test_a_question_is_answered(server: Server) -> None:
    reply = service(server).post_json("/ask", {"what": "time"})

    assert reply == ("text/plain", CONTENT)
    [asked] = server.asked
    assert (asked.path, asked.body) == ("/base/ask", b'{"what":"time"}')
    assert asked.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (status(500), Retryable),
        (status(502), Retryable),
        (status(503), Unavailable),
        (status(429), Unavailable),
        (status(504), TimedOut),
        (status(408), TimedOut),
        (status(400), Permanent),
        (status(413), Permanent),
        (status(422), Permanent),
        (status(401), Refused),
        (status(403), Refused),
        (status(404), Refused),
        (status(302, ("Location", "http://169.254.169.254/")), Refused),
        (servers.cut, Retryable),
        (servers.hang_up, Retryable),
    ],
)
def test_each_trouble_is_told_apart(server: Server, fault: Fault, error: type[StagepostError]) -> None:
    server.faults.append(fault)

    with pytest.raises(error) as caught:
        service(server).post_json("/ask", {})

    assert type(caught.value) is error
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ([("Retry-After", "7")], 7),
        ([("Retry-After", "999999")], 3600),
        ([("Retry-After", "soon")], None),
        ([("Retry-After", "-3")], None),
        ([], None),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_a_service_says_in_how_many_seconds_to_come_again(
    server: Server, code: int, headers: list[tuple[str, str]], after: int | None
) -> None:
    server.faults.append(status(code, *headers))

    with pytest.raises(Unavailable) as caught:
        service(server).post_json("/ask", {})

    assert caught.value.after == (None if after is None else timedelta(seconds=after))


@pytest.mark.parametrize(
    ("date", "after"),
    [
        ("Wed, 21 Oct 2015 07:29:30 GMT", 90),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0),
        ("Wed, 21 Oct 2099 07:00:00 GMT", 3600),
    ],
)
def test_a_service_says_at_what_time_to_come_again(server: Server, date: str, after: int) -> None:
    def limited(handler: servers.Handler, _: Answer) -> None:
        handler.send_response_only(429)
        handler.send_header("Date", "Wed, 21 Oct 2015 07:28:00 GMT")
        handler.send_header("Retry-After", date)
        handler.end_headers()

    server.faults.append(limited)

    with pytest.raises(Unavailable) as caught:
        service(server).post_json("/ask", {})

    assert caught.value.after == timedelta(seconds=after)


@pytest.mark.parametrize("fault", [servers.hang, servers.drip, servers.drip_headers])
def test_one_deadline_counts_for_all_of_an_answer(server: Server, fault: Fault) -> None:
    server.answer = lambda _: Answer(200, "text/plain", CONTENT * 100)
    server.faults.append(fault)
    before = time.perf_counter()

    with pytest.raises(TimedOut, match=r"the test service did not answer within 0\.4 s"):
        service(server, timeout=0.4, longest_reply=10**6).post_json("/ask", {})

    assert time.perf_counter() - before < 100  # the slow ones would take half an hour, or for ever


@pytest.mark.parametrize("announced", [True, False])
def test_an_answer_that_is_too_long_is_not_read(server: Server, announced: bool) -> None:
    def endless(handler: servers.Handler, _: Answer) -> None:
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", str(10**15))
        handler.end_headers()
        handler.wfile.write(bytes(5000))
        handler.server.ending.wait(0.1)

    server.faults.append(endless)

    with pytest.raises(Retryable, match="longer than 1000 bytes"):
        service(server).post_json("/ask", {})


def test_a_service_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        gone = Service("the test service", f"http://127.0.0.1:{port}/base", 60, longest_reply=1000)

        with pytest.raises(
            Unavailable, match=rf"the test service at http://127\.0\.0\.1:{port}/base cannot be reached"
        ):
            gone.post_json("/ask", {})


@pytest.mark.parametrize("code", [401, 400, 500, 429])
def test_a_key_that_a_service_repeats_is_in_no_error(server: Server, code: int) -> None:
    server.faults.append(status(code, body=f"invalid key {KEY} given".encode()))

    with pytest.raises(StagepostError, match="invalid key ••• given") as caught:
        service(server).post_json("/ask", {})

    assert KEY not in str(caught.value)
    assert KEY not in repr(service(server))


def test_one_who_waits_may_stop_waiting(server: Server) -> None:
    server.faults.append(servers.hang)
    calls = []

    def stop() -> None:
        calls.append(1)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        service(server, timeout=60).post("/ask", b"x", content_type="text/plain", while_waiting=stop)
    assert calls == [1]


def test_what_a_service_says_is_shortened(server: Server) -> None:
    server.faults.append(status(500, body=b"long\n" * 100_000))
    with pytest.raises(Retryable) as caught:
        service(server, longest_reply=10**6).post_json("/ask", {})
    assert len(str(caught.value)) < 300
