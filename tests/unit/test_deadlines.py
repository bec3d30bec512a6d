"""The thread that aborts calls whose deadline has passed, and sleeps as long as it can."""

from __future__ import annotations

import threading

import pytest

from stagepost.clock import monotonic
from stagepost.database import deadline
from stagepost.database.deadline import Deadlines, Watcher

LONG, SHORT = 3600.0, 0.01
PATIENCE = 60.0


class HastyWatcher(Watcher):
    IDLE_SECONDS = 0.01


def test_a_short_call_is_broken_off_while_the_thread_sleeps_for_a_long_one() -> None:
    deadlines, is_aborted, is_asleep = Deadlines(Watcher()), threading.Event(), threading.Event()

    with deadlines.limit(LONG, lambda: None):
        with deadlines.limit(SHORT, is_asleep.set):  # once it is broken off, the thread sleeps for the long one
            assert is_asleep.wait(PATIENCE)
        with deadlines.limit(SHORT, is_aborted.set):
            assert is_aborted.wait(PATIENCE)


def test_an_abort_that_fails_leaves_no_other_call_unwatched() -> None:
    deadlines, is_aborted = Deadlines(Watcher()), threading.Event()

    def fail() -> None:
        raise OSError("it is closed")

    with deadlines.limit(SHORT, fail), deadlines.limit(SHORT * 2, is_aborted.set):
        assert is_aborted.wait(PATIENCE)


def test_a_call_that_has_ended_is_not_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, is_aborted, is_next = Deadlines(Watcher()), threading.Event(), threading.Event()
    began = monotonic()

    with monkeypatch.context() as patched:
        patched.setattr(deadline, "monotonic", lambda: began)  # however long it takes, it ends in time
        with deadlines.limit(SHORT, is_aborted.set):
            pass
    with deadlines.limit(SHORT * 2, is_next.set):
        assert is_next.wait(PATIENCE)

    assert not is_aborted.is_set()


def test_the_thread_ends_when_nobody_calls_and_comes_back_for_the_next() -> None:
    watcher, is_aborted = HastyWatcher(), threading.Event()
    deadlines = Deadlines(watcher)
    with deadlines.limit(LONG, lambda: None):
        thread = watcher._thread
    assert thread is not None
    with deadlines.limit(SHORT, is_aborted.set):  # wakes it from its sleep for the long one
        assert is_aborted.wait(PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()

    is_aborted.clear()
    with deadlines.limit(SHORT, is_aborted.set):
        assert is_aborted.wait(PATIENCE)


def test_one_thread_watches_all_groups_and_each_is_aborted_alone() -> None:
    watcher, aborted = Watcher(), list[str]()
    one, other = Deadlines(watcher), Deadlines(watcher)

    with one.limit(LONG, lambda: aborted.append("one")):
        thread = watcher._thread
        with other.limit(LONG, lambda: aborted.append("other")):
            other.abort_all()
            assert (aborted, watcher._thread) == (["other"], thread)
        one.abort_all()

    assert aborted == ["other", "one"]


def test_a_call_that_ends_in_a_forked_child_does_not_end_the_watch_of_another() -> None:
    watcher, is_aborted = HastyWatcher(), threading.Event()
    token = watcher.enter(SHORT, lambda: None, None)
    thread = watcher._thread
    assert thread is not None
    thread.join(PATIENCE)

    watcher.reset()  # as in a child that was forked during the call
    watcher.enter(SHORT, is_aborted.set, None)
    watcher.leave(token)

    assert is_aborted.wait(PATIENCE)
