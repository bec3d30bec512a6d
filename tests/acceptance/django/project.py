"""Runs commands of a Django project in processes of their own, because Django can be configured once per process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Project", "database_facts"]

ROOT = Path(__file__).parents[3]
SECONDS = 240
QUICK = {"POLL_SHORTEST_SECONDS": 0.01, "POLL_LONGEST_SECONDS": 0.05}
ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def database_facts(url: str, **more: Any) -> dict[str, Any]:
    """Say where a database is, as an entry of DATABASES."""
    parts = urlsplit(url)
    facts = {
        "ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }
    return {**facts, **more}


@dataclass
class Project:
    """The project in this folder, with databases of its own."""

    databases: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=lambda: dict(QUICK))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.acceptance.django.settings",
            "DJANGO_DATABASES": json.dumps(self.databases),
            "DJANGO_STAGEPOST": json.dumps(self.settings),
            "PYTHONPATH": str(ROOT),
        }

    def command(self, *arguments: str) -> list[str]:
        """The command line of `manage.py`, which this project does without."""
        return [sys.executable, "-W", "error", "-m", "django", *arguments]

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command and return all that it prints."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on; what it prints comes in one stream."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def shell(self, code: str) -> str:
        """Run code with the project set up, and return what it prints."""
        setup = (
            "from stagepost.contrib.django import app\n"
            "from tests.acceptance.django.shop.models import Order\n"
            "from tests.acceptance.django.shop.tasks import *\n"
        )
        return self.run("shell", "--no-imports", "-c", setup + code)
