"""When messages count as lost: never while they may merely be waiting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.store.queue_observations import QueueObservation
from stagepost.transport.rabbitmq.admin import Depth
from stagepost.upkeep.reconciler import lost_for

SETTINGS = RabbitmqSettings(lost_after_seconds=15, quiet_time_seconds=600)
SECOND = 1_000_000
SOON, LATE = timedelta(seconds=15), timedelta(seconds=600)

CASES: list[tuple[str, Depth | None, QueueObservation, int, timedelta | None]] = [
    ("messages wait", Depth(1, 0), QueueObservation(None, None, 0), 0, None),
    ("messages wait, and nobody took any for long", Depth(1, 1), QueueObservation(None, 900 * SECOND, 0), 1, None),
    ("messages wait, whatever was seen before", Depth(1, 0), QueueObservation(900 * SECOND, 900 * SECOND, 0), 0, None),
    ("empty since just now", Depth(0, 1), QueueObservation(0, 900 * SECOND, 0), 1, None),
    ("empty, but not for long enough", Depth(0, 1), QueueObservation(15 * SECOND - 1, None, 0), 1, None),
    ("empty, and not known for how long", Depth(0, 1), QueueObservation(None, None, 0), 1, None),
    ("empty for long enough, all consumers are ours", Depth(0, 1), QueueObservation(15 * SECOND, None, 0), 1, SOON),
    ("empty for long enough, nobody consumes", Depth(0, 0), QueueObservation(15 * SECOND, None, 0), 0, SOON),
    ("empty, and ours took something just now", Depth(0, 2), QueueObservation(15 * SECOND, 0, 0), 2, SOON),
    ("empty, but a stranger consumes", Depth(0, 2), QueueObservation(15 * SECOND, None, 0), 1, None),
    ("a stranger consumes, and somebody took something", Depth(0, 2), QueueObservation(900 * SECOND, 0, 0), 1, None),
    (
        "a stranger consumes, silent, but not empty for long",
        Depth(0, 2),
        QueueObservation(599 * SECOND, None, 0),
        1,
        None,
    ),
    (
        "a stranger consumes, and is silent for long",
        Depth(0, 2),
        QueueObservation(600 * SECOND, 600 * SECOND, 0),
        1,
        LATE,
    ),
    ("a stranger consumes, and was never heard", Depth(0, 2), QueueObservation(600 * SECOND, None, 0), 1, LATE),
    ("the broker does not tell, somebody took something", None, QueueObservation(None, 600 * SECOND - 1, 0), 0, None),
    ("the broker does not tell, silent for long", None, QueueObservation(None, 600 * SECOND, 0), 0, LATE),
    ("the broker does not tell, and nobody was ever heard", None, QueueObservation(None, None, 0), 0, LATE),
]


@pytest.mark.parametrize(
    ("depth", "observation", "heard", "lost"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_messages_are_lost_only_if_they_cannot_be_anywhere(
    depth: Depth | None, observation: QueueObservation, heard: int, lost: timedelta | None
) -> None:
    assert lost_for(depth, observation, SETTINGS, heard=heard) == lost


@pytest.mark.parametrize(
    ("depth", "silent", "patience", "lost"),
    [
        (Depth(0, 1), 99, 100, None),
        (Depth(0, 1), 100, 100, 100),
        (Depth(0, 1), 15, 1, 15),
        (Depth(0, 1), 14, 1, None),
        (Depth(0, 1), 600, 3600, None),
        (None, 600, 3600, None),
        (None, 3600, 3600, 3600),
        (None, 100, 1, None),
        (None, 600, 1, 600),
        (Depth(1, 1), 9999, 1, None),
    ],
)
def test_a_program_may_hold_a_request_for_as_long_as_its_task_may_take(
    depth: Depth | None, silent: int, patience: int, lost: int | None
) -> None:
    observation = QueueObservation(silent * SECOND, silent * SECOND, 0, patience * SECOND)

    found = lost_for(depth, observation, SETTINGS)

    assert found == (None if lost is None else timedelta(seconds=lost))
