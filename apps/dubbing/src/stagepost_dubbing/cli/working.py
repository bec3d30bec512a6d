"""`stagepost-dubbing worker` and `migrate`."""

from __future__ import annotations

import asyncio
import sys

import click

from stagepost import Worker, configure_logging
from stagepost_dubbing.dubbing import Dubbing
from stagepost_dubbing.steps.leftovers import remove_leftovers

__all__ = ["migrate", "worker"]

MUST_RESTART = 75


@click.command(short_help="Run the steps of tasks until stopped.")
@click.option("--queues", "-q", default="", metavar="NAMES", help="Steps to run, separated by commas. [default: all]")
@click.option("--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Number of steps to run at once.")
@click.option("--until-idle", is_flag=True, help="Exit when no more steps are due.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def worker(*, queues: str, concurrency: int | None, until_idle: bool, log_level: str) -> None:
    """Run the steps of tasks.

    SIGTERM or Ctrl-C stops the worker after its running steps have finished. A second one returns those steps to
    their queue and stops the worker at once. For several processes, run:
    stagepost worker --app stagepost_dubbing.app:app --processes N
    """
    configure_logging(log_level)
    names = [name.strip() for name in queues.split(",") if name.strip()]
    with Dubbing() as dubbing:
        dubbing.services.check(names or dubbing.app.registry.queues)
        remove_leftovers(dubbing.settings.work_directory)

        async def run() -> bool:
            running = Worker(dubbing.app, queues=names, concurrency=concurrency)
            await running.run(install_signals=True, until_idle=until_idle)
            return running.must_restart

        if asyncio.run(run()):
            sys.exit(MUST_RESTART)


@click.command(short_help="Create the tables in the database.")
def migrate() -> None:
    """Create missing tables, Stagepost's and this application's; safe to repeat."""
    with Dubbing() as dubbing:
        dubbing.migrate()
    click.echo("The tables are up to date.")
