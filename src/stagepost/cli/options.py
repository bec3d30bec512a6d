"""Command classes with the common options, and parsers for values that several commands take."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from stagepost.cli.errors import as_failure
from stagepost.cli.invocation import APP_VARIABLE, Invocation
from stagepost.config.settings import CONFIG_VARIABLE

__all__ = ["Command", "Group", "RootGroup", "confirm", "duration", "instant", "job_id"]


class Command(click.Command):
    """A command that also accepts the common options after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options before the common ones."""
        own, common = _own_and_common(self, ctx)
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        with formatter.section("Common options"):
            formatter.write_dl(common)


class Group(click.Group):
    """A group of commands for one kind of thing."""

    command_class = Command


class RootGroup(Group):
    """The `stagepost` command itself; turns every expected error into one message and an exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """List commands in the order in which they were added, the most important ones first."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and close what it opened."""
        invocation = ctx.ensure_object(Invocation)
        ctx.call_on_close(invocation.close)
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            failure = None if invocation.debug else as_failure(error)
            if failure is None:
                raise
            raise failure from error


def common_options() -> list[click.Parameter]:
    """Create the options that every command has; their values are stored in the invocation."""

    def option(
        *names: str, keep: str, text: str, convert: Callable[[Any], Any] = lambda v: v, **more: Any
    ) -> click.Option:
        def store(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
            invocation = ctx.ensure_object(Invocation)
            if value:
                setattr(invocation, keep, convert(value))

        return click.Option(names, callback=store, expose_value=False, help=text, **more)

    return [
        option(
            "--app",
            keep="app_path",
            metavar="MODULE:NAME",
            text=f"Your app, such as myproject.tasks:app. Environment: {APP_VARIABLE}.",
        ),
        option(
            "--database",
            keep="database",
            metavar="URL",
            text="The database. Put a URL with a password in STAGEPOST_DATABASE_URL, or in the file that "
            "STAGEPOST_DATABASE_URL_FILE names, because other users of this machine can read arguments.",
        ),
        option(
            "--config",
            keep="config",
            convert=Path,
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            text=f"Settings as TOML. Environment: {CONFIG_VARIABLE}.",
        ),
        option("--json", keep="as_json", is_flag=True, text="Print JSON. Its keys are stable."),
        option("--debug", keep="debug", is_flag=True, text="Show a traceback with every error."),
    ]


def _own_and_common(command: click.Command, ctx: click.Context) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    common = {name for parameter in common_options() for name in parameter.opts} | {"--help"}
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        # From click 8.5 on, arguments have a record as well, without a text: the usage line shows them.
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            (shared if common & set(parameter.opts) else own).append(record)
    return own, shared


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask before an action that cannot be undone; without a terminal, `--yes` is required."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Without a terminal, confirm with --yes.")
    click.confirm(question, abort=True, err=True)


def job_id(value: str) -> str:
    """Parse a job's id and normalize it to the form that the database stores."""
    try:
        return str(UUID(value))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a job id. An id looks like 01890a5d-ac96-774b-bcce-b302099a8057."
        ) from None


UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str) -> timedelta:
    """Parse a number with a unit; without a unit it means seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration. Write 90, 90s, 15m, 2h or 1d.")
    return timedelta(seconds=float(match[1]) * UNITS[match[2]])


def instant(value: str) -> datetime:
    """Parse an ISO 8601 time, which must have a time zone."""
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time. Write it as 2026-01-31T18:00:00Z.") from None
    if read.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no time zone. Add one: {value}Z for UTC, or {value}+02:00.")
    return read
