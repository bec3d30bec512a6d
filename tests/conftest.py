"""Registers the fixtures that all tests share."""

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.services.fixtures",
    "tests.services.recognisers",
    "tests.fault.fixtures",
    "tests.fault.rabbit_fixtures",
]

# Machines are shared: how long an example takes says nothing about it.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
