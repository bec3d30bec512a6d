"""Checks of the ids, filters and names that callers pass, so that every database gives the same answer."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from stagepost.errors import ConfigurationError, JobNotFound, shown
from stagepost.model.batch import check_key
from stagepost.model.checks import checked_id
from stagepost.model.option_types import check_type

__all__ = [
    "actor_of",
    "check_progress",
    "choice",
    "choices",
    "default_actor",
    "filter_of",
    "id_text",
    "keys_of",
    "known_id",
    "page_size",
    "page_start",
]

E = TypeVar("E", bound=StrEnum)

LARGEST_PAGE = 1000


def known_id(job_id: object) -> str:
    """Normalize the id of a job; no job has an id that is not a UUID."""
    text = id_text(job_id)
    try:
        return checked_id(text)
    except ConfigurationError:
        raise JobNotFound(text) from None


def id_text(value: object) -> str:
    """Return an id as a text; what is no id at all becomes a text that is none either."""
    return value if isinstance(value, str) else str(value) if isinstance(value, UUID) else shown(value)


def page_start(before: Any) -> str | None:
    """Normalize the last id of the previous page."""
    if before is None:
        return None
    try:
        return known_id(before)
    except JobNotFound:
        raise ConfigurationError(
            f"before is {shown(before)}, which is no id. Pass the id of the last entry of the previous page."
        ) from None


def page_size(limit: int, *, most: int = LARGEST_PAGE) -> int:
    """Check how many entries a page may have; more than `most` are never returned."""
    check_type("limit", limit, int)
    return max(1, min(limit, most))


def filter_of(what: str, value: str | None) -> str | None:
    """Check a name to filter by: nothing has a name that cannot be stored."""
    if value is not None:
        check_key(what, value)
    return value


def choices(what: str, values: Any, kind: type[E]) -> list[E]:
    """Convert values or their names to members of an enumeration."""
    is_one = isinstance(values, str | bytes) or not isinstance(values, Iterable)
    given: list[Any] = [values] if is_one else list(values)
    known = {member.value: member for member in kind}
    if not all(isinstance(value, str) and value in known for value in given):
        raise ConfigurationError(f"{what}: {shown(given)} are not all valid. Valid are: {', '.join(known)}.")
    return [known[value] for value in given]


def choice(what: str, value: Any, kind: type[E]) -> E | None:
    """Convert one value or its name to a member of an enumeration; None stays None."""
    return None if value is None else choices(what, [value], kind)[0]


def check_progress(report: Any) -> None:
    """Refuse an `on_progress` that cannot be called."""
    check_type("on_progress", report, Callable[..., Any] | None)


def keys_of(what: str, keys: Any) -> list[str] | None:
    """Check the keys of items and sort them; None stands for all items."""
    if keys is None:
        return None
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise ConfigurationError(f"{what}: keys is {shown(keys)}. Pass a list of keys.")
    given = list(keys)
    for key in given:
        check_key(f"{what}: a member of keys", key)
    return sorted(set(given))


def actor_of(actor: str | None) -> str:
    """Check who is to be recorded as the one who acted; by default, this process."""
    if actor is None or actor == "":
        return default_actor()
    check_key("actor", actor)
    return actor


@cache
def default_actor() -> str:
    """Return the actor to record if none is given: the user and host name of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:191]
