"""Operations: generators that yield statements and receive rows, independent of any driver."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import msgspec

__all__ = [
    "NO_PARAMETERS",
    "Definition",
    "Load",
    "Operation",
    "Row",
    "Rows",
    "SingleStatement",
    "Statement",
    "Statements",
    "Step",
    "as_json",
    "operation",
    "query",
    "single_statement",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Rows = list[tuple[Any, ...]]
NO_PARAMETERS: Mapping[str, Any] = {}


def as_json(value: Any) -> str:
    """Encode rows for a statement that reads them from one JSON parameter."""
    return msgspec.json.encode(value).decode()


class Statement(NamedTuple):
    """A named `.sql` file and its parameters."""

    name: str
    parameters: Mapping[str, Any] = NO_PARAMETERS
    split: str | None = None
    """The parameter whose rows go as JSON into as many statements as the server's limit requires, nearly always one."""


Row = tuple[tuple[Any, ...], tuple[Any, ...]]
"""The job's own columns, then the columns it shares with others; rows that share them hold the same tuple object."""


class Load(NamedTuple):
    """Rows for a named `.sql` file, inserted by the fastest method of the driver, all or none.

    The answer is one row with the number of inserted rows. If the driver has no faster method than a statement, the
    answer is no rows and nothing was inserted. A row that already exists is skipped or raises an error.
    """

    name: str
    rows: Iterable[Row]


Step = Statement | Load
Statements = Generator[Step, Rows, T]


@dataclass(slots=True)
class Operation(Generic[T_co]):
    """One unit of work on the database. It runs in one transaction and can be run again from the start.

    Treat it as immutable. It is not frozen because every call creates one, and a frozen one costs twice as much.
    """

    definition: Definition[..., T_co]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __iter__(self) -> Statements[T_co]:
        """Run as part of another operation, in its transaction: `result = yield from operation(...)`."""
        result = yield from self.steps()
        while isinstance(result, Operation):
            result = yield from result.steps()
        return result

    def steps(self) -> SingleStatement[T_co]:
        """Start from the beginning, for a runner; the result may be an operation that is to follow."""
        return self.definition.function(*self.arguments, **self.options)

    def repeated(self) -> Operation[T_co]:
        """Return what to run after this operation lost its connection: it may have been committed."""
        again = self.definition.again
        return self if again is None else Operation(again, self.arguments, self.options)

    @property
    def name(self) -> str:
        """The name for error messages and logs."""
        return self.definition.__name__


SingleStatement = Generator[Step, Rows, T | Operation[T]]
"""The statements of a single-statement operation: it returns a result, or the operation that is to follow."""


class Definition(Generic[P, T_co]):
    """A generator function with what the runner must know about it. Calling it creates an operation."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, SingleStatement[T_co]],
        *,
        is_read_only: bool = False,
        is_single_statement: bool = False,
    ) -> None:
        self.function = function
        self.is_read_only = is_read_only
        self.is_single_statement = is_single_statement
        self.again: Definition[P, T_co] | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> Operation[T_co]:
        return Operation(self, arguments, options)

    def after_lost_reply(self, function: Callable[P, Statements[T_co]]) -> Definition[P, T_co]:
        """Decorate the function to run instead when an earlier run may have been committed."""
        self.again = Definition(function)
        self.again.__name__ = self.__name__
        return self.again


def operation(function: Callable[P, Statements[T]]) -> Definition[P, T]:
    """Define an operation: all its statements share one transaction.

    After a lost reply the runner runs it again from the start, though it may have been committed. If that would do
    something twice or report something wrong, define what to run instead with `after_lost_reply`.
    """
    return Definition(function)


def query(function: Callable[P, Statements[T]]) -> Definition[P, T]:
    """Define an operation that only reads, so it need not wait for writers."""
    return Definition(function, is_read_only=True)


def single_statement(function: Callable[P, SingleStatement[T]]) -> Definition[P, T]:
    """Define an operation whose only statement commits by itself, which saves the round trips of a transaction.

    What has to follow the statement is another operation, which the function returns: it runs in a transaction of its
    own. The runner refuses a second statement. Where a dialect needs several statements for the one, or inside another
    operation, everything shares one transaction.
    """
    return Definition(function, is_single_statement=True)
