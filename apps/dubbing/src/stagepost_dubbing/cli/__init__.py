"""The `stagepost-dubbing` command."""

from stagepost_dubbing.cli.main import main

__all__ = ["main"]
