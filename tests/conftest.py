"""Registers the fixtures that all tests share."""

pytest_plugins = ["tests.services.fixtures", "tests.fault.fixtures"]
