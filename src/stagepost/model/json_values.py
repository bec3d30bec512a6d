"""Checks that a value can be stored as JSON in every database and be read back unchanged."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import PurePath
from typing import Any

import msgspec

from stagepost.errors import ConfigurationError
from stagepost.model.constraints import unenforced
from stagepost.model.option_types import check_types

__all__ = [
    "ENCODER",
    "SIMPLE",
    "PayloadLimits",
    "are_simple",
    "broken_limit",
    "from_json",
    "has_free_part",
    "is_plain",
    "may_break_limits",
    "name_of",
    "to_json",
    "why_not_decodable",
    "why_not_encodable",
]

HARD_MAX_BYTES = 1_048_576
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1

SCALARS, CONTAINERS = frozenset({str, int, float, bool, type(None)}), frozenset({dict, list})
"""Types whose values are read back from JSON with the same type, whatever the annotation."""

_LONG_NUMBER = re.compile(rb"\d{19}")
_INSTEAD = "pass something that identifies it (an id, a key, a path), or its fields as a dataclass"


@dataclasses.dataclass(frozen=True, slots=True)
class PayloadLimits:
    """Maximum size and nesting depth of one payload."""

    max_bytes: int = 262_144
    """Size of the JSON in UTF-8; at most 1,048,576."""
    max_depth: int = 32
    """Levels of nested lists and objects; at most 200."""

    def __post_init__(self) -> None:
        check_types("payload limit", self)
        if not 2 <= self.max_bytes <= HARD_MAX_BYTES:
            raise ConfigurationError(
                f"max_bytes of PayloadLimits is {self.max_bytes:,}; it must be from 2 to {HARD_MAX_BYTES:,}."
            )
        if not 1 <= self.max_depth <= 200:
            raise ConfigurationError(f"max_depth of PayloadLimits is {self.max_depth}; it must be from 1 to 200.")


def to_json(value: Any) -> Any:
    """Encode types that msgspec does not know: paths, and pydantic models, recognised by their methods."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"{name_of(type(value))} is not JSON")


def from_json(wanted: Any, value: Any) -> Any:
    """Decode types that msgspec does not know: paths and pydantic models."""
    if _is_path(wanted):
        if type(value) is not str:
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return wanted(value)
    if not hasattr(wanted, "model_validate_json"):
        raise TypeError(f"{name_of(wanted)} cannot be made from JSON")
    try:
        return wanted.model_validate_json(msgspec.json.encode(value))  # its JSON mode accepts dates as text
    except ValueError as error:
        raise ValueError(_without_input(error)) from None


def _is_path(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, PurePath)


def _without_input(error: Any) -> str:
    """Format pydantic's errors without the values, which may be secret."""
    if not hasattr(error, "errors"):
        return str(error)
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, detail['loc'])) or 'it'}: {detail['msg']}" for detail in details)


ENCODER = msgspec.json.Encoder(enc_hook=to_json)


def why_not_decodable(annotation: Any) -> str | None:
    """Explain why no JSON value can be decoded as the annotation; None if one can."""
    try:
        msgspec.json.Decoder(annotation, dec_hook=from_json)
        custom = [
            node.cls
            for node in _nodes(msgspec.inspect.type_info(annotation))
            if isinstance(node, msgspec.inspect.CustomType)
            and not (hasattr(node.cls, "model_validate_json") or _is_path(node.cls))
        ]
    except (TypeError, NameError) as error:
        return str(error)
    return f"{name_of(custom[0])} has no JSON form" if custom else unenforced(annotation)


def has_free_part(annotation: Any) -> bool:
    """Return whether some part of the annotation is `Any`, so that only the value itself tells its type."""
    if why_not_decodable(annotation):
        return False
    return any(isinstance(node, msgspec.inspect.AnyType) for node in _nodes(msgspec.inspect.type_info(annotation)))


def is_plain(value: Any) -> bool:
    """Return whether a value consists of the types that JSON has, not of subclasses of them such as an enum."""
    kind = type(value)
    if kind is dict:
        parts = value.values()
        if not {str}.issuperset(map(type, value)):
            return False
    elif kind is list:
        parts = value
    else:
        return kind in SCALARS
    kinds = set(map(type, parts))  # one fast pass over a list of scalars
    return kinds <= SCALARS or (
        kinds <= SCALARS | CONTAINERS and all(is_plain(part) for part in parts if type(part) in CONTAINERS)
    )


def _nodes(root: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    seen: set[int] = set()
    waiting: list[msgspec.inspect.Type | msgspec.inspect.Field] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, msgspec.inspect.Type):
            yield node
        for name in node.__struct_fields__:
            value = getattr(node, name)
            parts = value if isinstance(value, tuple) else (value,)
            waiting += [p for p in parts if isinstance(p, msgspec.inspect.Type | msgspec.inspect.Field)]


def why_not_encodable(value: Any, limits: PayloadLimits) -> str | None:
    """Explain why a value cannot be stored, as the end of a sentence "argument `x` …"; None if it can."""
    try:
        ENCODER.encode(value)
    except RecursionError:
        return f"is nested deeper than {limits.max_depth} levels, or contains itself"
    except UnicodeEncodeError:
        return "has half a surrogate pair in a string, which is not valid text; pass bytes, or decode it correctly"
    except (TypeError, ValueError) as error:
        return f"of type {type(value).__name__} cannot be stored as JSON: {error}; {_INSTEAD}"
    return broken_limit(value, limits)


SIMPLE = (str, int, bool, float)
"""Types whose values come back from JSON unchanged, within the limits that `are_simple` checks."""


def are_simple(values: dict[str, Any], simple: dict[str, type]) -> bool:
    """Check quickly whether values come back unchanged; False means unsure. `simple` maps names to types."""
    for name, value in values.items():
        kind = type(value)
        if kind is not simple.get(name):
            return False
        if kind is str:
            if "\0" in value:
                return False
        elif kind is int:
            if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
                return False
        elif kind is float and not math.isfinite(value):
            return False
    return True


def may_break_limits(encoded: bytes, limits: PayloadLimits, *, wrapper_depth: int) -> bool:
    """Check quickly whether a value is within its limits (False); True means that `broken_limit` must decide."""
    return (
        encoded.count(b"[") + encoded.count(b"{") > limits.max_depth + wrapper_depth
        or b"\\u0000" in encoded
        or _LONG_NUMBER.search(encoded) is not None
    )


def broken_limit(value: Any, limits: PayloadLimits) -> str | None:
    """Name the limit that a value breaks; None if it breaks none."""
    level, depth = [msgspec.to_builtins(value, enc_hook=to_json)], 0
    while level:
        problem = _problem_among(level)
        if problem:
            return problem
        containers = [item for item in level if type(item) in {dict, list, tuple}]
        depth += 1
        if containers and depth > limits.max_depth:
            return f"is nested deeper than {limits.max_depth} levels; flatten it or store it elsewhere"
        keys = [key for container in containers if type(container) is dict for key in container]
        parts = [container.values() if type(container) is dict else container for container in containers]
        level = [*keys, *chain.from_iterable(parts)]
    return None


def _problem_among(items: list[Any]) -> str | None:
    # One pass per type, because a call per item would take ten times as long for large payloads.
    if any("\0" in item for item in items if type(item) is str):
        return "has a NUL character in a string, which PostgreSQL cannot store; pass bytes, or remove it"
    for number in [item for item in items if type(item) is float and not math.isfinite(item)]:
        return f"has the number {number}, which JSON cannot represent; pass None or leave it out"
    if any(not SMALLEST_INTEGER <= item <= LARGEST_INTEGER for item in items if type(item) is int):
        return "has an integer beyond 64 bits, which many JSON readers round; pass it as a string"
    return None


def name_of(annotation: Any) -> str:
    """Format a type as the user wrote it."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")
