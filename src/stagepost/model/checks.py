"""Checks of names, keys and numbers from users; each raises an error that says what is valid."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from stagepost.errors import ConfigurationError, TaskError, shown

__all__ = ["NAME", "check_function", "check_name", "check_priority", "check_unique_key", "checked_id", "known_names"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,190}")
PRIORITIES = range(-32768, 32768)
LONGEST_KEY = 191


def check_name(what: str, name: str) -> None:
    """Refuse an invalid name of a task, queue or schedule."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{what} name is {shown(name)}: it must be a text.")
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} name {name!r}: use 1 to 191 letters, digits and _ . : - (not beginning with . : -)."
        )


def check_priority(priority: int) -> None:
    """Refuse a priority that does not fit into 16 bits."""
    if priority not in PRIORITIES:
        raise ConfigurationError(f"priority is {priority}: it must be between -32768 and 32767; larger runs first.")


def checked_id(text: str) -> str:
    """Normalize a UUID to the form that databases use, so that equal ids are equal strings."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigurationError(f"id={text!r} is not a UUID. Derive one from your own key with uuid.uuid5.") from None


def check_unique_key(key: str) -> None:
    """Refuse a key that some database would truncate or compare differently."""
    if not 1 <= len(key) <= LONGEST_KEY:
        raise ConfigurationError(f"unique_key has {len(key)} characters: it must have 1 to {LONGEST_KEY}.")
    if key != key.strip():
        raise ConfigurationError(f"unique_key {key!r} begins or ends with white space, which MySQL ignores. Strip it.")


def check_function(function: Callable[..., Any], name: str) -> None:
    """Refuse a generator function, because calling it runs nothing."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskError(f"task {name} is a generator function, so calling it runs nothing. Return a value instead.")


def known_names(name: str, known: Iterable[str]) -> str:
    """Suggest what a misspelt name may have meant, or list what there is."""
    names = sorted(set(known))
    if close := difflib.get_close_matches(name, names):
        return f"Did you mean {' or '.join(close)}?"
    return f"Known are: {', '.join(names) or 'none'}."
