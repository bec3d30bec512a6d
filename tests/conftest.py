"""Registers the fixtures that all tests share."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from stagepost.config.logging import ATTEMPTS
from tests.depth import DEPTH, Depth, deselect_deeper

pytest_plugins = [
    "tests.services.fixtures",
    "tests.services.recognisers",
    "tests.fault.fixtures",
    "tests.fault.rabbit_fixtures",
]

# Machines are shared: how long an example takes says nothing about it. What fails should be the change that is tested,
# so chance is left to the night.
settings.register_profile(
    "shared machine",
    deadline=None,
    derandomize=DEPTH < Depth.NIGHT,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deselect_deeper(config, items)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command that runs in this process has configured, so that later tests can capture their logs."""
    loggers = {logger: logger.level for logger in (logging.getLogger(), logging.getLogger(ATTEMPTS))}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for logger, level in loggers.items():
        logger.setLevel(level)
