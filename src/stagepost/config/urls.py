"""URLs of databases and brokers: checked, and masked for logs and messages."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from stagepost.errors import ConfigurationError

__all__ = ["BROKERS", "DATABASES", "broker_options", "check_url", "masked"]

DATABASES = {"sqlite": "sqlite:///file.db", "postgresql": "postgresql://…", "mysql": "mysql://…"}
"""The schemes of databases, each with an example."""
BROKERS = {"amqp": "amqp://…", "amqps": "amqps://…"}
ALIASES = {"postgres": "postgresql", "mariadb": "mysql"}
BROKER_OPTIONS = ("cafile", "certfile", "keyfile", "heartbeat")
LONGEST_HEARTBEAT_SECONDS = 3600


def check_url(what: str, url: str, schemes: Mapping[str, str]) -> None:
    """Refuse a URL that no driver could read. The error shows no more than its scheme: the rest may be a password."""
    *first, last = schemes.values()
    use = f"use {', '.join(first)} or {last}."
    scheme, separator, _ = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    if not separator:
        raise ConfigurationError(f"{what} is not a URL: {use}")
    if ALIASES.get(kind, kind) not in schemes:
        raise ConfigurationError(f"{what} begins with {scheme!r}: {use}")
    try:
        parts = urlsplit(url)
        is_sound = parts.port is None or parts.port > 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ConfigurationError(
            f"{what} begins with {scheme!r} and is malformed: its host or port cannot be read. In a user name or "
            f"password, write special characters such as / : @ # % in their encoded form (urllib.parse.quote)."
        )


def broker_options(url: str) -> dict[str, str]:
    """Read the options of a broker's URL; raises ConfigurationError for one that is unknown or cannot work."""
    options = dict(parse_qsl(urlsplit(url).query))
    if unknown := sorted(options.keys() - set(BROKER_OPTIONS)):
        valid = ", ".join(BROKER_OPTIONS)
        raise ConfigurationError(f"transport {masked(url)}: unknown option {unknown[0]!r}. Valid: {valid}.")
    heartbeat = options.get("heartbeat", "0")
    if not (heartbeat.isascii() and heartbeat.isdigit() and int(heartbeat) <= LONGEST_HEARTBEAT_SECONDS):
        raise ConfigurationError(
            f"transport {masked(url)}: heartbeat is {heartbeat!r}: it must be whole seconds from 0 (none) to "
            f"{LONGEST_HEARTBEAT_SECONDS}."
        )
    return options


def masked(url: str) -> str:
    """Replace a URL's password, so that it can be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)
