"""The URL of a Django database, with which Stagepost opens connections of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from stagepost.errors import ConfigurationError

__all__ = ["MEMORY", "database_url_of"]

MEMORY = "sqlite://"
POSTGRES_ONLY_IN_DJANGO = frozenset(
    {"assume_role", "autocommit", "context", "cursor_factory", "isolation_level", "pool", "prepare_threshold"}
    | {"row_factory", "server_side_binding"}
)
"""Options that are not libpq's. Stagepost chooses them itself; it applies `assume_role` in another way."""
MYSQL_IN_PYMYSQL = frozenset(
    {"connect_timeout", "init_command", "read_default_file", "read_default_group", "read_timeout", "ssl_ca"}
    | {"ssl_cert", "ssl_disabled", "ssl_key", "unix_socket", "write_timeout"}
)
"""Options that PyMySQL, Stagepost's driver, also has. The others concern only Django's own connections."""


def database_url_of(connection: Any) -> str:
    """Build the URL from a connection's settings; nothing is connected."""
    facts: Mapping[str, Any] = connection.settings_dict
    match connection.vendor:
        case "sqlite":
            return _sqlite(connection, facts)
        case "postgresql":
            return _postgres(facts)
        case "mysql":
            return _mysql(facts)
        case vendor:
            raise ConfigurationError(
                f"DATABASES[{connection.alias!r}] is {vendor}. Stagepost supports SQLite, PostgreSQL, MySQL and "
                f'MariaDB: name the alias of such a database in STAGEPOST, as in {{"DATABASE": "jobs"}}.'
            )


def _sqlite(connection: Any, facts: Mapping[str, Any]) -> str:
    if connection.is_in_memory_db():
        return MEMORY
    name = str(facts["NAME"])
    if name.startswith("file:"):
        raise ConfigurationError(
            f"DATABASES[{connection.alias!r}]: NAME is the URI {name!r}. Give the path of the file instead."
        )
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgres(facts: Mapping[str, Any]) -> str:
    given = dict(facts["OPTIONS"])
    options = {name: value for name, value in given.items() if name not in POSTGRES_ONLY_IN_DJANGO}
    if role := given.get("assume_role"):
        options["options"] = f"{options.get('options', '')} -c role={_escaped(str(role))}".strip()
    host, port = str(facts["HOST"]), str(facts["PORT"])
    if any(character in host for character in "/,:@"):  # a socket's folder, several hosts, or IPv6
        options |= {"host": host, **({"port": port} if port else {})}
        host = port = ""
    # Django connects to the database `postgres` if neither a name nor a service is given.
    name = str(facts["NAME"] or ("" if "service" in options else "postgres"))
    return _url("postgresql", facts, f"{host}:{port}" if port else host, name, options)


def _mysql(facts: Mapping[str, Any]) -> str:
    given = dict(facts["OPTIONS"])
    certificates = given.get("ssl")
    if isinstance(certificates, Mapping):
        given |= {f"ssl_{name}": value for name, value in certificates.items()}
    options = {name: value for name, value in given.items() if name in MYSQL_IN_PYMYSQL and value is not None}
    host, port = str(facts["HOST"]), str(facts["PORT"])
    if host.startswith("/"):
        options |= {"unix_socket": host}
        host = ""
    host = f"[{host}]" if ":" in host else host
    return _url("mysql", facts, f"{host}:{port}" if port else host, str(facts["NAME"]), options)


def _url(scheme: str, facts: Mapping[str, Any], host: str, name: str, options: Mapping[str, Any]) -> str:
    user, password = (quote(str(facts[part] or ""), safe="") for part in ("USER", "PASSWORD"))
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    query = urlencode({key: str(value) for key, value in options.items()}, quote_via=quote)
    return f"{scheme}://{login}{host}/{quote(name, safe='')}" + (f"?{query}" if query else "")


def _escaped(value: str) -> str:
    """Escape a value in libpq's `options`, which splits at spaces."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
