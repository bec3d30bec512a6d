"""Commands with the options that all of them have, and the types of values that several of them take."""

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
    """A command that takes the common options after its name, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the command's own options first."""
        own, common = _own_and_common(self, ctx)
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        with formatter.section("Common options"):
            formatter.write_dl(common)


class Group(click.Group):
    """Commands about one kind of thing."""

    command_class = Command


class RootGroup(Group):
    """The `stagepost` command itself; every expected error ends here as one message and an exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Keep the order in which commands were added: what is needed first comes first."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
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
    """Make the options that every command has; what they say is kept in the invocation."""

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
            text="The database. A URL with a password is better kept in STAGEPOST_DATABASE_URL, "
            "or in the file that STAGEPOST_DATABASE_URL_FILE names: everyone on this machine can read arguments.",
        ),
        option(
            "--config",
            keep="config",
            convert=Path,
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            text=f"Settings as TOML. Environment: {CONFIG_VARIABLE}.",
        ),
        option("--json", keep="as_json", is_flag=True, text="Print JSON, with keys that stay as they are."),
        option("--debug", keep="debug", is_flag=True, text="Show a traceback with every error."),
    ]


def _own_and_common(command: click.Command, ctx: click.Context) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    common = {name for parameter in common_options() for name in parameter.opts} | {"--help"}
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            (shared if common & set(parameter.opts) else own).append(record)
    return own, shared


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask before something that cannot be taken back; without a terminal, `--yes` is the only answer."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody is there to answer: add --yes to say so.")
    click.confirm(question, abort=True, err=True)


def job_id(value: str) -> str:
    """Read a job's id, as the database writes it."""
    try:
        return str(UUID(value))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no job id. One looks like 01890a5d-ac96-774b-bcce-b302099a8057."
        ) from None


UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str) -> timedelta:
    """Read a number with a unit; seconds if it has none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no duration. Write 90, 90s, 15m, 2h or 1d.")
    return timedelta(seconds=float(match[1]) * UNITS[match[2]])


def instant(value: str) -> datetime:
    """Read an ISO 8601 time with a zone, so that it means the same everywhere."""
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time. Write it as 2026-01-31T18:00:00Z.") from None
    if read.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no time zone. Add one: {value}Z for UTC, or {value}+02:00.")
    return read
