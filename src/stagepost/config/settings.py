"""Settings, from code, a TOML file and the environment, each over the one before."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import msgspec

from stagepost.config.rabbitmq import QueueSettings, RabbitmqSettings
from stagepost.errors import ConfigurationError

__all__ = ["CONFIG_VARIABLE", "Settings"]

PREFIX = "STAGEPOST_"
LISTS = ("queues", "priorities")
"""Settings whose values in the environment are separated by commas."""
CONFIG_VARIABLE = "STAGEPOST_CONFIG"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an app and its workers behave. Durations are seconds."""

    database_url: str = "sqlite:///stagepost.db"
    """`sqlite:///file.db`, `postgresql://…` or `mysql://…`."""
    transport: str | None = None
    """`amqp://…` or `amqps://…`: carry queues by RabbitMQ; None leaves them with the database alone."""
    rabbitmq: RabbitmqSettings = RabbitmqSettings()
    """How, and which queues."""
    concurrency: int = 10
    """How many jobs one worker process runs at once."""
    prefetch: int | None = None
    """How many more it leases ahead, so that no slot waits for the database; None adapts to how fast jobs end."""
    lease: float = 30.0
    """How long a silent worker keeps its jobs."""
    poll_shortest: float = 0.2
    """How soon a worker looks for jobs again after it found some, but fewer than it had room for."""
    poll_longest: float = 2.0
    """How seldom it looks while it finds none."""
    shutdown_timeout: float = 30.0
    """How long running jobs may go on after a worker is told to stop; what is left is given back."""
    pool_size: int = 4
    """Database connections per process."""
    history_days: float = 30.0
    """How long ended jobs are kept; 0 keeps them for ever."""
    wakeups: bool = True
    """Listen for new jobs where the database can tell; polling goes on underneath."""

    def __post_init__(self) -> None:
        if self.transport is not None and not self.transport.startswith(("amqp://", "amqps://")):
            scheme = self.transport.partition(":")[0]
            raise ConfigurationError(f"transport begins with {scheme!r}: give amqp://… or amqps://…, or leave it out.")
        for name in ("concurrency", "pool_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be 1 or more.")
        for name in ("lease", "poll_shortest", "poll_longest"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be more than 0 seconds.")
        for name in ("prefetch", "shutdown_timeout", "history_days"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it cannot be negative.")

    @property
    def lease_duration(self) -> timedelta:
        """The lease as a duration."""
        return timedelta(seconds=self.lease)

    @classmethod
    def load(
        cls,
        file: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Self:
        """Read `[tool.stagepost]` or the top level of a TOML file, then STAGEPOST_… variables, then what is given.

        STAGEPOST_CONFIG names the file if none is given. STAGEPOST_DATABASE_URL_FILE names a file that holds the
        URL, so that a secret need not be in the environment.
        """
        environment = os.environ if environment is None else environment
        if file is None and environment.get(CONFIG_VARIABLE):
            file = Path(environment[CONFIG_VARIABLE])
        values: dict[str, Any] = _from_file(file) if file is not None else {}
        found = _from_environment(cls, environment)
        if isinstance(section := values.get("rabbitmq"), dict):
            found["rabbitmq"] = section | found.get("rabbitmq", {})
        values |= found
        values |= {name: value for name, value in given.items() if value is not None}
        try:
            return msgspec.convert(values, type=cls, strict=False, from_attributes=True)
        except msgspec.ValidationError as error:
            known = f" Known are: {', '.join(_fields_at(cls, str(error)))}." if "unknown field" in str(error) else ""
            raise ConfigurationError(f"settings: {error}.{known}") from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"settings file {file}: {error}") from error
    section: dict[str, Any] = content.get("tool", {}).get("stagepost", content.get("stagepost", content))
    return dict(section)


def _fields_at(settings: type[Settings], error: str) -> tuple[str, ...]:
    """Name the fields of the section that an error is in."""
    if "`$.rabbitmq.queue[...]" in error:
        return QueueSettings.__struct_fields__
    if "`$.rabbitmq" in error:
        return RabbitmqSettings.__struct_fields__
    return settings.__struct_fields__


def _from_environment(
    settings: type[msgspec.Struct], environment: Mapping[str, str], *, prefix: str = PREFIX
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        variable = prefix + name.upper()
        value = environment.get(variable)
        if name == "rabbitmq":
            if nested := _from_environment(RabbitmqSettings, environment, prefix=f"{variable}_"):
                values[name] = nested
            continue
        if value is None and f"{variable}_FILE" in environment:
            value = _from_secret_file(f"{variable}_FILE", Path(environment[f"{variable}_FILE"]))
        if value is not None:
            values[name] = [part.strip() for part in value.split(",") if part.strip()] if name in LISTS else value
    return values


def _from_secret_file(variable: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}: {error}. Name a file that this user can read.") from error
