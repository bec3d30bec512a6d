"""Decides from annotations whether one function's result fits another function's parameter."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from stagepost.model.json_values import why_not_decodable

__all__ = ["ANY", "Shape", "described", "element_of", "fits", "list_of", "one_of", "or_null", "part_of", "shape_of"]

Shape = inspect.Type
"""A type, described by the form of its values in JSON."""

ANY = inspect.AnyType()
TEXTS = (
    inspect.StrType,
    inspect.BytesType,
    inspect.ByteArrayType,
    inspect.MemoryViewType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
)
LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)
RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
KINDS: dict[str, tuple[type[Shape], ...]] = {
    "null": (inspect.NoneType,),
    "bool": (inspect.BoolType,),
    "int": (inspect.IntType,),
    "float": (inspect.FloatType,),
    "text": TEXTS,
    "object": (*RECORDS, inspect.DictType),
}
"""The JSON form of each kind of type; all others are lists."""
DEEPEST = 20
"""Recursive types are compared up to this depth; deeper parts are assumed to fit."""


def shape_of(annotation: Any) -> Shape:
    """Convert an annotation to a shape; the shape is `Any` if the annotation says nothing about JSON."""
    return ANY if why_not_decodable(annotation) else inspect.type_info(annotation)


def list_of(element: Shape) -> Shape:
    """Return the shape of a list with these elements."""
    return inspect.ListType(item_type=element)


def one_of(shapes: tuple[Shape, ...]) -> Shape:
    """Return the union of these shapes."""
    return shapes[0] if len(shapes) == 1 else inspect.UnionType(types=shapes)


def or_null(shape: Shape) -> Shape:
    """Return the union of this shape and null."""
    return one_of((*_arms(shape), inspect.NoneType()))


def element_of(shape: Shape) -> Shape | None:
    """Return the shape of a list's elements; None if it is not a list."""
    shape = _plain(shape)
    if isinstance(shape, LISTS):
        return shape.item_type
    if isinstance(shape, inspect.TupleType):
        return one_of(shape.item_types)
    return ANY if _is_unknown(shape) or isinstance(shape, inspect.UnionType) else None


def part_of(shape: Shape, key: str | int) -> Shape | None:
    """Return the shape of a field or of the element at a position; None if it certainly does not exist."""
    shape = _plain(shape)
    if _is_unknown(shape) or isinstance(shape, inspect.UnionType):
        return ANY
    if isinstance(key, int):
        return element_of(shape)
    if isinstance(shape, inspect.DictType):
        return shape.value_type
    if isinstance(shape, RECORDS):
        return next((field.type for field in shape.fields if field.encode_name == key), None)
    return None


def fits(source: Shape, target: Shape, *, depth: int = 0) -> bool:
    """Return whether values of one shape can be decoded as the other; True if unsure."""
    source, target = _plain(source), _plain(target)
    if _is_unknown(source) or _is_unknown(target) or depth > DEEPEST:
        return True
    if isinstance(source, inspect.UnionType):
        return all(fits(arm, target, depth=depth + 1) for arm in source.types)
    if isinstance(target, inspect.UnionType):
        return any(fits(source, arm, depth=depth + 1) for arm in target.types)
    kind, wanted = _kind(source), _kind(target)
    if kind != wanted:
        return (kind, wanted) == ("int", "float")
    if kind == "list":
        return _list_fits(source, target, depth + 1)
    return kind != "object" or _object_fits(source, target, depth + 1)


def described(shape: Shape) -> str:
    """Format a shape like an annotation."""
    shape = _plain(shape)
    if isinstance(shape, inspect.UnionType):
        return " | ".join(described(arm) for arm in shape.types)
    if isinstance(shape, inspect.ListType):
        return f"list[{described(shape.item_type)}]"
    if isinstance(shape, inspect.DictType):
        return f"dict[{described(shape.key_type)}, {described(shape.value_type)}]"
    if isinstance(shape, inspect.NoneType):
        return "None"
    named = getattr(shape, "cls", None)
    return str(named.__name__) if named else type(shape).__name__.removesuffix("Type").lower()


def _plain(shape: Shape) -> Shape:
    while isinstance(shape, inspect.Metadata):
        shape = shape.type
    return shape


def _arms(shape: Shape) -> tuple[Shape, ...]:
    shape = _plain(shape)
    return shape.types if isinstance(shape, inspect.UnionType) else (shape,)


def _is_unknown(shape: Shape) -> bool:
    if isinstance(shape, inspect.StructType) and shape.array_like:
        return True
    return isinstance(shape, inspect.AnyType | inspect.RawType | inspect.CustomType | inspect.ExtType)


def _kind(shape: Shape) -> str:
    """Return the kind of JSON value; for enums and literals, the kind of their first value."""
    if isinstance(shape, inspect.EnumType):
        return _kind_of_value(next(iter(shape.cls)).value)
    if isinstance(shape, inspect.LiteralType):
        return _kind_of_value(shape.values[0])
    return next((kind for kind, types in KINDS.items() if isinstance(shape, types)), "list")


def _kind_of_value(value: Any) -> str:
    return "int" if isinstance(value, int) else "text"


def _list_fits(source: Shape, target: Shape, depth: int) -> bool:
    given, wanted = element_of(source), element_of(target)
    if isinstance(target, inspect.TupleType) and isinstance(source, inspect.TupleType):
        pairs = zip(source.item_types, target.item_types, strict=False)
        return len(source.item_types) == len(target.item_types) and all(fits(s, t, depth=depth) for s, t in pairs)
    return given is None or wanted is None or fits(given, wanted, depth=depth)


def _object_fits(source: Shape, target: Shape, depth: int) -> bool:
    if isinstance(source, RECORDS) and isinstance(target, RECORDS):
        given = {field.encode_name: field.type for field in source.fields}
        return all(
            fits(given[field.encode_name], field.type, depth=depth)
            if field.encode_name in given
            else not field.required
            for field in target.fields
        )
    if isinstance(source, inspect.DictType) and isinstance(target, inspect.DictType):
        return fits(source.value_type, target.value_type, depth=depth)
    if isinstance(source, RECORDS) and isinstance(target, inspect.DictType):
        return all(fits(field.type, target.value_type, depth=depth) for field in source.fields)
    return True
