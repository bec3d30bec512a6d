"""Settings and logging."""

from stagepost.config.settings import Settings

__all__ = ["Settings"]
