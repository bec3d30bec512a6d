"""Turns errors into one message on standard error and an exit code."""

from __future__ import annotations

from enum import IntEnum
from typing import IO, Any

import click

from stagepost.cli.layout import printable
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect
from stagepost.database.trouble import Trouble
from stagepost.errors import BrokerUnavailable, ConfigurationError, SchemaError, StagepostError, StoreUnavailable

__all__ = ["CommandFailed", "ExitCode", "as_failure"]


class ExitCode(IntEnum):
    """The exit status of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    SCHEMA = 4


DRIVERS: dict[str, Dialect] = {"sqlite3": SQLITE, "psycopg": POSTGRES, "pymysql": MYSQL}
"""Maps the package that defines a driver's error class to the dialect that can classify the error."""


class CommandFailed(click.ClickException):
    """An error that is shown as one message, without a traceback."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to standard error."""
        click.echo(f"stagepost: {printable(self.message)}", file=file, err=file is None)


def as_failure(error: Exception) -> CommandFailed | None:
    """Turn an expected error into a message and an exit code; return None for an error that must be a bug."""
    if isinstance(error, StagepostError):
        text = " ".join(str(error).split()) if isinstance(error, StoreUnavailable) else str(error)
        return CommandFailed(_sentence(text), _code(error))
    dialect = DRIVERS.get(type(error).__module__.partition(".")[0])
    if dialect is None:
        return None
    text = " ".join(str(error).split())
    match dialect.trouble(error):
        case Trouble.CONNECTION:
            return CommandFailed(f"The connection to the database was lost: {text}", ExitCode.UNREACHABLE)
        case Trouble.CONFLICT:
            return CommandFailed(f"The database is too busy: {text}. Try again.", ExitCode.UNREACHABLE)
        case Trouble.SCHEMA:
            return CommandFailed(f"{text}. Run `stagepost migrate` to bring the tables up to date.", ExitCode.SCHEMA)
        case Trouble.REFUSED | Trouble.OTHER:
            return CommandFailed(f"The database rejected the statement: {text}")


def _code(error: StagepostError) -> ExitCode:
    match error:
        case ConfigurationError():
            return ExitCode.USAGE
        case StoreUnavailable() | BrokerUnavailable():
            return ExitCode.UNREACHABLE
        case SchemaError():
            return ExitCode.SCHEMA
        case _:
            return ExitCode.FAILED


def _sentence(text: str) -> str:
    """Capitalize the first letter, unless the first word is a name such as `unique_key`."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
