"""A user's project in a folder, and the command line they type there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from stagepost.cli.main import cli
from stagepost.database import Store

PATIENCE = """
from dataclasses import replace
from stagepost.worker import stop_requests

stop_requests.HURRIED = replace(stop_requests.HURRIED, writing=600.0, total=600.0)
"""
"""Lets a worker that hurries wait for its database, which is slow on a busy machine and never hangs."""
PROJECT = """
import asyncio
from datetime import timedelta
from pathlib import Path

from stagepost import App, Permanent, RetryPolicy

app = App()
NOW = RetryPolicy(max_attempts=2, first_delay=timedelta(0), minimum_delay=timedelta(0), jitter=0)


@app.task
def mail(to: str, copies: int = 1) -> str:
    return f"{copies} to {to}"


@app.task
def refuse(order: int) -> None:
    raise Permanent(f"order {order} has no address")


@app.task(retry=NOW)
def fail(order: int) -> None:
    raise ValueError(f"order {order}: the bridge is down")


@app.task(queue="slow")
async def wait(file: str) -> None:
    while not Path(file).exists():
        await asyncio.sleep(0.01)


app.schedule("nightly", "0 3 * * *", mail.job("the boss"))
"""


class CommandLine:
    """Types commands in a project whose app is `shop:app`, on one database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.store = Store.at(url)
        self.environment = {
            "STAGEPOST_DATABASE_URL": url,
            "STAGEPOST_APP": "shop",
            "STAGEPOST_POLL_SHORTEST_SECONDS": "0.01",
            "STAGEPOST_POLL_LONGEST_SECONDS": "0.05",
            "STAGEPOST_LEASE_SECONDS": "120",
        }
        (folder / "shop.py").write_text(PATIENCE + PROJECT, encoding="utf-8")

    def run(self, *arguments: str, **environment: str | None) -> Result:
        """Run a command in this process; a variable that is None is not set."""
        forget_modules_in(self.folder)  # as another process would
        runner = CliRunner(env={**_nothing_set(), **self.environment, **environment})
        return runner.invoke(cli, list(arguments), prog_name="stagepost")

    def says(self, *arguments: str) -> str:
        """Run a command that must succeed; returns what it says."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed with --json; returns what it says."""
        return json.loads(self.says(*arguments, "--json"))

    def fails(self, code: int, *arguments: str, **environment: str | None) -> str:
        """Run a command that must fail with this exit code and one message; returns the message."""
        result = self.run(*arguments, **environment)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.stderr

    def enqueue(self, task: str, *arguments: str) -> str:
        """Ask for a job; returns its id."""
        job_id: str = self.json("enqueue", task, *arguments)["id"]
        return job_id

    def work(self) -> None:
        """Run all jobs that are due."""
        self.says("worker", "--until-idle", "--log-level", "error")

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Run a command in a separate process."""
        return subprocess.Popen(
            [sys.executable, "-m", "stagepost", *arguments],
            cwd=self.folder,
            env={**{k: v for k, v in os.environ.items() if k not in _nothing_set()}, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )


def forget_modules_in(folder: Path) -> None:
    """Let the next import read a project's files again."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def _nothing_set() -> dict[str, None]:
    """The Stagepost variables in the environment of the test run."""
    return dict.fromkeys(name for name in os.environ if name.startswith("STAGEPOST_") and "TEST" not in name)
