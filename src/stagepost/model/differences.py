"""Finds where a value changed on its way through JSON."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from msgspec import inspect

from stagepost.model.fitting import LISTS, RECORDS, Shape
from stagepost.model.json_values import name_of

__all__ = ["difference"]

Part = tuple[str, Any, Any, Shape | None]
"""The path of a part, what was given and received for it, and its shape."""


def difference(given: Any, received: Any, *, path: str, shape: Shape | None = None) -> str | None:
    """Describe the first difference; None if there is none.

    A tuple and a list are equal. Where the `shape` is Any, nothing but the value itself tells its type, so there the
    types must be the same, too.
    """
    is_free = isinstance(shape, inspect.AnyType)
    if is_free and type(given) is not type(received):
        return _change(given, received, path=path)
    if shape is None and _is_same(given, received):
        return None
    if isinstance(given, dict) and isinstance(received, dict):
        return _key_difference(given, received, path=path, is_free=is_free) or _first_difference(
            [(f"{path}[{key!r}]", given[key], received[key], _part(shape, key)) for key in given]
        )
    if _is_sequence_pair(given, received):
        pairs = zip(given, received, strict=True)
        return _first_difference([(f"{path}[{n}]", a, b, _part(shape, n)) for n, (a, b) in enumerate(pairs)])
    if type(given) is type(received) and (names := _field_names(given)):
        return _first_difference(
            [(f"{path}.{name}", getattr(given, name), getattr(received, name), _part(shape, name)) for name in names]
        )
    return None if _is_same(given, received) else _change(given, received, path=path)


def _change(given: Any, received: Any, *, path: str) -> str:
    changed = "changed" if type(given) is type(received) else f"as {name_of(type(received))}"
    return f"`{path}` is {name_of(type(given))} and would come back {changed}"


def _key_difference(given: dict[Any, Any], received: dict[Any, Any], *, path: str, is_free: bool) -> str | None:
    lost = [key for key in given if key not in received or (is_free and type(key) is not str)]
    if not lost and len(given) == len(received):
        return None
    key = lost[0] if lost else next(key for key in received if key not in given)
    return f"the key {key!r} of `{path}` is {name_of(type(key))} and would come back changed"


def _first_difference(parts: list[Part]) -> str | None:
    found = (difference(given, received, path=path, shape=shape) for path, given, received, shape in parts)
    return next((text for text in found if text), None)


def _part(shape: Shape | None, key: Any) -> Shape | None:
    """Return the shape of the part at a key, a position or a field; None if that is not certain."""
    while isinstance(shape, inspect.Metadata):
        shape = shape.type
    if isinstance(shape, inspect.UnionType):
        parts = [part for member in shape.types if (part := _part(member, key)) is not None]
        return parts[0] if len(parts) == 1 else None
    if isinstance(shape, inspect.AnyType):
        return shape
    if isinstance(shape, inspect.DictType):
        return shape.value_type
    if isinstance(shape, LISTS):
        return shape.item_type
    if isinstance(shape, inspect.TupleType):
        item: Shape = shape.item_types[key]
        return item
    if isinstance(shape, inspect.NamedTupleType):
        field: Shape = shape.fields[key].type
        return field
    if isinstance(shape, RECORDS):
        return next((part.type for part in shape.fields if part.name == key), None)
    return None


def _is_same(given: Any, received: Any) -> bool:
    if given is received or given == received:
        return True
    if type(given) is not type(received):
        return False
    if isinstance(given, datetime):
        # An ambiguous local datetime never equals one in another zone, so compare the instants.
        is_aware = given.tzinfo is not None and received.tzinfo is not None
        return is_aware and given.astimezone(UTC) == received.astimezone(UTC)
    kind: Any = type(given)
    return kind.__eq__ is object.__eq__ and not _field_names(given)


def _is_sequence_pair(given: Any, received: Any) -> bool:
    if not (isinstance(given, list | tuple) and isinstance(received, list | tuple)):
        return False
    is_plain = type(given) in {list, tuple} and type(received) in {list, tuple}
    return len(given) == len(received) and (is_plain or type(given) is type(received))


def _field_names(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return [*getattr(value, "__struct_fields__", ()), *getattr(type(value), "model_fields", ())]
