"""Arguments that no database can store, or that name nothing, are one message and no traceback, on every database."""

from __future__ import annotations

from itertools import product

from tests.acceptance.cli.command_line import CommandLine

HOSTILE = ["\udcff", "a\0b", "x" * 10_000, "' or 1=1 --", "\N{PILE OF POO}"]
COMMANDS = [
    ("jobs", "list", "--queue"),
    ("jobs", "list", "--task"),
    ("jobs", "list", "--before"),
    ("jobs", "show"),
    ("jobs", "retry"),
    ("jobs", "cancel"),
    ("dead", "show"),
    ("dead", "retry"),
    ("queues", "pause"),
    ("schedules", "run"),
    ("schedules", "remove"),
    ("batches", "show"),
    ("gates", "show"),
    ("runs", "show"),
    ("runs", "retry"),
]


def test_a_hostile_argument_is_one_message(shop_anywhere: CommandLine) -> None:
    for command, value in product(COMMANDS, HOSTILE):
        result = shop_anywhere.run(*command, value)

        assert result.exception is None or isinstance(result.exception, SystemExit), (command, value, result.exception)
        assert "Traceback" not in result.output
