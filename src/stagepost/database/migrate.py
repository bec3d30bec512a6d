"""Brings Stagepost's tables up to date: numbered SQL per dialect, checksummed, one migrator at a time."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from stagepost.database.dialect import Dialect
from stagepost.database.statement import Rows
from stagepost.database.store import Store
from stagepost.database.trouble import Trouble
from stagepost.errors import SchemaError, StoreUnavailable

__all__ = ["Migration", "applied", "apply_one", "check_schema", "migrate", "migrations_of", "pending", "script_of"]

LOCKS = {
    "postgres": "select pg_advisory_xact_lock(7364750173)",
    "mysql": "select get_lock(concat('stagepost:', sha1(database())), 60)",
    "sqlite": "select 1",  # its transaction already excludes other writers
}
MYSQL_EXISTS = {1050, 1061, 1304}
"""A table, index or procedure of this name exists."""
UNLOCKS = {"mysql": "select release_lock(concat('stagepost:', sha1(database())))"}
CREATE_TABLE = (
    "create table if not exists stagepost_migration ("
    "version integer primary key, name varchar(191) not null, checksum varchar(64) not null)"
)


READ = "select version, name, checksum from stagepost_migration order by version"
Execute = Callable[[str], Rows]
"""Runs a statement without parameters."""


@dataclass(frozen=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Detects statements that were edited after they were applied; comments may change."""
        return hashlib.sha256(";\n".join(self.statements).encode()).hexdigest()

    @property
    def record(self) -> str:
        """The statement that records the migration as applied."""
        return (
            f"insert into stagepost_migration (version, name, checksum) "  # noqa: S608 - our own constants
            f"values ({self.version}, '{self.name}', '{self.checksum}')"
        )

    @property
    def script(self) -> list[str]:
        """Everything that applies the migration and records it, for tools that run it themselves."""
        return [CREATE_TABLE, *self.statements, self.record]

    @property
    def statements(self) -> list[str]:
        """The statements one by one, without comments.

        A statement ends with `;` at the end of a line that is not indented: those in the body of a function are.
        """
        text = re.sub(r"^\s*--.*\n", "", self.sql, flags=re.MULTILINE)
        parts = re.split(r"^(?! )(.*);$", text, flags=re.MULTILINE)
        statements = ["".join(pair).strip() for pair in zip_longest(parts[::2], parts[1::2], fillvalue="")]
        return [statement for statement in statements if statement]


def migrations_of(dialect: Dialect) -> list[Migration]:
    """List a dialect's migrations in order."""
    from importlib.resources import files  # noqa: PLC0415 - slow to import, and only needed to migrate

    folder = files("stagepost.database") / "migrations" / dialect.name
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        version, _, name = path.name.removesuffix(".sql").partition("_")
        found.append(Migration(int(version), name, path.read_text(encoding="utf-8")))
    return found


def migrate(store: Store) -> list[Migration]:
    """Apply missing migrations and return them. Safe to call from many processes at once."""
    dialect = store.dialect
    if not pending(store):  # checked first, so that a current database is not locked
        return []
    with store.errors_of("migrate"), store.transaction() as connection:

        def execute(sql: str) -> Rows:
            return connection.execute(sql.replace("%", "%%") if dialect.name == "mysql" else sql, {})

        with _locked(dialect, execute):
            missing = _missing(dialect, execute(READ))
            for migration in missing:
                _apply(migration, dialect, execute)
    return missing


def apply_one(migration: Migration, dialect: Dialect, execute: Execute) -> None:
    """Apply one migration, if it is missing, on a connection of another tool; `execute` takes SQL as it is."""
    with _locked(dialect, execute):
        if migration in _missing(dialect, execute(READ)):
            _apply(migration, dialect, execute)


@contextlib.contextmanager
def _locked(dialect: Dialect, execute: Execute) -> Iterator[None]:
    """Let one migrator work at a time, with a table to record its work in."""
    [(locked,)] = execute(LOCKS[dialect.name])
    if locked == 0:  # MySQL returns 0 instead of failing
        raise StoreUnavailable("another migration is still running after 60 s. Wait for it, then migrate again.")
    try:
        execute(CREATE_TABLE)
        yield
    finally:
        if dialect.name in UNLOCKS:
            execute(UNLOCKS[dialect.name])


def _apply(migration: Migration, dialect: Dialect, execute: Execute) -> None:
    for statement in migration.statements:
        _execute_unless_done(statement, dialect, execute)
    execute(migration.record)


def _execute_unless_done(statement: str, dialect: Dialect, execute: Execute) -> None:
    try:
        execute(statement)
    except Exception as error:
        # MySQL commits every CREATE, so a migration that was interrupted has left some tables behind.
        if dialect.name != "mysql" or not error.args or error.args[0] not in MYSQL_EXISTS:
            raise


def script_of(migrations: Sequence[Migration], dialect: Dialect) -> str:
    """Write migrations as one script for other tools; like `migrate`, the script records them as applied."""
    parts = [CREATE_TABLE + ";"]
    for migration in migrations:
        title = f"-- {migration.version:04}_{migration.name}"
        parts += [f"{title}\n{_readable(migration, dialect)}", migration.record + ";"]
    return "\n\n".join(parts) + "\n"


def _readable(migration: Migration, dialect: Dialect) -> str:
    """Return a migration's SQL; MySQL's client must be told where a procedure ends."""
    if dialect.name != "mysql" or "create procedure" not in migration.sql:
        return migration.sql.strip()
    return "\n".join(["delimiter //", *(f"{statement}\n//" for statement in migration.statements), "delimiter ;"])


def applied(store: Store) -> list[tuple[int, str, str]]:
    """List (version, name, checksum) of the migrations that the database has."""
    try:
        with store.transaction(read_only=True) as connection:
            rows = connection.execute(READ, {})
    except Exception as error:
        if store.dialect.trouble(error) is Trouble.SCHEMA:
            return []
        with store.errors_of("read migrations"):
            raise
    return [(version, name, checksum) for version, name, checksum in rows]


def pending(store: Store) -> list[Migration]:
    """List the migrations that `migrate` would apply."""
    return _missing(store.dialect, list(applied(store)))


def check_schema(store: Store) -> None:
    """Raise an error if the database lacks a migration. Newer tables are compatible."""
    missing = pending(store)
    if missing:
        names = ", ".join(f"{migration.version:04}_{migration.name}" for migration in missing)
        raise SchemaError(f"{store.database.address} lacks migration {names}. Run `{store.migrate_command}`.")


def _missing(dialect: Dialect, rows: Rows) -> list[Migration]:
    known = {version: checksum for version, _, checksum in rows}
    missing = []
    for migration in migrations_of(dialect):
        if migration.version not in known:
            missing.append(migration)
        elif known[migration.version] != migration.checksum:
            raise SchemaError(
                f"migration {migration.version:04}_{migration.name} was applied with a different content than this "
                f"release has. Go back to the release that applied it, or compare the two files before you continue."
            )
    return missing
