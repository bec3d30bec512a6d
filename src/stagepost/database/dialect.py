"""Compiles `.sql` files for a driver: the text of the dialect, its clock and its parameter style."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stagepost.clock import Clock
from stagepost.database.statement import Rows, Statement
from stagepost.database.trouble import Trouble, mysql_trouble, postgres_trouble, sqlite_trouble

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

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
    """How a driver expects parameters."""

    NAMED = "named"  # :name, a mapping
    PYFORMAT = "pyformat"  # %(name)s, a mapping
    DOLLAR = "dollar"  # $1, a sequence


@dataclass(frozen=True)
class Dialect:
    """The differences between databases that are not in the `.sql` files."""

    name: str
    now: str
    """An expression for microseconds since 1970, constant within a statement and usable in index conditions."""
    trouble: Callable[[BaseException], Trouble]
    has_row_locks: bool = True
    """SQLite has one writer at a time and no row locks: `for update` lines of the common files are left out."""
    reads_by_statement: bool = True
    """Every statement sees the latest commits, so a transaction around statements that only read is useless."""
    guards_transactions: bool = False
    """After a failed statement the server accepts no others, until a rollback to a savepoint or of the transaction."""
    longest_statement: str | None = None
    """An expression for the maximum length of a statement in bytes, with its parameters written into the text."""
    _scripts: dict[tuple[str, ParameterStyle, bool, frozenset[str]], Script] = field(default_factory=dict, repr=False)

    def script(self, name: str, style: ParameterStyle, *, own_clock: bool, given: Set[str] = frozenset()) -> Script:
        """Return a statement compiled for one style. With `own_clock`, `:now` stays a parameter.

        A clause in double brackets is left out unless all its parameters are `given`. A clause that starts with
        `unless :name` is left out if that parameter is given.
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
        """Return the text for `Load`; None if this dialect has no faster method than a statement."""
        if not _path(self.name, name).is_file():
            return None
        [text] = _split(_source(self.name, name), row_locks=self.has_row_locks)
        return text


@dataclass(frozen=True)
class CompiledText:
    """One SQL text for the driver, and the names of its parameters in order."""

    sql: str
    names: tuple[str, ...]
    is_packed: bool = False
    """All rows arrive as one JSON array in a column `packed`. The sqlite3 driver releases the interpreter lock at every
    row, and may have to wait for other threads each time."""
    is_select: bool = False
    mentions: Counter[str] = field(default_factory=Counter, compare=False)
    """How often it names each parameter."""


@dataclass(frozen=True)
class Script:
    """The texts of a `.sql` file, one or several.

    A dialect that cannot change rows and return them in one text selects and locks them first. The result of the script
    is the rows of the last text that returns any. The texts after it receive the first column of those rows as a JSON
    array, `:selected`, and are skipped if there are none. A later `select` may reduce the rows, even to none.
    """

    name: str
    texts: tuple[CompiledText, ...]


class SqlCall(NamedTuple):
    """One call to a driver."""

    sql: str
    parameters: Any
    needs_transaction: bool = True


def calls_of(
    statement: Statement, *, dialect: Dialect, style: ParameterStyle, clock: Clock, needs_transaction: bool = True
) -> Generator[SqlCall, Rows, Rows]:
    """Yield the driver calls of one statement, receive their rows, and return the rows of the statement."""
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
    """Return the compiled texts of a statement, with the clauses that its parameters select."""
    is_own_clock = clock.instant() is not None
    return dialect.script(statement.name, style, own_clock=is_own_clock, given=statement.parameters.keys())


def call_of(sql: str, parameters: Mapping[str, Any], style: ParameterStyle) -> SqlCall:
    """Compile a statement that is not in a file, with `:name` parameters, for a driver."""
    text = _compile(sql, style, None)
    return SqlCall(text.sql, arranged(text, parameters, style))


def arranged(text: CompiledText, parameters: Mapping[str, Any], style: ParameterStyle) -> Any:
    """Return the parameters of one text, as a list or mapping according to the style."""
    if style is ParameterStyle.DOLLAR:
        return [parameters[name] for name in text.names]
    return {name: parameters[name] for name in text.names}


POSTGRES = Dialect(
    name="postgres",
    # Not now(), which is the start of the transaction; not clock_timestamp(), which index conditions cannot use; not
    # extract(), which calculates with decimals and takes three times as long.
    now="(date_part('epoch', statement_timestamp()) * 1000000)::bigint",
    trouble=postgres_trouble,
    guards_transactions=True,
)
MYSQL = Dialect(
    name="mysql",
    # Not unix_timestamp(now(6)), which is ambiguous in the hour that the session's time zone repeats.
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
    from importlib.resources import files  # noqa: PLC0415 - slow to import, and only needed to read a statement

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
    """Return the parameters of a statement's optional clauses."""
    return frozenset().union(*(_names(clause[0]) for clause in _OPTIONAL.finditer(_source(dialect, name))))


def _wanted(clause: re.Match[str], given: Set[str]) -> str:
    unless, text = clause.groups()
    is_wanted = unless not in given if unless else _names(text) <= given
    return text if is_wanted else ""


def _names(clause: str) -> frozenset[str]:
    """Return the parameters that an operation must pass."""
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
                # With this style the server infers types, and it cannot do so for the sum of two parameters.
                return f"${names.index(name) + 1}" + ("::bigint" if name == "now" else "")

    sql = _TOKEN.sub(put, text)
    return CompiledText(
        sql, tuple(names), is_packed=" as packed\n" in sql, is_select=sql.startswith("select"), mentions=mentions
    )
