"""Reads out of the code what people should know of it: fields with their notes, methods with their docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec

__all__ = ["Field", "Method", "cell", "fields_of", "log_messages", "methods_of", "notes_of", "table"]


class Field(msgspec.Struct, frozen=True):
    """One option of a class, with the note below it."""

    name: str
    default: str
    note: str


class Method(msgspec.Struct, frozen=True):
    """A public method or property, as it is called."""

    name: str
    call: str
    note: str


def fields_of(cls: type) -> list[Field]:
    """List the fields of a dataclass or struct; each needs a note."""
    notes = notes_of(cls)
    found = [Field(name, default, notes.get(name, "")) for name, default in _defaults_of(cls)]
    without = [field.name for field in found if not field.note]
    if without:
        raise LookupError(f"{cls.__name__}: write a docstring below {', '.join(without)}.")
    return found


def methods_of(cls: type, *, leave_out: frozenset[str] = frozenset()) -> list[Method]:
    """List what a class itself defines for others to use, in the order of its source."""
    return [
        _method(name, member)
        for name, member in vars(cls).items()
        if not name.startswith("_") and name not in leave_out and _is_callable(member)
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Set rows in a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    """Write a text so that it stays in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def log_messages(source: str) -> Iterator[str]:
    """Find what a module logs at `info` and above."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log"), attr="info" | "warning" | "error" | "exception"),
                args=[ast.Constant(value=str(message)), *_],
            ):
                yield message
            case _:
                pass


def notes_of(cls: type) -> dict[str, str]:
    """Read what is written below fields of a class, or members of an enumeration."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    lines = definition.body if isinstance(definition, ast.ClassDef) else []
    notes = {}
    for this, following in itertools.pairwise(lines):
        match this, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(note))),
            ):
                notes[name] = inspect.cleandoc(note)
            case _:
                pass
    return notes


def _defaults_of(cls: Any) -> Iterator[tuple[str, str]]:
    if issubclass(cls, msgspec.Struct):
        for field in msgspec.structs.fields(cls):
            made_by: Any = field.default_factory
            yield field.name, _written(field.default if made_by is msgspec.NODEFAULT else made_by())
        return
    for item in fields(cls):
        made: Any = item.default_factory
        yield item.name, _written(item.default) if made is MISSING else f"`{made.__name__}()`"


def _written(default: object) -> str:
    match default:
        case msgspec.NODEFAULT:
            return "needed"
        case _ if default is MISSING:
            return "needed"
        case msgspec.Struct():
            return "as below"
        case timedelta():
            return f"{default.total_seconds():g} s"
        case str():
            return f"`{default!s}`" if default else "empty"
        case () | {} | None:
            return "none"
        case bool():
            return f"`{str(default).lower()}`"
        case int() | float():
            return f"{default:,}".removesuffix(".0")
        case _:
            return f"`{default!r}`"


def _is_callable(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | cached_property | classmethod)


def _method(name: str, member: Any) -> Method:
    if isinstance(member, property):
        return Method(name, name, _first_paragraph(member.fget))
    if isinstance(member, cached_property):
        return Method(name, name, _first_paragraph(member.func))
    function = member.__func__ if isinstance(member, classmethod) else member
    colour = "await " if inspect.iscoroutinefunction(function) else ""
    return Method(name, f"{colour}{name}{_signature(function)}", _first_paragraph(function))


def _signature(function: Callable[..., Any]) -> str:
    """Write a signature as its source has it, without quotes around annotations."""
    signature = inspect.signature(inspect.unwrap(function))
    parts: list[str] = []
    kinds = inspect.Parameter
    for parameter in signature.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is kinds.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" * (parameter.kind is kinds.VAR_POSITIONAL) + "**" * (parameter.kind is kinds.VAR_KEYWORD)
        default = "" if parameter.default is kinds.empty else f" = {parameter.default!r}"
        parts.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def _first_paragraph(function: Any) -> str:
    note = inspect.getdoc(function)
    if not note:
        raise LookupError(f"{function.__qualname__}: write a docstring.")
    return note.split("\n\n")[0]
