"""Constraints in annotations: those of pydantic and annotated_types are enforced like msgspec's, or refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

__all__ = ["enforceable", "unenforced"]

PACKAGES = frozenset({"annotated_types", "pydantic", "pydantic_core"})
"""Their metadata restrict values. Metadata of any other origin, such as a text, only describe them."""
TRANSLATED = frozenset({"gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern"})
"""Constraints that `msgspec.Meta` has under the same name."""
ALWAYS_TRUE = frozenset({"strict", "allow_inf_nan"})
"""Arguments are never converted from another type, and JSON has no infinite number."""


def enforceable(annotation: Any) -> Any:
    """Replace the constraints of pydantic and annotated_types in an annotation by those of msgspec, where it can.

    Fields of classes stay as they are.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        base = enforceable(arguments[0])
        metadata = [part for given in annotation.__metadata__ for part in _translated(given)]
        return _constrained(base, metadata) if metadata else base
    if not arguments or origin is typing.Literal:
        return annotation
    parts = tuple(enforceable(part) for part in arguments)
    return annotation if parts == arguments else _rebuilt(annotation, origin, parts)


def unenforced(annotation: Any) -> str | None:
    """Name a constraint that nothing would check, with what to write instead; None if there is none."""
    for found in _metadata_in(annotation, seen=set()):
        for constraint in _constraints(found):
            return (
                f"nothing would check its constraint {constraint!r}. "
                f"Write it with msgspec.Meta, as in Annotated[int, msgspec.Meta(gt=0)], or check the value in the task"
            )
    return None


def _constrained(base: Any, metadata: list[Any]) -> Any:
    """Constrain each member of a union except None, because msgspec constrains only single types."""
    if typing.get_origin(base) in {typing.Union, types.UnionType}:
        members = [m if m is types.NoneType else _constrained(m, metadata) for m in typing.get_args(base)]
        return typing.Union[tuple(members)]  # noqa: UP007 - the members are known only now
    return Annotated[(base, *metadata)]


def _rebuilt(annotation: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    if origin in {typing.Union, types.UnionType}:
        return typing.Union[parts]  # noqa: UP007 - as above
    return annotation.copy_with(parts) if hasattr(annotation, "copy_with") else types.GenericAlias(origin, parts)


def _translated(given: Any) -> Iterator[Any]:
    """Yield the metadata that replace one of these: those that msgspec knows, and those that it cannot express."""
    constraints = list(_constraints(given))
    if not constraints:
        yield given
    for constraint in constraints:
        facts = _facts(constraint)
        known = {name: value for name, value in facts.items() if name in TRANSLATED and value is not None}
        is_whole = all(name in TRANSLATED or value is None for name, value in facts.items())
        yield msgspec.Meta(**known) if known and is_whole else constraint


def _constraints(given: Any) -> Iterator[Any]:
    """Yield the single constraints in a pydantic Field, an Interval or a Len; nothing if it only describes a value."""
    if type(given).__module__.partition(".")[0] not in PACKAGES:
        return
    parts = getattr(given, "metadata", None)
    if parts is None and isinstance(given, Iterable):
        parts = list(given)
    if parts is not None:
        for part in parts:
            yield from _constraints(part)
    elif not _facts(given).keys() <= ALWAYS_TRUE and type(given).__name__ != "DocInfo":
        yield given


def _facts(constraint: Any) -> Mapping[str, Any]:
    names = getattr(type(constraint), "__slots__", ()) or getattr(constraint, "__dict__", ())
    return {name: getattr(constraint, name) for name in names if hasattr(constraint, name)}


def _metadata_in(annotation: Any, *, seen: set[int]) -> Iterator[Any]:
    """Yield the metadata of an annotation, of its parts, and of the fields of the classes that it names."""
    if typing.get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    for part in typing.get_args(annotation):
        yield from _metadata_in(part, seen=seen)
    is_record = dataclasses.is_dataclass(annotation) or hasattr(annotation, "__struct_fields__")
    is_record = is_record or hasattr(annotation, "__total__") or hasattr(annotation, "_fields")
    if is_record and isinstance(annotation, type) and id(annotation) not in seen:
        seen.add(id(annotation))
        try:
            hints = typing.get_type_hints(annotation, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return  # msgspec explains what it cannot evaluate
        for hint in hints.values():
            yield from _metadata_in(hint, seen=seen)
