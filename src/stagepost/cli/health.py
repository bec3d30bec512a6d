"""`stagepost health`: checks the whole system, for people and for probes."""

from __future__ import annotations

import sys

import click

from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Command
from stagepost.client.health import Check, is_healthy
from stagepost.errors import StoreUnavailable

__all__ = ["health"]


@click.command(cls=Command, short_help="Check the database, workers and broker.")
@click.option("--database-only", is_flag=True, help="Check only the database, not the workers or the broker.")
@click.pass_obj
def health(invocation: Invocation, *, database_only: bool) -> None:
    """Check the database, its tables and settings, whether workers are looking for jobs, and the broker if one is used.

    Exits with 0 if every check passed and with 1 if any failed. A warning is not a failure.
    """
    checks = _checks(invocation, with_workers=not database_only)
    healthy = is_healthy(checks)
    section = Section(
        columns=("check", "status", "message"),
        rows=[(check.name, check.status, check.message) for check in checks],
    )
    document = {"healthy": healthy, "checks": checks}
    invocation.output.result(document, lambda: invocation.output.table(section))
    if not healthy:
        sys.exit(ExitCode.FAILED)


def _checks(invocation: Invocation, *, with_workers: bool) -> list[Check]:
    try:
        store = invocation.open_store()
    except StoreUnavailable as error:
        return [Check("database", "failed", str(error))]
    try:
        return invocation.app_on(store).health(database_only=not with_workers)
    finally:
        store.close()
