"""Checks of what people name and number: each refuses what no database could store, in words that help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from stagepost.errors import ConfigurationError, TaskError

__all__ = ["NAME", "check_function", "check_name", "check_priority", "check_unique_key", "checked_id"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,190}")
PRIORITIES = range(-32768, 32768)
LONGEST_KEY = 191


def check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be that of a task, queue or schedule."""
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} name {name!r}: use 1 to 191 letters, digits and _ . : - (not beginning with . : -)."
        )


def check_priority(priority: int) -> None:
    """Refuse a priority that does not fit into 16 bits."""
    if priority not in PRIORITIES:
        raise ConfigurationError(f"priority is {priority}: it must be within -32768 and 32767, larger first.")


def checked_id(text: str) -> str:
    """Write a UUID as databases do, so that equal ids are equal texts."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigurationError(f"id={text!r} is no UUID. Make one of your own key with uuid.uuid5.") from None


def check_unique_key(key: str) -> None:
    """Refuse a key that a database would shorten or compare otherwise."""
    if not 1 <= len(key) <= LONGEST_KEY:
        raise ConfigurationError(f"unique_key has {len(key)} characters: 1 to {LONGEST_KEY} are possible.")
    if key != key.strip():
        raise ConfigurationError(f"unique_key {key!r} begins or ends with white space, which MySQL ignores. Strip it.")


def check_function(function: Callable[..., Any], name: str) -> None:
    """Refuse a generator: calling one runs nothing."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskError(f"task {name} is a generator, which runs nothing when it is called. Return a value instead.")
