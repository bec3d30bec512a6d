"""The table of loops, and what it says of a worker's loops."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import stagepost
from stagepost import App, Settings, Worker
from stagepost.config.rabbitmq import RabbitmqSettings
from stagepost.loops.service import Service
from stagepost.loops.signals import Signals
from stagepost.store.workers import list_workers
from stagepost.worker.loop import WHEN_WOKEN, Loop
from stagepost.worker.loop_table import LOOPS

LONGEST_SECONDS = 3600.0
"""The interval of a loop that only signals start."""
TESTS_OF_USERS = "stagepost.testing"


def services() -> Iterator[type[Service]]:
    """All loops of the product that can be built."""
    for module in pkgutil.walk_packages(stagepost.__path__, "stagepost."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    unseen = [Service]
    while unseen:
        for cls in unseen.pop().__subclasses__():
            unseen.append(cls)
            is_ours = cls.__module__.startswith("stagepost.") and not cls.__module__.startswith(TESTS_OF_USERS)
            if is_ours and not inspect.isabstract(cls):
                yield cls


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """One worker with all that a broker needs, and one without a broker."""
    plain = App("sqlite:///:memory:")
    carried = App(
        settings=Settings(
            database_url="sqlite:///:memory:",
            transport="amqp://localhost",
            rabbitmq=RabbitmqSettings(collect_dead_letters=True),
        )
    )
    for app in (plain, carried):
        app.task(name="plain")(lambda: None)
    carried.task(name="remote", queue="foreign", remote=True)(lambda: None)
    yield [Worker(plain), Worker(carried)]
    plain.close()
    carried.close()


def test_every_service_is_in_the_table_of_loops() -> None:
    listed = {loop.service for loop in LOOPS}
    missing = {cls for cls in services() if not any(issubclass(cls, one) for one in listed)}

    assert not missing, f"add {missing} to worker/loop_table.py"


def test_names_in_the_table_are_unique() -> None:
    assert len({loop.name for loop in LOOPS}) == len(LOOPS)


def test_a_worker_builds_what_the_table_says(workers: list[Worker]) -> None:
    built = [(loop, service) for worker in workers for loop, service in worker.parts.loops.items()]

    assert {loop for loop, _ in built} == set(LOOPS)
    assert all(type(service) is loop.service for loop, service in built)


def test_only_loops_that_need_a_broker_depend_on_one(workers: list[Worker]) -> None:
    plain, carried = (set(worker.parts.loops) for worker in workers)

    assert {loop for loop in LOOPS if loop.needs_broker} == carried - plain
    assert {loop.name for loop in plain - carried} == {"sent_job_requeuer"}


def test_a_worker_reports_its_loops(workers: list[Worker]) -> None:
    parts = workers[0].parts

    asyncio.run(parts.reporter.run_once())

    [record] = parts.app.store.run(list_workers())
    assert record.loops == tuple(loop.name for loop in LOOPS if not loop.needs_broker)


def test_intervals_in_the_table_are_those_of_the_loops(workers: list[Worker]) -> None:
    for worker in workers:
        for loop, service in worker.parts.loops.items():
            shortest, longest = seconds(loop)
            assert shortest <= round(service.interval, 1) <= longest, loop.name


def test_every_part_that_sends_signals_sends_those_of_its_worker(workers: list[Worker]) -> None:
    for worker in workers:
        parts = worker.parts
        senders = [*parts.loops.values(), parts.executor, parts.alerts]
        if parts.broker is not None:
            senders.append(parts.broker.unreadable_messages)
        sent = [sender._signals for sender in senders if hasattr(sender, "_signals")]
        assert len(sent) > 10
        assert all(signals is parts.signals for signals in sent)


def test_every_signal_of_a_worker_with_a_broker_wakes_something(workers: list[Worker]) -> None:
    signals = workers[1].parts.signals

    unheard = [name for name in Signals.__dataclass_fields__ if not getattr(signals, name)._receivers]

    assert not unheard


def seconds(loop: Loop[Any]) -> tuple[float, float]:
    """Read an interval of the table."""
    if loop.interval == WHEN_WOKEN:
        return LONGEST_SECONDS, LONGEST_SECONDS
    match = re.fullmatch(r"([\d.]+)(?: to ([\d.]+))? s", loop.interval)
    assert match is not None, loop.interval
    return float(match[1]), float(match[2] or match[1])
