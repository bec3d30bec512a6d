"""The threads that run plain functions."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stagepost.worker.threads import ThreadPool

LIMIT = 200.0


async def test_a_thread_left_behind_is_free_as_soon_as_it_returns() -> None:
    freed, gate = asyncio.Event(), threading.Event()
    pool = ThreadPool(on_freed=freed.set)
    call = asyncio.create_task(pool.run(gate.wait))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert pool.stuck == 1

    gate.set()
    async with asyncio.timeout(LIMIT):
        await freed.wait()

    assert pool.stuck == 0
    assert await pool.run(lambda: 5) == 5
    pool.close()


async def test_calls_that_return_together_all_reach_those_who_wait() -> None:
    pool, everybody = ThreadPool(), threading.Barrier(20)

    async with asyncio.timeout(LIMIT):
        for _ in range(20):
            places = await asyncio.gather(*(pool.run(lambda: everybody.wait(LIMIT)) for _ in range(20)))
            assert sorted(places) == list(range(20))
    pool.close()
