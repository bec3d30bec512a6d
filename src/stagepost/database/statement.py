"""Operations: generators that yield statements and receive rows, and know no driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import msgspec

__all__ = [
    "NO_PARAMETERS",
    "Capacity",
    "Load",
    "Operation",
    "Row",
    "Rows",
    "Statement",
    "Statements",
    "Step",
    "as_json",
    "operation",
    "query",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Rows = list[tuple[Any, ...]]
NO_PARAMETERS: Mapping[str, Any] = {}


def as_json(value: Any) -> str:
    """Encode rows for a statement that takes them as one JSON parameter."""
    return msgspec.json.encode(value).decode()


class Statement(NamedTuple):
    """A named `.sql` file and its parameters."""

    name: str
    parameters: Mapping[str, Any] = NO_PARAMETERS
    is_enough: bool = False
    """What follows it in its operation needs no transaction in common with it: alone it may commit by itself."""


Row = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What a row begins with, and what it ends with; rows that end alike have the same tuple there."""


class Load(NamedTuple):
    """Rows for a named `.sql` file, put into their table by the quickest way the driver has, all or none.

    Where there is no quicker way than a statement it is answered with no rows and nothing has happened; otherwise
    with one row, how many were put. A row that is there already may be left out or be an error.
    """

    name: str
    rows: Iterable[Row]


class Capacity(NamedTuple):
    """Asks how many bytes a named statement takes as one of its parameters, of which `needed` are wanted.

    It is answered with one row, a number that may be smaller than `needed`, and reaches the database only if nothing
    else knows.
    """

    name: str
    parameter: str
    needed: int


Step = Statement | Load | Capacity
Statements = Generator[Step, Rows, T]


@dataclass(slots=True)
class Operation(Generic[T_co]):
    """One unit of work on the database, always inside one transaction, that can be run again from the start.

    Never changed once made; not frozen, because there is one for every call and that would double what it costs.
    """

    function: Callable[..., Statements[T_co]]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    is_read_only: bool = False
    """It changes nothing, so it need not wait for those who do."""

    def __iter__(self) -> Statements[T_co]:
        """Start it from the beginning; `yield from` makes it part of another operation."""
        return self.start()

    def start(self) -> Statements[T_co]:
        """Start it from the beginning."""
        return self.function(*self.arguments, **self.options)

    def repeated(self) -> Operation[T_co]:
        """The same for a run whose predecessor may have been committed: its reply was lost."""
        if "repeated" not in inspect.signature(self.function).parameters:
            return self
        return replace(self, options={**self.options, "repeated": True})

    @property
    def name(self) -> str:
        """What error messages and logs call it."""
        return self.function.__name__


def operation(function: Callable[P, Statements[T]]) -> Callable[P, Operation[T]]:
    """Make a generator function return an operation instead of starting at once."""

    @wraps(function)
    def make(*arguments: P.args, **options: P.kwargs) -> Operation[T]:
        return Operation(function, arguments, options)

    return make


def query(function: Callable[P, Statements[T]]) -> Callable[P, Operation[T]]:
    """Make a generator function return an operation that only reads."""

    @wraps(function)
    def make(*arguments: P.args, **options: P.kwargs) -> Operation[T]:
        return Operation(function, arguments, options, is_read_only=True)

    return make
