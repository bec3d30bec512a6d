"""What `STAGEPOST` in the settings may say."""

from __future__ import annotations

from django.db import connections
from django.test import SimpleTestCase, override_settings

from stagepost.contrib.django import app
from stagepost.contrib.django.configuration import Configuration
from stagepost.errors import ConfigurationError


class ConfigurationChecks(SimpleTestCase):
    """Each mistake is named."""

    databases = "__all__"

    def test_settings_reach_the_app(self) -> None:
        given = {"CONCURRENCY": 3, "HISTORY_DAYS": 7, "TRANSPORT": "amqp://x/", "RABBITMQ": {"QUEUES": ["mail"]}}
        with override_settings(STAGEPOST={**given, "DATABASE": "other", "TASK_MODULES": ["tasks", "mails"]}):
            read = Configuration.read()

        settings = read.settings()
        assert (read.alias, read.task_modules) == ("other", ("tasks", "mails"))
        assert (settings.concurrency, settings.history_days, settings.transport) == (3, 7.0, "amqp://x/")
        assert list(settings.rabbitmq.queues or ()) == ["mail"]

    def test_mistakes_are_named(self) -> None:
        cases = {
            "STAGEPOST['CONCURENCY'] cannot be set. Valid keys are: CONCURRENCY, DATABASE,": {"CONCURENCY": 1},
            "STAGEPOST['DATABASE_URL'] cannot be set. Name an alias": {"DATABASE_URL": "sqlite:///x.db"},
            "STAGEPOST['DATABASE'] is 'jobs', which is not in DATABASES. Its aliases are: default, other.": {
                "DATABASE": "jobs"
            },
            "STAGEPOST['TASK_MODULES'] is 'tasks': give a list": {"TASK_MODULES": "tasks"},
            "concurrency is 0": {"CONCURRENCY": 0},
            "Expected `float`": {"LEASE_SECONDS": "soon"},
            "Valid fields are": {"RABBITMQ": {"PREFTECH": 1}},
        }
        for message, given in cases.items():
            refused = self.assertRaisesMessage(ConfigurationError, message)
            with self.subTest(message), override_settings(STAGEPOST=given), refused:
                Configuration.read().settings()
        with override_settings(STAGEPOST=["tasks"]), self.assertRaisesMessage(ConfigurationError, "must be a dict"):
            Configuration.read()

    def test_the_database_is_the_test_database(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])

        if connections["default"].vendor == "sqlite" and connections["default"].is_in_memory_db():
            assert app.settings.database_url == "sqlite://"
        else:
            assert "test" in name
            assert f"/{name}" in app.settings.database_url
