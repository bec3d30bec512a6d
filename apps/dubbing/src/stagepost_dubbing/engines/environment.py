"""Reads engine settings from environment variables; errors name the invalid variable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stagepost.errors import ConfigurationError

__all__ = ["number", "secret", "service_url", "text", "whole_number"]


def text(environment: Mapping[str, str], name: str, default: str) -> str:
    """Return the variable, or the default if it is missing or empty."""
    return environment.get(name, "").strip() or default


def number(environment: Mapping[str, str], name: str, default: float, *, least: float, most: float) -> float:
    """Return the variable as a number between two limits."""
    written = text(environment, name, str(default))
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ConfigurationError(f"{name}={written!r} must be a number from {least:g} to {most:g}")
    return value


def whole_number(environment: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """Return the variable as a whole number between two limits."""
    written = text(environment, name, str(default))
    if not (written.isascii() and written.isdigit() and least <= int(written) <= most):
        raise ConfigurationError(f"{name}={written!r} must be a whole number from {least} to {most}")
    return int(written)


def service_url(environment: Mapping[str, str], name: str, default: str = "") -> str:
    """Return the address of a service, without a trailing slash."""
    written = text(environment, name, default)
    if not written:
        raise ConfigurationError(
            f"{name} is not set; set it to the address of the service, such as http://127.0.0.1:8000"
        )
    parts = urlsplit(written)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(f"{name} must be an address that begins with http:// or https://")
    if parts.username or parts.password:
        raise ConfigurationError(f"{name} must not contain a password; use the separate variable for that")
    return written.rstrip("/")


def secret(environment: Mapping[str, str], name: str) -> str:
    """Return a secret from the variable, or from the file that `NAME_FILE` names; empty if neither is set."""
    given = environment.get(name, "").strip()
    path = environment.get(f"{name}_FILE", "").strip()
    if given and path:
        raise ConfigurationError(f"{name} and {name}_FILE are both set; remove one of them")
    if not path:
        return given
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name}_FILE={path!r} cannot be read: {type(error).__name__}") from None
