"""Reads out of the code what people should know of it: fields with their notes, methods with their docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any

import msgspec

__all__ = ["Field", "Method", "cell", "fields_of", "log_messages", "methods_of", "table"]


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
    notes = _notes_of(cls)
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


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Set rows in a Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
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


def _notes_of(cls: type) -> dict[str, str]:
    [body] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for this, following in zip(body.body, body.body[1:], strict=False):
        match this, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(note))):
                notes[name] = inspect.cleandoc(note)
    return notes


def _defaults_of(cls: Any) -> Iterator[tuple[str, str]]:
    if hasattr(cls, "__struct_fields__"):
        for field in msgspec.structs.fields(cls):
            yield field.name, _written(field.default)
        return
    for item in fields(cls):
        made = item.default_factory
        yield item.name, f"`{made.__name__}()`" if isinstance(made, type) else _written(item.default)


def _written(default: object) -> str:
    match default:
        case msgspec.NODEFAULT:
            return "needed"
        case _ if default is MISSING:
            return "needed"
        case timedelta():
            return f"{default.total_seconds():g} s"
        case str():
            return f"`{str(default)}`" if default else "empty"
        case ():
            return "none"
        case None:
            return "none"
        case bool():
            return f"`{str(default).lower()}`"
        case int() | float():
            return f"{default:,}".removesuffix(".0")
        case _:
            return f"`{default!r}`"


def _is_callable(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | classmethod) or hasattr(member, "attrname")


def _method(name: str, member: Any) -> Method:
    if inspect.isfunction(member) or isinstance(member, classmethod):
        function: Callable[..., Any] = getattr(member, "__func__", member)
        colour = "await " if inspect.iscoroutinefunction(function) else ""
        return Method(name, f"{colour}{name}{_signature(function)}", _first_paragraph(function))
    function = member.fget if isinstance(member, property) else member.func  # a cached property
    return Method(name, name, _first_paragraph(function))


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(inspect.unwrap(function))
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in {"self", "cls"}]
    return str(signature.replace(parameters=parameters)).replace("'", "")


def _first_paragraph(function: Callable[..., Any]) -> str:
    note = inspect.getdoc(function)
    if not note:
        raise LookupError(f"{function.__qualname__}: write a docstring.")
    return note.split("\n\n")[0]
