"""`stagepost migrate`: brings the tables up to date, or prints the SQL to do so."""

from __future__ import annotations

import sys
from typing import Any

import click

from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Command
from stagepost.database.connection import database_at
from stagepost.database.dialect import Dialect
from stagepost.database.migrate import Migration, applied, migrations_of, pending, script_of
from stagepost.database.migrate import migrate as apply_migrations
from stagepost.database.store import Store

__all__ = ["migrate"]


@click.command(cls=Command, short_help="Create the tables, or bring them up to date.")
@click.option(
    "--sql", "as_sql", is_flag=True, help="Print the SQL instead of running it, for Alembic, Django, Flyway or a DBA."
)
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="VERSION",
    help="With --sql: print only migrations after this version.",
)  # fmt: skip
@click.option(
    "--status", is_flag=True, help="Only list applied and missing migrations; exits with 4 if any is missing."
)
@click.pass_obj
def migrate(invocation: Invocation, *, as_sql: bool, since: int, status: bool) -> None:
    """Create Stagepost's tables, or bring them up to date.

    It is safe to run this twice, or on several machines at once.
    """
    if as_sql and status:
        raise click.UsageError("Use either --sql or --status, not both.")
    if as_sql:
        _print_sql(invocation, since)
    elif status:
        _show_status(invocation)
    else:
        _apply(invocation)


def _apply(invocation: Invocation) -> None:
    store = Store.at(invocation.settings.database_url)
    try:
        done = apply_migrations(store)
    finally:
        store.close()

    def show() -> None:
        for migration in done:
            invocation.output.say(f"Applied {_name(migration)}.")
        if not done:
            invocation.output.say("The tables are up to date.")

    invocation.output.result({"applied": [_name(migration) for migration in done]}, show)


def _show_status(invocation: Invocation) -> None:
    store = invocation.open_store()
    try:
        known = {version: name for version, name, _ in applied(store)}
        missing = pending(store)
    finally:
        store.close()
    document: dict[str, Any] = {
        "applied": [f"{version:04}_{name}" for version, name in known.items()],
        "missing": [_name(migration) for migration in missing],
    }
    section = Section(
        columns=("migration", "status"),
        rows=[(name, status) for status in ("applied", "missing") for name in document[status]],
    )
    invocation.output.result(document, lambda: invocation.output.table(section))
    if missing:
        sys.exit(ExitCode.SCHEMA)


def _print_sql(invocation: Invocation, since: int) -> None:
    dialect: Dialect = database_at(invocation.settings.database_url).dialect
    chosen = [migration for migration in migrations_of(dialect) if migration.version > since]
    text = script_of(chosen, dialect)
    document = {"dialect": dialect.name, "sql": text}
    invocation.output.result(document, lambda: click.echo(text, nl=False))


def _name(migration: Migration) -> str:
    return f"{migration.version:04}_{migration.name}"
