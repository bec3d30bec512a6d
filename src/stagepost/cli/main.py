"""The root of the `stagepost` command: its groups of commands, and the options they share."""

from __future__ import annotations

from importlib.metadata import version

import click

from stagepost.cli.asyncapi import asyncapi
from stagepost.cli.batches import batches
from stagepost.cli.bench import bench
from stagepost.cli.dead import dead
from stagepost.cli.demo.command import demo
from stagepost.cli.dev import dev
from stagepost.cli.enqueue import enqueue
from stagepost.cli.events import events
from stagepost.cli.gates import gates
from stagepost.cli.health import health
from stagepost.cli.jobs import jobs
from stagepost.cli.migrate import migrate
from stagepost.cli.options import RootGroup
from stagepost.cli.queues import queues
from stagepost.cli.rabbitmq import rabbitmq
from stagepost.cli.reconcile import reconcile
from stagepost.cli.runs import runs
from stagepost.cli.schedules import schedules
from stagepost.cli.top import top
from stagepost.cli.worker import worker
from stagepost.cli.workers import workers

__all__ = ["cli", "main"]

HELP = """Run, watch and repair durable jobs.

Commands use your app's database, or the one that STAGEPOST_DATABASE_URL, STAGEPOST_DATABASE_URL_FILE or a settings
file names. Commands that only read or change stored data do not need an app.

\b
Exit codes: 0 success; 1 the command failed, or the answer is no; 2 invalid usage or settings;
            3 the database or the broker cannot be reached; 4 the tables are out of date.

To see it work, run: stagepost demo
"""


@click.group(
    name="stagepost",
    cls=RootGroup,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version("stagepost"), message="stagepost %(version)s")
def cli() -> None:
    """Accept the common options before the name of a command."""


for command in (
    worker, dev, enqueue, jobs, dead, queues, schedules, batches, gates, runs, workers, events, top, health, migrate,
    rabbitmq, reconcile, asyncapi, bench, demo,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """Run the command with this process's arguments."""
    cli(prog_name="stagepost")
