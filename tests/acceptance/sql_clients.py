"""The databases' own command-line programs, and how each of them enqueues a job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from tests.services.locate import missing_is_failure

LIMIT = 120
SQLITE_PROGRAM = """
import sqlite3, sys
*options, path = sys.argv[1:]
connection = sqlite3.connect(path, timeout=60, isolation_level=None)
statement = ""
for line in sys.stdin:
    statement += line
    if sqlite3.complete_statement(statement):
        try:
            for row in connection.execute(statement):
                print(*row, sep="|")
        except sqlite3.Error as error:
            print(error, file=sys.stderr)
            if "-bail" in options:
                sys.exit(1)
        statement = ""
"""
"""Does what the `sqlite3` program does, where that is not installed."""


class SqlFailed(Exception):
    """The program refused a statement; the text is what it printed."""


class SqlClient(ABC):
    """Runs scripts with a database's own program, outside of Stagepost."""

    stops: ClassVar[list[str]] = []
    """Options that end the program at the first statement that fails."""
    goes_on: ClassVar[list[str]] = []
    """Options that let it continue."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, script: str) -> list[str]:
        """Run a script and return the lines it prints; raises SqlFailed at the first statement that fails."""
        done = self._run(script, self.stops)
        if done.returncode:
            raise SqlFailed(done.stderr)
        return done.stdout.splitlines()

    def run_all(self, script: str) -> str:
        """Run every statement of a script, also after one that fails, and return what is printed about failures."""
        return self._run(script, self.goes_on).stderr

    def _run(self, script: str, options: list[str]) -> subprocess.CompletedProcess[str]:
        program, *rest = self.command()
        if shutil.which(program) is None:
            (pytest.fail if missing_is_failure() else pytest.skip)(f"the program {program} is not installed")
        return subprocess.run(
            [program, *rest, *options, *self.place()],
            input=script,
            capture_output=True,
            encoding="utf-8",
            timeout=LIMIT,
            check=False,
            env={**os.environ, **self.environment()},
        )

    def enqueue(self, task: str | None, arguments: Any = None, **options: Any) -> str:
        """Enqueue a job in a transaction of its own and return the id that the database gives."""
        return self.run(self.call(task, arguments, **options))[-1]

    def call(self, task: str | None, arguments: Any = None, **options: Any) -> str:
        """Write the statements that enqueue a job and print its id; `arguments` are an object or the JSON of one."""
        text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments)
        return self.statements(task, text, options)

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its options."""

    @abstractmethod
    def place(self) -> list[str]:
        """The arguments that name the database."""

    def environment(self) -> dict[str, str]:
        """What the program reads from its environment."""
        return {}

    @abstractmethod
    def statements(self, task: str | None, arguments: str | None, options: dict[str, Any]) -> str:
        """Write the statements that enqueue a job."""


class Psql(SqlClient):
    """PostgreSQL's."""

    stops: ClassVar = ["-v", "ON_ERROR_STOP=1"]

    def command(self) -> list[str]:
        return ["psql", "-XAtq"]

    def place(self) -> list[str]:
        return [self.url]

    def environment(self) -> dict[str, str]:
        return {"PGCLIENTENCODING": "UTF8"}

    def statements(self, task: str | None, arguments: str | None, options: dict[str, Any]) -> str:
        named = [f"{name} => {self._value(name, value)}" for name, value in options.items()]
        return f"select stagepost_enqueue_v1({', '.join([quoted(task), quoted(arguments), *named])});\n"

    def _value(self, name: str, value: Any) -> str:
        if value is not None and name in {"delay", "unique_for"} and not isinstance(value, str):
            return f"interval '{value} seconds'"
        if value is not None and name == "at" and not isinstance(value, str):
            return f"to_timestamp({value})"
        return quoted(value)


class Mariadb(SqlClient):
    """MariaDB's, which also speaks to MySQL."""

    goes_on: ClassVar = ["--force"]

    def command(self) -> list[str]:
        parts = urlsplit(self.url)
        return [
            "mysql" if shutil.which("mariadb") is None else "mariadb",
            f"--host={parts.hostname}",
            f"--port={parts.port or 3306}",
            f"--user={unquote(parts.username or 'root')}",
            f"--password={unquote(parts.password or '')}",
            "--protocol=tcp",
            "--default-character-set=utf8mb4",
            "--batch",
            "--skip-column-names",
        ]

    def place(self) -> list[str]:
        return [urlsplit(self.url).path.strip("/")]

    def statements(self, task: str | None, arguments: str | None, options: dict[str, Any]) -> str:
        chosen = quoted(json.dumps(options), escape=True) if options else "null"
        given = f"{quoted(task, escape=True)}, {quoted(arguments, escape=True)}, {chosen}"
        return f"call stagepost_enqueue_v1({given}, @id);\nselect @id;\n"


class Sqlite3(SqlClient):
    """SQLite's, or Python's module in a process of its own where the program is not installed."""

    stops: ClassVar = ["-bail"]

    def command(self) -> list[str]:
        if shutil.which("sqlite3") is None:
            return [sys.executable, "-c", SQLITE_PROGRAM]
        return ["sqlite3", "-batch", "-cmd", ".timeout 60000"]

    def place(self) -> list[str]:
        return [self.url.removeprefix("sqlite:///")]

    def statements(self, task: str | None, arguments: str | None, options: dict[str, Any]) -> str:
        given = {"task": task, "arguments": arguments, **options}
        values = ", ".join(quoted(value) for value in given.values())
        insert = f"insert into stagepost_enqueue_v1 ({', '.join(given)}) values ({values});\n"
        if options.get("id") is not None:
            found = quoted(options["id"])
        elif options.get("unique_key") is None:
            found = "(select id from stagepost_job order by rowid desc limit 1)"
        elif options.get("unique_for") is None:
            found = f"(select id from stagepost_enqueue_v1 where unique_key = {quoted(options['unique_key'])})"
        else:
            found = f"(select job_id from stagepost_unique_key where unique_key = {quoted(options['unique_key'])})"
        return f"{insert}select {found};\n"


def sql_client(url: str) -> SqlClient:
    """The program for a database."""
    kinds: dict[str, Callable[[str], SqlClient]] = {"sqlite": Sqlite3, "postgresql": Psql, "mysql": Mariadb}
    return kinds[urlsplit(url).scheme](url)


def quoted(value: Any, *, escape: bool = False) -> str:
    """Write a value as a literal; MySQL's need their backslashes escaped as well."""
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("'", "''")
    return "'" + (text.replace("\\", "\\\\") if escape else text) + "'"
