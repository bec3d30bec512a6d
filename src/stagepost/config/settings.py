"""Settings from a TOML file, the environment and code; each overrides the one before."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import msgspec

from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.config.urls import masked
from stagepost.errors import ConfigurationError
from stagepost.model.event_level import EventLevel

__all__ = ["CONFIG_VARIABLE", "Settings"]

PREFIX = "STAGEPOST_"
LISTS = ("queues", "priorities")
"""Settings whose values in the environment are separated by commas."""
CONFIG_VARIABLE = "STAGEPOST_CONFIG"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an app and its workers."""

    database_url: str = "sqlite:///stagepost.db"
    """`sqlite:///file.db`, `postgresql://…` or `mysql://…`."""
    transport: str | None = None
    """`amqp://…` or `amqps://…` to send jobs through RabbitMQ; None uses the database alone."""
    rabbitmq: RabbitmqSettings = RabbitmqSettings()
    """How to use RabbitMQ, and for which queues."""
    concurrency: int = 10
    """Number of jobs that one worker process runs at once."""
    prefetch: int | None = None
    """Number of jobs to lease ahead, so that a free slot does not wait for the database; None adapts to the load."""
    lease_seconds: float = 30.0
    """How long a worker keeps its jobs after its last sign of life."""
    poll_shortest_seconds: float = 0.2
    """Interval between polls after a worker found jobs, but fewer than it had free slots."""
    poll_longest_seconds: float = 2.0
    """Longest interval between polls while the queue is empty."""
    shutdown_timeout_seconds: float = 30.0
    """How long running jobs may continue after a request to stop; unfinished jobs then return to their queue."""
    patience_seconds: float = 30.0
    """How long `enqueue` and other calls try again while the database is away; 0 tries once. A try that hangs ends
    after 15 seconds, or after 10 if it cannot connect. `task.using(patience=…)` and `client.using(patience=…)` override
    it."""
    pool_size: int = 4
    """Database connections per process."""
    history_days: float = 30.0
    """Days to keep ended jobs; 0 keeps them forever."""
    events: EventLevel = EventLevel.FINAL
    """Which events of tasks without the option `events` are recorded: `final` records how jobs end, `off` nothing."""
    events_days: float = 7.0
    """Days to keep events; 0 keeps them forever."""
    events_limit: int = 10_000_000
    """Maximum number of events to keep; the oldest are deleted first. 0 means no limit."""
    wakeups: bool = True
    """Listen for notifications of new jobs if the database supports them; polling continues in any case."""

    def __post_init__(self) -> None:
        if self.transport is not None and not self.transport.startswith(("amqp://", "amqps://")):
            scheme = self.transport.partition(":")[0]
            raise ConfigurationError(f"transport begins with {scheme!r}: use amqp://… or amqps://…, or leave it out.")
        for name in ("concurrency", "pool_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be 1 or more.")
        for name in ("lease_seconds", "poll_shortest_seconds", "poll_longest_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be more than 0 seconds.")
        kept = ("history_days", "events_days", "events_limit")
        for name in ("patience_seconds", "prefetch", "shutdown_timeout_seconds", *kept):
            if (getattr(self, name) or 0) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it cannot be negative.")

    def __repr__(self) -> str:
        """Show the settings that are not the defaults, without secrets."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("database_url", "transport"):
            values[name] = values[name] and masked(values[name])
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        changed = ", ".join(f"{name}={value!r}" for name, value in values.items() if value != defaults[name])
        return f"Settings({changed})"

    @property
    def lease_duration(self) -> timedelta:
        """The lease as a timedelta."""
        return timedelta(seconds=self.lease_seconds)

    @classmethod
    def load(
        cls,
        file: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Self:
        """Read `[tool.stagepost]` or the top level of a TOML file, then STAGEPOST_… variables, then the arguments.

        STAGEPOST_CONFIG names the file if none is given. STAGEPOST_DATABASE_URL_FILE names a file that contains the
        URL, which keeps a secret out of the environment.
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
            is_unknown = "unknown field" in str(error)
            known = f" Valid fields are: {', '.join(_fields_at(cls, str(error)))}." if is_unknown else ""
            raise ConfigurationError(f"settings: {error}.{known}") from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"settings file {file}: {error}") from error
    section: dict[str, Any] = content.get("tool", {}).get("stagepost", content.get("stagepost", content))
    return dict(section)


def _fields_at(settings: type[Settings], error: str) -> tuple[str, ...]:
    """List the valid fields of the section in which an error occurred."""
    if "`$.rabbitmq.queue[...]" in error:
        return BrokerQueueSettings.__struct_fields__
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
