"""Settings from a TOML file, the environment and code; each overrides the one before."""

from __future__ import annotations

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Literal, Self

import msgspec

from stagepost.config.logging import FORMAT_VARIABLE, LEVEL_VARIABLE
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.config.urls import BROKERS, DATABASES, broker_options, check_url, masked
from stagepost.errors import ConfigurationError
from stagepost.model.option_types import check_type, check_types

__all__ = ["APP_VARIABLE", "CONFIG_VARIABLE", "DEFAULT_URL", "Settings"]

log = logging.getLogger(__name__)

DEFAULT_URL = "sqlite:///stagepost.db"
PREFIX = "STAGEPOST_"
LISTS = ("queues", "priorities")
"""Settings whose values in the environment are separated by commas."""
CONFIG_VARIABLE, APP_VARIABLE = "STAGEPOST_CONFIG", "STAGEPOST_APP"
SECRETS = ("database_url", "transport")
"""Settings whose values may contain a password."""
CENTURY_SECONDS = 36_525 * 86_400
RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1, 10_000),
    "prefetch": (0, 100_000),
    "pool_size": (1, 10_000),
    "lease_seconds": (0.001, CENTURY_SECONDS),
    "poll_shortest_seconds": (0.001, CENTURY_SECONDS),
    "poll_longest_seconds": (0.001, CENTURY_SECONDS),
    "shutdown_timeout_seconds": (0, CENTURY_SECONDS),
    "patience_seconds": (0, CENTURY_SECONDS),
    "history_days": (0, 36_525),
    "events_days": (0, 36_525),
    "events_limit": (0, 10**15),
}
"""The smallest and the largest value of each number."""
LIKENESS = 0.8
"""How much a variable must resemble a setting to be a misspelling of it."""
OF_KUBERNETES = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|^STAGEPOST_PORT(_\d\w+)?$")
"""Variables that Kubernetes sets in every pod if a service is called `stagepost`."""
SETTING_IN_ERROR = re.compile(r"at `\$\.([\w.]+)|^(?:setting )?([a-z_.]+)")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an app and its workers."""

    database_url: str = DEFAULT_URL
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
    events: Literal["off", "final"] = "final"
    """Which events of tasks without the option `events` are recorded: `final` records how jobs end, `off` nothing."""
    events_days: float = 7.0
    """Days to keep events; 0 keeps them forever."""
    events_limit: int = 10_000_000
    """Maximum number of events to keep; the oldest are deleted first. 0 means no limit."""
    wakeups: bool = True
    """Listen for notifications of new jobs if the database supports them; polling continues in any case."""

    def __post_init__(self) -> None:
        check_types("setting", self)
        check_url("database_url", self.database_url, DATABASES)
        if self.transport is not None:
            check_url("transport", self.transport, BROKERS)
            broker_options(self.transport)
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigurationError(f"{name} is {value}: it must be between {least} and {most:,}.")

    def __repr__(self) -> str:
        """Show the settings that are not the defaults, without secrets."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in SECRETS:
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
        check_type("Settings.load: file", file, PurePath | None)
        if file is None and environment.get(CONFIG_VARIABLE):
            file = Path(environment[CONFIG_VARIABLE])
        values: dict[str, Any] = _from_file(file) if file is not None else {}
        found = _from_environment(cls, environment)
        _name_misspelt(cls, environment)
        if isinstance(section := values.get("rabbitmq"), dict):
            found["rabbitmq"] = section | found.get("rabbitmq", {})
        values |= found
        check_type("rabbitmq", given.get("rabbitmq"), RabbitmqSettings | dict | None)
        values |= {name: value for name, value in given.items() if value is not None}
        try:
            return msgspec.convert(values, type=cls, strict=False, from_attributes=True)
        except (msgspec.ValidationError, ConfigurationError) as error:
            origin = _origin(str(error), given, environment, file)
            is_unknown = "unknown field" in str(error)
            known = f" Valid fields are: {', '.join(_fields_at(cls, str(error)))}." if is_unknown else ""
            end = "" if isinstance(error, ConfigurationError) else "."
            raise ConfigurationError(f"{origin}{error}{end}{known}") from error


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"settings file {file}: {error}") from error
    section: dict[str, Any] = content.get("tool", {}).get("stagepost", content.get("stagepost", content))
    return dict(section)


def _origin(error: str, given: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> str:
    """Say where the setting that an error names was set, with its value unless that may be secret.

    Empty if it is an argument of the call.
    """
    found = SETTING_IN_ERROR.search(error)
    path = (found[1] or found[2]) if found else ""
    name = path.partition(".")[0]
    if given.get(name) is not None:
        return ""
    for variable in (f"{PREFIX}{path.upper().replace('.', '_')}", f"{PREFIX}{path.upper().replace('.', '_')}_FILE"):
        if path and variable in environment:
            return f"{variable}: " if name in SECRETS else f"{variable} is {environment[variable]!r}: "
    return "settings: " if file is None else f"settings file {file}: "


def _name_misspelt(settings: type[Settings], environment: Mapping[str, str]) -> None:
    """Warn of variables that look like a misspelt setting. Others may belong to another program."""
    known = {CONFIG_VARIABLE, APP_VARIABLE, LEVEL_VARIABLE, FORMAT_VARIABLE, *_variables(settings, PREFIX)}
    for variable in sorted(environment):
        is_ours = variable in known or variable.removesuffix("_FILE") in known
        if variable.startswith(PREFIX) and not is_ours and not OF_KUBERNETES.search(variable):
            for meant in difflib.get_close_matches(variable, sorted(known), n=1, cutoff=LIKENESS):
                _warn_once(variable, meant)


@cache
def _warn_once(variable: str, meant: str) -> None:
    log.warning(
        "the environment variable %s is ignored, because no setting has this name. Did you mean %s?", variable, meant
    )


def _variables(settings: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    for name in settings.__struct_fields__:
        yield f"{prefix}{name.upper()}"
        if name == "rabbitmq":
            yield from _variables(RabbitmqSettings, f"{prefix}RABBITMQ_")


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
