"""`stagepost asyncapi`: prints the message contract for programs in other languages."""

from __future__ import annotations

import click
import msgspec

from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Command

__all__ = ["asyncapi"]


@click.command(cls=Command, short_help="Print the AsyncAPI document of your app.")
@click.option("--title", default="Stagepost", show_default=True, help="Title of the document.")
@click.option("--version", "version", default="1", show_default=True, help="Version of your contract.")
@click.pass_obj
def asyncapi(invocation: Invocation, *, title: str, version: str) -> None:
    """Print an AsyncAPI 3.0 document, as JSON, that describes every message sent through RabbitMQ.

    It contains channels, operations and messages, with JSON schemas of every task's arguments and result.
    """
    document = invocation.app.asyncapi(title=title, version=version)
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
