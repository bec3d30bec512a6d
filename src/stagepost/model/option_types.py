"""Checks the types of options and arguments, so that a wrong value is refused at the call that gave it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stagepost.errors import ConfigurationError, shown
from stagepost.model.other_libraries import Words, option_advice

__all__ = ["check_known", "check_type", "check_types"]

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    NoneType: "None",
    timedelta: "a timedelta",
    datetime: "a datetime",
}
PLURALS = {int: "whole numbers", str: "names"}


def check_types(what: str, options: object, *, advice: Mapping[str, str] | None = None) -> None:
    """Refuse fields of a dataclass or struct whose values do not fit their annotations; `what` names their kind.

    `advice` adds a sentence, by field, to the error.
    """
    cls: type = type(options)
    for name, hint in _hints(cls).items():
        value = getattr(options, name)
        if value is not getattr(cls, name, hint):  # a default needs no check
            check_type(
                f"{what}{name}" if what.endswith(".") else f"{what} {name}",
                value,
                hint,
                advice=(advice or {}).get(name, ""),
            )


def check_type(what: str, value: object, hint: Any, *, advice: str = "") -> None:
    """Refuse a value that does not fit an annotation; `what` names it in the error."""
    if not _fits(value, hint):
        raise ConfigurationError(f"{what} is {shown(value)}: it must be {_described(hint)}.{advice and ' ' + advice}")


def check_known(what: str, given: Iterable[str], known: Iterable[str], *, words: Words) -> None:
    """Refuse names that are not known; the error lists those that are, and explains `words` of other libraries."""
    valid = list(known)
    unknown = sorted(set(given) - set(valid))
    if unknown:
        advice = option_advice(unknown, words)
        raise ConfigurationError(
            f"unknown {what} {', '.join(unknown)}.{advice or ' Valid options are: ' + ', '.join(valid) + '.'}"
        )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in {Union, UnionType}:
        return any(_fits(value, part) for part in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is Callable:
        return callable(value)
    if origin in {list, tuple}:
        return isinstance(value, origin) and all(_fits(member, arguments[0]) for member in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(key, arguments[0]) and _fits(member, arguments[1]) for key, member in value.items()
        )
    if origin is type:
        return isinstance(value, type) and issubclass(value, arguments[0])
    return _is_instance(value, NoneType if hint is None else origin or hint)


def _is_instance(value: object, cls: type) -> bool:
    if cls is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
    if cls is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, cls)


def _described(hint: Any) -> str:
    parts = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    words = [_word(part) for part in parts if not (isinstance(part, type) and issubclass(part, Enum))]
    if {float, timedelta} <= set(parts):
        words = ["seconds as a number", *(word for word in words if word != WORDS[float])]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _word(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(repr(value) for value in arguments)
    if origin in {list, tuple}:
        members = "exception classes" if get_origin(arguments[0]) is type else PLURALS.get(arguments[0], "names")
        return f"a {origin.__name__} of {members}"
    if origin is dict:
        return f"a dict of {arguments[1].__name__}"
    if hint is None:
        return "None"
    cls = origin or hint
    if cls in WORDS:
        return WORDS[cls]
    if getattr(cls, "__name__", "") == "Callable":
        return "a function"
    article = "an" if cls.__name__[0] in "AEIOU" else "a"
    return f"{article} {cls.__name__}"
