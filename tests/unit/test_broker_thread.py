"""A link to a broker that is not there, hangs up or talks nonsense: it says why, tries again, and can be stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from stagepost.clock import monotonic, sleep
from stagepost.model.envelope import Message
from stagepost.transport.rabbitmq.publisher import Publisher, Verdict

DEADLINE_SECONDS = 200.0


class BadBroker:
    """A real listening socket that treats everybody the same, and counts them."""

    def __init__(self, treat: Callable[[socket.socket], None]) -> None:
        self._treat = treat
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.guests = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                guest, _ = self._listening.accept()
            except OSError:
                return
            self.guests += 1
            with closing(guest):
                self._treat(guest)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(DEADLINE_SECONDS)


def hang_up(_guest: socket.socket) -> None:
    """Say nothing and go."""


def talk_nonsense(guest: socket.socket) -> None:
    guest.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def ask_for_another_version(guest: socket.socket) -> None:
    guest.recv(8)
    guest.sendall(b"AMQP\x00\x01\x00\x00")


@pytest.fixture(params=[hang_up, talk_nonsense, ask_for_another_version], ids=lambda treat: treat.__name__)
def bad_broker(request: pytest.FixtureRequest) -> Iterator[BadBroker]:
    with closing(BadBroker(request.param)) as broker:
        yield broker


def publisher_at(port: int) -> Publisher:
    return Publisher(f"amqp://ada:geheim@127.0.0.1:{port}/", exchange="task_exchange", timeout=5)


def until(is_so: Callable[[], bool]) -> None:
    deadline = monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert monotonic() < deadline, "it did not come to that in time"
        sleep(0.01)


def test_a_link_tries_again_however_a_broker_refuses_it(bad_broker: BadBroker) -> None:
    link = publisher_at(bad_broker.port)
    assert link.trouble == "not connected yet"

    link.start()
    until(lambda: bad_broker.guests >= 3)
    until(lambda: link.trouble != "not connected yet")

    assert link.trouble is not None
    assert "geheim" not in link.trouble
    assert "RabbitMQ at amqp://ada:***@127.0.0.1" in link.trouble
    link.stop()
    until(lambda: not link._thread.is_alive())


def test_messages_published_meanwhile_have_an_unknown_verdict(bad_broker: BadBroker) -> None:
    link = publisher_at(bad_broker.port)
    before = link.publish([Message("task.asr", b"{}", "job.1")])
    link.start()
    until(lambda: bad_broker.guests >= 1)

    during = link.publish([Message("task.asr", b"{}", "job.1")])

    assert before.result(DEADLINE_SECONDS) == during.result(DEADLINE_SECONDS) == [Verdict.UNKNOWN]
    link.stop()


def test_an_unreachable_broker_is_reported() -> None:
    with closing(socket.socket()) as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        link = publisher_at(port)

        link.start()
        until(lambda: link.trouble != "not connected yet")

        assert link.trouble is not None
        assert f"127.0.0.1:{port}" in link.trouble
        link.stop()
        until(lambda: not link._thread.is_alive())


def test_a_link_that_never_started_can_be_stopped() -> None:
    publisher_at(1).stop()
