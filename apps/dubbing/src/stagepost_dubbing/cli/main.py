"""The root of the `stagepost-dubbing` command, and its exit codes."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import click

from stagepost import StagepostError
from stagepost.errors import BrokerUnavailable, ConfigurationError, SchemaError, StoreUnavailable
from stagepost_dubbing.cli.dub import dub
from stagepost_dubbing.cli.looking import list_, segments, status, watch
from stagepost_dubbing.cli.mending import cancel, edit, retry, save, tts_requeue
from stagepost_dubbing.cli.working import migrate, worker
from stagepost_dubbing.demo.command import demo

__all__ = ["cli", "main"]

HELP = """Dub videos into other languages.

Everything is stored in DUBBING_HOME (a database and a directory of objects) unless DUBBING_DATABASE_URL,
STAGEPOST_TRANSPORT and DUBBING_OBJECTS_URL name servers. Put passwords in these variables, or in files named by the
same variables with the suffix _FILE, never on the command line.

\b
Exit codes: 0 success; 1 the command failed; 2 invalid usage or settings;
            3 the database or the broker cannot be reached; 4 the tables are out of date.
"""


class Group(click.Group):
    """Shows an expected error as one message, and sets the exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StagepostError as error:
            click.echo(f"stagepost-dubbing: {error}".encode(errors="replace").decode(), err=True)
            sys.exit(_code(error))


@click.group(
    name="stagepost-dubbing",
    cls=Group,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version("stagepost-dubbing"), message="stagepost-dubbing %(version)s")
def cli() -> None:
    """Group all commands."""


for command in (dub, demo, worker, status, watch, list_, segments, edit, retry, cancel, tts_requeue, save, migrate):
    cli.add_command(command)


def main() -> None:
    """Run the command with this process's arguments."""
    cli(prog_name="stagepost-dubbing")


def _code(error: StagepostError) -> int:
    match error:
        case ConfigurationError():
            return 2
        case StoreUnavailable() | BrokerUnavailable():
            return 3
        case SchemaError():
            return 4
        case _:
            return 1
