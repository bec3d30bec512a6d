"""How many jobs a worker claims: enough to keep its slots busy, and not one by one."""

from __future__ import annotations

import pytest

from stagepost.worker.pace import HELD_BYTES, room, within_bytes


@pytest.mark.parametrize(
    ("slots", "ahead", "held", "over", "ready", "expected"),
    [
        pytest.param(10, 0, 0, 0, 0, 10, id="an empty worker fills its slots"),
        pytest.param(10, 0, 7, 0, 0, 3, id="without any ahead each free slot counts"),
        pytest.param(10, 0, 10, 4, 0, 4, id="those that are over need no slot"),
        pytest.param(1, 20, 21, 0, 20, 0, id="full"),
        pytest.param(1, 20, 20, 0, 19, 0, id="one has ended: not worth a claim"),
        pytest.param(1, 20, 12, 0, 11, 0, id="more than half still waits"),
        pytest.param(1, 20, 11, 0, 10, 10, id="half is left: the other half is claimed"),
        pytest.param(50, 2000, 1050, 1000, 0, 2000, id="none waits, many are being settled: the loop must not run dry"),
        pytest.param(50, 2000, 4050, 4050, 0, 0, id="the store is slow: no more are leased than it can settle"),
        pytest.param(10, 0, 12, 0, 2, 0, id="jobs became slow: what was leased ahead comes first"),
    ],
)
def test_room(slots: int, ahead: int, held: int, over: int, ready: int, expected: int) -> None:
    assert room(slots=slots, ahead=ahead, held=held, over=over, ready=ready) == expected


@pytest.mark.parametrize(
    ("jobs", "free", "held_bytes", "bytes_each", "expected"),
    [
        pytest.param(50, 50, 0, 0.0, 50, id="the first claim fills the slots, whatever its jobs are like"),
        pytest.param(1000, 10, 0, 0.0, 10, id="and leases none ahead before sizes are known"),
        pytest.param(1000, 10, 100_000, 100.0, 1000, id="small jobs are leased ahead without a limit of their own"),
        pytest.param(1000, 0, 0, HELD_BYTES / 64, 64, id="large ones as many as fit"),
        pytest.param(1000, 0, HELD_BYTES // 2, HELD_BYTES / 64, 32, id="beside those that are held"),
        pytest.param(1000, 0, HELD_BYTES * 7 // 8, HELD_BYTES / 64, 0, id="not a few at a time"),
        pytest.param(1000, 5, HELD_BYTES * 2, HELD_BYTES / 64, 5, id="a free slot gets its job all the same"),
        pytest.param(1000, -3, HELD_BYTES * 2, HELD_BYTES / 64, 0, id="no slot is free"),
        pytest.param(0, 5, 0, 100.0, 0, id="none is wanted"),
    ],
)
def test_what_is_held_is_bounded_in_bytes(
    jobs: int, free: int, held_bytes: int, bytes_each: float, expected: int
) -> None:
    assert within_bytes(jobs, free=free, held_bytes=held_bytes, bytes_each=bytes_each) == expected
