"""Registers the fixtures that all tests share."""

import os

from hypothesis import HealthCheck, settings

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
    derandomize=not os.environ.get("STAGEPOST_NIGHTLY"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared machine")
