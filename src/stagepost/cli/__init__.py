"""The `stagepost` command."""

from stagepost.cli.main import main

__all__ = ["main"]
