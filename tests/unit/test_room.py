"""How many jobs a worker claims: enough to keep its slots busy, and not one by one."""

from __future__ import annotations

import pytest

from stagepost.testing.clock import ManualClock
from stagepost.worker.pace import HELD_BYTES, Pace, room, within_bytes


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


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
def test_held_jobs_are_bounded_in_bytes(
    jobs: int, free: int, held_bytes: int, bytes_each: float, expected: int
) -> None:
    assert within_bytes(jobs, free=free, held_bytes=held_bytes, bytes_each=bytes_each) == expected


class TestPace:
    def test_leases_a_tenth_of_a_second_ahead(self, clock: ManualClock) -> None:
        pace = Pace(clock)
        for _ in range(50):
            clock.advance(1)
            pace.note(1000)

        assert pace.ahead() == pytest.approx(100, abs=1)

    def test_leases_none_ahead_after_a_stall_until_a_job_has_ended(self, clock: ManualClock) -> None:
        pace = Pace(clock)
        clock.advance(0.001)
        pace.note(1000)
        pace.stall()

        assert (pace.is_stalled, pace.ahead()) == (True, 0)
        clock.advance(10)
        pace.note(1)
        assert (pace.is_stalled, pace.ahead()) == (False, 0)

    @pytest.mark.parametrize(
        ("rate", "waited", "quiet", "expected"),
        [
            pytest.param(1000, 0.2, 0.02, False, id="slots come free as usual"),
            pytest.param(1000, 0.2, 0.04, True, id="no slot came free for twice the usual time"),
            pytest.param(100, 0.2, 0.15, False, id="jobs of 100 ms that started together end together"),
            pytest.param(100, 0.26, 0.01, True, id="slots come free, but too seldom for so many"),
            pytest.param(0, 0.2, 0.2, False, id="nothing is known of the rate yet"),
            pytest.param(0, 0.3, 0.3, True, id="a quarter of a second is too long in any case"),
        ],
    )
    def test_when_jobs_are_late(
        self, clock: ManualClock, rate: int, waited: float, quiet: float, *, expected: bool
    ) -> None:
        pace = Pace(clock)
        for _ in range(50 if rate else 0):
            clock.advance(1)
            pace.note(rate)

        assert pace.is_late(waited=waited, quiet=quiet, slots=10) is expected
