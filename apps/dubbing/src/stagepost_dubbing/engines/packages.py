"""Imports the packages of engines; errors say what to install."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from stagepost.errors import ConfigurationError

__all__ = ["import_engine", "require_package"]


def require_package(module: str, *, extra: str) -> None:
    """Check that a module is installed, without importing it."""
    if importlib.util.find_spec(module) is None:
        raise ConfigurationError(f"{module} is not installed; run: pip install 'stagepost-dubbing[{extra}]'")


def import_engine(module: str, *, extra: str) -> Any:
    """Import a module that may be missing or may not load on this machine."""
    require_package(module.partition(".")[0], extra=extra)
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise ConfigurationError(f"{module} is installed but cannot be loaded: {error}") from error
