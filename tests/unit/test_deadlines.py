"""The thread that aborts calls whose deadline has passed, and sleeps as long as it can."""

from __future__ import annotations

import threading

import pytest

from stagepost.clock import monotonic
from stagepost.database import deadline
from stagepost.database.deadline import Deadlines

LONG, SHORT = 3600.0, 0.01
PATIENCE = 60.0


def test_a_short_call_is_broken_off_while_the_thread_sleeps_for_a_long_one() -> None:
    deadlines, is_aborted, is_asleep = Deadlines(), threading.Event(), threading.Event()

    with deadlines.limit(LONG, lambda: None):
        with deadlines.limit(SHORT, is_asleep.set):  # once it is broken off, the thread sleeps for the long one
            assert is_asleep.wait(PATIENCE)
        with deadlines.limit(SHORT, is_aborted.set):
            assert is_aborted.wait(PATIENCE)


def test_an_abort_that_fails_leaves_no_other_call_unwatched() -> None:
    deadlines, is_aborted = Deadlines(), threading.Event()

    def fail() -> None:
        raise OSError("it is closed")

    with deadlines.limit(SHORT, fail), deadlines.limit(SHORT * 2, is_aborted.set):
        assert is_aborted.wait(PATIENCE)


def test_a_call_that_has_ended_is_not_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, is_aborted, is_next = Deadlines(), threading.Event(), threading.Event()
    began = monotonic()

    with monkeypatch.context() as patched:
        patched.setattr(deadline, "monotonic", lambda: began)  # however long it takes, it ends in time
        with deadlines.limit(SHORT, is_aborted.set):
            pass
    with deadlines.limit(SHORT * 2, is_next.set):
        assert is_next.wait(PATIENCE)

    assert not is_aborted.is_set()


def test_the_thread_ends_when_nobody_calls_and_comes_back_for_the_next() -> None:
    class Hasty(Deadlines):
        IDLE_SECONDS = 0.01

    deadlines, is_aborted = Hasty(), threading.Event()
    with deadlines.limit(LONG, lambda: None):
        thread = deadlines._thread
    assert thread is not None
    with deadlines.limit(SHORT, is_aborted.set):  # wakes it from its sleep for the long one
        assert is_aborted.wait(PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()

    is_aborted.clear()
    with deadlines.limit(SHORT, is_aborted.set):
        assert is_aborted.wait(PATIENCE)
