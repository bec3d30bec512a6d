"""The `STAGEPOST` dictionary of a project's settings, as settings of Stagepost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.db import connections

from stagepost.config import Settings
from stagepost.contrib.django.database_url import database_url_of
from stagepost.errors import ConfigurationError

__all__ = ["ALIAS_KEY", "MODULES_KEY", "Configuration"]

ALIAS_KEY = "DATABASE"
MODULES_KEY = "TASK_MODULES"
NOT_HERE = {"DATABASE_URL": f'Name an alias of DATABASES instead: "{ALIAS_KEY}": "default".'}
"""Settings that Stagepost knows but Django projects give elsewhere."""


@dataclass(frozen=True)
class Configuration:
    """What the dictionary says, checked: everything except where the database is right now."""

    alias: str
    """The alias in `DATABASES` of the database that holds the jobs."""
    task_modules: Sequence[str]
    """The modules of every installed app that define tasks."""
    values: Mapping[str, Any]
    """Fields of `Settings`."""

    @classmethod
    def read(cls) -> Configuration:
        """Read and check Django's settings, without connecting to a database."""
        given = getattr(django_settings, "STAGEPOST", {})
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"STAGEPOST is {type(given).__name__}: it must be a dict of settings.")
        known = {ALIAS_KEY, MODULES_KEY, *(name.upper() for name in Settings.__struct_fields__)} - set(NOT_HERE)
        for key in given:
            if key not in known:
                advice = NOT_HERE.get(str(key), f"Valid keys are: {', '.join(sorted(known))}.")
                raise ConfigurationError(f"STAGEPOST[{key!r}] cannot be set. {advice}")
        modules = given.get(MODULES_KEY, ("tasks",))
        if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
            raise ConfigurationError(f'STAGEPOST[{MODULES_KEY!r}] is {modules!r}: give a list of names, as ["tasks"].')
        values = {key.lower(): _lower(value) for key, value in given.items() if key not in {ALIAS_KEY, MODULES_KEY}}
        try:
            Settings.load(environment={}, **values)  # alone, so that an error is one of this dictionary
        except ConfigurationError as error:
            raise ConfigurationError(f"STAGEPOST: {error}") from error
        return cls(_checked_alias(given.get(ALIAS_KEY, "default")), tuple(modules), values)

    def settings(self) -> Settings:
        """Build the settings, with the database that Django uses now: in a test run, the test database."""
        return Settings.load(**self.values, database_url=database_url_of(connections[self.alias]))


def _checked_alias(alias: object) -> str:
    if not isinstance(alias, str) or alias not in connections.settings:
        raise ConfigurationError(
            f"STAGEPOST[{ALIAS_KEY!r}] is {alias!r}, which is not in DATABASES. "
            f"Its aliases are: {', '.join(connections.settings)}."
        )
    return alias


def _lower(value: Any) -> Any:
    """Take the keys of a nested dictionary, such as RABBITMQ, in capitals as well."""
    if isinstance(value, Mapping):
        return {str(key).lower(): _lower(inner) for key, inner in value.items()}
    return value
