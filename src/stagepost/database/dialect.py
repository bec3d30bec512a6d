"""Turns the `.sql` files into what a driver takes: the dialect's text, its clock, its parameter style."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import msgspec

from stagepost.clock import Clock
from stagepost.database.statement import Rows, Statement
from stagepost.database.trouble import Trouble, mysql_trouble, postgres_trouble, sqlite_trouble

__all__ = [
    "MYSQL",
    "POSTGRES",
    "SQLITE",
    "Dialect",
    "ParameterStyle",
    "Script",
    "SqlCall",
    "arranged",
    "call_of",
    "calls_of",
    "optional_names",
    "script_of",
]


class ParameterStyle(StrEnum):
    """How a driver wants parameters written."""

    NAMED = "named"  # :name, a mapping
    PYFORMAT = "pyformat"  # %(name)s, a mapping
    DOLLAR = "dollar"  # $1, a sequence


@dataclass(frozen=True)
class Dialect:
    """What differs between databases and is not in the `.sql` files."""

    name: str
    now: str
    """An expression for microseconds since 1970, constant within a statement and fit for an index condition."""
    trouble: Callable[[BaseException], Trouble]
    has_row_locks: bool = True
    """A database with one writer at a time has none: the common files' `for update` lines are left out."""
    reads_by_statement: bool = True
    """Every statement sees the newest commits, in a transaction or not: one that only reads gains nothing by it."""
    longest_statement: str | None = None
    """An expression for how many bytes a statement may have, parameters included, wherever its text names them."""
    _scripts: dict[tuple[str, ParameterStyle, bool, frozenset[str]], Script] = field(default_factory=dict, repr=False)

    def script(self, name: str, style: ParameterStyle, *, own_clock: bool, given: Set[str] = frozenset()) -> Script:
        """Fetch a statement's text, compiled for one style; `own_clock` leaves `:now` a parameter.

        A clause in double brackets is left out unless its parameters are among those `given`; one that begins with
        `unless :name`, if that is.
        """
        optional = optional_names(self.name, name)
        key = (name, style, own_clock, optional and optional.intersection(given))
        script = self._scripts.get(key)
        if script is None:
            now = None if own_clock else self.now
            source = _OPTIONAL.sub(lambda clause: _wanted(clause, given), _source(self.name, name))
            texts = _split(source, row_locks=self.has_row_locks)
            script = self._scripts[key] = Script(name, tuple(_compile(text, style, now) for text in texts))
        return script

    def load_text(self, name: str) -> str | None:
        """Fetch the text that many rows follow; None where this dialect has no quicker way than a statement."""
        if not _path(self.name, name).is_file():
            return None
        [text] = _split(_source(self.name, name), row_locks=self.has_row_locks)
        return text


@dataclass(frozen=True)
class CompiledText:
    """One statement as the driver takes it, and the names of its parameters in order."""

    sql: str
    names: tuple[str, ...]
    is_packed: bool = False
    """All its rows come as one JSON array, in a column of that name: where a driver lets other threads go on at every
    row, it may have to wait for them as often."""
    is_select: bool = False
    mentions: Counter[str] = field(default_factory=Counter, compare=False)
    """How often it names each parameter."""


@dataclass(frozen=True)
class Script:
    """The one or several statements of a `.sql` file.

    A dialect that cannot change rows and return them in one statement selects and locks them first:
    the rows of the last statement that returns some are the script's, the statements after it find the first
    column of those rows in `:selected`, a JSON array, and are left out when there are none. A `select` among them
    may narrow that down, to no rows as well.
    """

    name: str
    texts: tuple[CompiledText, ...]


class SqlCall(NamedTuple):
    """What a runner hands to a driver."""

    sql: str
    parameters: Any
    needs_transaction: bool = True


def calls_of(
    statement: Statement, *, dialect: Dialect, style: ParameterStyle, clock: Clock, needs_transaction: bool = True
) -> Generator[SqlCall, Rows, Rows]:
    """Yield the driver calls one statement needs, receive their rows, return the statement's rows."""
    script = script_of(statement, dialect=dialect, style=style, clock=clock)
    instant = clock.instant()
    parameters = statement.parameters if instant is None else {**statement.parameters, "now": instant}
    result: Rows = []
    for position, text in enumerate(script.texts):
        if position and "selected" in text.names:
            if not result:
                continue
            parameters = {**parameters, "selected": msgspec.json.encode([row[0] for row in result]).decode()}
        rows = yield SqlCall(text.sql, arranged(text, parameters, style), needs_transaction=needs_transaction)
        if text.is_packed:
            rows = [tuple(row) for row in msgspec.json.decode(rows[0][0])]
        result = rows if text.is_select else rows or result
    return result


def script_of(statement: Statement, *, dialect: Dialect, style: ParameterStyle, clock: Clock) -> Script:
    """Fetch the text of a statement, with the clauses that its parameters ask for."""
    is_own_clock = clock.instant() is not None
    return dialect.script(statement.name, style, own_clock=is_own_clock, given=statement.parameters.keys())


def call_of(sql: str, parameters: Mapping[str, Any], style: ParameterStyle) -> SqlCall:
    """Write a statement that is in no file, with its `:name` parameters, as a driver takes it."""
    text = _compile(sql, style, None)
    return SqlCall(text.sql, arranged(text, parameters, style))


def arranged(text: CompiledText, parameters: Mapping[str, Any], style: ParameterStyle) -> Any:
    """Pick the parameters of one text, in the shape that the style wants."""
    if style is ParameterStyle.DOLLAR:
        return [parameters[name] for name in text.names]
    return {name: parameters[name] for name in text.names}


POSTGRES = Dialect(
    name="postgres",
    # Not now(), which stands still in a long transaction, nor clock_timestamp(), which no index condition can use.
    # Not extract(), which calculates with decimals, three times as long, for every row that gets the time.
    now="(date_part('epoch', statement_timestamp()) * 1000000)::bigint",
    trouble=postgres_trouble,
)
MYSQL = Dialect(
    name="mysql",
    # Not unix_timestamp(now(6)), which goes through the session's time zone and its repeated hour.
    now="timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
    trouble=mysql_trouble,
    longest_statement="@@max_allowed_packet",
)
SQLITE = Dialect(
    name="sqlite",
    now="(cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)",
    trouble=sqlite_trouble,
    has_row_locks=False,
    reads_by_statement=False,
)


def _path(folder: str, name: str) -> Traversable:
    return files("stagepost.store") / "sql" / folder / f"{name}.sql"


@cache
def _source(dialect: str, name: str) -> str:
    for folder in (dialect, "common"):
        path = _path(folder, name)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise LookupError(f"no statement {name}.sql for {dialect}")


@cache
def optional_names(dialect: str, name: str) -> frozenset[str]:
    """The parameters of a statement's optional clauses."""
    return frozenset().union(*(_names(clause[0]) for clause in _OPTIONAL.finditer(_source(dialect, name))))


def _wanted(clause: re.Match[str], given: Set[str]) -> str:
    unless, text = clause.groups()
    is_wanted = unless not in given if unless else _names(text) <= given
    return text if is_wanted else ""


def _names(clause: str) -> frozenset[str]:
    """The parameters that whoever yields the statement has to give."""
    return frozenset(name for name in _TOKEN.findall(clause) if name) - {"now", "selected"}


def _split(source: str, *, row_locks: bool) -> list[str]:
    lines = [line for line in source.splitlines() if not line.lstrip().startswith("--")]
    if not row_locks:
        lines = [line for line in lines if not line.startswith("for update")]
    return [text.strip() for text in re.split(r"^;$", "\n".join(lines), flags=re.MULTILINE) if text.strip()]


_OPTIONAL = re.compile(r"\[\[(?:unless :([a-z_]+)\s)?(.*?)\]\]", re.DOTALL)
_TOKEN = re.compile(r"'(?:[^']|'')*'|::|:([a-z_][a-z0-9_]*)|%")


def _compile(text: str, style: ParameterStyle, now: str | None) -> CompiledText:
    names: list[str] = []
    mentions: Counter[str] = Counter()

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0].replace("%", "%%") if style is ParameterStyle.PYFORMAT else match[0]
        if name == "now" and now is not None:
            return now.replace("%", "%%") if style is ParameterStyle.PYFORMAT else now
        if name not in mentions:
            names.append(name)
        mentions[name] += 1
        match style:
            case ParameterStyle.NAMED:
                return f":{name}"
            case ParameterStyle.PYFORMAT:
                return f"%({name})s"
            case ParameterStyle.DOLLAR:
                # This style leaves types to the server, which finds none for the sum of two parameters.
                return f"${names.index(name) + 1}" + ("::bigint" if name == "now" else "")

    sql = _TOKEN.sub(put, text)
    return CompiledText(
        sql, tuple(names), is_packed=" as packed\n" in sql, is_select=sql.startswith("select"), mentions=mentions
    )
