"""Which failures of background loops are logged: each cause once, reminders with counts, and one line at the end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stagepost.errors import BrokerUnavailable, StoreUnavailable
from stagepost.loops.failure_log import MOST_LINES, REMIND_SECONDS, FailureLog
from stagepost.loops.service import Service
from stagepost.testing import ManualClock

AWAY = StoreUnavailable("PostgreSQL cannot be reached:\n\tconnection refused")
FIRST = (
    "claimer failed and tries again: PostgreSQL cannot be reached: connection refused. "
    "Further failures with the same cause are counted, not logged"
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def failures(clock: ManualClock) -> FailureLog:
    return FailureLog(clock)


def test_loops_that_fail_for_the_same_cause_log_one_line_and_one_when_all_work_again(
    failures: FailureLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10):
        failures.failed("claimer", AWAY)
        failures.failed("leader", StoreUnavailable(f"lead: tried {number} times, last: the server is starting up"))
        clock.advance(1)
    failures.worked("claimer")
    failures.worked("claimer")
    failures.worked("leader")
    failures.worked("leader")

    assert caplog.messages == [FIRST, "claimer, leader: working again after 10 s and 20 failures"]


def test_a_lasting_failure_is_logged_again_after_minutes_with_its_count(
    failures: FailureLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * int(REMIND_SECONDS)):
        failures.failed("claimer", AWAY)
        clock.advance(1)

    assert len(caplog.messages) == 3
    assert caplog.messages[1].startswith("claimer: still failing after 300 s and 301 failures, the last: PostgreSQL ")


def test_different_causes_are_logged_each(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    failures.failed("claimer", AWAY)
    failures.failed("relay", BrokerUnavailable("RabbitMQ cannot be used"))
    failures.failed("pruner", KeyError("a"))
    failures.failed("pruner", KeyError("b"))
    failures.failed("scheduler", KeyError("b"))

    assert [message.split()[0] for message in caplog.messages] == ["claimer", "relay", "pruner", "pruner"]


def test_causes_that_differ_only_in_numbers_and_ids_are_the_same(
    failures: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        failures.failed("pruner", ValueError(f"row {number} is wrong"))

    assert len(caplog.messages) == 1


def test_only_unexpected_errors_have_a_traceback(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for loop, error in (("claimer", AWAY), ("relay", BrokerUnavailable("away")), ("pruner", KeyError("a"))):
        try:
            raise error
        except Exception as caught:  # noqa: BLE001 - as a loop catches them
            failures.failed(loop, caught)

    assert [bool(record.exc_info) for record in caplog.records] == [False, False, True]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_loop_that_fails_at_every_other_pass_logs_a_few_lines(
    failures: FailureLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2 * int(REMIND_SECONDS)):
        failures.failed("promoter", AWAY)
        clock.advance(0.5)
        failures.worked("promoter")
        clock.advance(0.5)

    assert len(caplog.messages) == 2 * 2 * MOST_LINES
    assert "promoter: working again after 0 s and 1 failures" in caplog.messages


def test_failures_that_were_not_logged_are_in_the_next_line(
    failures: FailureLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MOST_LINES):
        failures.failed("promoter", AWAY)
        failures.worked("promoter")
    clock.advance(1)
    failures.failed("promoter", AWAY)
    failures.failed("leader", AWAY)
    assert len(caplog.messages) == 2 * MOST_LINES

    clock.advance(REMIND_SECONDS)
    failures.failed("leader", AWAY)

    assert caplog.messages[-1].startswith("promoter, leader: still failing after 300 s and 3 failures")


def test_a_loop_whose_cause_changes_is_not_reported_as_working(
    failures: FailureLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures.failed("claimer", AWAY)
    clock.advance(5)
    failures.failed("claimer", KeyError("a"))
    failures.failed("claimer", AWAY)
    failures.failed("claimer", KeyError("a"))
    clock.advance(1)
    failures.worked("claimer")

    *before, last = caplog.messages
    assert {message.split(":")[0] for message in before} == {"claimer failed and tries again"}
    assert last == "claimer: working again after 1 s and 1 failures"


def test_loops_share_the_log_they_report_to(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Service):
        passes = 0

        async def run_once(self) -> None:
            self.passes += 1
            if self.passes == 3:
                self.stop()
                return
            raise AWAY

    async def run() -> None:
        loops = [Failing(interval=0), Failing(interval=0)]
        for number, loop in enumerate(loops, start=1):
            loop.report_to(failures, name=f"loop {number}")
        await asyncio.gather(*(loop.run() for loop in loops))

    asyncio.run(run())

    assert len(caplog.messages) == 2
    assert caplog.messages[-1] == "loop 1, loop 2: working again after 0 s and 4 failures"
