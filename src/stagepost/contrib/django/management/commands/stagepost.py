"""`manage.py stagepost …`: the `stagepost` command for the project's app."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from stagepost.cli.invocation import Invocation
from stagepost.cli.main import cli
from stagepost.contrib.django import app

__all__ = ["Command"]

DJANGO_OPTIONS = ("--settings", "--pythonpath")
"""Options of every command of `manage.py`, which Django itself has applied already."""
NEEDS_ALL_TASKS = frozenset({"worker", "dev"})
"""Commands before which Django checks the project; this also imports what its URLs lead to."""


class Command(BaseCommand):
    """Runs the `stagepost` command, which reads its arguments itself."""

    help = "Run, watch and repair the jobs of this project."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run with the arguments of `manage.py stagepost`, and leave the process with the command's exit code."""
        own, django_options = _split(argv[2:])
        if NEEDS_ALL_TASKS & set(own):
            self.check()
        cli(
            args=own,
            prog_name=f"{Path(argv[0]).name} stagepost",
            obj=Invocation(given_app=app, command=[*_program(argv[0]), "stagepost", *django_options]),
        )

    def add_arguments(self, parser: Any) -> None:
        """Accept anything from `call_command`."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, arguments: Sequence[str] = (), **__: Any) -> None:
        """Run from `call_command("stagepost", "jobs", "list")`, without leaving the process."""
        cli(args=list(arguments), prog_name="stagepost", obj=Invocation(given_app=app), standalone_mode=False)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Separate the options of Stagepost from those of Django."""
    own: list[str] = []
    django_options: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*own, argument, *rest], django_options
        if argument in DJANGO_OPTIONS:
            django_options += [argument, next(rest, "")]
        elif argument.partition("=")[0] in DJANGO_OPTIONS:
            django_options.append(argument)
        else:
            own.append(argument)
    return own, django_options


def _program(path: str) -> list[str]:
    """Return the command that started this process: a script such as manage.py, or `python -m`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        return [sys.executable, "-m", spec.name.removesuffix(".__main__")]
    return [sys.executable, str(Path(path).absolute())]
