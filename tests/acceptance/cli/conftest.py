"""Fixtures: a project on SQLite, or on each database; a port that refuses."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagepost.config.logging import ATTEMPTS
from stagepost.config.settings import CONFIG_VARIABLE
from stagepost.database.migrate import migrate
from tests.acceptance.cli.command_line import CommandLine, forget_modules_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in; modules imported from it are forgotten, and logging and environment are put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield tmp_path
    os.environ.pop(CONFIG_VARIABLE, None)  # a command with `--config` sets it for the whole process
    forget_modules_in(tmp_path)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger(ATTEMPTS).setLevel(logging.NOTSET)


@pytest.fixture
def shop(folder: Path) -> Iterator[CommandLine]:
    """A project on an empty SQLite file."""
    line = CommandLine(folder, f"sqlite:///{folder}/stagepost.db")
    migrate(line.store)
    yield line
    line.store.close()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def shop_anywhere(request: pytest.FixtureRequest, folder: Path) -> Iterator[CommandLine]:
    """A project on an empty database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{folder}/stagepost.db"
    else:
        url = request.getfixturevalue(f"{request.param}_database")
    line = CommandLine(folder, url)
    migrate(line.store)
    yield line
    line.store.close()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that nobody else can get meanwhile, and that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
