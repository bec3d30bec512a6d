"""Tells whether a caller's connection leads to the app's database, and refuses it only if it certainly does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakKeyDictionary

from stagepost.database.adapters.caller_connection import CallerConnection
from stagepost.database.connection import Database, MysqlDatabase, PostgresDatabase
from stagepost.database.dialect import SqlCall
from stagepost.database.failures import Address
from stagepost.database.lent import lent_transaction
from stagepost.database.runner import Calls
from stagepost.database.statement import Rows
from stagepost.errors import ConfigurationError

__all__ = ["check_database", "name_at"]

QUESTIONS = {
    "postgres": "select current_database(), (select oid::bigint from pg_database where datname = current_database())",
    "mysql": "select database(), null",
    "sqlite": "pragma database_list",
}
"""What every user may ask, and what a pooler passes on. PostgreSQL's replicas give the same answer as their primary;
on MySQL the name alone must do, because the nodes of a cluster have nothing in common."""

KINDS = {"postgres": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"}

_checked: WeakKeyDictionary[Any, Address] = WeakKeyDictionary()
"""To which app's database each connection of a driver leads."""
_known: dict[Address, Whereabouts] = {}
"""What each database of an app answered last."""


class Whereabouts(NamedTuple):
    """What a server calls a database, and a number that another database of the same name does not have."""

    name: str
    number: int | None = None

    def differs_from(self, other: Whereabouts) -> bool:
        """Whether the two are certainly different databases."""
        is_other_number = None not in {self.number, other.number} and self.number != other.number
        return self.name.casefold() != other.name.casefold() or is_other_number


def check_database(caller: CallerConnection[Any], tx: Any, database: Database) -> Calls[None]:
    """Raise ConfigurationError if the caller's connection leads to another database than the app's.

    A connection whose host, port and database are literally those of the app's URL is not asked, and any other only
    once. SQLite's connections cannot be remembered, but asking one costs nothing.
    """
    if _is_lent(tx, database) or _is_checked(caller.raw, database.address):
        return
    if caller.dialect.name != database.dialect.name:
        raise _another(f"a {KINDS[caller.dialect.name]} database", database)
    if caller.dialect.name == "sqlite" or _address_of(caller.raw) != _address_in_url(database):
        rows = yield SqlCall(QUESTIONS[caller.dialect.name], ())
        _compare(_answer(rows), database)
    with contextlib.suppress(TypeError):  # sqlite3's connections cannot be remembered
        _checked[caller.raw] = database.address


def _compare(theirs: Whereabouts, database: Database) -> None:
    if database.dialect.name == "sqlite":
        if not _is_same_file(theirs.name, database.address.path):
            what = f"SQLite file {theirs.name!r}" if theirs.name else "another SQLite database in memory"
            raise _another(what, database)
    elif theirs != _known.get(database.address) and theirs.differs_from(_ours(database)):
        raise _another(f"database {theirs.name!r}", database)


def name_at(caller: CallerConnection[Any]) -> str:
    """Describe where a caller's connection leads, as far as its driver knows."""
    address = _address_of(caller.raw)
    if address is None:
        return "another database, perhaps"
    host, port, name = address
    return f"database {name!r} at {host}:{port}"


def _is_lent(tx: Any, database: Database) -> bool:
    """Whether the connection is one of ours, which leads to the same address."""
    if (lent := lent_transaction(tx)) is None:
        return False
    return lent.database is database or (lent.database.address == database.address and not database.is_memory)


def _is_checked(raw: Any, address: Address) -> bool:
    try:
        return _checked.get(raw) == address
    except TypeError:
        return False


def _answer(rows: Rows) -> Whereabouts:
    if rows and len(rows[0]) == 3:  # SQLite: number, schema, file
        return Whereabouts(next((str(file) for _, schema, file in rows if schema == "main"), ""))
    [(name, number)] = rows
    return Whereabouts(str(name or ""), None if number is None else int(number))


def _is_same_file(theirs: str, ours: str) -> bool:
    """Compare files, whatever links and relative paths lead to them. A database in memory has no file."""
    if not theirs or ours == ":memory:":
        return False
    return theirs == ours or Path(theirs).resolve() == Path(ours).resolve()


def _ours(database: Database) -> Whereabouts:
    """Ask the app's database, now: it may have moved since it was last asked."""
    with contextlib.closing(database.connect()) as connection:
        found = _answer(connection.execute(QUESTIONS[database.dialect.name], {}))
    _known[database.address] = found
    return found


def _another(theirs: str, database: Database) -> ConfigurationError:
    return ConfigurationError(
        f"the connection leads to {theirs}, and the app's database is {database.address}. Pass a connection to the "
        f"app's database, or create an App for this one."
    )


Reader = Callable[[Any], tuple[Any, Any, Any]]
READERS: dict[tuple[str, str], Reader] = {
    ("psycopg", "BaseConnection"): lambda raw: (raw.info.host, raw.info.port, raw.info.dbname),
    ("psycopg2", "connection"): lambda raw: (raw.info.host, raw.info.port, raw.info.dbname),
    ("pymysql", "Connection"): lambda raw: (raw.host, raw.port, raw.db),
    ("asyncmy", "Connection"): lambda raw: (raw.host, raw.port, raw.db),
    ("asyncpg", "Connection"): lambda raw: (*raw._addr, raw._params.database),  # noqa: SLF001 - there is no other way
}
"""By the package and name of a class, how to read host, port and database from a driver's connection."""


def _address_of(raw: Any) -> tuple[str, int, str] | None:
    for kind in type(raw).__mro__:
        reader = READERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if reader is not None:
            with contextlib.suppress(Exception):  # a driver that changed: then the server is asked
                host, port, name = reader(raw)
                return str(host), int(port), name.decode() if isinstance(name, bytes) else str(name)
    return None


def _address_in_url(database: Database) -> tuple[str, int, str] | None:
    match database:
        case MysqlDatabase():
            options = database.options
            return options["host"], options["port"], options["database"]
        case PostgresDatabase():
            parts = urlsplit(database.url)
            with contextlib.suppress(ValueError):  # several hosts
                if not {"host", "hostaddr", "port", "dbname"} & dict(parse_qsl(parts.query)).keys():
                    return unquote(parts.hostname or ""), parts.port or 5432, unquote(parts.path[1:])
        case _:
            pass
    return None
