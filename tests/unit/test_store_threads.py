"""Daemon threads for calls that may hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from stagepost.database.threads import DaemonThreads, call_in_thread
from stagepost.upkeep.threads import in_thread

LIMIT = 120.0
HANGS_AT_EXIT = """
import threading
from stagepost.database.threads import DaemonThreads

has_begun = threading.Event()
DaemonThreads(1, name="t").submit(lambda: (has_begun.set(), threading.Event().wait()))
has_begun.wait()
"""


def test_as_many_calls_run_at_once_as_there_may_be_threads_and_no_more() -> None:
    threads, everybody = DaemonThreads(3, name="t"), threading.Barrier(3)
    seen: set[str] = set()

    def meet() -> None:
        everybody.wait(LIMIT)
        seen.add(threading.current_thread().name)

    for call in [threads.submit(meet) for _ in range(9)]:
        call.result(LIMIT)
    threads.close(waits=True)

    assert len(seen) <= 3


def test_a_thread_that_goes_on_with_the_next_call_does_not_count_as_idle() -> None:
    threads, first, second = DaemonThreads(2, name="t"), threading.Event(), threading.Event()
    held = [threads.submit(lambda: first.wait(LIMIT)), threads.submit(lambda: second.wait(LIMIT))]
    waiting = threads.submit(lambda: second.wait(LIMIT))
    first.set()
    assert held[0].result(LIMIT)

    second.set()

    assert held[1].result(LIMIT)
    assert waiting.result(LIMIT)
    everybody = threading.Barrier(2)
    for call in [threads.submit(lambda: everybody.wait(LIMIT)) for _ in range(2)]:
        call.result(LIMIT)
    threads.close(waits=True)


def test_errors_are_raised_where_the_result_is_waited_for() -> None:
    threads = DaemonThreads(1, name="t")

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        threads.submit(fail).result(LIMIT)
    threads.close(waits=True)
    with pytest.raises(RuntimeError, match="ended"):
        threads.submit(fail)


def test_a_call_that_never_returns_does_not_keep_the_process_from_exiting() -> None:
    assert subprocess.run([sys.executable, "-c", HANGS_AT_EXIT], timeout=LIMIT, check=False).returncode == 0


def test_a_call_in_a_thread_of_its_own_returns_or_raises_where_it_is_awaited() -> None:
    def fail() -> None:
        raise OSError("no answer")

    assert call_in_thread(lambda: threading.current_thread().daemon, name="own").result(LIMIT)
    with pytest.raises(OSError, match="no answer"):
        call_in_thread(fail, name="own").result(LIMIT)


def test_a_call_in_a_thread_of_its_own_continues_when_its_caller_is_cancelled() -> None:
    may_return, has_returned = threading.Event(), threading.Event()

    def call() -> None:
        may_return.wait(LIMIT)
        has_returned.set()

    async def cancel() -> None:
        task = asyncio.create_task(in_thread(call))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    may_return.set()
    assert has_returned.wait(LIMIT)
